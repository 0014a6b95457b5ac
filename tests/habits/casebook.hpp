// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the casebook: tiny inputs with answers that were worked out by hand, written as rows of
// numbers. A row is reported with the value it should have; the oracle is asked about every one of them too.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "habits/habits.hpp"

namespace fresnel::test {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

/// How far a stated value may lie from ours: seven digits are stated, halves keep fewer.
inline double tolerance_of(DType dtype, double value) {
  const double digits = dtype == DType::bf16 ? 0x1p-7 : dtype == DType::f16 ? 0x1p-10 : 2e-6;
  return digits * std::max(1.0, std::abs(value));
}

/// q = k = 0 and v given by key and column.
template <class Value>
Scenario with_zero_scores(const Problem& problem, const Value& value) {
  Scenario scenario(problem, 1);
  scenario.q.fill([](const Index&) { return 0.0; });
  scenario.k.fill([](const Index&) { return 0.0; });
  scenario.v.fill([&](const Index& at) { return value(at[2], at[3]); });
  return scenario;
}

inline void expect_near(double given, double right, DType dtype, const std::string& what, Faults& faults) {
  const bool same = given == right || std::abs(given - right) <= tolerance_of(dtype, right);
  faults.expect(same, fmt::format("{} is {}, right is {}", what, given, right));
}

/// Runs, judges, and compares column 0 of o and lse of every (batch, head) with the stated rows.
inline Answer expect_rows(const Runner& runner, const Scenario& scenario, const std::vector<double>& o,
                          const std::vector<double>& lse, Faults& faults) {
  const Answer answer = compute_and_judge(runner, scenario);
  const Problem& problem = scenario.problem;
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.heads_q; ++h)
      for (std::int64_t i = 0; i < problem.queries; ++i) {
        const auto row = static_cast<std::size_t>(i);
        const std::string where = fmt::format("{}: row [{}, {}, {}]", print(problem), b, h, i);
        if (row < o.size()) expect_near(answer.o.get({b, h, i, 0}), o[row], problem.dtype, "o of " + where, faults);
        if (row < lse.size())
          expect_near(answer.lse->get({b, h, i}), lse[row], problem.dtype, "lse of " + where, faults);
      }
  return answer;
}

/// The rows of the casebook, by file.
[[nodiscard]] std::span<const Habit> casebook_mask_rows();
[[nodiscard]] std::span<const Habit> casebook_number_rows();
[[nodiscard]] std::span<const Habit> casebook_shape_rows();
[[nodiscard]] std::span<const Habit> casebook_serving_rows();

}  // namespace fresnel::test
