// SPDX-License-Identifier: Apache-2.0
// JSON from strangers: strict (no NaN, Infinity, comments or trailing commas), every key once, shallow and of bounded
// count, so that neither a nested nor a long document can exhaust memory. It gives a document and judges no key.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "fresnel/result.hpp"

namespace fresnel {

using Json = nlohmann::json;

/// Parses one object or array. Refusals name `argument` and, where one key is at fault, `argument.key`.
[[nodiscard]] Result<Json> parse_json(std::string_view text, std::string_view argument);

/// A value for messages: "true", "16.5", "\"top\"", "a list", "an object".
[[nodiscard]] std::string describe_json(const Json& value);

/// The value as an integer of at least 0; nothing for anything else, 16.0 included.
[[nodiscard]] std::optional<std::int64_t> count_of(const Json& value);

}  // namespace fresnel
