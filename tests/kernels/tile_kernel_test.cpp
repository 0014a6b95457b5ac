// SPDX-License-Identifier: Apache-2.0
// The short exponential of cpu.amx: as good as src/kernels/cpu/amx.cpp declares, since every budget is built on that.
// The kernel itself is among the rows of every other test, on portable tiles where there is no tile unit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fresnel/problem.hpp"
#include "kernels/cpu/tile_softmax-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace fresnel::cpu {
void exp2_array(float* values) { _mm512_store_ps(values, exp2_short(_mm512_load_ps(values))); }
}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES

namespace fresnel::test {
namespace {

float exp2_of(float x) {
  alignas(64) float values[16];
  std::fill_n(values, 16, x);
  cpu::exp2_array(values);
  return values[0];
}

TEST(TileExp2, IsAsGoodAsDeclared) {
  if (!runs_here(Isa::avx3)) GTEST_SKIP() << "this processor has no 512-bit vectors";
  const Kernel& row = *find_kernel("cpu.amx");
  const double declared = row.roundings(parse_problem("b1 h1 q1 k1 d1 bf16").value(), {32, 64}).exp_constant;
  double worst = 0;
  for (float x = -126; x < 127; x += 0x1.2345p-12f) {
    const double truth = std::exp2(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(exp2_of(x)) - truth) / truth);
  }
  EXPECT_LE(worst, declared);
  EXPECT_GT(worst, 0.9 * declared) << "declared with too much room";
  EXPECT_EQ(exp2_of(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(exp2_of(-200.0f), 0.0f);
  EXPECT_TRUE(std::isnan(exp2_of(std::numeric_limits<float>::quiet_NaN())));
  for (float x = -200; x < -126; x += 0.37f) EXPECT_LE(std::abs(exp2_of(x) - std::exp2(x)), 0x1p-126f) << x;
}

}  // namespace
}  // namespace fresnel::test
