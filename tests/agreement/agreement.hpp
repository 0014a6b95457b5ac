// SPDX-License-Identifier: Apache-2.0
// THE agreement test, as habits: every row of the catalogue, on every instruction set, is right wherever its domain
// says it is and refuses by name one step outside. A failing case is printed as one line that can be pasted into a
// shell.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "habits/habits.hpp"

namespace fresnel::test {

[[nodiscard]] std::span<const Habit> agreement_habits();

/// Makes the inputs from the seed, runs, checks guards and judges. "" when all is well or when the kind of inputs
/// cannot be made for the problem's dtype; else a command line that repeats the case, and what went wrong.
[[nodiscard]] std::string disagreement(const Runner& runner, const Problem& problem, std::string_view kind,
                                       std::uint64_t seed);

}  // namespace fresnel::test
