// SPDX-License-Identifier: Apache-2.0
// Rows longer than whatever a kernel takes at once: cpu.flash raises the maximum of a row along D once for 16 tiles of
// keys, so that only more keys than that show whether the sums before are rescaled. The maximum rises all along the
// row, falls, and does as it likes; both shapes of query tiles, and a window that begins late.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "agreement/agreement.hpp"
#include "inputs/inputs.hpp"
#include "runtime/half.hpp"
#include "runtime/memory.hpp"

namespace fresnel::test {
namespace {

constexpr const char* lines[] = {
    "b1 h1 q3 k2500 d16 f32",
    "b1 h2/1 q1 k1025 d40/8 f32",
    "b1 h1 q37 k2100 d8 f32",
    "b1 h1 q5 k2300 d24 f32 causal w1500,- alibi",
};

TEST(LongRows, AreRightHoweverTheirMaximumMoves) {
  for (const Runner& runner : catalogue_runners())
    for (const DType dtype : dtypes_of(runner))
      for (const char* const line : lines) {
        Problem problem = parse_problem(line).value();
        problem.dtype = dtype;
        if (!admits(runner.domain(), problem)) continue;
        for (const char* const kind : {"ascending", "descending", "alternating", "normal"})
          EXPECT_EQ(disagreement(runner, problem, kind, 11), "");
      }
}

/// Products of K and of V take turns with the softmax between them: wide heads of few values, and the other way round,
/// are where one of them runs out of the other's work.
TEST(LongRows, AreRightWhateverTheWidths) {
  for (const Runner& runner : catalogue_runners())
    for (const char* const width : {"256/8", "256/40", "130/1", "8/256", "1/130"}) {
      Problem problem = parse_problem("b1 h1 q40 k300 d" + std::string(width) + " f32").value();
      problem.dtype = dtypes_of(runner).back();
      if (!admits(runner.domain(), problem)) continue;
      EXPECT_EQ(disagreement(runner, problem, "normal", 12), "");
    }
}

/// Blocks that every query sees follow one another in a loop of their own in cpu.amx, or are long, by the widths of
/// heads; a window begins and a causal mask ends them, in their middle, too, and a rising maximum leaves its bases
/// behind. The last one's keys are more than the second-level cache is taken to hold.
TEST(LongRows, AreRightBlockAfterBlock) {
  for (const Runner& runner : catalogue_runners())
    for (const DType dtype : dtypes_of(runner))
      for (const char* const line :
           {"b1 h1 q40 k1000 d64 f32", "b1 h1 q20 k2500 d64 f32", "b1 h1 q20 k1900 d128 f32",
            "b1 h1 q150 k900 d64 f32 causal w400,-", "b1 h1 q40 k700 d128 f32 causal",
            "b1 h1 q70 k900 d96/72 f32 w130,70", "b1 h1 q20 k4300 d128 f32", "b1 h1 q70 k83 d96 f32 w0,0"}) {
        Problem problem = parse_problem(line).value();
        problem.dtype = dtype;
        if (!admits(runner.domain(), problem)) continue;
        for (const char* const kind : {"ascending", "normal"}) EXPECT_EQ(disagreement(runner, problem, kind, 14), "");
      }
}

/// cpu.flash takes more queries to a tile where it converts their keys, and still cuts and masks each of them by
/// itself.
TEST(LongRows, AreRightInLongTilesOfQueries) {
  for (const Runner& runner : catalogue_runners())
    for (const DType dtype : dtypes_of(runner))
      for (const char* const line : {"b1 h1 q2101 k70 d24 f32", "b1 h2/1 q705 k700 d40/72 f32 causal w90,-"}) {
        Problem problem = parse_problem(line).value();
        problem.dtype = dtype;
        if (!admits(runner.domain(), problem)) continue;
        EXPECT_EQ(disagreement(runner, problem, "normal", 15), "");
      }
}

/// Few queries against more keys than caches are taken to hold, which cpu.flash asks memory for ahead of its turn; its
/// last queries fill whole vectors there.
TEST(LongRows, AreRightWhereKeysAreAskedForAhead) {
  for (const Runner& runner : catalogue_runners())
    for (const DType dtype : dtypes_of(runner))
      for (const char* const line : {"b1 h1 q9 k17000 d77/41 f32", "b1 h2 q19 k8011 d40/91 f32 causal"}) {
        Problem problem = parse_problem(line).value();
        problem.dtype = dtype;
        if (!admits(runner.domain(), problem)) continue;
        EXPECT_EQ(disagreement(runner, problem, "normal", 13), "");
      }
}

/// Sets row `row` of a tensor of one column.
void put(const View& to, std::int64_t row, float value) {
  void* const data = const_cast<void*>(to.data);
  const std::int64_t at = row * to.strides[2];
  switch (to.dtype) {
    case DType::f64: static_cast<double*>(data)[at] = value; return;
    case DType::f32: static_cast<float*>(data)[at] = value; return;
    case DType::f16: static_cast<std::uint16_t*>(data)[at] = float_to_f16(value); return;
    default: static_cast<std::uint16_t*>(data)[at] = float_to_bf16(value);
  }
}

/// A score of -inf weighs nothing, even where it is all that a row has met for longer than is taken at once.
TEST(LongRows, MayBeginWithScoresOfMinusInfinity) {
  for (const Runner& runner : catalogue_runners())
    for (const DType dtype : dtypes_of(runner)) {
      Problem problem = parse_problem("b1 h1 q3 k1100 d1 f32").value();
      problem.dtype = dtype;
      if (!admits(runner.domain(), problem)) continue;
      GeneratedInputs data = make_inputs(problem, "normal", 1).value();
      for (std::int64_t query = 0; query < 3; ++query) put(data.inputs().q, query, 1);
      for (std::int64_t key = 0; key < 1024; ++key) put(data.inputs().k, key, -std::numeric_limits<float>::infinity());
      const Plan plan = runner.plan(problem).value();
      if (runner.roundings(plan).split > 0) continue;  // docs/numerics.md, Known limits
      AlignedBuffer workspace = AlignedBuffer::allocate(plan.workspace_bytes(), "workspace").value();
      SerialExecutor executor;
      ASSERT_TRUE(run(plan, data.inputs(), data.outputs(), workspace.span(), executor).ok());
      const MutableView lse = *data.outputs().lse;
      for (std::int64_t query = 0; query < 3; ++query) {
        const void* const at = static_cast<const std::byte*>(lse.data) +
                               query * lse.strides[2] * static_cast<std::ptrdiff_t>(size_of(lse.dtype));
        const double value = lse.dtype == DType::f64 ? *static_cast<const double*>(at) : *static_cast<const float*>(at);
        EXPECT_TRUE(std::isfinite(value)) << runner.name() << " " << name(dtype);
      }
    }
}

}  // namespace
}  // namespace fresnel::test
