// SPDX-License-Identifier: Apache-2.0
// The kernel of cpu.amx on a tile unit written in plain C++: every habit, every casebook row and the agreement test, on
// any machine with 512-bit vectors. Only the eight instructions themselves are left to machines that have them.
#include <gtest/gtest.h>

#include "agreement/agreement.hpp"
#include "habits/casebook.hpp"
#include "kernels/cpu/tile_flash-inl.h"
#include "kernels/portable_tiles.hpp"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl")
namespace fresnel::cpu {
void exp2_array(float* values) { _mm512_store_ps(values, exp2_short(_mm512_load_ps(values))); }
}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES

namespace fresnel::test {
namespace {

/// The row of the catalogue, on the other unit.
const Kernel& portable_row() {
  static const Kernel row = [] {
    Kernel copy = *find_kernel("cpu.amx");
    copy.name = "cpu.amx on portable tiles";
    copy.needs_tile_unit = false;
    copy.run = [](const Launch& launch) { cpu::tile_flash<PortableTiles>(launch); };
    return copy;
  }();
  return row;
}

float exp2_of(float x) {
  alignas(64) float values[16];
  std::fill_n(values, 16, x);
  cpu::exp2_array(values);
  return values[0];
}

class TileKernel : public testing::TestWithParam<Habit> {};

TEST_P(TileKernel, Keeps) {
  if (!runs_here(Isa::avx3)) GTEST_SKIP() << "this processor has no 512-bit vectors";
  EXPECT_EQ(faults_of(GetParam(), {portable_row(), Isa::avx3, false}), "");
}

std::vector<Habit> all_habits() {
  std::vector<Habit> all;
  for (const auto habits :
       {hidden_value_habits(), layout_habits(), address_habits(), company_habits(), thread_habits(), option_habits(),
        score_habits(), size_habits(), workspace_habits(), casebook_mask_rows(), casebook_number_rows(),
        casebook_shape_rows(), agreement_habits()})
    all.insert(all.end(), habits.begin(), habits.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Every, TileKernel, testing::ValuesIn(all_habits()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(TileExp2, IsAsGoodAsDeclared) {
  if (!runs_here(Isa::avx3)) GTEST_SKIP() << "this processor has no 512-bit vectors";
  const double declared = portable_row().roundings(problem_of("b1 h1 q1 k1 d1 bf16"), {32, 64}).exp_constant;
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
