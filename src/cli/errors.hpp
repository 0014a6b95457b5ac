// SPDX-License-Identifier: Apache-2.0
// How a "no" leaves the program: one sentence on standard error and an exit code, or one JSON document on standard
// output. Commands return refusals; only main turns them into output, so that no command prints half a result first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fresnel/result.hpp"

namespace fresnel::cli {

/// What the process returns.
enum Exit : int {
  exit_right = 0,    ///< done, and right where it was judged
  exit_wrong = 1,    ///< a result was judged wrong
  exit_refused = 2,  ///< bad input, usage, unknown kernel, or every row refuses
  exit_failed = 3,   ///< a device is absent or failed, memory ran out, a file could not be written
};

[[nodiscard]] int exit_code(const Refusal& refusal);

/// Prints the refusal (standard error, or a JSON document on standard output) and returns the exit code.
int report(const Refusal& refusal, bool json);

/// The known word that is nearest to what was typed; empty when nothing is near enough to be what was meant.
[[nodiscard]] std::string nearest_word(std::string_view typed, const std::vector<std::string>& known);

/// A usage refusal.
[[nodiscard]] Refusal refuse(std::string argument, std::string given, std::string accepted, std::string nearest = {});

/// The same words, separated by ", ".
[[nodiscard]] std::string joined(const std::vector<std::string>& words);

}  // namespace fresnel::cli
