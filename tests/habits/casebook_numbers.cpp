// SPDX-License-Identifier: Apache-2.0
// Casebook, numbers: overflow of halves, odd scales, the natural logarithm, slopes, softcap. Answers worked out by
// hand.
#include "habits/casebook.hpp"
#include "support/scenario.hpp"

namespace fresnel::test {
namespace {

const double ln2 = std::log(2.0), ln3 = std::log(3.0);

double own_index(std::int64_t key, std::int64_t) { return static_cast<double>(key); }

/// All scores -120: exp(-lse) would be 1e50 and is never formed.
void row34(const Runner& runner, Faults& faults) {
  for (const int keys : {128, 126})
    for (const Problem& problem : problems_for(runner, {fmt::format("b1 h1 q3 k{} d64 f32", keys)})) {
      Scenario scenario(problem, 1);
      scenario.q.fill([](const Index& at) { return at[3] == 0 ? 1.0 : 0.0; });
      scenario.k.fill([](const Index& at) { return at[3] == 0 ? -960.0 : 0.0; });
      scenario.v.fill([](const Index& at) { return at[2] % 2 == 0 ? 1.0 : 3.0; });
      expect_rows(runner, scenario, {2, 2, 2}, std::vector(3, -120 + std::log(static_cast<double>(keys))), faults);
    }
}

/// The sum of P V passes the largest half long before it is divided.
void row37(const Runner& runner, Faults& faults) {
  for (const int keys : {8, 33000})
    for (const Problem& problem : problems_for(runner, {fmt::format("b1 h1 q1 k{} d1 f32", keys)})) {
      const Scenario scenario = with_zero_scores(problem, [](std::int64_t, std::int64_t) { return 60000.0; });
      const Answer answer = compute_and_judge(runner, scenario);
      expect_near(answer.o.get({}), 60000.0, problem.dtype, print(problem), faults);
    }
}

/// q . k is 2^23 and the scaled score 741,455: far beyond a half, and equal for all keys.
void row38(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b1 h2 q3 k9 d128/4 f32"})) {
    Scenario scenario(problem, 2);
    scenario.q.fill([](const Index&) { return 256.0; });
    scenario.k.fill([](const Index&) { return 256.0; });
    scenario.v.fill([](const Index& at) { return static_cast<double>(at[2]); });
    expect_rows(runner, scenario, {4, 4, 4}, {}, faults);
  }
}

Scenario three_by_three(const Problem& problem) {
  Scenario scenario(problem, 3);
  scenario.q.fill(
      [](const Index& at) { return 0.1 + 0.2 * static_cast<double>(at[2]) + 0.1 * static_cast<double>(at[3]); });
  scenario.k.fill(
      [](const Index& at) { return 0.7 + 0.2 * static_cast<double>(at[2]) + 0.1 * static_cast<double>(at[3]); });
  scenario.v.fill([](const Index& at) { return static_cast<double>(1 + 2 * at[2] + at[3]); });
  return scenario;
}

void row43(const Runner& runner, Faults& faults) {
  for (Problem problem : problems_for(runner, {"b1 h1 q3 k3 d2 f32 causal"})) {
    problem.options.softmax_scale = -1 / std::sqrt(2.0);
    expect_rows(runner, three_by_three(problem), {1, 1.9505429, 2.7934142}, {-0.1626346, 0.2701076, 0.3642006}, faults);
  }
}

void row44(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b1 h1 q3 k3 d2 f32 causal scale0"}))
    expect_rows(runner, three_by_three(problem), {1, 2, 3}, {0, ln2, ln3}, faults);
}

/// Zero scores over 8 keys: ln 8 = 2.0794415; 3 would be the base-2 logarithm.
void row46(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b1 h1 q2 k8 d4 f32"}))
    expect_rows(runner, with_zero_scores(problem, own_index), {3.5, 3.5}, {2.0794415, 2.0794415}, faults);
}

void row47(const Runner& runner, Faults& faults) {
  for (const Problem& problem :
       problems_for(runner, {"b1 h1 q2 k0 d4 f32", "b1 h1 q2 k0 d4 f32 causal", "b1 h1 q2 k5 d4 f32 lens",
                             "b1 h1 q2 k5 d4 f32 topleft w-,0 lens"})) {
    Scenario scenario = with_zero_scores(problem, own_index);
    if (problem.seqlens_k) scenario.set_lengths({0});
    expect_rows(runner, scenario, {0, 0}, {minus_infinity, minus_infinity}, faults);
  }
}

/// lse against a plain logarithm of a sum of exponentials.
void row49(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b2 h4 q32 k128 d64 f32"})) {
    const Scenario scenario(problem, 4);
    const Answer answer = compute_and_judge(runner, scenario);
    const Textbook truth = textbook(scenario);
    std::size_t place = 0;
    answer.lse->for_each_index([&](const Index& at) {
      expect_near(answer.lse->get(at), truth.lse[place++], DType::f16,
                  fmt::format("{}: lse{}", print(problem), print(at)), faults);
    });
  }
}

