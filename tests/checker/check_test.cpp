// SPDX-License-Identifier: Apache-2.0
// The judge's own rules: what is counted, where the worst element is, what values that are not finite mean, which
// results and arguments are refused, and that neither the executor nor the caller's arithmetic changes a verdict.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>

#include "checker/expected.hpp"
#include "checker/samples.hpp"
#include "fresnel/executor.hpp"
#include "oracle/forward.hpp"
#include "runtime/float_control.hpp"

namespace fresnel::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// The oracle's own answer, rounded to the output dtypes.
Answer exact_answer(const Sample& sample) {
  const Truth truth = reference(sample.problem, sample.inputs()).value();
  Answer answer(sample.problem);
  const Problem& p = sample.problem;
  answer.o.fill([&](const Index& at) {
    return truth.o[static_cast<std::size_t>(((at[0] * p.heads_q + at[1]) * p.queries + at[2]) * p.value_dim + at[3])];
  });
  answer.lse.fill([&](const Index& at) {
    return truth.lse[static_cast<std::size_t>((at[0] * p.heads_q + at[1]) * p.queries + at[2])];
  });
  return answer;
}

Verdict judged(const Sample& sample, Answer& answer) { return judge(honest(sample.problem.dtype), sample, answer); }

TEST(Check, CountsEveryElementAndSaysWhereTheWorstOneIs) {
  const Sample sample = normal_sample("b2 h3 q5 k20 d8/4 f32");
  Answer answer = exact_answer(sample);
  const Verdict right = judged(sample, answer);
  EXPECT_TRUE(right.ok());
  EXPECT_EQ(right.o.count, 2 * 3 * 5 * 4);
  EXPECT_EQ(right.lse->count, 2 * 3 * 5);
  EXPECT_LT(right.o.max_error, 1e-7);
  EXPECT_LT(right.o.max_share, 1);
  EXPECT_LE(right.o.max_share, right.o.max_share_probable);

  answer.o.set({1, 2, 3, 1}, answer.o.get({1, 2, 3, 1}) + 0.25);
  answer.o.set({0, 1, 2, 3}, answer.o.get({0, 1, 2, 3}) - 0.01);
  answer.lse.set({1, 0, 4}, answer.lse.get({1, 0, 4}) + 0.5);
  const Verdict wrong = judged(sample, answer);
  EXPECT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.o.mismatches, 2);
  EXPECT_EQ(wrong.o.mismatches_probable, 2);
  EXPECT_EQ(wrong.o.at, (Index{1, 2, 3, 1}));
  EXPECT_NEAR(wrong.o.max_error, 0.25, 1e-6);
  EXPECT_GT(wrong.o.max_share, 1000);
  EXPECT_EQ(wrong.lse->mismatches, 1);
  EXPECT_EQ(wrong.lse->at, (Index{1, 0, 4, -1}));
  EXPECT_NEAR(wrong.lse->max_error, 0.5, 1e-6);
}

TEST(Check, TiesGoToTheFirstIndex) {
  const Sample sample = normal_sample("b1 h2 q5 k20 d8 f32");
  Answer answer = exact_answer(sample);
  for (const Index& at : {Index{0, 1, 4, 0}, Index{0, 0, 3, 7}, Index{0, 0, 3, 2}, Index{0, 1, 0, 0}})
    answer.o.set(at, nan);
  for (const int threads : {1, 2, 5}) {
    const auto executor = make_executor(threads);
    const Verdict verdict =
        check(sample.problem, sample.inputs(), answer.outputs(), honest(DType::f32).roundings, executor.get()).value();
    EXPECT_EQ(verdict.o.at, (Index{0, 0, 3, 2}));
    EXPECT_EQ(verdict.o.mismatches, 4);
    EXPECT_EQ(verdict.o.max_share, infinity);
  }
}

TEST(Check, LseIsJudgedOnlyWhereItIsGiven) {
  const Sample sample = normal_sample("b1 h1 q3 k20 d8 f32");
  Answer answer = exact_answer(sample);
  Outputs outputs = answer.outputs();
  outputs.lse.reset();
  const Verdict verdict = check(sample.problem, sample.inputs(), outputs, honest(DType::f32).roundings).value();
  EXPECT_FALSE(verdict.lse.has_value());
  EXPECT_TRUE(verdict.ok());
}

