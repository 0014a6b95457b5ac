// SPDX-License-Identifier: Apache-2.0
// The budget is useful: an output of zeros, one moved number and every mistake of the simulated kernel are caught, and
// a mistake is rightly not caught where it does no harm.
#include <gtest/gtest.h>

#include <cmath>

#include "checker/samples.hpp"
#include "runtime/half.hpp"

namespace fresnel::test {
namespace {

constexpr DType dtypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

std::string line(const std::string& shape, DType dtype, const std::string& options = "") {
  return shape + " " + std::string(name(dtype)) + " " + options;
}

TEST(Zeros, AreCaughtUpTo131072Keys) {
  for (const DType dtype : dtypes) {
    for (const char* shape : {"b1 h2 q4 k1 d64", "b1 h2 q4 k7 d64", "b1 h2 q4 k64 d64", "b1 h2 q4 k1024 d64",
                              "b1 h1 q2 k16384 d32", "b1 h1 q1 k131072 d8"}) {
      const Sample sample = normal_sample(line(shape, dtype));
      Answer zeros(sample.problem);
      zeros.o.fill([](const Index&) { return 0; });
      zeros.lse.fill([](const Index&) { return 0; });
      for (const Roundings& roundings : {honest(dtype).roundings, default_roundings(sample.problem)}) {
        const Verdict verdict = check(sample.problem, sample.inputs(), zeros.outputs(), roundings).value();
        EXPECT_GT(verdict.o.mismatches, 0) << print(sample.problem) << " " << roundings.name;
        // The sum of weights is known far better than any one output.
        EXPECT_EQ(verdict.lse->mismatches, verdict.lse->count) << print(sample.problem) << " " << roundings.name;
      }
    }
  }
}

TEST(OneMovedOutput, IsTheOnlyMismatch) {
  for (const char* shape : {"b1 h1 q3 k1 d64", "b1 h1 q3 k16 d8", "b1 h1 q3 k64 d64", "b1 h2 q3 k300 d64",
                            "b1 h1 q3 k1024 d64", "b1 h1 q3 k1024 d1", "b1 h1 q3 k1000 d33/5"}) {
    const Sample sample = normal_sample(line(shape, DType::f32));
    const Recipe recipe = honest(DType::f32);
    Answer answer = compute(recipe, sample);
    const Index at{0, 0, 1, sample.problem.value_dim / 2};
    double largest = 0;
    for (std::int64_t d = 0; d < sample.problem.value_dim; ++d)
      largest = std::max(largest, std::abs(answer.o.get({0, 0, 1, d})));
    answer.o.set(at, answer.o.get(at) + 1e-3 * largest);
    for (const Roundings& roundings : {recipe.roundings, default_roundings(sample.problem)}) {
      const Verdict verdict = check(sample.problem, sample.inputs(), answer.outputs(), roundings).value();
      EXPECT_EQ(verdict.o.mismatches, 1) << shape << " " << roundings.name << " " << verdict.o.max_share;
      EXPECT_EQ(verdict.o.at, at) << shape << " " << roundings.name;
      EXPECT_EQ(verdict.lse->mismatches, 0) << shape << " " << roundings.name;
    }
  }
}

TEST(ZeroTolerance, WouldRejectAnHonestKernel) {
  const Sample sample = normal_sample(line("b1 h1 q8 k100 d64", DType::f32));
  Answer answer = compute(honest(DType::f32), sample);
  const Verdict verdict = judge(honest(DType::f32), sample, answer);
  EXPECT_TRUE(verdict.ok());
  EXPECT_GT(verdict.o.max_error, 0);
  Roundings exact;
  exact.unit = 0x1p-53;  // as if every sum were taken in double: only the stored output is rounded
  EXPECT_FALSE(check(sample.problem, sample.inputs(), answer.outputs(), exact)->ok());
}

struct Planted {
  Mistake mistake;
  const char* name;
  const char* shape;
  const char* options;
  const char* harmless_shape;  ///< where the same mistake changes nothing
  const char* harmless_options;
};

constexpr Planted planted[] = {
    {Mistake::rescale_forgotten, "rescale forgotten", "b1 h1 q4 k200 d64", "", "b1 h1 q4 k64 d64", ""},
    {Mistake::causal_off_by_one, "causal off by one", "b1 h1 q30 k40 d64", "causal", "b1 h1 q1 k40 d64", "causal"},
    {Mistake::tail_counted, "tail counted", "b1 h1 q4 k100 d64", "", "b1 h1 q4 k128 d64", ""},
    {Mistake::lse_in_base_2, "lse in base 2", "b1 h1 q4 k100 d64", "", "b1 h1 q4 k1 d64", "scale0"},
    {Mistake::softcap_after_mask, "softcap after mask", "b1 h1 q30 k40 d64", "causal cap5", "b1 h1 q4 k40 d64", "cap5"},
    {Mistake::splits_unweighted, "splits averaged", "b1 h1 q4 k200 d64", "", "b1 h1 q4 k64 d64", ""},
    {Mistake::stale_maximum, "stale maximum", "b1 h1 q4 k600 d64", "", "b1 h1 q4 k64 d64", ""},
    {Mistake::dims_truncated, "D truncated", "b1 h1 q4 k100 d70", "", "b1 h1 q4 k100 d64", ""},
    {Mistake::slope_of_next_head, "slope of the next head", "b1 h2 q4 k100 d64", "alibi", "b1 h1 q4 k100 d64", "alibi"},
    {Mistake::scale_from_value_dim, "scale from Dv", "b1 h1 q4 k100 d64/32", "", "b1 h1 q4 k100 d64/64", ""},
};

bool merges(Mistake mistake) { return mistake == Mistake::splits_unweighted || mistake == Mistake::stale_maximum; }

TEST(Mistakes, AreCaught) {
  for (const DType dtype : dtypes) {
    for (const Planted& fault : planted) {
      Recipe recipe = honest(dtype);
      if (merges(fault.mistake)) recipe.roundings.splits = 2;
      const Sample sample = normal_sample(line(fault.shape, dtype, fault.options));
      EXPECT_TRUE(judge(recipe, sample).ok()) << fault.name << " " << name(dtype);
      recipe.mistake = fault.mistake;
      EXPECT_FALSE(judge(recipe, sample).ok()) << fault.name << " " << name(dtype);
      Answer answer = compute(recipe, sample);
      EXPECT_FALSE(check(sample.problem, sample.inputs(), answer.outputs(), default_roundings(sample.problem))->ok())
          << fault.name << " " << name(dtype) << ", judged by the default roundings";
    }
  }
}

TEST(Mistakes, AreNotCaughtWhereTheyAreHarmless) {
  for (const Planted& fault : planted) {
    Recipe recipe = honest(DType::f32);
    if (merges(fault.mistake)) recipe.roundings.splits = 2;
    recipe.mistake = fault.mistake;
    EXPECT_TRUE(judge(recipe, normal_sample(line(fault.harmless_shape, DType::f32, fault.harmless_options))).ok())
        << fault.name;
  }
}

TEST(DefaultRoundings, HoldForEveryOrdinaryKernel) {
  for (const DType dtype : dtypes) {
    for (const NamedSample& named : random_samples(dtype)) {
      for (const Recipe& recipe : recipes(dtype)) {
        // The default assumes nothing of what follows: splits, longer sums, P rounded to another type or summed
        // rounded.
        const Roundings assumed = default_roundings(named.sample.problem), made = recipe.roundings;
        if (made.unit_p > assumed.unit_p || (made.sums_rounded_p && made.unit_p > 0) || made.running_sum ||
            made.splits > 1 || made.tile_keys < assumed.tile_keys || made.unit > assumed.unit)
          continue;
        Answer answer = compute(recipe, named.sample);
        const Verdict verdict = check(named.sample.problem, named.sample.inputs(), answer.outputs(), assumed).value();
        EXPECT_TRUE(verdict.ok()) << named.name << ", " << made.name;
      }
    }
  }
}

}  // namespace
}  // namespace fresnel::test
