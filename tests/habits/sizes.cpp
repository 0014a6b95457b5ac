// SPDX-License-Identifier: Apache-2.0
// Sizes at the ends: nothing at all on any axis, rows that see nothing, one of everything, and more batch x heads than
// sixteen bits count.
#include <fmt/format.h>

#include <cmath>

#include "habits/habits.hpp"

namespace fresnel::test {
namespace {

void expect_zero_rows(const Scenario& scenario, const Answer& answer, Faults& faults) {
  answer.o.for_each_index([&](const Index& at) {
    const auto [b, h, i, d] = at;
    bool any = false;
    for (std::int64_t j = 0; j < scenario.problem.keys && !any; ++j) any = scenario.sees(b, i, j);
    if (any) return;
    faults.expect(answer.o.get(at) == 0, fmt::format("{}: o{} is {}, its row sees nothing", print(scenario.problem),
                                                     print(at), answer.o.get(at)));
    if (answer.lse && d == 0) {
      const double lse = answer.lse->get({b, h, i});
      faults.expect(std::isinf(lse) && lse < 0,
                    fmt::format("{}: lse{} is {}, its row sees nothing", print(scenario.problem), print(at), lse));
    }
  });
}

void empty_extents_give_empty_or_zero(const Runner& runner, Faults& faults) {
  for (const char* options : {"", " causal", " w2,1 cap5", " causal topleft alibi lens", " nolse"}) {
    for (int empty = 1; empty < 16; ++empty) {
      const auto extent = [&](int bit, int otherwise) { return (empty >> bit) & 1 ? 0 : otherwise; };
      const int heads = extent(1, 4);
      const std::string shape = fmt::format("b{} h{} q{} k{} d16/8 f32{}", extent(0, 2), heads ? "4/2" : "0",
                                            extent(2, 3), extent(3, 5), options);
      for (const Problem& problem : problems_for(runner, {shape})) {
        const Scenario scenario(problem, 23);
        const Answer answer = compute_and_judge(runner, scenario);
        expect_zero_rows(scenario, answer, faults);
      }
    }
  }
}

/// Tensors without elements may point nowhere.
void empty_tensors_may_point_nowhere(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b2 h2 q3 k0 d8 f32 causal"})) {
    const Scenario scenario(problem, 24);
    const Answer expected = compute(runner, scenario);
    Inputs inputs = scenario.inputs();
    inputs.k.data = inputs.v.data = nullptr;
    Answer answer = expected;
    answer.o.fill([](const Index&) { return 9.0; });
    run_guarded(runner, expected.plan, inputs, answer.outputs(), {});
    const std::string fault = difference(answer, expected);
    faults.expect(fault.empty(), fault);
  }
}

void rows_that_see_nothing_are_zero(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(
           runner, {"b1 h2 q40 k7 d16 f32 causal", "b1 h2/1 q70 k9 d8 f32 causal cap5", "b2 h2 q9 k80 d33 f32 lens",
                    "b1 h1 q90 k20 d64 f32 topleft w3,-", "b2 h2 q20 k30 d8 f32 causal alibi lens bshd",
                    "b1 h1 q9 k5 d16 f32 w0,0", "b1 h1 q300 k2 d16 f32 causal w1,-"})) {
    Scenario scenario(problem, 25);
    if (problem.seqlens_k) scenario.set_lengths({0, 3});
    const Answer answer = compute_and_judge(runner, scenario);
    expect_zero_rows(scenario, answer, faults);
  }
}

void every_tiny_size_is_right(const Runner& runner, Faults& faults) {
  for (int queries = 1; queries <= 4; ++queries)
    for (int keys = 1; keys <= 4; ++keys)
      for (int width = 1; width <= 3; ++width)
        for (const char* options : {"", " causal", " w1,0"}) {
          const std::string line = fmt::format("b1 h1 q{} k{} d{}/{} f32{}", queries, keys, width, 4 - width, options);
          for (const Problem& problem : problems_for(runner, {line})) {
            const Scenario scenario(problem, 26);
            expect_zero_rows(scenario, compute_and_judge(runner, scenario), faults);
          }
        }
}

/// Launch grids and 16-bit counters end at 65,535; the last head must be as right as the first.
void seventy_thousand_heads_are_all_right(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(
           runner, {"b70000 h1 q1 k2 d8 f32", "b1 h70000/1 q1 k2 d8 f32", "b7 h10000/5000 q2 k1 d1 f32 causal bshd"})) {
    if (problem.dtype != DType::f32) continue;  // what is counted is the same in every dtype
    const Scenario scenario(problem, 27);
    const Answer answer = compute_and_judge(runner, scenario, {3, nullptr});
    faults.expect(answer.o.size(0) * answer.o.size(1) == 70000, "not 70,000 heads");
  }
}

constexpr Habit habits[] = {
    {"empty_extents_give_empty_or_zero", empty_extents_give_empty_or_zero},
    {"empty_tensors_may_point_nowhere", empty_tensors_may_point_nowhere},
    {"rows_that_see_nothing_are_zero", rows_that_see_nothing_are_zero},
    {"every_tiny_size_is_right", every_tiny_size_is_right},
    {"seventy_thousand_heads_are_all_right", seventy_thousand_heads_are_all_right},
};

}  // namespace

std::span<const Habit> size_habits() { return habits; }

}  // namespace fresnel::test
