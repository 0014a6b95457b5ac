// SPDX-License-Identifier: Apache-2.0
// Habits: what every CPU row must do whatever it computes, each a function of one runner that lists faults. Tests loop
// over habits and runners; another test runs them on rows with a planted mistake, so a habit that cannot fail is found
// out. They are written from the law alone and refuse to know how a kernel works.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/runner.hpp"
#include "support/scenario.hpp"

namespace fresnel::test {

struct Habit {
  std::string_view name;
  void (*check)(const Runner&, Faults&);
};

[[nodiscard]] std::span<const Habit> hidden_value_habits();
[[nodiscard]] std::span<const Habit> layout_habits();
[[nodiscard]] std::span<const Habit> address_habits();
[[nodiscard]] std::span<const Habit> company_habits();
[[nodiscard]] std::span<const Habit> thread_habits();
[[nodiscard]] std::span<const Habit> option_habits();
[[nodiscard]] std::span<const Habit> score_habits();
[[nodiscard]] std::span<const Habit> size_habits();
[[nodiscard]] std::span<const Habit> workspace_habits();
[[nodiscard]] std::span<const Habit> long_row_habits();

/// Runs one habit on one runner; an exception is a fault. "" when there is none.
[[nodiscard]] std::string faults_of(const Habit& habit, const Runner& runner);

/// The lines as problems in every dtype of the runner, those that its domain admits.
[[nodiscard]] std::vector<Problem> problems_for(const Runner& runner, const std::vector<std::string>& lines);

/// Runs `work` in a child process; whether it came back without a crash and without throwing.
[[nodiscard]] bool survives(const std::function<void()>& work);

}  // namespace fresnel::test
