// SPDX-License-Identifier: Apache-2.0
// The commands, one file each. A command reads its words, does its work, prints its result and returns the exit code;
// a refusal is returned unprinted.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fresnel/result.hpp"

namespace fresnel::cli {

using Words = std::vector<std::string>;

[[nodiscard]] Result<int> attend_command(const Words& words);
[[nodiscard]] Result<int> check_command(const Words& words);
[[nodiscard]] Result<int> count_command(const Words& words);
[[nodiscard]] Result<int> overflow_command(const Words& words);
[[nodiscard]] Result<int> time_command(const Words& words);
[[nodiscard]] Result<int> report_command(const Words& words);
[[nodiscard]] Result<int> kernels_command(const Words& words);
[[nodiscard]] Result<int> explain_command(const Words& words);
[[nodiscard]] Result<int> machine_command(const Words& words);
[[nodiscard]] Result<int> record_command(const Words& words);
[[nodiscard]] Result<int> audit_command(const Words& words);

}  // namespace fresnel::cli
