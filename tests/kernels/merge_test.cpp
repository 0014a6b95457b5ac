// SPDX-License-Identifier: Apache-2.0
// The public merge: keys cut at any place and merged give what they give in one piece, the identity changes no bit from
// either side, thread counts change none, strides act, and every fault of a view is refused by name.
#include "fresnel/merge.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "fresnel/plan.hpp"

namespace fresnel {
namespace {

template <class Real>
constexpr DType dtype_of = sizeof(Real) == 8 ? DType::f64 : DType::f32;

/// (o, lse) of 2 x 3 x 5 rows, 7 values wide.
template <class Real>
struct Rows {
  std::vector<Real> o = std::vector<Real>(2 * 3 * 5 * 7, std::numeric_limits<Real>::quiet_NaN());
  std::vector<Real> lse = std::vector<Real>(2 * 3 * 5, std::numeric_limits<Real>::quiet_NaN());

  [[nodiscard]] Partial part() const {
    return {{o.data(), dtype_of<Real>, {2, 3, 5, 7}}, {lse.data(), dtype_of<Real>, {2, 3, 5}}};
  }
  [[nodiscard]] Merged to() {
    return {{o.data(), dtype_of<Real>, {2, 3, 5, 7}}, {lse.data(), dtype_of<Real>, {2, 3, 5}}};
  }
  /// Compares bits, so that -0 is not 0 and NaN is itself.
  [[nodiscard]] bool same_bits(const Rows& other) const {
    return std::memcmp(o.data(), other.o.data(), o.size() * sizeof(Real)) == 0 &&
           std::memcmp(lse.data(), other.lse.data(), lse.size() * sizeof(Real)) == 0;
  }
};

template <class Real>
Rows<Real> identity() {
  Rows<Real> rows;
  rows.o.assign(rows.o.size(), Real(0));
  rows.lse.assign(rows.lse.size(), -std::numeric_limits<Real>::infinity());
  return rows;
}

template <class Real>
Rows<Real> random_rows(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<Real> normal;
  Rows<Real> rows;
  for (Real& value : rows.o) value = normal(random);
  for (Real& value : rows.lse) value = 3 * normal(random);
  return rows;
}

template <class Real>
Rows<Real> merged(const std::vector<const Rows<Real>*>& list, Executor* executor = nullptr) {
  std::vector<Partial> parts;
  for (const auto* rows : list) parts.push_back(rows->part());
  Rows<Real> result;
  const Status status = merge(parts, result.to(), executor);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.refusal().message());
  return result;
}

template <class Real>
class Merging : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(Merging, Reals);

TYPED_TEST(Merging, KeysCutAnywhereGiveWhatTheyGiveInOnePiece) {
  using Real = TypeParam;
  const std::int64_t keys = 40;
  std::mt19937 random(3);
  std::normal_distribution<Real> normal;
  std::vector<Real> q(2 * 3 * 5 * 7), k(2 * 3 * keys * 7), v(k.size());
  for (auto* tensor : {&q, &k, &v})
    for (Real& value : *tensor) value = normal(random);
  const auto attended = [&](std::int64_t first, std::int64_t count) {
    Rows<Real> rows;
    const auto cut = [&](const std::vector<Real>& all) {
      return View(all.data() + first * 7, dtype_of<Real>, {2, 3, count, 7}, {3 * keys * 7, keys * 7, 7, 1});
    };
    const Merged to = rows.to();
    const auto report =
        attend(Options{}, {View(q.data(), dtype_of<Real>, {2, 3, 5, 7}), cut(k), cut(v), {}, {}}, {to.o, to.lse});
    EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.refusal().message());
    return rows;
  };
  const Rows<Real> whole = attended(0, keys);
  const double tolerance = 32 * std::numeric_limits<Real>::epsilon();
  for (const std::int64_t cut : {0, 1, 17, 39, 40}) {
    const Rows<Real> left = attended(0, cut), middle = attended(cut, 0), right = attended(cut, keys - cut);
    const Rows<Real> both = merged<Real>({&left, &middle, &right});
    for (std::size_t i = 0; i < both.o.size(); ++i) ASSERT_NEAR(both.o[i], whole.o[i], tolerance) << cut;
    for (std::size_t i = 0; i < both.lse.size(); ++i) ASSERT_NEAR(both.lse[i], whole.lse[i], 8 * tolerance) << cut;
  }
}

TYPED_TEST(Merging, TheIdentityChangesNoBit) {
  using Real = TypeParam;
  Rows<Real> a = random_rows<Real>(1);
  const Rows<Real> none = identity<Real>();
  a.o[3] = -Real(0);
  a.lse[2] = -Real(0);
  a.o[9] = std::numeric_limits<Real>::quiet_NaN();
  a.lse[5] = std::numeric_limits<Real>::infinity();
  EXPECT_TRUE(merged<Real>({&a}).same_bits(a));
  EXPECT_TRUE(merged<Real>({&a, &none}).same_bits(a));
  EXPECT_TRUE(merged<Real>({&none, &a, &none}).same_bits(a));
  EXPECT_TRUE(merged<Real>({}).same_bits(none));
  EXPECT_TRUE(merged<Real>({&none, &none}).same_bits(none));
  const Rows<Real> b = random_rows<Real>(2), both = merged<Real>({&a, &b});
  EXPECT_FALSE(both.same_bits(a));
  EXPECT_TRUE(merged<Real>({&none, &a, &none, &b, &none}).same_bits(both));
}

