// SPDX-License-Identifier: Apache-2.0
// Hidden keys do not exist. Dead keys may hold anything and no bit changes; a key that some rows see holds NaN or Inf
// for exactly those rows; a NaN that is seen is never hidden. Equal bits are demanded, not small differences.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "habits/habits.hpp"

namespace fresnel::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> junk_of(DType dtype) {
  const double large = dtype == DType::f16 ? 6e4 : 1e30;
  return {0.0, nan, infinity, -infinity, large, -large};
}

/// Lengths that leave dead keys before and after, none at all, and a sequence without keys.
void shorten(Scenario& scenario) {
  if (!scenario.problem.seqlens_k) return;
  std::vector<std::int64_t> lengths;
  for (std::int64_t b = 0; b < scenario.problem.batch; ++b)
    lengths.push_back(b == 0 ? scenario.problem.keys / 2 + 1 : b == 1 ? 0 : scenario.problem.keys);
  scenario.set_lengths(lengths);
}

const std::vector<std::string> lines_with_dead_keys{
    "b3 h4/2 q5 k40 d8 f32 lens",
    "b3 h2 q6 k70 d33/20 f32 causal lens",
    "b2 h2 q9 k33 d16 f32 causal topleft",
    "b1 h2 q7 k70 d64 f32 w3,-",
    "b1 h2/1 q6 k90 d64 f32 topleft w-,2 cap5",
    "b3 h2 q1 k130 d64 f32 causal cap5 alibi lens",
    "b1 h1 q4 k300 d40 f32 w20,0 alibi:distance",
    "b3 h2/1 q3 k19 d128 f32 lens bshd",
    "b2 h1 q40 k330 d96 f32 causal w100,- lens",
};

void overwrite(Scenario& scenario, HostTensor Scenario::*tensor, double junk) {
  HostTensor& target = scenario.*tensor;
  target.for_each_index([&](const Index& at) {
    if (scenario.dead(at[0], at[2])) target.set(at, junk);
  });
}

void dead_keys_change_no_bit(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, lines_with_dead_keys)) {
    Scenario clean(problem, 3);
    shorten(clean);
    const Answer expected = compute_and_judge(runner, clean);
    for (const double junk : junk_of(problem.dtype)) {
      for (const auto& poisoned : {std::vector{&Scenario::k}, {&Scenario::v}, {&Scenario::k, &Scenario::v}}) {
        Scenario scenario = clean;
        for (const auto tensor : poisoned) overwrite(scenario, tensor, junk);
        const std::string fault = difference(compute(runner, scenario), expected);
        faults.expect(fault.empty(), fmt::format("dead keys hold {}: {}", junk, fault));
      }
    }
  }
}

const std::vector<std::string> lines_with_partly_hidden_keys{
    "b2 h4/2 q9 k21 d8 f32 causal",
    "b1 h2/1 q20 k20 d16 f32 causal topleft",
    "b2 h2 q17 k40 d33/20 f32 w4,2",
    "b1 h4/2 q12 k150 d64 f32 causal w30,- cap5",
    "b2 h2 q5 k70 d8/24 f32 causal alibi lens",
    "b1 h2 q70 k70 d24 f32 causal w9,0",
    "b1 h1 q40 k330 d80 f32 causal w100,-",
};

/// Keys to poison: the first and last ones, and both sides of the widths that tiles and vectors have.
std::vector<std::int64_t> keys_to_poison(const Problem& problem) {
  std::vector<std::int64_t> keys;
  for (const std::int64_t key : {std::int64_t{0}, std::int64_t{7}, std::int64_t{16}, std::int64_t{63}, std::int64_t{64},
                                 problem.keys - 60, problem.keys - 2, problem.keys - 1})
    if (key < problem.keys && (keys.empty() || key > keys.back())) keys.push_back(key);
  return keys;
}

/// One key of one kv head goes bad. Rows that do not see it, and rows of other groups, keep every bit; NaN reaches the
/// others (in `v` only in the poisoned column); and the whole answer is still right by the oracle.
void poison_one_key(const Runner& runner, const Scenario& clean, const Answer& expected, HostTensor Scenario::*tensor,
                    std::int64_t key, double junk, Faults& faults) {
  Scenario scenario = clean;
  const Problem& problem = scenario.problem;
  const std::int64_t poisoned_head = problem.heads_kv - 1;
  const std::int64_t column = (scenario.*tensor).size(3) - 1;
  for (std::int64_t b = 0; b < problem.batch; ++b) (scenario.*tensor).set({b, poisoned_head, key, column}, junk);
  Answer answer = compute(runner, scenario);
  const bool in_values = tensor == &Scenario::v;
  answer.o.for_each_index([&](const Index& at) {
    const auto [b, h, i, d] = at;
    const bool reaches = scenario.kv_head(h) == poisoned_head && scenario.sees(b, i, key);
    if (!reaches && d == 0)
      faults.expect(same_row(answer, b, h, i, expected, b, h, i),
                    fmt::format("{}: {} in key {} of {} changed row {}, which does not see it", print(problem), junk,
                                key, in_values ? "v" : "k", print(at)));
    if (reaches && std::isnan(junk) && (!in_values || d == column))
      faults.expect(!std::isfinite(answer.o.get(at)),
                    fmt::format("{}: NaN in key {} of {} did not reach {}", print(problem), key, in_values ? "v" : "k",
                                print(at)));
  });
  const std::string fault = judged(runner, answer.plan, scenario.inputs(), answer.outputs());
  faults.expect(fault.empty(), fmt::format("{} in key {} of {}: {}", junk, key, in_values ? "v" : "k", fault));
}

