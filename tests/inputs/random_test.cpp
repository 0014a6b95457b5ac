// SPDX-License-Identifier: Apache-2.0
// The generator: its published values, its moments, and that every part of a position matters.
#include "inputs/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace fresnel {
namespace {

TEST(Random, MixerIsSplitMix64) {
  // First outputs from seed 1234567, as published with the reference implementation.
  constexpr std::uint64_t gamma = 0x9e3779b97f4a7c15u;
  EXPECT_EQ(mixed(1234567 + gamma), 6457827717110365317u);
  EXPECT_EQ(mixed(1234567 + 2 * gamma), 3203168211198807973u);
  EXPECT_EQ(mixed(1234567 + 3 * gamma), 9817491932198370423u);
}

TEST(Random, EveryPartOfAPositionMatters) {
  std::set<std::uint64_t> words;
  for (std::uint64_t seed : {0u, 1u})
    for (const Role role : {Role::q, Role::k, Role::v})
      for (std::int64_t b = 0; b < 3; ++b)
        for (std::int64_t h = 0; h < 3; ++h)
          for (std::int64_t i = 0; i < 3; ++i)
            for (std::uint64_t d = 0; d < 3; ++d) words.insert(RowRandom(seed, role, b, h, i).word(d));
  EXPECT_EQ(words.size(), 2u * 3 * 3 * 3 * 3 * 3);
}

TEST(Random, Moments) {
  constexpr int rows = 500, width = 400;
  constexpr double count = rows * width;
  double sum = 0, squares = 0, neighbours = 0, fourth = 0, largest = 0, flat = 0, flat_squares = 0;
  for (int row = 0; row < rows; ++row) {
    const RowRandom random(7, Role::q, 0, 0, row);
    for (int d = 0; d < width; ++d) {
      const double x = random.normal(static_cast<std::uint64_t>(d));
      const double u = random.uniform(static_cast<std::uint64_t>(d));
      sum += x;
      squares += x * x;
      fourth += x * x * x * x;
      neighbours += x * random.normal(static_cast<std::uint64_t>(d) + 1);
      largest = std::max(largest, std::fabs(x));
      flat += u;
      flat_squares += u * u;
      ASSERT_TRUE(u >= -1 && u < 1);
    }
  }
  // Five standard deviations of each estimate.
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2 / count));
  EXPECT_NEAR(neighbours / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(fourth / count, 3 - 6.0 / 5 / 8, 5 * std::sqrt(96 / count)) << "kurtosis of a sum of eight uniforms";
  EXPECT_GT(largest, 3.5);
  EXPECT_LT(largest, 4.9);
  EXPECT_NEAR(flat / count, 0, 5 / std::sqrt(3 * count));
  EXPECT_NEAR(flat_squares / count, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / count));
}

TEST(Random, BelowCoversItsRange) {
  std::set<std::int64_t> seen;
  for (std::uint64_t d = 0; d < 100; ++d) seen.insert(RowRandom(1, Role::k, 0, 0, 0).below(5, d));
  EXPECT_EQ(seen, (std::set<std::int64_t>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace fresnel
