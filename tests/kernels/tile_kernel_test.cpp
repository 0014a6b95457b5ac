// SPDX-License-Identifier: Apache-2.0
// The short exponential and the logarithm of cpu.amx: as good as src/kernels/cpu/amx.cpp declares, since every budget
// is built on that. The kernel itself is among the rows of every other test, on portable tiles where there is no tile
// unit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fresnel/problem.hpp"
#include "kernels/cpu/tile_softmax-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")
namespace fresnel::cpu {
template <int parts>
void exp2_array(float* values) {
  _mm512_store_ps(values, exp2_of<parts>(_mm512_load_ps(values)));
}
/// The weight of one score, base 0, as bf16 bits; `off` where the table does not hold. A neighbour holds it in any
/// case.
template <bool clamped>
std::uint16_t weight_by_table(float x, bool& off) {
  alignas(64) float scores[32];
  alignas(64) std::uint32_t pairs[16];
  std::fill_n(scores, 16, -8.0f);
  std::fill_n(scores + 16, 16, x);
  TileWeights weights{};
  weights.scale = _mm512_set1_ps(1);
  start_table(weights, 0);
  weigh_pair_by_table<clamped, 16>(weights, scores, pairs, 0);
  off = off_the_table(weights, 0) != 0;
  return static_cast<std::uint16_t>(pairs[0] >> 16);
}
inline void log_array(double* values) { _mm512_storeu_pd(values, log_of(_mm512_loadu_pd(values))); }
}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES

namespace fresnel::test {
namespace {

float exp2_of(float x, int parts) {
  alignas(64) float values[16];
  std::fill_n(values, 16, x);
  parts == 1 ? cpu::exp2_array<1>(values) : cpu::exp2_array<2>(values);
  return values[0];
}

void expect_as_declared(int parts, double declared) {
  double worst = 0;
  for (float x = -126; x < 127; x += 0x1.2345p-12f) {
    const double truth = std::exp2(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(exp2_of(x, parts)) - truth) / truth);
  }
  EXPECT_LE(worst, declared);
  EXPECT_GT(worst, 0.9 * declared) << "declared with too much room";
  EXPECT_EQ(exp2_of(-std::numeric_limits<float>::infinity(), parts), 0.0f);
  EXPECT_EQ(exp2_of(-200.0f, parts), 0.0f);
  EXPECT_TRUE(std::isnan(exp2_of(std::numeric_limits<float>::quiet_NaN(), parts)));
  for (float x = -200; x < -126; x += 0.37f) EXPECT_LE(std::abs(exp2_of(x, parts) - std::exp2(x)), 0x1p-126f) << x;
}

TEST(TileTable, IsAsGoodAsDeclared) {
  if (!runs_here(Isa::avx3)) GTEST_SKIP() << "this processor has no 512-bit vectors";
  const Roundings declared = find_kernel("cpu.amx")->roundings(*parse_problem("b1 h1 q1 k1 d1 bf16"), {32, 64});
  const double most = declared.unit_p;
  double worst = 0, worst_on_steps = 0;
  bool off = false;
  for (double x = -126; x < 1; x += 0.00137) {
    const double weight = bf16_to_float(cpu::weight_by_table<false>(static_cast<float>(x), off)), truth = std::exp2(x);
    worst = std::max(worst, std::abs(weight / std::exp2(static_cast<float>(x)) - 1));
    ASSERT_FALSE(off) << x << " " << truth;
  }
  for (int step = -126 * 128; step < 128; ++step) {
    const float x = static_cast<float>(step) / 128;
    const float weight = bf16_to_float(cpu::weight_by_table<false>(x, off));
    worst_on_steps = std::max(worst_on_steps, std::abs(static_cast<double>(weight) / std::exp2(x) - 1));
  }
  EXPECT_LE(worst, most);
  EXPECT_GT(worst, 0.9 * most);
  EXPECT_LE(worst_on_steps, 0x1p-8) << "on steps the table rounds to nearest";
}

TEST(TileTable, ClampedGivesTheSameWeightsAndZeroBelow) {
  if (!runs_here(Isa::avx3)) GTEST_SKIP() << "this processor has no 512-bit vectors";
  bool off = false, off_clamped = false;
  for (float x = -382; x < 1; x += 0.0137f)
    ASSERT_EQ(cpu::weight_by_table<false>(x, off), cpu::weight_by_table<true>(x, off_clamped)) << x;
  for (const float x : {-383.1f, -1e6f, -1e30f, -std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(cpu::weight_by_table<true>(x, off), 0) << x;
    EXPECT_FALSE(off) << x;
  }
  cpu::weight_by_table<true>(std::numeric_limits<float>::quiet_NaN(), off);
  EXPECT_TRUE(off);
}

TEST(TileTable, KnowsWhereItEnds) {
  if (!runs_here(Isa::avx3)) GTEST_SKIP() << "this processor has no 512-bit vectors";
  constexpr float infinity = std::numeric_limits<float>::infinity();
  bool off = false;
  for (const float x : {-127.1f, -200.0f, -382.9f}) {
    EXPECT_LT(bf16_to_float(cpu::weight_by_table<false>(x, off)), 0x1p-126f) << x;
    EXPECT_FALSE(off) << x;
  }
  for (float x = -383.1f; x > -200000; x -= 13.7f) {
    cpu::weight_by_table<false>(x, off);
    ASSERT_TRUE(off) << x;
  }
  for (float x = 129.1f; x < 200000; x += 13.7f) {
    cpu::weight_by_table<false>(x, off);
    ASSERT_TRUE(off) << x;
  }
  for (const float x : {-600.0f, -1e5f, -1e6f, -1e30f, -infinity, 129.1f, 1000.0f, 1e5f, 1e6f, 1e30f, infinity,
                        std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
    cpu::weight_by_table<false>(x, off);
    EXPECT_TRUE(off) << x;
  }
}

double declared_of(const char* problem) {
  return find_kernel("cpu.amx")->roundings(parse_problem(problem).value(), {32, 64}).exp_constant;
}

TEST(TileExp2, IsAsGoodAsDeclared) {
  if (!runs_here(Isa::avx3)) GTEST_SKIP() << "this processor has no 512-bit vectors";
  expect_as_declared(1, cpu::polynomial_error);
  expect_as_declared(2, declared_of("b1 h1 q1 k1 d1 f16") - 0x1p-16);
}

double log_of(double x) {
  double values[8];
  std::fill_n(values, 8, x);
  cpu::log_array(values);
  return values[0];
}

TEST(TileLog, IsAsGoodAsDeclared) {
  if (!runs_here(Isa::avx3)) GTEST_SKIP() << "this processor has no 512-bit vectors";
  const double declared = find_kernel("cpu.amx")->roundings(*parse_problem("b1 h1 q1 k1 d1 bf16"), {32, 64}).log;
  for (double x = 0x1p-126; x < 0x1p127; x *= 1.00037) {
    const double truth = std::log(x);
    ASSERT_LE(std::abs(log_of(x) - truth), declared * std::abs(truth)) << x;
  }
  EXPECT_EQ(log_of(1), 0);
  EXPECT_EQ(log_of(0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(log_of(std::numeric_limits<double>::infinity()), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(log_of(std::numeric_limits<double>::quiet_NaN())));
}

}  // namespace
}  // namespace fresnel::test
