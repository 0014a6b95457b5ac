// SPDX-License-Identifier: Apache-2.0
// cpu.reference_backward through the door: judged by the oracle's gradients and their budgets in every dtype and
// option, the same bits for any executor, nothing from rows and keys that nobody sees, and refusals by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/backward_call.hpp"
#include "kernels/kernel.hpp"
#include "runtime/memory.hpp"

namespace fresnel::test {
namespace {

constexpr const char* lines[] = {
    "b2 h2 q17 k19 d24",
    "b1 h4/2 q33 k70 d40/56",
    "b1 h2 q40 k40 d64 causal",
    "b1 h2 q20 k45 d32 causal topleft",
    "b1 h1 q45 k20 d16 causal",
    "b1 h2 q50 k50 d32 w7,3",
    "b1 h6/2 q25 k33 d33/7 cap2",
    "b1 h1 q20 k30 d16 scale-0.3",
    "b1 h2 q12 k30 d8 scale0",
    "b2 h4/2 q20 k37 d16 alibi",
    "b2 h2 q20 k37 d16 alibi:distance:batch",
    "b4 h2 q16 k40 d32 causal lens",
    "b2 h4/2 q33 k41 d48/17 causal topleft w20,- cap3 scale0.2 alibi:batch lens bshd",
    "b1 h1 q1 k1 d1",
    "b1 h2 q3 k100 d576/576",
    "b2 h2 q0 k5 d8",
    "b2 h2 q5 k0 d8",
    "b0 h2 q5 k5 d8",
    "b2 h0/3 q5 k5 d8 alibi",
    "b2 h2/1 q9 k70 d16 w5,3",  // the first keys of a tile are seen by nobody
    "b2 h1 q4 k45 d24 causal w3,- alibi",
};

class Backward : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Backward, IsWithinItsBudget) {
  const std::string line = with_dtype(std::get<0>(GetParam()), std::get<1>(GetParam()));
  SCOPED_TRACE(line);
  Call call(line);
  const auto report = call.attend();
  ASSERT_TRUE(report.ok()) << report.refusal().message();
  EXPECT_FALSE(find_kernel(report->kernel)->domain.required.has(Feature::grad)) << report->kernel;
  EXPECT_EQ(report->backward_kernel, "cpu.reference_backward");
  ASSERT_TRUE(report->backward.has_value());
  EXPECT_TRUE(report->backward->problem.grad);
  const auto verdict = call.judged(*report);
  ASSERT_TRUE(verdict.ok()) << verdict.refusal().message();
  EXPECT_TRUE(verdict->ok());
  expect_right(verdict->dq, call.dq, "dq");
  expect_right(verdict->dk, call.dk, "dk");
  expect_right(verdict->dv, call.dv, "dv");
  ASSERT_EQ(verdict->dalibi_slopes.has_value(), call.dslopes.has_value());
  if (call.dslopes) expect_right(verdict->dalibi_slopes, *call.dslopes, "dalibi_slopes");
}

TEST_P(Backward, GivesTheSameBitsForAnyExecutor) {
  const std::string line = with_dtype(std::get<0>(GetParam()), std::get<1>(GetParam()));
  Call first(line);
  const auto alone = make_executor(1);
  ASSERT_TRUE(first.attend(alone.get()).ok());
  for (const int threads : {2, 7, 64}) {
    Call other(line);
    const auto executor = make_executor(threads);
    ASSERT_TRUE(other.attend(executor.get()).ok());
    EXPECT_EQ(other.bits(), first.bits()) << line << " on " << threads;
  }
}

TEST_P(Backward, GivesTheSameBitsWhateverTheWorkspaceHolds) {
  const std::string line = with_dtype(std::get<0>(GetParam()), std::get<1>(GetParam()));
  Call clean(line), dirty(line);
  const auto report = clean.attend();
  ASSERT_TRUE(report.ok());
  const std::size_t bytes = std::max(report->plan.workspace_bytes(), report->backward->workspace_bytes());
  AlignedBuffer workspace = AlignedBuffer::allocate(bytes, "workspace").value();
  std::fill_n(workspace.span().data(), bytes, std::byte{0xff});  // NaN in every type
  ASSERT_TRUE(attend(dirty.sample.problem.options, dirty.inputs(), dirty.outputs(),
                     {.executor = nullptr, .workspace = workspace.span(), .options = {}})
                  .ok());
  EXPECT_EQ(dirty.bits(), clean.bits()) << line;
}

INSTANTIATE_TEST_SUITE_P(All, Backward,
                         testing::Combine(testing::ValuesIn(lines), testing::Values("f64", "f32", "f16", "bf16")),
                         [](const auto& parameter) {
                           return "line" + std::to_string(parameter.index / 4) + "_" +
                                  std::string(std::get<1>(parameter.param));
                         });

TEST(BackwardRules, EmptyRowsAddNothingWhateverTheyHold) {
  for (const char* const dtype : {"f64", "f32", "f16", "bf16"}) {
    const std::string line = with_dtype("b1 h2 q9 k5 d8 causal", dtype);  // queries 0 to 3 see nothing
    Call clean(line), poisoned(line);
    for (std::int64_t query = 0; query < 4; ++query)
      for (std::int64_t d = 0; d < 8; ++d) {
        poisoned.sample.q.set({0, 1, query, d}, std::nan(""));
        poisoned.dout.set({0, 1, query, d}, HUGE_VAL);
      }
    ASSERT_TRUE(clean.attend().ok() && poisoned.attend().ok());
    EXPECT_EQ(clean.bits(), poisoned.bits()) << line;
    for (std::int64_t d = 0; d < 8; ++d) EXPECT_EQ(clean.dq.bits({0, 1, 3, d}), 0u) << line;
  }
}

TEST(BackwardRules, HiddenKeysChangeNothingAndGetZero) {
  for (const char* const dtype : {"f64", "f32", "f16", "bf16"}) {
    const std::string line = with_dtype("b2 h2 q4 k40 d8 causal topleft w3,- lens", dtype);
    Call clean(line), poisoned(line);
    for (Call* call : {&clean, &poisoned})
      call->sample.lengths->fill([](const Index& at) { return at[0] == 0 ? 3 : 40; });
    for (std::int64_t key = 4; key < 40; ++key)  // seen by nobody: the last query stands at position 3
      for (std::int64_t d = 0; d < 8; ++d)
        for (HostTensor* tensor : {&poisoned.sample.k, &poisoned.sample.v})
          tensor->set({key % 2, 0, key, d}, key % 3 == 0 ? HUGE_VAL : std::nan(""));
    ASSERT_TRUE(clean.attend().ok() && poisoned.attend().ok());
    EXPECT_EQ(clean.bits(), poisoned.bits()) << line;
    for (std::int64_t key = 4; key < 40; ++key)
      for (std::int64_t d = 0; d < 8; ++d) EXPECT_EQ(clean.dk.bits({0, 0, key, d}) + clean.dv.bits({0, 0, key, d}), 0u);
  }
}

TEST(BackwardRules, AKeyThatSomeQueriesSeeReachesOnlyThem) {
  Call clean("b1 h1 q40 k40 d8 f32 causal"), poisoned("b1 h1 q40 k40 d8 f32 causal");
  for (HostTensor* tensor : {&poisoned.sample.k, &poisoned.sample.v}) tensor->set({0, 0, 35, 2}, std::nan(""));
  ASSERT_TRUE(clean.attend().ok() && poisoned.attend().ok());
  for (std::int64_t query = 0; query < 40; ++query)
    for (std::int64_t d = 0; d < 8; ++d) {
      const Index at{0, 0, query, d};
      if (query < 35) {
        EXPECT_EQ(clean.dq.bits(at), poisoned.dq.bits(at)) << print(at);
      } else {
        EXPECT_TRUE(std::isnan(poisoned.dq.get(at))) << print(at);
      }
    }
}

TEST(BackwardRules, LargeScoresNeedNoExponentialOfTheirOwn) {
  // exp(-lse) overflows from lse = -89 on, exp(s) from s = 89; their product is an ordinary weight.
  for (const double shift : {-1e5, -128.0, 128.0, 1e4}) {
    Call call("b1 h1 q8 k24 d4 f32 scale1");
    call.sample.q.fill([&](const Index& at) { return at[3] == 0 ? 1.0 : 0.5 * static_cast<double>(at[2] - at[3]); });
    call.sample.k.fill([&](const Index& at) { return at[3] == 0 ? shift : 0.1 * static_cast<double>(at[2] % 5); });
    const auto report = call.attend();
    ASSERT_TRUE(report.ok());
    const auto verdict = call.judged(*report);
    ASSERT_TRUE(verdict.ok());
    EXPECT_TRUE(verdict->ok()) << shift;
    for (const std::int64_t query : {0, 7}) EXPECT_TRUE(std::isfinite(call.dq.get({0, 0, query, 1}))) << shift;
  }
}

TEST(BackwardRules, OnlyWhatIsAskedForIsWritten) {
  Call all("b1 h2 q9 k21 d8 f32 causal alibi");
  ASSERT_TRUE(all.attend().ok());
  for (int kept = 0; kept < 4; ++kept) {
    Call one("b1 h2 q9 k21 d8 f32 causal alibi");
    Outputs outputs = one.outputs();
    std::optional<MutableView>* const gradients[] = {&outputs.dq, &outputs.dk, &outputs.dv, &outputs.dalibi_slopes};
    for (int other = 0; other < 4; ++other)
      if (other != kept) gradients[other]->reset();
    ASSERT_TRUE(attend(one.sample.problem.options, one.inputs(), outputs).ok());
    for (int tensor = 0; tensor < 4; ++tensor) {
      const HostTensor& found = *one.gradients()[static_cast<std::size_t>(tensor)];
      const HostTensor& expected = *all.gradients()[static_cast<std::size_t>(tensor)];
      found.for_each_index([&](const Index& at) {
        if (tensor == kept) {
          EXPECT_EQ(found.bits(at), expected.bits(at));
        } else {
          EXPECT_TRUE(std::isnan(found.get(at)));
        }
      });
    }
  }
}

/// A score that overflows makes NaN of its row, and of a product with a zero as well: nothing finite is promised there.
TEST(BackwardJudge, ANaNTimesZeroIsNoMistake) {
  for (const char* const line : {"b1 h1 q1 k4 d2 f32", "b1 h1 q1 k1 d2 f32 causal topleft alibi"}) {
    Call call(line);
    call.sample.q.set({0, 0, 0, 0}, 1e25);
    call.sample.q.set({0, 0, 0, 1}, 0);
    call.sample.k.set({0, 0, 0, 0}, 1e25);
    const auto report = call.attend();
    ASSERT_TRUE(report.ok());
    const auto verdict = call.judged(*report);
    ASSERT_TRUE(verdict.ok());
    EXPECT_FALSE(std::isfinite(call.dk.get({0, 0, 0, 1}))) << "no NaN, no test: " << line;
    EXPECT_TRUE(verdict->ok()) << line;
  }
}

/// D = dout . o may overflow where no dP does but one, and takes every key of its row along.
TEST(BackwardJudge, ADeltaThatOverflowsIsNoMistake) {
  for (const char* const line : {"b1 h1 q2 k3 d4 f32", "b1 h1 q2 k3 d4 f32 scale0"}) {
    Call call(line);
    call.sample.v.set({0, 0, 0, 2}, -3.4e38);
    for (const std::int64_t query : {0, 1}) call.dout.set({0, 0, query, 2}, 64);
    const auto report = call.attend();
    ASSERT_TRUE(report.ok());
    const auto verdict = call.judged(*report);
    ASSERT_TRUE(verdict.ok());
    EXPECT_FALSE(std::isfinite(call.dk.get({0, 0, 1, 0}))) << "no overflow, no test: " << line;
    EXPECT_TRUE(verdict->ok()) << line;
  }
}

/// Scores without a budget leave gradients without one: 0 passes for a sum that only a wider type can hold.
TEST(BackwardJudge, AFiniteValueIsNotInfinitelyWrong) {
  Call call("b1 h1 q2 k1 d2 f64");
  call.sample.q.fill([](const Index&) { return 1e37; });
  call.dout.fill([](const Index&) { return -1.7e308; });
  const auto report = call.attend();
  ASSERT_TRUE(report.ok());
  call.dv.fill([](const Index&) { return 0; });
  const auto verdict = call.judged(*report);
  ASSERT_TRUE(verdict.ok());
  EXPECT_EQ(verdict->dv->mismatches, 0);
}

/// Equal keys make every dq 0 but for o's rounding to float16, and large keys take that beyond float16, to either side.
TEST(BackwardJudge, ABudgetMayReachBothInfinities) {
  Call call("b1 h1 q4 k3 d1 f16 scale1");
  call.sample.q.fill([](const Index&) { return 0; });
  call.sample.k.fill([](const Index&) { return 65504; });
  call.sample.v.fill([](const Index& at) { return at[2] == 0 ? 10000 : -104; });
  call.dout.fill([](const Index& at) { return at[2] % 2 == 0 ? 16 : -16; });
  const auto report = call.attend();
  ASSERT_TRUE(report.ok());
  for (const double sign : {1.0, -1.0}) {
    for (const std::int64_t query : {0, 1}) call.dq.set({0, 0, query, 0}, sign * HUGE_VAL);
    const auto verdict = call.judged(*report);
    ASSERT_TRUE(verdict.ok());
    EXPECT_EQ(verdict->dq->mismatches, 0) << sign;
  }
  call.dq.set({0, 0, 0, 0}, std::nan(""));
  EXPECT_EQ(call.judged(*report)->dq->mismatches, 1) << "an infinity is within reach, NaN is not";
}

TEST(BackwardJudge, AWrongGradientIsCaught) {
  Call call("b1 h2/1 q20 k30 d16 f32 causal alibi");
  const auto report = call.attend();
  ASSERT_TRUE(report.ok());
  // `part_of_largest`: how small a move is still seen. A slope's gradient sums every pair of its head, most of which
  // cancel, so that its budget is a larger part of it.
  const auto wrong = [&](const char* name, HostTensor& tensor, const Index& at, std::optional<Judgement> Verdict::*part,
                         double part_of_largest) {
    const double value = tensor.get(at);
    double largest = 0;
    tensor.for_each_index([&](const Index& each) { largest = std::max(largest, std::abs(tensor.get(each))); });
    for (const double moved : {value + part_of_largest * largest, value - part_of_largest * largest, -2 * largest}) {
      tensor.set(at, moved);
      const auto verdict = call.judged(*report);
      ASSERT_TRUE(verdict.ok());
      EXPECT_FALSE(verdict->ok()) << name << " from " << value << " to " << moved;
      EXPECT_EQ(((*verdict).*part)->mismatches, 1) << name;
      EXPECT_GT(((*verdict).*part)->max_share, 1) << name;
    }
    tensor.set(at, value);
  };
  wrong("dq", call.dq, {0, 1, 15, 3}, &Verdict::dq, 1e-3);
  wrong("dk", call.dk, {0, 0, 4, 3}, &Verdict::dk, 1e-3);
  wrong("dv", call.dv, {0, 0, 4, 3}, &Verdict::dv, 1e-3);
  wrong("dalibi_slopes", *call.dslopes, {1, 0, 0, 0}, &Verdict::dalibi_slopes, 1e-2);
}

TEST(BackwardJudge, EachPassIsJudgedByItsOwnRoundings) {
  Call call("b1 h2 q20 k30 d64 f32");
  const auto report = call.attend();
  ASSERT_TRUE(report.ok());
  const Roundings forward = roundings_of(report->plan), backward = roundings_of(*report->backward);
  const auto judged = [&](const Roundings& first, const Roundings& second) {
    return check(report->plan.problem, call.inputs(), call.outputs(), first, second).value();
  };
  Roundings coarse = backward;
  coarse.unit = 0x1p-12;
  const Verdict own = judged(forward, backward);
  EXPECT_TRUE(own.ok());
  EXPECT_NE(own.dq->max_share, judged(backward, forward).dq->max_share) << "rows that declare different dot products";
  // What the backward rounds allows o and lse nothing.
  const Verdict coarse_backward = judged(forward, coarse);
  EXPECT_EQ(coarse_backward.o.max_share, own.o.max_share);
  EXPECT_EQ(coarse_backward.lse->max_share, own.lse->max_share);
  EXPECT_LT(coarse_backward.dq->max_share, own.dq->max_share / 100);
  // A backward that reads a coarse o and lse may be off by as much as they are: dv by lse alone, dq by both.
  const Verdict coarse_forward = judged(coarse, backward);
  EXPECT_LT(coarse_forward.o.max_share, own.o.max_share / 100);
  EXPECT_LT(coarse_forward.dv->max_share, own.dv->max_share / 10);
  EXPECT_LT(coarse_forward.dq->max_share, own.dq->max_share / 10);
  // A backward that rounds more than it says is not excused by the forward beside it.
  const Index at{0, 1, 15, 3};
  call.dv.set(at, call.dv.get(at) * (1 + 0x1p-10));
  EXPECT_TRUE(judged(forward, coarse).ok());
  EXPECT_EQ(judged(forward, backward).dv->mismatches, 1);
  // Nonsense is refused whichever pass declares it.
  coarse.unit = -1;
  EXPECT_EQ(check(report->plan.problem, call.inputs(), call.outputs(), forward, coarse).refusal().argument,
            "roundings.unit");
}

TEST(BackwardJudge, AFactorOfWhichNothingIsPromisedMeetsAZero) {
  // Scores beyond float32: the kernel's weights are infinite or NaN, and so is their product with a key's 0.
  Call call("b1 h1 q6 k20 d4 f32 scale1.5e38");
  for (std::int64_t key = 0; key < 20; ++key) call.sample.k.set({0, 0, key, 2}, 0);
  const auto report = call.attend();
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(call.judged(*report)->ok());
  int found = 0;
  for (std::int64_t query = 0; query < 6; ++query) {
    if (!std::isnan(call.dq.get({0, 0, query, 2}))) continue;
    ++found;
    call.dq.set({0, 0, query, 2}, 1);  // what is finite can only be 0
    const auto verdict = call.judged(*report);
    EXPECT_EQ(verdict->dq->mismatches, 1);
    EXPECT_EQ(verdict->dq->at, (std::array<std::int64_t, 4>{0, 0, query, 2}));
    call.dq.set({0, 0, query, 2}, 0);
    EXPECT_TRUE(call.judged(*report)->ok());
  }
  EXPECT_GT(found, 0) << "this test needs a NaN";
}

TEST(BackwardJudge, MistakesOfWholeKernelsAreCaught) {
  // dk of one query head instead of the group's sum; a softcap whose slope is forgotten; D left out.
  Call grouped("b1 h2/1 q20 k30 d16 f32"), single("b1 h1 q20 k30 d16 f32");
  const auto report = grouped.attend();
  ASSERT_TRUE(report.ok());
  grouped.dk.fill([&](const Index& at) { return 0.5 * grouped.dk.get(at); });
  EXPECT_FALSE(grouped.judged(*report)->ok());

  Call capped("b1 h1 q20 k30 d16 f32 cap3");
  const auto with_cap = capped.attend();
  Call plain("b1 h1 q20 k30 d16 f32");
  ASSERT_TRUE(with_cap.ok() && plain.attend().ok());
  capped.dq.fill([&](const Index& at) { return plain.dq.get(at); });
  EXPECT_FALSE(capped.judged(*with_cap)->ok());

  Call zeros("b1 h1 q20 k30 d16 bf16");
  const auto honest = zeros.attend();
  ASSERT_TRUE(honest.ok());
  for (HostTensor* tensor : {&zeros.dq, &zeros.dk, &zeros.dv}) tensor->fill([](const Index&) { return 0; });
  const auto verdict = zeros.judged(*honest);
  for (const auto& part : {verdict->dq, verdict->dk, verdict->dv})
    EXPECT_GT(part->mismatches, part->count / 2) << "an all-zero gradient";
}

void expect_refused(const Result<Report>& report, const std::string& argument) {
  ASSERT_FALSE(report.ok()) << argument;
  EXPECT_EQ(report.refusal().argument, argument) << report.refusal().message();
  EXPECT_FALSE(report.refusal().given.empty() || report.refusal().accepted.empty());
}

TEST(BackwardRefusals, NameTheArgument) {
  const auto refused = [](const std::string& argument, auto&& change) {
    Call call("b1 h2 q4 k6 d8 f16 alibi");
    Inputs inputs = call.inputs();
    Outputs outputs = call.outputs();
    change(inputs, outputs);
    expect_refused(attend(call.sample.problem.options, inputs, outputs), argument);
  };
  refused("dout", [](Inputs& inputs, Outputs&) { inputs.dout.reset(); });
  refused("dout", [](Inputs& inputs, Outputs&) { inputs.dout->sizes[2] = 3; });
  refused("dout", [](Inputs& inputs, Outputs&) { inputs.dout->dtype = DType::bf16; });
  refused("dout", [](Inputs& inputs, Outputs&) { inputs.dout->data = nullptr; });
  refused("dout", [](Inputs&, Outputs& outputs) {
    for (auto* gradient : {&outputs.dq, &outputs.dk, &outputs.dv, &outputs.dalibi_slopes}) gradient->reset();
  });
  refused("lse", [](Inputs&, Outputs& outputs) { outputs.lse.reset(); });
  refused("dq", [](Inputs&, Outputs& outputs) { outputs.dq->rank = 3; });
  refused("dk", [](Inputs&, Outputs& outputs) { outputs.dk->sizes[2] = 4; });
  refused("dv", [](Inputs&, Outputs& outputs) { outputs.dv->dtype = DType::f32; });
  refused("dv", [](Inputs&, Outputs& outputs) { outputs.dv->device = Device::cuda; });
  refused("dv", [](Inputs&, Outputs& outputs) { outputs.dv->data = outputs.dk->data; });
  refused("dk", [](Inputs& inputs, Outputs& outputs) { outputs.dk->data = const_cast<void*>(inputs.dout->data); });
  refused("dalibi_slopes", [](Inputs&, Outputs& outputs) { outputs.dalibi_slopes->dtype = DType::f16; });
  refused("dalibi_slopes", [](Inputs&, Outputs& outputs) { outputs.dalibi_slopes->sizes[0] = 1; });
  refused("dalibi_slopes", [](Inputs& inputs, Outputs&) { inputs.alibi_slopes.reset(); });
}

TEST(BackwardRefusals, ForwardRowsRefuseGradAndTheBackwardRefusesWithoutIt) {
  const Machine& host = Machine::host();
  Problem problem = parse_problem("b1 h2 q4 k6 d8 f16").value();
  const auto forward = plan(problem, host, {.kernel = "cpu.reference_backward", .lanes = 1});
  ASSERT_FALSE(forward.ok());
  EXPECT_EQ(forward.refusal().argument, "grad");
  problem.grad = true;
  for (const char* const kernel : {"cpu.flash", "cpu.naive"}) {
    const auto backward = plan(problem, host, {.kernel = kernel, .lanes = 1});
    ASSERT_FALSE(backward.ok());
    EXPECT_EQ(backward.refusal().argument, "grad");
  }
  const auto planned = plan(problem, host);
  ASSERT_TRUE(planned.ok());
  EXPECT_EQ(planned->kernel_name(), "cpu.reference_backward");
}

TEST(BackwardRefusals, AForcedRowIsForcedOnItsOwnPass) {
  for (const auto& [kernel, forward] : {std::pair("cpu.naive", "cpu.naive"), {"cpu.reference_backward", "cpu.flash"}}) {
    Call call("b1 h2 q4 k6 d8 f32");
    const auto report = attend(call.sample.problem.options, call.inputs(), call.outputs(),
                               {.executor = nullptr, .workspace = {}, .options = {.kernel = kernel, .lanes = 1}});
    ASSERT_TRUE(report.ok()) << report.refusal().message();
    EXPECT_EQ(report->kernel, forward);
    EXPECT_EQ(report->backward_kernel, "cpu.reference_backward");
  }
}

}  // namespace
}  // namespace fresnel::test
