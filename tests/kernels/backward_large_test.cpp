// SPDX-License-Identifier: Apache-2.0
// Backward rows at the far ends of sizes: offsets beyond 32 bits over memory that is mostly not there, more heads than
// sixteen bits count, a million keys, thirty thousand keys of which a hundred are seen, working memory that is never
// square.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>

#include "kernels/backward_call.hpp"
#include "kernels/kernel.hpp"
#include "planner/selection.hpp"
#include "support/spread.hpp"

namespace fresnel::test {
namespace {

void on_every_row(const Problem& forward, const std::function<void(const std::string&)>& test) {
  Problem problem = forward;
  problem.grad = true;
  int rows = 0;
  for (const Kernel& row : catalogue()) {
    if (row.run == nullptr || !row.domain.required.has(Feature::grad)) continue;
    if (!serves(row, problem, Machine::host())) continue;
    SCOPED_TRACE(std::string(row.name));
    test(std::string(row.name));
    ++rows;
  }
  EXPECT_GT(rows, 0) << print(problem);
}

/// Runs `row` on the call's numbers with every tensor where `strides` says, and expects the bits of `expected`.
template <class StridesOf>
void expect_same_bits_spread(Call& call, const std::string& row, std::int64_t reach, std::int64_t start,
                             const StridesOf& strides) {
  const SparseRegion region(static_cast<std::size_t>(10 * reach));
  std::int64_t slot = 0;
  const auto in = [&](const HostTensor& tensor) {
    return spread<View>(region, tensor, strides(tensor, true), slot++ * reach + start);
  };
  const auto out = [&](const HostTensor& tensor) {
    return spread<MutableView>(region, unwritten(tensor), strides(tensor, false), slot++ * reach + (1 << 20));
  };
  Inputs inputs{in(call.sample.q), in(call.sample.k), in(call.sample.v), {}, {}};
  inputs.dout = in(call.dout);
  Outputs outputs{out(call.o), out(call.lse), {}, {}, {}, {}};
  outputs.dq = out(call.dq);
  outputs.dk = out(call.dk);
  outputs.dv = out(call.dv);
  const auto report = attend(call.sample.problem.options, inputs, outputs,
                             {.executor = nullptr, .workspace = {}, .options = {.kernel = row, .lanes = 0}});
  ASSERT_TRUE(report.ok()) << report.refusal().message();
  ASSERT_EQ(report->backward_kernel, row);
  Call spread_call = call;
  gather(*outputs.dq, spread_call.dq);
  gather(*outputs.dk, spread_call.dk);
  gather(*outputs.dv, spread_call.dv);
  EXPECT_EQ(spread_call.bits(), call.bits());
}

/// 2^31 wraps to a negative offset in 32 bits and 2 x 2^31 to a small one that is open memory with other data.
TEST(BackwardLarge, HugeStridesReachTheRightRows) {
  for (const char* const dtype : {"f64", "bf16"}) {
    Call call(with_dtype("b3 h3 q3 k3 d8 causal topleft", dtype));
    on_every_row(call.sample.problem, [&](const std::string& row) {
      ASSERT_TRUE(call.attend(nullptr, row).ok());
      for (const std::int64_t huge :
           {(std::int64_t{1} << 31) + 512, (std::int64_t{1} << 32) + 512, -(std::int64_t{1} << 31) - 512}) {
        for (std::size_t axis = 0; axis < 3; ++axis) {
          SCOPED_TRACE("stride " + std::to_string(huge) + " on axis " + std::to_string(axis));
          const std::int64_t reach = 3 * std::abs(huge) * size_of(DType::f64);
          const std::int64_t start = huge < 0 ? reach - (1 << 20) : 1 << 20;
          expect_same_bits_spread(call, row, reach, start, [&](const HostTensor& tensor, bool input) {
            const bool inner = tensor.view().rank == 3 && axis == 2;  // the last axis of lse stays contiguous
            return inner ? dense(tensor) : stretched(tensor, axis, input ? huge : std::abs(huge));
          });
        }
      }
    });
  }
}

/// Strides that 32 bits hold, under which no tile but the first begins within 32 bits.
TEST(BackwardLarge, RowsBeyond32BitsAreReachedBySmallStrides) {
  constexpr std::int64_t rows = 200, stride = (std::int64_t{1} << 31) / 130;
  Call call("b1 h2/1 q200 k200 d8 f32 w70,70");
  on_every_row(call.sample.problem, [&](const std::string& row) {
    ASSERT_TRUE(call.attend(nullptr, row).ok());
    expect_same_bits_spread(call, row, rows * stride * 4 + (1 << 21), 1 << 20, [&](const HostTensor& tensor, bool) {
      return tensor.view().rank == 3 ? dense(tensor) : Strides{0, tensor.size(3), stride, 1};
    });
  });
}

void expect_judged_right(Call& call, const std::string& row) {
  const auto report = call.attend(nullptr, row);
  ASSERT_TRUE(report.ok()) << report.refusal().message();
  ASSERT_EQ(report->backward_kernel, row);
  const auto verdict = call.judged(*report);
  ASSERT_TRUE(verdict.ok()) << verdict.refusal().message();
  expect_right(verdict->dq, call.dq, "dq");
  expect_right(verdict->dk, call.dk, "dk");
  expect_right(verdict->dv, call.dv, "dv");
}

/// Launch grids and 16-bit counters end at 65,535.
TEST(BackwardLarge, SeventyThousandHeadsAreAllRight) {
  for (const char* const line : {"b70000 h1 q1 k2 d4 f32", "b1 h70000/1 q1 k2 d4 f32", "b7 h10000/5000 q2 k1 d1 f32"}) {
    SCOPED_TRACE(line);
    Call call(line);
    ASSERT_EQ(call.o.size(0) * call.o.size(1), 70000);
    on_every_row(call.sample.problem, [&](const std::string& row) { expect_judged_right(call, row); });
  }
}

/// Equal weights of 2^-20, as right as lse is: half a unit of 13.86 in float32. dk is 0 since q is.
TEST(BackwardLarge, AMillionKeysOfEqualScores) {
  Call call("b1 h1 q1 k1048576 d2 f32");
  call.sample.q.fill([](const Index&) { return 0; });
  call.sample.k.fill([](const Index& at) { return at[3] == 0 ? 1 : static_cast<double>(at[2] % 2); });
  call.sample.v.fill([](const Index& at) { return static_cast<double>(at[2] % 2); });
  call.dout.fill([](const Index&) { return 1; });
  on_every_row(call.sample.problem, [&](const std::string& row) {
    expect_judged_right(call, row);
    EXPECT_EQ(call.o.get({}), 0.5);
    EXPECT_NEAR(call.lse.get({}), std::log(1048576.0), 1e-6);
    std::int64_t wrong = 0;
    call.dv.for_each_index([&](const Index& at) {
      const bool right = std::abs(call.dv.get(at) * 0x1p20 - 1) < 1e-6 && call.dk.get(at) == 0;
      wrong += right ? 0 : 1;
    });
    EXPECT_EQ(wrong, 0) << "of dv and dk";
  });
}

/// The first 32,900 keys are seen by nobody: they hold NaN, and get gradients of 0.
TEST(BackwardLarge, OnlyTheLastHundredOf33000KeysCount) {
  Call call("b1 h2/1 q1 k33000 d16/8 f32 w99,-");
  constexpr std::int64_t first = 33000 - 100;
  for (HostTensor* tensor : {&call.sample.k, &call.sample.v})
    for (std::int64_t key = 0; key < first; ++key)
      for (std::int64_t d = 0; d < tensor->size(3); ++d) tensor->set({0, 0, key, d}, std::nan(""));
  on_every_row(call.sample.problem, [&](const std::string& row) {
    expect_judged_right(call, row);
    std::int64_t touched = 0, seen = 0;
    for (const HostTensor* tensor : {&call.dk, &call.dv})
      tensor->for_each_index([&](const Index& at) {
        touched += at[2] < first && tensor->bits(at) != 0 ? 1 : 0;
        seen += at[2] >= first && tensor->get(at) != 0 ? 1 : 0;
      });
    EXPECT_EQ(touched, 0);
    EXPECT_EQ(seen, 100 * (16 + 8));
  });
}

/// Twice as long takes at most twice as much, and a row of a million keys no more than a few numbers for each.
TEST(BackwardLarge, WorkspacesGrowWithTheLengthOfARow) {
  constexpr std::size_t fixed = 8u << 20;
  for (const char* const line : {"b1 h2/1 q1 k1000000 d64 f32 grad", "b1 h2/1 q1000000 k1000000 d128 bf16 causal grad",
                                 "b1 h1 q1000000 k1000000 d200 f64 w100,0 grad"}) {
    Problem problem = parse_problem(line).value();
    on_every_row(problem, [&](const std::string& row) {
      const auto bytes = [&] {
        return plan(problem, Machine::host(), {.kernel = row, .lanes = 4}).value().workspace_bytes();
      };
      const std::size_t once = bytes();
      const auto rows = static_cast<std::size_t>(problem.keys + problem.queries);
      const auto widths = static_cast<std::size_t>(problem.head_dim + problem.value_dim);
      EXPECT_LE(once, rows * (2 * widths + 64) * sizeof(double) + fixed) << line;
      problem.keys *= 2;
      if (problem.queries > 1) problem.queries *= 2;
      EXPECT_LE(bytes(), 2 * once + fixed) << line;
      problem = parse_problem(line).value();
    });
  }
}

}  // namespace
}  // namespace fresnel::test