TEST(Check, NothingButAFiniteNumberMatchesAFiniteTruth) {
  const Sample sample = normal_sample("b1 h1 q3 k20 d8 f16");
  for (const double value : {nan, infinity, -infinity}) {
    Answer answer = exact_answer(sample);
    answer.o.set({0, 0, 1, 2}, value);
    answer.lse.set({0, 0, 2}, value);
    const Verdict verdict = judged(sample, answer);
    EXPECT_EQ(verdict.o.mismatches, 1) << value;
    EXPECT_EQ(verdict.o.max_share, infinity) << value;
    EXPECT_EQ(verdict.o.max_error, infinity) << value;
    EXPECT_EQ(verdict.lse->mismatches, 1) << value;
  }
}

TEST(Check, WhereTheTruthIsNotFiniteNothingFiniteIsRight) {
  for (const double bad : {nan, infinity}) {
    Sample sample = normal_sample("b1 h1 q4 k4 d8 f32 causal");
    sample.v.set({0, 0, 2, 5}, bad);  // seen by queries 2 and 3, column 5
    sample.k.set({0, 0, 3, 0}, nan);  // seen by query 3, all columns
    Answer answer = exact_answer(sample);
    const Verdict right = judged(sample, answer);
    EXPECT_TRUE(right.ok()) << right.o.mismatches << " " << right.lse->mismatches;
    EXPECT_FALSE(std::isfinite(answer.o.get({0, 0, 2, 5})));
    EXPECT_FALSE(std::isfinite(answer.o.get({0, 0, 3, 1})));
    EXPECT_TRUE(std::isfinite(answer.o.get({0, 0, 2, 4})));
    EXPECT_TRUE(std::isfinite(answer.o.get({0, 0, 1, 5})));

    answer.o.set({0, 0, 2, 5}, -infinity);  // the kind does not matter
    answer.lse.set({0, 0, 3}, infinity);
    EXPECT_TRUE(judged(sample, answer).ok());
    answer.o.set({0, 0, 2, 5}, 1);
    answer.lse.set({0, 0, 3}, 1);
    const Verdict wrong = judged(sample, answer);
    EXPECT_EQ(wrong.o.mismatches, 1);
    EXPECT_EQ(wrong.lse->mismatches, 1);
  }
}

TEST(Check, ARowThatSeesNoKeyIsExact) {
  const Sample sample = normal_sample("b1 h1 q5 k2 d8 f32 causal");
  Answer answer = exact_answer(sample);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answer.o.get({0, 0, i, 0}), 0);
    EXPECT_EQ(answer.lse.get({0, 0, i}), -infinity);
  }
  EXPECT_TRUE(judged(sample, answer).ok());
  answer.o.set({0, 0, 0, 0}, -0.0);
  EXPECT_TRUE(judged(sample, answer).ok());
  for (const double wrong : {1e-45, nan}) {
    answer = exact_answer(sample);
    answer.o.set({0, 0, 1, 3}, wrong);
    EXPECT_EQ(judged(sample, answer).o.mismatches, 1) << wrong;
  }
  for (const double wrong : {nan, infinity, -3.4e38}) {
    answer = exact_answer(sample);
    answer.lse.set({0, 0, 1}, wrong);
    EXPECT_EQ(judged(sample, answer).lse->mismatches, 1) << wrong;
  }
}

TEST(Check, InfinityIsRightOnlyWhereTheTruthReachesTheOverflow) {
  // One key: o = v. 65504 is f16's largest number, and what is stored as infinity begins at 65520.
  for (const double value : {65504.0, 60000.0}) {
    Sample sample = normal_sample("b1 h1 q1 k2 d1 f16");
    sample.k.fill([](const Index&) { return 0; });
    sample.v.fill([&](const Index&) { return value; });
    Answer answer = exact_answer(sample);
    EXPECT_TRUE(judged(sample, answer).ok());
    Recipe recipe = honest(DType::f16);
    answer.o.set({0, 0, 0, 0}, infinity);
    EXPECT_FALSE(judge(recipe, sample, answer).ok()) << value;
    recipe.roundings.unit_p = 0x1p-11;  // then the sum before storing may be 65504 (1 + 2^-11) > 65520
    EXPECT_EQ(judge(recipe, sample, answer).ok(), value == 65504.0) << value;
    answer.o.set({0, 0, 0, 0}, -infinity);
    EXPECT_FALSE(judge(recipe, sample, answer).ok()) << value;
  }
}

