// SPDX-License-Identifier: Apache-2.0
// The measuring loops do the work they are paid for: on every vector set of this host their results equal plain
// arithmetic.
#include "runtime/measure.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/amx.hpp"

namespace fresnel {
namespace {

class MeasureTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!runs_here(GetParam())) GTEST_SKIP() << "this host has no " << name(GetParam());
  }
  [[nodiscard]] const MeasureLoops& loops() const { return measure_loops(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Isas, MeasureTest, testing::Values(Isa::baseline, Isa::avx2, Isa::avx3, Isa::neon),
                         [](const auto& info) { return std::string(name(info.param)); });

/// The same multiply-adds, one at a time, for the lanes and chains that the operation count implies.
template <class T>
double plain_multiply_adds(const T* seeds, std::int64_t rounds, double flops, std::int64_t chains) {
  const auto lanes = static_cast<std::int64_t>(flops / 2) / chains;
  double total = 0;
  for (std::int64_t chain = 0; chain < chains; ++chain) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      T sum = seeds[32 + chain + lane];
      for (std::int64_t round = 0; round < rounds; ++round) sum = std::fma(sum, seeds[lane], seeds[16 + lane]);
      total += static_cast<double>(sum);
    }
  }
  return total;
}

TEST_P(MeasureTest, MultiplyAdds) {
  std::vector<float> f32;
  std::vector<double> f64;
  for (int at = 0; at < 64; ++at) {
    f64.push_back(0.5 + 0.499 * std::fabs(std::sin(at)));
    f32.push_back(static_cast<float>(f64.back()));
  }
  const std::int64_t chains = GetParam() == Isa::avx2 ? 12 : 16;
  for (const std::int64_t rounds : {0, 1, 5, 40}) {
    const double single = plain_multiply_adds(f32.data(), rounds, loops().fma_f32_flops, chains);
    EXPECT_NEAR(loops().fma_f32(f32.data(), rounds), single, 1e-4 * single) << rounds;
    const double twice = plain_multiply_adds(f64.data(), rounds, loops().fma_f64_flops, chains);
    EXPECT_NEAR(loops().fma_f64(f64.data(), rounds), twice, 1e-12 * twice) << rounds;
  }
}

TEST_P(MeasureTest, Exponentials) {
  std::vector<float> values(64 * 64);
  for (std::size_t at = 0; at < values.size(); ++at) {
    values[at] = -20.0f * static_cast<float>(at) / static_cast<float>(values.size());
  }
  for (std::size_t first = 0; first < values.size(); first += 64) {
    double sum = 0;
    for (std::size_t at = first; at < first + 64; ++at) sum += std::exp(static_cast<double>(values[at]));
    EXPECT_NEAR(loops().exp_f32(values.data() + first, 64), sum, 4e-6 * sum) << first;
  }
  // One value alone, the others negligible: the error of exp and not that of summing.
  for (int step = 0; step <= 1000; ++step) {
    std::vector<float> one(64, -20.0f);
    one[static_cast<std::size_t>(step % 64)] = -static_cast<float>(step) / 1000;
    const double sum = std::exp(static_cast<double>(one[static_cast<std::size_t>(step % 64)])) + 63 * std::exp(-20.0);
    EXPECT_NEAR(loops().exp_f32(one.data(), 64), sum, 3e-7 * sum) << step;
  }
}

TEST_P(MeasureTest, ReadingReadsEveryWordEveryTime) {
  alignas(64) std::uint64_t words[3 * 128];
  std::uint64_t sum = 0, state = 1;
  for (std::uint64_t& word : words) sum += word = state = state * 6364136223846793005u + 1442695040888963407u;
  const auto* const data = reinterpret_cast<const std::byte*>(words);
  EXPECT_EQ(loops().read(data, sizeof words, 1), sum);
  EXPECT_EQ(loops().read(data, sizeof words, 7), 7 * sum);
  EXPECT_EQ(loops().read(data, 0, 7), 0u);
}

TEST(Measure, TileProducts) {
  if (!amx_granted()) GTEST_SKIP() << "this host has no tile unit, or does not grant it";
  EXPECT_EQ(amx_bf16_products(0), 0.0f);
  EXPECT_EQ(amx_bf16_products(10), 4 * 10 * 32.0f);  // four elements, each a sum of 32 ones per round
}

}  // namespace
}  // namespace fresnel
