// SPDX-License-Identifier: Apache-2.0
// Casebook, gradients: what users of fused backward passes met, shrunk to inputs whose answers are known, on every
// backward row of the catalogue. The oracle is asked about each of them too; docs/casebook.md has the list.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernels/backward_call.hpp"
#include "kernels/kernel.hpp"

namespace fresnel::test {
namespace {

/// Calls `work(name)` for every backward row that admits the problem and is built here; at least one does.
void on_every_row(const Problem& problem, const std::function<void(const std::string&)>& work) {
  int rows = 0;
  for (const Kernel& row : catalogue()) {
    if (!row.domain.required.has(Feature::grad) || row.run == nullptr) continue;
    Problem asked = problem;
    asked.grad = true;
    if (!plan(asked, Machine::host(), {.kernel = std::string(row.name), .lanes = 1})) continue;
    SCOPED_TRACE(row.name);
    work(std::string(row.name));
    ++rows;
  }
  EXPECT_GT(rows, 0) << "no row for " << print(problem);
}

/// Runs the call by a row and judges every output; guards must hold.
void run_right(Call& call, const std::string& row, Executor* executor = nullptr) {
  const auto report = call.attend(executor, row);
  ASSERT_TRUE(report.ok()) << report.refusal().message();
  ASSERT_EQ(report->backward_kernel, row);
  const auto verdict = call.judged(*report);
  ASSERT_TRUE(verdict.ok()) << verdict.refusal().message();
  EXPECT_EQ(verdict->o.mismatches, 0) << "o";
  EXPECT_EQ(verdict->lse->mismatches, 0) << "lse";
  EXPECT_TRUE(call.o.guards_intact() && call.lse.guards_intact());
  for (const auto& [judgement, tensor, name] :
       {std::tuple(&verdict->dq, &call.dq, "dq"), {&verdict->dk, &call.dk, "dk"}, {&verdict->dv, &call.dv, "dv"}}) {
    EXPECT_EQ((*judgement)->mismatches, 0) << name << ": share " << (*judgement)->max_share;
    EXPECT_TRUE(tensor->guards_intact()) << name;
  }
}

void expect_all_finite(const Call& call) {
  for (const HostTensor* tensor : call.gradients())
    tensor->for_each_index([&](const Index& at) { EXPECT_TRUE(std::isfinite(tensor->get(at))) << print(at); });
}

/// 2^-7 is one step of bfloat16, which either side may have taken.
void expect_close(const HostTensor& given, const HostTensor& right, const Index& at) {
  EXPECT_NEAR(given.get(at), right.get(at), 0x1p-7 * std::abs(right.get(at)) + 1e-5) << print(at);
}

/// A padded lane that scores 0 beside scores of -120 weighs exp(115): inf, and NaN against its zero value.
TEST(CasebookBackward, Row34_scores_far_below_zero) {
  for (const char* const line : {"b1 h1 q64 k64 d64 f32", "b1 h1 q3 k97 d64 bf16", "b1 h2 q64 k128 d64 f16"}) {
    Call call(line);
    call.sample.q.fill([](const Index& at) { return at[3] == 0 ? 1.0 : 0.0; });
    call.sample.k.fill([](const Index& at) { return at[3] == 0 ? -960.0 : 0.0; });
    on_every_row(call.sample.problem, [&](const std::string& row) {
      run_right(call, row);
      expect_all_finite(call);
      const double keys = static_cast<double>(call.sample.problem.keys);
      EXPECT_NEAR(call.lse.get({0, 0, 0, 0}), -120 + std::log(keys), 1e-4);
    });
  }
}

/// Equal shifts of all scores move lse and nothing else: dq, dk and dv are those of the scores as they were.
TEST(CasebookBackward, Row35_one_query_with_shifted_scores) {
  for (const int keys : {128, 97}) {
    const std::string line = "b1 h2 q1 k" + std::to_string(keys) + " d16 bf16 scale1";
    const auto shifted = [&](double shift) {
      Call call(line);
      call.sample.q.fill([&, old = call.sample.q](const Index& at) { return at[3] == 0 ? 1.0 : 0.25 * old.get(at); });
      call.sample.k.fill([&, old = call.sample.k](const Index& at) { return at[3] == 0 ? shift : old.get(at); });
      return call;
    };
    on_every_row(Call(line).sample.problem, [&](const std::string& row) {
      Call plain = shifted(0);
      run_right(plain, row);
      for (const double shift : {-128.0, 128.0}) {
        Call call = shifted(shift);
        run_right(call, row);
        expect_all_finite(call);
        EXPECT_NEAR(call.lse.get({0, 1, 0, 0}), plain.lse.get({0, 1, 0, 0}) + shift, 1e-4);
        call.dv.for_each_index([&](const Index& at) { expect_close(call.dv, plain.dv, at); });
        call.dk.for_each_index([&](const Index& at) { expect_close(call.dk, plain.dk, at); });
        call.dq.for_each_index([&](const Index& at) {
          if (at[3] > 0) expect_close(call.dq, plain.dq, at);  // the shifted component sums to 0 times the shift
        });
      }
    });
  }
}

/// Queries and keys of 2^29 score 2^60 and more: a row is one key, and exact in float32 whatever the order of the sum.
TEST(CasebookBackward, Row56_scores_of_1e17_are_one_hot) {
  for (const char* const line : {"b1 h1 q4 k4 d4 f32 scale0.5", "b1 h1 q4 k4 d4 bf16", "b1 h1 q4 k4 d4 f64"}) {
    Call call(line);
    const auto corner = [](const Index& at) { return at[2] == at[3] ? 0x1p29 : -0x1p29; };
    call.sample.q.fill(corner);
    call.sample.k.fill(corner);
    call.sample.v.fill([](const Index& at) { return static_cast<double>(at[2] + at[3]); });
    call.dout.fill([](const Index& at) { return static_cast<double>(at[2] - 2 * at[3]); });
    on_every_row(call.sample.problem, [&](const std::string& row) {
      run_right(call, row);
      call.dq.for_each_index([&](const Index& at) {
        EXPECT_EQ(call.o.get(at), call.sample.v.get(at)) << print(at);
        EXPECT_EQ(call.dq.get(at), 0.0) << print(at);
        EXPECT_EQ(call.dk.get(at), 0.0) << print(at);
        EXPECT_EQ(call.dv.get(at), call.dout.get(at)) << print(at);
      });
    });
  }
}

/// Where one rounding of such a score is worth millions, score and lse differ by that much: a weight stays at most 1.
TEST(CasebookBackward, Row56_no_weight_is_above_one) {
  for (const double size : {1e4, 1e6, 5e8})
    for (const char* const line : {"b1 h2 q16 k16 d64 f32", "b1 h1 q16 k16 d4 f32 scale1", "b1 h1 q9 k9 d64 f64"}) {
      Call call(line);
      Numbers numbers(9);
      for (HostTensor* tensor : {&call.sample.q, &call.sample.k})
        tensor->fill([&](const Index&) { return numbers.sign() * size * (0.9 + 0.2 * numbers.uniform()); });
      on_every_row(call.sample.problem, [&](const std::string& row) {
        run_right(call, row);
        expect_all_finite(call);
        call.dv.for_each_index([&](const Index& at) {
          double most = 0;
          for (std::int64_t i = 0; i < call.sample.problem.queries; ++i)
            most += std::abs(call.dout.get({at[0], at[1], i, at[3]}));
          EXPECT_LE(std::abs(call.dv.get(at)), 1.001 * most) << line << ", " << size << print(at);
        });
      });
    }
}

/// One key per sequence: the only row that sees it has the weight 1, so nothing reaches dq or dk, and the rows before
/// see nothing at all.
TEST(CasebookBackward, Row58_one_key_per_sequence_under_causal) {
  Call call("b3 h2 q110 k3 d32 f16 causal lens");
  call.sample.lengths->fill([](const Index&) { return 1; });
  on_every_row(call.sample.problem, [&](const std::string& row) {
    run_right(call, row);
    expect_all_finite(call);
    call.dq.for_each_index([&](const Index& at) {
      if (at[2] < 109) {
        EXPECT_EQ(call.dq.get(at), 0.0) << print(at);
      }
    });
    call.dv.for_each_index([&](const Index& at) {
      const double right = at[2] == 0 ? call.dout.get({at[0], at[1], 109, at[3]}) : 0.0;
      EXPECT_EQ(call.dv.get(at), right) << print(at);
    });
  });
}

TEST(CasebookBackward, Row104_the_same_bits_from_run_to_run_and_for_any_threads) {
  for (const char* const line : {"b2 h4/2 q70 k150 d32 f32 causal alibi", "b2 h4/1 q65 k64 d16 bf16 w20,5 cap5"}) {
    Call first(line);
    on_every_row(first.sample.problem, [&](const std::string& row) {
      const auto alone = make_executor(1), four = make_executor(4);
      run_right(first, row, alone.get());
      const std::vector<std::uint64_t> expected = first.bits();
      const auto expect_same = [&](Executor& executor) {
        Call again(line);
        ASSERT_TRUE(again.attend(&executor, row).ok());
        EXPECT_EQ(again.bits(), expected) << line << ", width " << executor.width();
      };
      for (int turn = 0; turn < 30; ++turn) expect_same(*four);
      for (const int threads : {1, 2, 7, 64}) expect_same(*make_executor(threads));
    });
  }
}

/// Sizes of no tile, 36 heads and a narrow row: a product that writes whole vectors steps over its rows' ends.
TEST(CasebookBackward, Row107_small_odd_sizes_stay_within_their_tensors) {
  Call call("b12 h3 q1030 k17 d8 bf16");
  on_every_row(call.sample.problem, [&](const std::string& row) { run_right(call, row); });
  for (const char* const line : {"b3 h3 q33 k17 d8 bf16 causal", "b3 h3 q33 k17 d7/5 bf16", "b2 h3/1 q31 k1 d1 bf16"}) {
    Call small(line);
    on_every_row(small.sample.problem, [&](const std::string& row) { run_right(small, row); });
  }
}

/// Two keys that both reach far into the cap: without its slope dq is 0.496, with it -0.112.
TEST(CasebookBackward, Row115_the_slope_of_a_cap_counts) {
  Call large("b1 h4 q256 k256 d64 bf16 causal cap10");
  large.sample.q.fill([&, old = large.sample.q](const Index& at) { return 8 * old.get(at); });
  on_every_row(large.sample.problem, [&](const std::string& row) {
    run_right(large, row);
    expect_all_finite(large);
  });
  for (const char* const dtype : {"f64", "f32", "bf16"}) {
    Call call(with_dtype("b1 h1 q1 k2 d1 causal cap10 scale1", dtype));
    const double scores[] = {20, 18};
    call.sample.q.fill([](const Index&) { return 1; });
    call.sample.k.fill([&](const Index& at) { return scores[at[2]]; });
    call.sample.v.fill([](const Index& at) { return at[2] == 0 ? 1 : 0; });
    call.dout.fill([](const Index&) { return 1; });
    const double first = std::tanh(2.0), second = std::tanh(1.8), p = 1 / (1 + std::exp(10 * (second - first)));
    const double ds = p * (1 - p), dk0 = ds * (1 - first * first), dk1 = -ds * (1 - second * second);
    const double digits = call.sample.problem.dtype == DType::bf16 ? 0x1p-7 : 1e-5;
    on_every_row(call.sample.problem, [&](const std::string& row) {
      run_right(call, row);
      EXPECT_NEAR(call.dq.get({}), 20 * dk0 + 18 * dk1, digits);
      EXPECT_NEAR(call.dq.get({}), -0.112, 1e-2);
      EXPECT_NEAR(call.dk.get({0, 0, 0, 0}), dk0, digits * 0.1);
      EXPECT_NEAR(call.dk.get({0, 0, 1, 0}), dk1, digits * 0.1);
    });
  }
}

/// A slope that is learned gets its gradient where it is asked for, and a refusal by its name where there is none.
TEST(CasebookBackward, Row116_slopes_get_their_gradient_or_a_refusal) {
  Call call("b1 h1 q1 k2 d1 f32 alibi");
  call.sample.q.fill([](const Index&) { return 0; });
  call.sample.slopes->fill([](const Index&) { return 1; });
  call.sample.v.fill([](const Index& at) { return at[2] == 0 ? 1 : 0; });
  call.dout.fill([](const Index&) { return 1; });
  on_every_row(call.sample.problem, [&](const std::string& row) {
    run_right(call, row);
    // Scores -1 and 0: ds = p (1 - p) for the first key, one to the left of its query.
    const double p = 1 / (1 + std::exp(1.0));
    EXPECT_NEAR(call.dslopes->get({}), -p * (1 - p), 1e-6);
  });

  const auto argument_refused = [](const Inputs& inputs, const Outputs& outputs) {
    const auto report = attend(Options{}, inputs, outputs);
    return report ? std::string("nothing") : report.refusal().argument;
  };
  Inputs without_slopes = call.inputs(), without_dout = call.inputs();
  without_slopes.alibi_slopes.reset();
  without_dout.dout.reset();
  EXPECT_EQ(argument_refused(without_slopes, call.outputs()), "dalibi_slopes");
  Outputs only_slopes{call.o.mutable_view(), call.lse.mutable_view()};
  only_slopes.dalibi_slopes = call.dslopes->mutable_view();
  EXPECT_EQ(argument_refused(without_dout, only_slopes), "dout");
}

}  // namespace
}  // namespace fresnel::test
