// SPDX-License-Identifier: Apache-2.0
// Every option acts: each one on against off changes the answer, and every set of options together gives what the
// textbook gives, in the one order that is right (scale, softcap, ALiBi, mask, softmax).
#include <fmt/format.h>

#include <cmath>

#include "habits/habits.hpp"

namespace fresnel::test {
namespace {

/// A pair of lines that differ in one option, and whether o itself must differ (lse always must, or o).
struct Toggle {
  const char* off;
  const char* on;
};
constexpr Toggle toggles[] = {
    {"b2 h4/2 q7 k13 d16 f32", "b2 h4/2 q7 k13 d16 f32 causal"},
    {"b2 h4/2 q7 k13 d16 f32 causal", "b2 h4/2 q7 k13 d16 f32 causal topleft"},
    {"b2 h4/2 q7 k13 d16 f32", "b2 h4/2 q7 k13 d16 f32 w2,-"},
    {"b2 h4/2 q7 k13 d16 f32", "b2 h4/2 q7 k13 d16 f32 w0,-"},
    {"b2 h4/2 q7 k13 d16 f32", "b2 h4/2 q7 k13 d16 f32 w-,2"},
    {"b2 h4/2 q7 k13 d16 f32", "b2 h4/2 q7 k13 d16 f32 w-,0"},
    {"b2 h4/2 q7 k13 d16 f32 w2,2", "b2 h4/2 q7 k13 d16 f32 topleft w2,2"},
    {"b2 h4/2 q7 k13 d16 f32", "b2 h4/2 q7 k13 d16 f32 cap5"},
    {"b2 h4/2 q7 k13 d16 f32 cap5", "b2 h4/2 q7 k13 d16 f32 cap1"},
    {"b2 h4/2 q7 k13 d16 f32", "b2 h4/2 q7 k13 d16 f32 scale1"},
    {"b2 h4/2 q7 k13 d16 f32 scale1", "b2 h4/2 q7 k13 d16 f32 scale-1"},
    {"b2 h4/2 q7 k13 d16 f32 scale1", "b2 h4/2 q7 k13 d16 f32 scale0"},
    {"b2 h4/2 q7 k13 d16 f32", "b2 h4/2 q7 k13 d16 f32 alibi"},
    {"b2 h4/2 q7 k13 d16 f32 alibi", "b2 h4/2 q7 k13 d16 f32 alibi:distance"},
    {"b2 h4/2 q7 k13 d16 f32 topleft alibi", "b2 h4/2 q7 k13 d16 f32 topleft alibi:distance"},
    {"b2 h4/2 q7 k13 d16 f32 alibi", "b2 h4/2 q7 k13 d16 f32 alibi:batch"},
    {"b2 h4/2 q7 k13 d16 f32", "b2 h4/2 q7 k13 d16 f32 lens"},
};

Scenario filled(const Problem& problem) {
  Scenario scenario(problem, 17);
  if (problem.seqlens_k) scenario.set_lengths({problem.keys - 2, problem.keys - 5});
  return scenario;
}

void each_option_changes_the_answer(const Runner& runner, Faults& faults) {
  for (const Toggle& toggle : toggles) {
    const std::vector<Problem> off = problems_for(runner, {toggle.off}), on = problems_for(runner, {toggle.on});
    for (std::size_t index = 0; index < std::min(off.size(), on.size()); ++index) {
      const Answer without = compute_and_judge(runner, filled(off[index]));
      const Answer with = compute_and_judge(runner, filled(on[index]));
      faults.expect(!difference(with, without).empty(),
                    fmt::format("{} gives the bits of {}", print(on[index]), print(off[index])));
    }
  }
}

/// Every subset of the options the domain has, as problem lines.
std::vector<Problem> all_option_sets(const Runner& runner) {
  std::vector<Problem> problems;
  for (const char* causal : {"", " causal"})
    for (const char* aligned : {"", " topleft"})
      for (const char* window : {"", " w4,-", " w-,1", " w3,2"})
        for (const char* cap : {"", " cap2"})
          for (const char* scale : {"", " scale-0.5", " scale0"})
            for (const char* alibi : {"", " alibi", " alibi:distance:batch"})
              for (const char* lens : {"", " lens"}) {
                Problem problem = problem_of(fmt::format("b2 h4/2 q6 k11 d8/5 f32{}{}{}{}{}{}{}", causal, aligned,
                                                         window, cap, scale, alibi, lens));
                if (admits(runner.domain(), problem)) problems.push_back(problem);
              }
  return problems;
}

void every_set_of_options_agrees_with_the_textbook(const Runner& runner, Faults& faults) {
  for (const Problem& problem : all_option_sets(runner)) {
    const Scenario scenario = filled(problem);
    const Answer answer = compute_and_judge(runner, scenario);
    const Textbook truth = textbook(scenario);
    // |v| < 1 and scores below 30 in float32: both errors stay near 1e-5; any wrong option moves values by far more.
    constexpr double tolerance = 1e-4;
    std::size_t place = 0;
    answer.o.for_each_index([&](const Index& at) {
      faults.expect(std::abs(answer.o.get(at) - truth.o[place]) <= tolerance,
                    fmt::format("{}: o{} is {}, the textbook says {}", print(problem), print(at), answer.o.get(at),
                                truth.o[place]));
      ++place;
    });
    place = 0;
    answer.lse->for_each_index([&](const Index& at) {
      const double given = answer.lse->get(at), right = truth.lse[place++];
      faults.expect(given == right || std::abs(given - right) <= tolerance,
                    fmt::format("{}: lse{} is {}, the textbook says {}", print(problem), print(at), given, right));
    });
  }
}

constexpr Habit habits[] = {
    {"each_option_changes_the_answer", each_option_changes_the_answer},
    {"every_set_of_options_agrees_with_the_textbook", every_set_of_options_agrees_with_the_textbook},
};

}  // namespace

std::span<const Habit> option_habits() { return habits; }

}  // namespace fresnel::test
