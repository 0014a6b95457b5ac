// SPDX-License-Identifier: Apache-2.0
// A verdict as a table for people.
#pragma once

#include <optional>
#include <string>

#include "cli/print.hpp"
#include "fresnel/check.hpp"

namespace fresnel::cli {

/// One line per output: how many values, how many beyond their budget, the largest error and where it is, and beside
/// the worst-case budget the share of the probabilistic one, which is reported and not judged.
[[nodiscard]] std::string verdict_table(const Verdict& verdict, const Paint& paint);

/// "o 12%, lse 3% of the budget", or "beyond the budget 1 of 72,000 in o, worst at [0, 1, 2, 3], 5 in lse": one line
/// for whatever was judged.
[[nodiscard]] std::string verdict_line(const Verdict& verdict);

}  // namespace fresnel::cli