TEST(Check, SharesOfBudgetZero) {
  // Scale 0 and one key: o = v and lse = 0, but the budget counts roundings, not luck; only empty rows have budget 0.
  const Sample sample = normal_sample("b1 h1 q2 k1 d4 f32 causal");
  Answer answer = exact_answer(sample);
  EXPECT_EQ(judged(sample, answer).o.max_share, 0);
  EXPECT_EQ(judged(sample, answer).o.at, (Index{-1, -1, -1, -1}));
  answer.o.set({0, 0, 0, 1}, 1e-30);
  EXPECT_EQ(judged(sample, answer).o.max_share, infinity);
}

TEST(Check, ReadsResultsOfAnyStrides) {
  const Sample sample = normal_sample("b2 h3 q5 k20 d8/4 f32");
  Answer answer = exact_answer(sample);
  answer.o.set({1, 2, 3, 1}, 7);
  const Verdict dense = judged(sample, answer);
  for (const Placement& placement :
       {Placement{AxisOrder::bshd, 0, 0, {}, {}}, Placement{AxisOrder::bhsd, 3, 5, {true, false, true, false}, {}}}) {
    HostTensor other(DType::f32, {2, 3, 5, 4}, placement);
    other.fill([&](const Index& at) { return answer.o.get(at); });
    const Outputs outputs{other.mutable_view(), answer.lse.mutable_view()};
    const Verdict verdict = check(sample.problem, sample.inputs(), outputs, honest(DType::f32).roundings).value();
    EXPECT_EQ(verdict.o.max_share, dense.o.max_share);
    EXPECT_EQ(verdict.o.at, dense.o.at);
    EXPECT_EQ(verdict.o.mismatches, 1);
  }
  // Even the last axis: [B, H, Dv, S] memory.
  std::vector<float> memory(2 * 3 * 5 * 4);
  answer.o.for_each_index([&](const Index& at) {
    memory[static_cast<std::size_t>(((at[0] * 3 + at[1]) * 4 + at[3]) * 5 + at[2])] =
        static_cast<float>(answer.o.get(at));
  });
  const Outputs outputs{MutableView{memory.data(), DType::f32, {2, 3, 5, 4}, {60, 20, 1, 5}}, {}};
  EXPECT_EQ(check(sample.problem, sample.inputs(), outputs, honest(DType::f32).roundings)->o.max_share,
            dense.o.max_share);
}

TEST(Check, NeitherExecutorNorCallersArithmeticChangesAVerdict) {
  Sample sample = normal_sample("b2 h4/2 q9 k70 d40 f32 causal cap5 alibi lens");
  sample.q.set({0, 0, 8, 0}, 1e-40);
  Answer answer = compute(honest(DType::f32), sample);
  const Roundings roundings = honest(DType::f32).roundings;
  const auto same = [](const Judgement& a, const Judgement& b) {
    return a.count == b.count && a.mismatches == b.mismatches && a.mismatches_probable == b.mismatches_probable &&
           a.max_error == b.max_error && a.max_share == b.max_share && a.max_share_probable == b.max_share_probable &&
           a.at == b.at;
  };
  const Verdict expected = check(sample.problem, sample.inputs(), answer.outputs(), roundings).value();
  const auto expect_same = [&](Executor* executor, const char* when) {
    const Verdict verdict = check(sample.problem, sample.inputs(), answer.outputs(), roundings, executor).value();
    EXPECT_TRUE(same(verdict.o, expected.o) && same(*verdict.lse, *expected.lse)) << when;
  };
  for (const int threads : {1, 2, 7}) expect_same(make_executor(threads).get(), "threads");
  const std::uint64_t control = float_control();
  std::fesetround(FE_UPWARD);
  expect_same(make_executor(1).get(), "rounding up");
  std::fesetround(FE_TONEAREST);
#if defined(__x86_64__)
  set_float_control(float_control() | 0x8040u);
  expect_same(make_executor(1).get(), "flushing subnormals");
#endif
  set_float_control(control);
}

