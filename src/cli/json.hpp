// SPDX-License-Identifier: Apache-2.0
// The JSON every command speaks: one document on standard output, keys in the order they were written, numbers in the
// shortest form that reads back, NaN and infinities as the strings "nan", "inf" and "-inf".
#pragma once

#include <nlohmann/json.hpp>

#include "fresnel/check.hpp"
#include "fresnel/result.hpp"

namespace fresnel::cli {

using Json = nlohmann::ordered_json;

[[nodiscard]] Json number(double value);
/// Null where there is no value.
[[nodiscard]] Json number(const std::optional<double>& value);

/// {argument, given, accepted, message}, and kernel and nearest where there are any.
[[nodiscard]] Json to_json(const Refusal& refusal);
/// {count, mismatches, max_error, max_share, at, mismatches_probable, max_share_probable}; `rank` indices in `at`, null
/// where there was no element.
[[nodiscard]] Json to_json(const Judgement& judgement, int rank);
/// {ok, outputs: {o, lse}}.
[[nodiscard]] Json to_json(const Verdict& verdict);

/// Prints the document on standard output.
void emit(const Json& document);

}  // namespace fresnel::cli
