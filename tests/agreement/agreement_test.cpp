// SPDX-License-Identifier: Apache-2.0
// Agreement of every row of the catalogue with the oracle, and the proof that a mistaken row does not agree.
#include "agreement/agreement.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "habits/register.hpp"
#include "support/sampling.hpp"
#include "support/toy.hpp"

namespace fresnel::test {
namespace {

[[maybe_unused]] const bool registered = register_habits("Agreement", agreement_habits());

Runner toy(Mistake mistake) { return {toy_row(mistake), Isa::baseline, false}; }

std::string all_faults(const Runner& runner) {
  std::string text;
  for (const Habit& habit : agreement_habits()) text += faults_of(habit, runner);
  return text;
}

TEST(AgreementCanFail, AnHonestRowAgrees) { EXPECT_EQ(all_faults(toy(Mistake::none)), ""); }

/// Mistakes that give a wrong number somewhere inside the domain; the others are for habits to find.
TEST(AgreementCanFail, EveryWrongNumberDisagrees) {
  for (const Mistake mistake : {Mistake::rescale_forgotten,     Mistake::stale_maximum,
                                Mistake::causal_off_by_one,     Mistake::tail_counted,
                                Mistake::softcap_after_mask,    Mistake::heads_in_tile_order,
                                Mistake::base_two_lse,          Mistake::short_head_dim,
                                Mistake::scale_of_value_dim,    Mistake::emptiness_by_threshold,
                                Mistake::half_scores,           Mistake::half_accumulator,
                                Mistake::alibi_dropped,         Mistake::alibi_distance_dropped,
                                Mistake::window_zero_is_absent, Mistake::top_left_dropped,
                                Mistake::lengths_of_the_first,  Mistake::empty_rows_unwritten,
                                Mistake::writes_past_the_row,   Mistake::writes_past_the_slice})
    EXPECT_NE(faults_of(agreement_habits().front(), toy(mistake)), "") << name(mistake);
}

TEST(AgreementCanFail, AFaultIsOneLineToPaste) {
  const Problem problem = problem_of("b2 h4/2 q9 k70 d64 f32 causal");
  const std::string fault = disagreement(toy(Mistake::base_two_lse), problem, "normal", 3);
  EXPECT_EQ(fault.substr(0, fault.find('\n')),
            "FRESNEL_ISA=baseline fresnel check --problem \"b2 h4/2 q9 k70 d64 f32 causal\" --inputs normal --seed 3 "
            "--kernel base_two_lse");
}

/// The steps outside are outside, each for the one reason that it names.
TEST(AgreementCanFail, EveryStepOutsideIsOutside) {
  Domain narrow = toy_row(Mistake::none).domain;
  narrow.features = {};
  narrow.dtypes = {DType::f32};
  narrow.axis_orders = {AxisOrder::bhsd};
  narrow.unaligned = false;
  narrow.queries = {2, 6};
  const std::vector<Outsider> outside = outsiders(narrow, problem_of("b1 h2 q5 k19 d64 f32"));
  EXPECT_EQ(outside.size(), 6 + 3 + all_features.size() + 2) << "bounds, dtypes, features, layouts";
  for (const Outsider& outsider : outside) {
    const auto refusal = refusal_of(narrow, outsider.problem);
    ASSERT_TRUE(refusal.has_value()) << print(outsider.problem);
    EXPECT_NE(std::find(outsider.fields.begin(), outsider.fields.end(), refusal->argument), outsider.fields.end())
        << refusal->argument << " instead of " << outsider.fields.front();
  }
}

}  // namespace
}  // namespace fresnel::test
