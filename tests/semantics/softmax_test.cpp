// SPDX-License-Identifier: Apache-2.0
// The laws of the state algebra as properties: identity, commutativity and associativity within rounding, pushes equal
// to merges of singletons, and what NaN and infinities do. Scores and values are random, seeded, and include extreme
// levels.
#include "semantics/softmax.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace fresnel {
namespace {

constexpr std::size_t width = 3;
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

template <class Real>
using Row = std::array<Real, width>;

template <class Real>
struct Key {
  Real score;
  Row<Real> value;
};

/// A state with its accumulators.
template <class Real>
struct Partial {
  State<Real> state;
  Row<Real> o{};

  void push(const Key<Real>& key) { state.push(key.score, std::span<const Real>(key.value), std::span<Real>(o)); }
  void merge(const Partial& other) { state.merge(other.state, std::span<const Real>(other.o), std::span<Real>(o)); }
};

template <class Real>
Partial<Real> pushed(const std::vector<Key<Real>>& keys, std::size_t first, std::size_t last) {
  Partial<Real> partial;
  for (std::size_t j = first; j < last; ++j) partial.push(keys[j]);
  return partial;
}

template <class Real>
Partial<Real> merged(Partial<Real> a, const Partial<Real>& b) {
  a.merge(b);
  return a;
}

template <class Real>
bool same_bits(const Partial<Real>& a, const Partial<Real>& b) {
  return std::memcmp(&a.state.m, &b.state.m, sizeof(Real)) == 0 &&
         std::memcmp(&a.state.l, &b.state.l, sizeof(Real)) == 0 && std::memcmp(a.o.data(), b.o.data(), sizeof a.o) == 0;
}

template <class Real>
std::vector<Key<Real>> random_keys(std::mt19937_64& bits, std::size_t count) {
  std::normal_distribution<double> normal;
  const double level = std::array{0.0, -1e5, 1e4, -128.0}[bits() % 4];
  const double spread = std::array{0.1, 1.0, 30.0, 500.0}[bits() % 4];
  std::vector<Key<Real>> keys(count);
  for (Key<Real>& key : keys) {
    key.score = static_cast<Real>(level + spread * normal(bits));
    for (Real& value : key.value) value = static_cast<Real>(normal(bits));
    if (bits() % 8 == 0) key.value[0] = -Real(0);
    if (bits() % 16 == 0) key.score = -std::numeric_limits<Real>::infinity();
  }
  return keys;
}

/// Both partials stand for the same set: equal up to a few roundings of each term (values are about 1).
template <class Real>
void expect_alike(const Partial<Real>& a, const Partial<Real>& b) {
  ASSERT_EQ(a.state.m, b.state.m);
  const double tolerance = 64 * static_cast<double>(std::numeric_limits<Real>::epsilon());
  ASSERT_NEAR(a.state.l, b.state.l, tolerance * static_cast<double>(a.state.l + b.state.l));
  for (std::size_t d = 0; d < width; ++d)
    ASSERT_NEAR(a.o[d], b.o[d], tolerance * 8 * (1 + static_cast<double>(a.state.l)));
}

template <class Real>
class Softmax : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(Softmax, Reals);

TYPED_TEST(Softmax, IdentityChangesNoBitFromEitherSide) {
  std::mt19937_64 bits(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const auto keys = random_keys<TypeParam>(bits, 1 + bits() % 9);
    const auto set = pushed(keys, 0, keys.size());
    ASSERT_TRUE(same_bits(merged(set, Partial<TypeParam>()), set));
    ASSERT_TRUE(same_bits(merged(Partial<TypeParam>(), set), set));
  }
  Partial<TypeParam> negative_zero;
  negative_zero.state = {TypeParam(1), TypeParam(2)};
  negative_zero.o.fill(-TypeParam(0));
  EXPECT_TRUE(same_bits(merged(negative_zero, Partial<TypeParam>()), negative_zero));
  EXPECT_TRUE(same_bits(merged(Partial<TypeParam>(), negative_zero), negative_zero));
  EXPECT_TRUE(same_bits(merged(Partial<TypeParam>(), Partial<TypeParam>()), Partial<TypeParam>()));
}

TYPED_TEST(Softmax, MergeCommutesAndAssociates) {
  std::mt19937_64 bits(2);
  for (int trial = 0; trial < 2000; ++trial) {
    const auto keys = random_keys<TypeParam>(bits, 9);
    const auto a = pushed(keys, 0, bits() % 4), b = pushed(keys, 3, 6), c = pushed(keys, 6, 9);
    expect_alike(merged(a, b), merged(b, a));
    expect_alike(merged(merged(a, b), c), merged(a, merged(b, c)));
  }
}

TYPED_TEST(Softmax, PushIsMergeOfASingleton) {
  std::mt19937_64 bits(3);
  for (int trial = 0; trial < 2000; ++trial) {
    const auto keys = random_keys<TypeParam>(bits, 1 + bits() % 12);
    Partial<TypeParam> by_push, by_merge;
    for (std::size_t j = 0; j < keys.size(); ++j) {
      by_push.push(keys[j]);
      by_merge.merge(pushed(keys, j, j + 1));
      expect_alike(by_push, by_merge);
    }
  }
}

TYPED_TEST(Softmax, EqualsTheTextbook) {
  std::mt19937_64 bits(4);
  for (int trial = 0; trial < 500; ++trial) {
    const auto keys = random_keys<TypeParam>(bits, 40);
    auto set = pushed(keys, 0, keys.size());
    long double m = -std::numeric_limits<long double>::infinity(), l = 0;
    for (const auto& key : keys) m = std::max(m, static_cast<long double>(key.score));
    std::array<long double, width> o{};
    for (const auto& key : keys) {
      const long double p = std::exp(static_cast<long double>(key.score) - m);
      l += p;
      for (std::size_t d = 0; d < width; ++d) o[d] += p * key.value[d];
    }
    const double lse = finish(set.state, std::span<TypeParam>(set.o), true);
    const double tolerance = 100 * static_cast<double>(std::numeric_limits<TypeParam>::epsilon());
    EXPECT_NEAR(lse, static_cast<double>(m + std::log(l)), tolerance * (1 + std::fabs(lse)));
    for (std::size_t d = 0; d < width; ++d) EXPECT_NEAR(set.o[d], static_cast<double>(o[d] / l), tolerance);
  }
}

Partial<double> partial_of(std::initializer_list<Key<double>> keys) {
  Partial<double> partial;
  for (const auto& key : keys) partial.push(key);
  return partial;
}

/// The output row and, last, lse.
std::array<double, width + 1> finished(Partial<double> partial, bool any_visible = true) {
  const double lse = finish(partial.state, std::span<double>(partial.o), any_visible);
  return {partial.o[0], partial.o[1], partial.o[2], lse};
}

TEST(SoftmaxRows, NoVisibleKeyGivesZeroAndMinusInfinity) {
  Partial<double> dirty;
  dirty.o = {nan, 7, -inf};
  const auto row = finished(dirty, false);
  EXPECT_EQ(row, (std::array<double, 4>{0, 0, 0, -inf}));
  for (std::size_t d = 0; d < width; ++d) EXPECT_FALSE(std::signbit(row[d]));
}

TEST(SoftmaxRows, LowScoresAreOrdinary) {
  const auto row = finished(partial_of({{-1e5, {1, 2, 3}}, {-1e5, {3, 4, 5}}}));
  EXPECT_EQ(row[0], 2);
  EXPECT_EQ(row[2], 4);
  EXPECT_DOUBLE_EQ(row[3], -1e5 + std::log(2.0));
}

TEST(SoftmaxRows, OneKeyOfMinusInfinityContributesNothing) {
  for (const bool first : {true, false}) {
    Partial<double> partial;
    if (first) partial.push({-inf, {9, 9, 9}});
    partial.push({2, {1, 2, 3}});
    if (!first) partial.push({-inf, {9, 9, 9}});
    EXPECT_EQ(finished(partial), (std::array<double, 4>{1, 2, 3, 2}));
  }
}

TEST(SoftmaxRows, OnlyMinusInfinityIsNotFinite) {
  const auto row = finished(partial_of({{-inf, {1, 2, 3}}, {-inf, {4, 5, 6}}}));
  for (const double value : row) EXPECT_FALSE(std::isfinite(value));
}

TEST(SoftmaxRows, NanAndPlusInfinityNeverHeal) {
  for (const double score : {nan, inf})
    for (const int place : {0, 1, 2}) {
      Partial<double> by_push, by_merge, reversed;
      for (int j = 0; j < 3; ++j) {
        const Key<double> key{j == place ? score : double(j), {1, 2, 3}};
        by_push.push(key);
        by_merge.merge(partial_of({key}));
        reversed = merged(partial_of({key}), reversed);
      }
      for (const auto& partial : {by_push, by_merge, reversed})
        for (const double value : finished(partial)) EXPECT_FALSE(std::isfinite(value)) << score << " at " << place;
    }
}

TEST(SoftmaxRows, VisibleNanInAValueReachesItsColumnOnly) {
  for (const double weightless : {0.0, -inf}) {  // even at a score of -inf, 0 * NaN is NaN
    const Key<double> bad{weightless, {nan, 1, inf}};
    const Key<double> good{3, {1, 2, 3}};
    for (const auto& partial :
         {partial_of({bad, good}), partial_of({good, bad}), merged(partial_of({bad}), partial_of({good})),
          merged(partial_of({good}), partial_of({bad}))}) {
      const auto row = finished(partial);
      EXPECT_FALSE(std::isfinite(row[0]));
      EXPECT_TRUE(std::isfinite(row[1]));
      EXPECT_FALSE(std::isfinite(row[2]));
      EXPECT_TRUE(std::isfinite(row[3]));
    }
  }
}

TEST(SoftmaxRows, SumsNearOverflowStayFinite) {
  Partial<float> partial;
  for (int j = 0; j < 8; ++j) partial.push({0.f, {60000.f, 60000.f, 60000.f}});
  const float lse = finish(partial.state, std::span<float>(partial.o), true);
  EXPECT_EQ(partial.o[0], 60000.f);
  EXPECT_FLOAT_EQ(lse, std::log(8.f));
}

}  // namespace
}  // namespace fresnel