void bad_keys_reach_only_rows_that_see_them(const Runner& runner, Faults& faults) {
  if (!runner.domain().isolates_hidden_values) return;
  for (const Problem& problem : problems_for(runner, lines_with_partly_hidden_keys)) {
    Scenario clean(problem, 4);
    if (problem.seqlens_k) clean.set_lengths({problem.keys, problem.keys - 6});
    const Answer expected = compute_and_judge(runner, clean);
    for (const std::int64_t key : keys_to_poison(problem))
      for (const double junk : junk_of(problem.dtype))
        for (const auto tensor : {&Scenario::k, &Scenario::v})
          poison_one_key(runner, clean, expected, tensor, key, junk, faults);
  }
}

/// Every value of the keys, not one of them, is bad: no path that looks at a sample of a tile may pass this.
void whole_bad_keys_stay_hidden(const Runner& runner, Faults& faults) {
  if (!runner.domain().isolates_hidden_values) return;
  for (const Problem& problem :
       problems_for(runner, {"b1 h2 q40 k80 d64 f32 causal", "b1 h2/1 q33 k33 d8 f32 causal"})) {
    Scenario clean(problem, 5);
    const Answer expected = compute(runner, clean);
    for (const double junk : junk_of(problem.dtype)) {
      Scenario scenario = clean;
      const std::int64_t first_bad = problem.keys - 9;
      for (const auto tensor : {&Scenario::k, &Scenario::v})
        (scenario.*tensor).for_each_index([&](const Index& at) {
          if (at[2] >= first_bad) (scenario.*tensor).set(at, junk);
        });
      const Answer answer = compute(runner, scenario);
      for (std::int64_t h = 0; h < problem.heads_q; ++h)
        for (std::int64_t i = 0; i < problem.queries - 9; ++i)
          faults.expect(
              same_row(answer, 0, h, i, expected, 0, h, i),
              fmt::format("{}: keys from {} hold {}; head {} row {} changed", print(problem), first_bad, junk, h, i));
    }
  }
}

void bad_queries_stay_in_their_rows(const Runner& runner, Faults& faults) {
  for (const Problem& problem :
       problems_for(runner, {"b2 h4/2 q11 k21 d8 f32", "b1 h2 q70 k70 d64 f32 causal", "b1 h2/1 q3 k5 d33 f32 cap5"})) {
    Scenario clean(problem, 6);
    const Answer expected = compute(runner, clean);
    for (const double junk : {nan, infinity}) {
      Scenario scenario = clean;
      const Index bad{problem.batch - 1, 1, problem.queries / 2, problem.head_dim - 1};
      scenario.q.set(bad, junk);
      Answer answer = compute(runner, scenario);
      answer.o.for_each_index([&](const Index& at) {
        const bool own = at[0] == bad[0] && at[1] == bad[1] && at[2] == bad[2];
        if (!own && at[3] == 0)
          faults.expect(same_row(answer, at[0], at[1], at[2], expected, at[0], at[1], at[2]),
                        fmt::format("{}: {} in query {} changed row {}", print(problem), junk, print(bad), print(at)));
        if (own && std::isnan(junk))
          faults.expect(!std::isfinite(answer.o.get(at)),
                        fmt::format("{}: NaN in query {} is gone at {}", print(problem), print(bad), print(at)));
      });
      const std::string fault = judged(runner, answer.plan, scenario.inputs(), answer.outputs());
      faults.expect(fault.empty(), fault);
    }
  }
}

constexpr Habit habits[] = {
    {"dead_keys_change_no_bit", dead_keys_change_no_bit},
    {"bad_keys_reach_only_rows_that_see_them", bad_keys_reach_only_rows_that_see_them},
    {"whole_bad_keys_stay_hidden", whole_bad_keys_stay_hidden},
    {"bad_queries_stay_in_their_rows", bad_queries_stay_in_their_rows},
};

}  // namespace

std::span<const Habit> hidden_value_habits() { return habits; }

}  // namespace fresnel::test
