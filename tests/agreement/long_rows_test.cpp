// SPDX-License-Identifier: Apache-2.0
// Rows longer than whatever a kernel takes at once: cpu.flash raises the maximum of a row along D once for 16 tiles of
// keys, so that only more keys than that show whether the sums before are rescaled. The maximum rises all along the
// row, falls, and does as it likes; both shapes of query tiles, and a window that begins late.
#include <gtest/gtest.h>

#include "agreement/agreement.hpp"

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

}  // namespace
}  // namespace fresnel::test