Scenario with_slopes_of_one(const Problem& problem) {
  Scenario scenario = with_zero_scores(problem, own_index);
  scenario.slopes->fill([](const Index&) { return 1.0; });
  return scenario;
}

/// Under causal both forms are one; a bias by absolute position would give lse [0, 1.3132617, 2.4076060].
void row52(const Runner& runner, Faults& faults) {
  const std::vector<double> o{0, 0.7310586, 1.5752104};
  for (const Problem& problem :
       problems_for(runner, {"b1 h1 q3 k3 d4 f32 causal alibi:distance", "b1 h1 q3 k3 d4 f32 causal alibi:batch"}))
    expect_rows(runner, with_slopes_of_one(problem), o, {0, 0.3132617, 0.4076060}, faults);
}

void row53(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b1 h1 q3 k3 d4 f32 alibi:distance"}))
    expect_rows(runner, with_slopes_of_one(problem), {0.4247896, 1, 1.5752104}, {0.4076060, 0.5514447, 0.4076060},
                faults);
  // One query at the end of three keys stands at position 2 unless it is told to stand at 0.
  for (const Problem& problem : problems_for(runner, {"b1 h1 q1 k3 d4 f32 alibi:distance"}))
    expect_rows(runner, with_slopes_of_one(problem), {1.5752104}, {0.4076060}, faults);
  for (const Problem& problem : problems_for(runner, {"b1 h1 q1 k3 d4 f32 topleft alibi:distance"}))
    expect_rows(runner, with_slopes_of_one(problem), {0.4247896}, {0.4076060}, faults);
  // The relative form rewards keys after the query.
  for (const Problem& problem : problems_for(runner, {"b1 h1 q1 k3 d4 f32 topleft alibi"}))
    expect_rows(runner, with_slopes_of_one(problem), {1.5752104}, {2.4076060}, faults);
}

void row113(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b1 h2 q5 k9 d16 f32 scale1"})) {
    std::vector<Answer> answers;
    for (const std::optional<double> cap : {std::optional<double>(), std::optional(5.0), std::optional(50.0)}) {
      Problem capped = problem;
      capped.options.softcap = cap;
      if (!admits(runner.domain(), capped)) continue;
      Scenario scenario(problem, 5);
      scenario.problem = capped;
      scenario.q.fill([&, old = scenario.q](const Index& at) { return 4 * old.get(at); });
      answers.push_back(compute_and_judge(runner, scenario));
    }
    for (std::size_t first = 0; first < answers.size(); ++first)
      for (std::size_t second = first + 1; second < answers.size(); ++second)
        faults.expect(!difference(answers[first], answers[second]).empty(), print(problem) + ": two caps, one answer");
    Problem zero = problem;
    zero.options.softcap = 0;
    const Result<Plan> refused = runner.plan(zero);
    faults.expect(!refused && refused.refusal().argument == "softcap", "a softcap of 0 is not refused by its name");
  }
}

constexpr Habit rows[] = {
    {"Row34_scores_far_below_zero", row34},
    {"Row37_sum_of_values_beyond_half", row37},
    {"Row38_scores_beyond_half", row38},
    {"Row43_negative_scale", row43},
    {"Row44_scale_zero_under_a_mask", row44},
    {"Row46_lse_is_a_natural_logarithm", row46},
    {"Row47_lse_of_no_keys_is_minus_infinity", row47},
    {"Row49_lse_is_written", row49},
    {"Row52_alibi_under_causal", row52},
    {"Row53_alibi_without_causal", row53},
    {"Row113_softcap_is_never_dropped", row113},
};

}  // namespace

std::span<const Habit> casebook_number_rows() { return rows; }

}  // namespace fresnel::test
