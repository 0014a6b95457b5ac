// SPDX-License-Identifier: Apache-2.0
// The budget is a bound: no honest kernel, however it rounds, exceeds it on any input. And it is near: somewhere, some
// honest kernel uses a good part of it.
#include <gtest/gtest.h>

#include "checker/samples.hpp"

namespace fresnel::test {
namespace {

constexpr DType dtypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

std::string words(const NamedSample& named, const Recipe& recipe, const Judgement& judgement) {
  return named.name + ", " + recipe.roundings.name + ": share " + std::to_string(judgement.max_share) + " at [" +
         std::to_string(judgement.at[1]) + ", " + std::to_string(judgement.at[2]) + ", " +
         std::to_string(judgement.at[3]) + "], error " + std::to_string(judgement.max_error);
}

struct Shares {
  double o = 0, lse = 0;
};

/// Judges every sample under every recipe of its dtype.
Shares expect_honest(const std::vector<NamedSample>& samples, bool independent) {
  Shares shares;
  for (const NamedSample& named : samples) {
    for (const Recipe& recipe : recipes(named.sample.problem.dtype)) {
      const Verdict verdict = judge(recipe, named.sample);
      EXPECT_EQ(verdict.o.mismatches, 0) << words(named, recipe, verdict.o);
      EXPECT_EQ(verdict.lse->mismatches, 0) << "lse: " << words(named, recipe, *verdict.lse);
      EXPECT_EQ(verdict.o.count, verdict.lse->count * named.sample.problem.value_dim);
      if (independent) {
        EXPECT_EQ(verdict.o.mismatches_probable, 0) << words(named, recipe, verdict.o);
        EXPECT_EQ(verdict.lse->mismatches_probable, 0) << "lse: " << words(named, recipe, *verdict.lse);
      }
      shares.o = std::max(shares.o, verdict.o.max_share);
      shares.lse = std::max(shares.lse, verdict.lse->max_share);
    }
  }
  return shares;
}

TEST(HonestKernels, AreWithinBudgetOnRandomInputs) {
  for (const DType dtype : dtypes) {
    const Shares shares = expect_honest(random_samples(dtype), true);
    RecordProperty("share_" + std::string(name(dtype)), std::to_string(shares.o));
  }
}

TEST(HonestKernels, AreWithinBudgetOnAdversarialInputs) {
  for (const DType dtype : dtypes) {
    const Shares shares = expect_honest(adversarial_samples(dtype), false);
    RecordProperty("share_" + std::string(name(dtype)), std::to_string(shares.o));
  }
}

TEST(HonestKernels, MayOverflowWhereNothingFiniteIsPromised) {
  for (const DType dtype : dtypes)
    for (const NamedSample& named : overflowing_samples(dtype))
      for (const Recipe& recipe : recipes(dtype)) {
        if (recipe.truncates) continue;  // IEEE's rounding towards zero saturates; no unit that truncates does
        const Verdict verdict = judge(recipe, named.sample);
        EXPECT_TRUE(verdict.ok()) << words(named, recipe, verdict.o) << "; lse: " << words(named, recipe, *verdict.lse);
      }
}

TEST(HonestKernels, AreWithinBudgetOnLongRows) {
  for (const DType dtype : dtypes) {
    std::vector<NamedSample> samples = long_samples(dtype);
    if (dtype == DType::f64 || dtype == DType::f16) samples.erase(samples.begin() + 1, samples.end());  // much the same
    expect_honest(samples, false);
  }
}

}  // namespace
}  // namespace fresnel::test