TEST(CheckAgainst, JudgesByAnswersFromElsewhere) {
  const Sample sample = normal_sample("b1 h2 q5 k3 d8/4 f32 causal");  // the first two queries see nothing
  const Truth truth = reference(sample.problem, sample.inputs()).value();
  const Roundings roundings = honest(DType::f32).roundings;
  Answer answer = exact_answer(sample);
  std::vector<double> o = truth.o, lse = truth.lse;
  const View o_view(o.data(), DType::f64, {1, 2, 5, 4}), lse_view(lse.data(), DType::f64, {1, 2, 5});
  const auto verdict = [&](const Expected& expected) {
    return check_against(sample.problem, sample.inputs(), expected, answer.outputs(), roundings).value();
  };
  const Verdict same = verdict({o_view, lse_view}), own = judged(sample, answer);
  EXPECT_TRUE(same.ok());
  EXPECT_EQ(same.o.max_share, own.o.max_share);
  EXPECT_EQ(same.lse->max_share, own.lse->max_share);

  o[21] += 0.5;  // [0, 1, 0, 1], a row that sees nothing
  o[39] += 0.5;  // [0, 1, 4, 3]
  lse[9] = nan;
  const Verdict moved = verdict({o_view, lse_view});
  EXPECT_EQ(moved.o.mismatches, 2);
  EXPECT_EQ(moved.o.max_share, infinity);
  EXPECT_EQ(moved.o.at, (Index{0, 1, 0, 1}));
  EXPECT_EQ(moved.lse->mismatches, 1);
  EXPECT_FALSE(verdict({o_view, {}}).lse.has_value());
  EXPECT_EQ(verdict({{}, lse_view}).o.count, 0);

  const View narrow(o.data(), DType::f64, {1, 2, 5, 3});
  EXPECT_EQ(
      check_against(sample.problem, sample.inputs(), {narrow, {}}, answer.outputs(), roundings).refusal().argument,
      "expected_o");
}

TEST(Check, EmptyProblemsAreRight) {
  for (const char* line : {"b0 h2 q3 k4 d8 f32", "b1 h0 q3 k4 d8 f32", "b1 h2 q0 k4 d8 f32", "b1 h2 q3 k0 d8 f32"}) {
    const Sample sample = normal_sample(line);
    Answer answer = exact_answer(sample);
    const Verdict verdict = judged(sample, answer);
    EXPECT_TRUE(verdict.ok()) << line;
    EXPECT_EQ(verdict.o.count, answer.o.elements()) << line;
  }
}

TEST(Check, RefusesWhatIsNotAResultOfTheProblem) {
  const Sample sample = normal_sample("b2 h3 q5 k20 d8/4 bf16 lens");
  Answer answer = exact_answer(sample);
  const Roundings roundings = honest(DType::bf16).roundings;
  const auto argument = [&](const Inputs& inputs, const Outputs& outputs, const Roundings& how) -> std::string {
    const Result<Verdict> verdict = check(sample.problem, inputs, outputs, how);
    return verdict ? "nothing" : verdict.refusal().argument;
  };
  const Outputs good = answer.outputs();
  EXPECT_EQ(argument(sample.inputs(), good, roundings), "nothing");

  Outputs outputs = good;
  outputs.o.sizes[3] = 5;
  EXPECT_EQ(argument(sample.inputs(), outputs, roundings), "o");
  outputs = good;
  outputs.o.dtype = DType::f32;
  EXPECT_EQ(argument(sample.inputs(), outputs, roundings), "o");
  outputs = good;
  outputs.o.data = nullptr;
  EXPECT_EQ(argument(sample.inputs(), outputs, roundings), "o");
  outputs = good;
  outputs.o.device = Device::cuda;
  EXPECT_EQ(argument(sample.inputs(), outputs, roundings), "o");
  outputs = good;
  outputs.lse->dtype = DType::bf16;
  EXPECT_EQ(argument(sample.inputs(), outputs, roundings), "lse");
  outputs = good;
  outputs.lse->rank = 2;
  EXPECT_EQ(argument(sample.inputs(), outputs, roundings), "lse");

  Inputs inputs = sample.inputs();
  inputs.k.sizes[2] = 19;
  EXPECT_EQ(argument(inputs, good, roundings), "k");
  inputs = sample.inputs();
  inputs.v.device = Device::cuda;
  EXPECT_EQ(argument(inputs, good, roundings), "v");
  inputs = sample.inputs();
  inputs.seqlens_k.reset();
  EXPECT_EQ(argument(inputs, good, roundings), "seqlens_k");
  HostTensor lengths(DType::i32, {2});
  lengths.fill([](const Index& at) { return at[0] == 1 ? 21 : 20; });
  inputs.seqlens_k = lengths.view();
  EXPECT_EQ(argument(inputs, good, roundings), "seqlens_k[1]");

  Roundings odd = roundings;
  odd.unit = nan;
  EXPECT_EQ(argument(sample.inputs(), good, odd), "roundings.unit");
  odd = roundings;
  odd.tile_keys = 0;
  EXPECT_EQ(argument(sample.inputs(), good, odd), "roundings.tile_keys");
}

}  // namespace
}  // namespace fresnel::test
