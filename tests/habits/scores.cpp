// SPDX-License-Identifier: Apache-2.0
// Scores and values with known answers: levels far from zero, one signal in the last component, values that name their
// head. The answers are written down here; the oracle is asked as well.
#include <fmt/format.h>

#include <cmath>

#include "habits/habits.hpp"
#include "support/sampling.hpp"

namespace fresnel::test {
namespace {

/// A constant component of q and k moves all scores of a row: lse moves with them, o stays.
void shifted_scores_are_ordinary_scores(const Runner& runner, Faults& faults) {
  constexpr double scale = 0.25, level = 64;
  for (const Problem& problem :
       problems_for(runner, {"b1 h2 q9 k70 d16 f32 scale0.25", "b2 h2/1 q5 k33 d33 f32 causal scale0.25",
                             "b1 h1 q1 k300 d64 f32 scale0.25"})) {
    Scenario plain(problem, 18);
    plain.q.fill([&, old = plain.q](const Index& at) { return at[3] == 0 ? level : old.get(at); });
    plain.k.fill([&, old = plain.k](const Index& at) { return at[3] == 0 ? 0.0 : old.get(at); });
    const Answer expected = compute_and_judge(runner, plain);
    for (const double shift : {-1e5, -128.0, 1e4}) {
      Scenario scenario = plain;
      const double component = rounded(problem.dtype, shift / (scale * level));
      scenario.k.fill([&](const Index& at) { return at[3] == 0 ? component : plain.k.get(at); });
      const Answer answer = compute_and_judge(runner, scenario);
      // One unit in the last place of a float32 score near 1e5 is 2^-7, and a row may lose a few of them.
      const double tolerance = problem.dtype == DType::f64 ? 1e-6 : 0.1;
      answer.o.for_each_index([&](const Index& at) {
        faults.expect(std::abs(answer.o.get(at) - expected.o.get(at)) <= tolerance,
                      fmt::format("{}: shift {}: o{} is {} and was {}", print(problem), shift, print(at),
                                  answer.o.get(at), expected.o.get(at)));
      });
      answer.lse->for_each_index([&](const Index& at) {
        const double moved = answer.lse->get(at) - expected.lse->get(at);
        const bool empty = std::isinf(expected.lse->get(at)) && answer.lse->get(at) == expected.lse->get(at);
        faults.expect(empty || std::abs(moved - scale * level * component) <= tolerance,
                      fmt::format("{}: shift {}: lse{} moved by {}", print(problem), shift, print(at), moved));
      });
    }
  }
}

void values_name_their_head(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b3 h12/4 q5 k9 d8 f32", "b2 h12/1 q3 k70 d64 f32",
                                                      "b2 h40/5 q1 k3 d16 f32", "b2 h5 q9 k17 d16/24 f32 bshd"})) {
    Scenario scenario(problem, 19);
    const auto label = [&](std::int64_t b, std::int64_t kv) {
      return static_cast<double>(1 + b * problem.heads_kv + kv);
    };
    scenario.v.fill([&](const Index& at) { return label(at[0], at[1]); });
    const Answer answer = compute_and_judge(runner, scenario);
    answer.o.for_each_index([&](const Index& at) {
      const double right = label(at[0], at[1] / (problem.heads_q / problem.heads_kv));
      faults.expect(
          std::abs(answer.o.get(at) - right) < 0.25,
          fmt::format("{}: o{} is {}, its kv head holds {}", print(problem), print(at), answer.o.get(at), right));
    });
  }
}

/// All of q and k is 0 but the last component, which singles out one key.
void the_last_component_of_a_head_counts(const Runner& runner, Faults& faults) {
  for (const std::int64_t width : values_inside(runner.domain().head_dim, {head_dims.begin(), head_dims.end()}, 1024)) {
    for (const Problem& shape : problems_for(runner, {fmt::format("b1 h1 q3 k20 d{}/8 f32 scale1", width)})) {
      constexpr std::int64_t chosen = 13;
      Scenario scenario(shape, 20);
      scenario.q.fill([&](const Index& at) { return at[3] == width - 1 ? 30.0 : 0.0; });
      scenario.k.fill([&](const Index& at) { return at[3] == width - 1 && at[2] == chosen ? 1.0 : 0.0; });
      scenario.v.fill([&](const Index& at) { return static_cast<double>(at[2] + at[3]); });
      const Answer answer = compute_and_judge(runner, scenario);
      answer.o.for_each_index([&](const Index& at) {
        faults.expect(
            std::abs(answer.o.get(at) - static_cast<double>(chosen + at[3])) < 0.25,
            fmt::format("{}: o{} is {}, key {} should win", print(shape), print(at), answer.o.get(at), chosen));
      });
    }
  }
}

void the_last_component_of_a_value_counts(const Runner& runner, Faults& faults) {
  for (const std::int64_t width :
       values_inside(runner.domain().value_dim, {head_dims.begin(), head_dims.end()}, 1024)) {
    for (const Problem& shape : problems_for(runner, {fmt::format("b1 h1 q3 k20 d8/{} f32", width)})) {
      Scenario scenario(shape, 21);
      scenario.v.fill([&](const Index& at) { return at[3] == width - 1 ? 5.0 : 0.0; });
      const Answer answer = compute_and_judge(runner, scenario);
      answer.o.for_each_index([&](const Index& at) {
        faults.expect(std::abs(answer.o.get(at) - (at[3] == width - 1 ? 5.0 : 0.0)) < 0.05,
                      fmt::format("{}: o{} is {}", print(shape), print(at), answer.o.get(at)));
      });
    }
  }
}

/// The running maximum rises at every key, at every tile's last key, never: the three ways to spoil an online softmax.
void a_rising_maximum_spoils_nothing(const Runner& runner, Faults&) {
  for (const Problem& problem :
       problems_for(runner, {"b1 h1 q9 k300 d8 f32 scale1", "b1 h1 q9 k300 d64 f32 causal scale1"})) {
    for (int pattern = 0; pattern < 3; ++pattern) {
      Scenario scenario(problem, 22);
      scenario.q.fill([&](const Index& at) { return at[3] == 0 ? 1.0 : 0.0; });
      scenario.k.fill([&](const Index& at) {
        const auto j = static_cast<double>(at[2]);
        const double score = pattern == 0 ? j / 8 : pattern == 1 ? -j / 8 : at[2] % 16 == 15 ? j / 4 : -20.0;
        return at[3] == 0 ? score : 0.0;
      });
      (void)compute_and_judge(runner, scenario);
    }
  }
}

constexpr Habit habits[] = {
    {"shifted_scores_are_ordinary_scores", shifted_scores_are_ordinary_scores},
    {"values_name_their_head", values_name_their_head},
    {"the_last_component_of_a_head_counts", the_last_component_of_a_head_counts},
    {"the_last_component_of_a_value_counts", the_last_component_of_a_value_counts},
    {"a_rising_maximum_spoils_nothing", a_rising_maximum_spoils_nothing},
};

}  // namespace

std::span<const Habit> score_habits() { return habits; }

}  // namespace fresnel::test