TYPED_TEST(Merging, RowsThatWeighNothingHideNothing) {
  using Real = TypeParam;
  Rows<Real> unknown = identity<Real>();  // keys were visible, and all of them scored -inf: o is 0 / 0
  for (Real& value : unknown.o) value = std::numeric_limits<Real>::quiet_NaN();
  const Rows<Real> a = random_rows<Real>(4), none = identity<Real>();
  EXPECT_TRUE(std::isnan(merged<Real>({&none, &unknown, &none}).o[0]));
  EXPECT_TRUE(merged<Real>({&unknown, &a}).same_bits(a));
  EXPECT_TRUE(merged<Real>({&a, &unknown}).same_bits(a));
}

TYPED_TEST(Merging, NoThreadCountChangesABit) {
  using Real = TypeParam;
  const Rows<Real> a = random_rows<Real>(5), b = random_rows<Real>(6), c = random_rows<Real>(7);
  const Rows<Real> expected = merged<Real>({&a, &b, &c});
  for (const int threads : {1, 2, 7}) {
    const auto executor = make_executor(threads);
    EXPECT_TRUE(merged<Real>({&a, &b, &c}, executor.get()).same_bits(expected)) << threads;
  }
}

TEST(Merge, FarApartWeightsAndSinks) {
  const double o[2] = {1, 5}, zero[2] = {0, 0}, lse[2] = {1e5, 0}, less[2] = {-1e5, 0};
  double result[2], result_lse[2];
  const auto view = [](const double* data) { return View(data, DType::f64, {1, 1, 2, 1}); };
  const auto row = [](const double* data) { return View(data, DType::f64, {1, 1, 2}); };
  const Partial parts[] = {{view(o), row(lse)}, {view(zero), row(less)}};
  ASSERT_TRUE(merge(parts, {{result, DType::f64, {1, 1, 2, 1}}, {result_lse, DType::f64, {1, 1, 2}}}).ok());
  EXPECT_EQ(result[0], 1);  // the other side is below the least number
  EXPECT_EQ(result_lse[0], 1e5);
  EXPECT_DOUBLE_EQ(result[1], 2.5);  // a sink of 0 beside a key of score 0
  EXPECT_DOUBLE_EQ(result_lse[1], std::log(2.0));
}

TEST(Merge, StridesAct) {
  const Rows<float> a = random_rows<float>(8), b = random_rows<float>(9);
  const Rows<float> expected = merged<float>({&a, &b});
  std::vector<float> o(2 * 5 * 3 * 7), lse(2 * 5 * 3);  // [B, S, H, Dv] and [B, S, H]
  const Partial parts[] = {a.part(), b.part()};
  ASSERT_TRUE(merge(parts, {MutableView(o.data(), DType::f32, {2, 5, 3, 7}).transposed(1, 2),
                            MutableView(lse.data(), DType::f32, {2, 5, 3}).transposed(1, 2)})
                  .ok());
  for (std::size_t batch = 0; batch < 2; ++batch)
    for (std::size_t head = 0; head < 3; ++head)
      for (std::size_t query = 0; query < 5; ++query) {
        const std::size_t there = (batch * 5 + query) * 3 + head, here = (batch * 3 + head) * 5 + query;
        ASSERT_EQ(lse[there], expected.lse[here]);
        for (std::size_t d = 0; d < 7; ++d) ASSERT_EQ(o[there * 7 + d], expected.o[here * 7 + d]);
      }
}

TEST(Merge, RefusesByName) {
  const Rows<float> a = random_rows<float>(10);
  const Rows<double> wide = random_rows<double>(10);
  Rows<float> result;
  const auto argument = [&](const Partial& part, const Merged& to) {
    const Partial parts[] = {a.part(), part};
    const Status status = merge(parts, to);
    return status.ok() ? std::string("nothing") : status.refusal().argument;
  };
  EXPECT_EQ(argument(a.part(), result.to()), "nothing");
  EXPECT_EQ(argument(wide.part(), result.to()), "parts[1].o");
  EXPECT_EQ(argument({a.part().o, wide.part().lse}, result.to()), "parts[1].lse");
  EXPECT_EQ(argument({a.part().o, {a.lse.data(), DType::f32, {2, 5, 3}}}, result.to()), "parts[1].lse");
  EXPECT_EQ(argument({a.part().o.transposed(2, 3), a.part().lse}, result.to()), "parts[1].o");
  EXPECT_EQ(argument(result.part(), result.to()), "result.o");
  EXPECT_EQ(argument({{nullptr, DType::f32, {2, 3, 5, 7}}, a.part().lse}, result.to()), "parts[1].o");
  Merged half = result.to();
  half.o.dtype = DType::f16;
  EXPECT_EQ(argument(a.part(), half), "result.o");
  Merged flat = result.to();
  flat.o.strides[0] = 0;
  EXPECT_EQ(argument(a.part(), flat), "result.o");
  Merged shared = result.to();
  shared.lse.data = result.o.data();
  EXPECT_EQ(argument(a.part(), shared), "result.lse");
  Partial elsewhere = a.part();
  elsewhere.o.device = Device::cuda;
  EXPECT_EQ(argument(elsewhere, result.to()), "parts[1].o");
}

TEST(Merge, EmptyAxesAreNothingToDo) {
  const View none{nullptr, DType::f32, {2, 0, 5, 7}}, no_lse{nullptr, DType::f32, {2, 0, 5}};
  const Partial parts[] = {{none, no_lse}};
  EXPECT_TRUE(merge(parts, {{nullptr, DType::f32, {2, 0, 5, 7}}, {nullptr, DType::f32, {2, 0, 5}}}).ok());
}

}  // namespace
}  // namespace fresnel
