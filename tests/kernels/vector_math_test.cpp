// SPDX-License-Identifier: Apache-2.0
// exp_nonpositive and soft_capped against wider arithmetic, for every instruction set this host runs: the errors that
// src/kernels/cpu/roundings.cpp declares have to hold, since every error budget is built on them.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/vector_math_test.cpp"
#include "hwy/foreach_target.h"
// clang-format off: foreach_target.h has to come first
#include "kernels/cpu/vector-inl.h"
// clang-format on
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/isa.hpp"

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

/// Applies a vector function to an array in place; the last values may be padded.
template <class T, class Function>
void apply(std::vector<T>& values, Function function) {
  values.resize((values.size() + lanes_of<T> - 1) / lanes_of<T> * lanes_of<T>, T(0));
  for (std::size_t at = 0; at < values.size(); at += lanes_of<T>)
    hn::StoreU(function(load(values.data() + at)), Full<T>(), values.data() + at);
}

void exp_float(std::vector<float>& values) {
  apply(values, [](Vector<float> x) HWY_ATTR { return exp_nonpositive<float>(x); });
}
void exp_double(std::vector<double>& values) {
  apply(values, [](Vector<double> x) HWY_ATTR { return exp_nonpositive<double>(x); });
}
void cap_float(std::vector<float>& values) {
  apply(values, [](Vector<float> x) HWY_ATTR { return soft_capped<float>(x, 1.0f); });
}
void cap_double(std::vector<double>& values) {
  apply(values, [](Vector<double> x) HWY_ATTR { return soft_capped<double>(x, 1.0); });
}

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fresnel::cpu {

HWY_EXPORT(exp_float);
HWY_EXPORT(exp_double);
HWY_EXPORT(cap_float);
HWY_EXPORT(cap_double);

namespace {

constexpr Isa every_isa[] = {Isa::baseline, Isa::avx2, Isa::avx3, Isa::neon};

/// Calls check(isa) for every instruction set that runs here.
template <class Check>
void on_every_isa(Check check) {
  for (const Isa isa : every_isa) {
    if (!runs_here(isa)) continue;
    SCOPED_TRACE(name(isa));
    check(isa);
  }
}

/// Every `stride`-th float between 0 and `lowest`, subnormals included.
std::vector<float> negative_floats(float lowest, std::uint32_t stride) {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits <= (bits_of(lowest) & 0x7fffffffu); bits += stride)
    values.push_back(-float_of(bits));
  return values;
}

/// Largest share of the declared error of exp that a result has, for `inputs`.
template <class T, class Wide>
double worst_share(const std::vector<T>& inputs, const std::vector<T>& result, const std::vector<Wide>& truth,
                   const Roundings& declared) {
  double worst = 0;
  for (std::size_t at = 0; at < truth.size(); ++at) {
    const double error = std::abs(static_cast<Wide>(result[at]) - truth[at]) / std::abs(truth[at]);
    const double allowed = declared.exp_constant + declared.exp_slope * std::abs(static_cast<double>(inputs[at]));
    worst = std::max(worst, error / allowed);
  }
  return worst;
}

/// Largest relative error of `result` against `truth`, in units of `unit`.
template <class T, class Wide>
double worst_error(const std::vector<T>& result, const std::vector<Wide>& truth, double unit) {
  double worst = 0;
  for (std::size_t at = 0; at < truth.size(); ++at) {
    const Wide error = std::abs(static_cast<Wide>(result[at]) - truth[at]) / std::abs(truth[at]);
    worst = std::max(worst, static_cast<double>(error) / unit);
  }
  return worst;
}

const Problem f32_problem = parse_problem("b1 h1 q1 k1 d1 f32").value();
const Problem f64_problem = parse_problem("b1 h1 q1 k1 d1 f64").value();

TEST(VectorMath, FloatExponentialKeepsItsDeclaredError) {
  const Roundings declared = flash_roundings(f32_problem, {1, 64});
  const std::vector<float> inputs = negative_floats(-87.33f, 331);
  std::vector<double> truth;
  for (const float x : inputs) truth.push_back(std::exp(static_cast<double>(x)));
  on_every_isa([&](Isa isa) {
    std::vector<float> results = inputs;
    version_for(HWY_DISPATCH_TABLE(exp_float), isa)(results);
    const double worst = worst_share(inputs, results, truth, declared);
    RecordProperty("exp_float_of_declared_" + std::string(name(isa)), std::to_string(worst));
    EXPECT_LE(worst, 1);
  });
}

TEST(VectorMath, DoubleExponentialKeepsItsDeclaredError) {
  const Roundings declared = flash_roundings(f64_problem, {1, 64});
  std::vector<double> inputs;
  for (double x = -708.3; x < -1e-300; x += 0.000937) inputs.push_back(x);
  for (double x = -1; x < -1e-300; x *= 0.99) inputs.push_back(x);
  std::vector<long double> truth;
  for (const double x : inputs) truth.push_back(std::exp(static_cast<long double>(x)));
  on_every_isa([&](Isa isa) {
    std::vector<double> results = inputs;
    version_for(HWY_DISPATCH_TABLE(exp_double), isa)(results);
    EXPECT_LE(worst_share(inputs, results, truth, declared), 1);
  });
}

template <class T, class Table>
void check_exponentials_below_normal_range(const Table& table, T first, T last, double declared) {
  std::vector<T> inputs;
  for (T x = first; x > last; x -= T(0.013)) inputs.push_back(x);
  on_every_isa([&](Isa isa) {
    std::vector<T> results = inputs;
    version_for(table, isa)(results);
    for (std::size_t at = 0; at < inputs.size(); ++at) {
      const long double truth = std::exp(static_cast<long double>(inputs[at]));
      ASSERT_LE(std::abs(static_cast<long double>(results[at]) - truth), declared) << inputs[at];
    }
  });
}

TEST(VectorMath, ExponentialsBelowTheNormalRangeLoseNoMoreThanDeclared) {
  check_exponentials_below_normal_range<float>(HWY_DISPATCH_TABLE(exp_float), -87.2f, -110,
                                               flash_roundings(f32_problem, {1, 64}).least_exp);
  check_exponentials_below_normal_range<double>(HWY_DISPATCH_TABLE(exp_double), -708.2, -750,
                                                flash_roundings(f64_problem, {1, 64}).least_exp);
}

template <class T, class Table>
void check_special_exponentials(const Table& table, T below_normal_range) {
  constexpr T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  on_every_isa([&](Isa isa) {
    std::vector<T> values = {0, -T(0), -infinity, nan, -nan, below_normal_range, std::numeric_limits<T>::lowest()};
    version_for(table, isa)(values);
    EXPECT_EQ(values[0], T(1));
    EXPECT_EQ(values[1], T(1));
    EXPECT_EQ(values[2], T(0));
    EXPECT_TRUE(std::isnan(values[3]));
    EXPECT_TRUE(std::isnan(values[4]));
    EXPECT_GE(values[5], T(0));
    EXPECT_LT(values[5], std::numeric_limits<T>::min());
    EXPECT_EQ(values[6], T(0));
  });
}

TEST(VectorMath, ExponentialOfSpecialValues) {
  check_special_exponentials<float>(HWY_DISPATCH_TABLE(exp_float), -87.34f);
  check_special_exponentials<double>(HWY_DISPATCH_TABLE(exp_double), -708.4);
}

// soft_capped(s, 1) = 1 tanh(s / 1): the division and the product are exact, what remains is tanh.
TEST(VectorMath, FloatTangentKeepsItsDeclaredError) {
  const Roundings declared = flash_roundings(f32_problem, {1, 64});
  std::vector<float> inputs = negative_floats(-100.0f, 1733);
  std::erase_if(inputs, [](float x) { return std::abs(x) < 0x1p-120f; });
  std::vector<double> truth;
  for (const float x : inputs) truth.push_back(std::tanh(static_cast<double>(x)));
  on_every_isa([&](Isa isa) {
    std::vector<float> results = inputs;
    version_for(HWY_DISPATCH_TABLE(cap_float), isa)(results);
    EXPECT_LE(worst_error(results, truth, declared.unit) * declared.unit, declared.tanh);
  });
}

TEST(VectorMath, DoubleTangentKeepsItsDeclaredError) {
  const Roundings declared = flash_roundings(f64_problem, {1, 64});
  std::vector<double> inputs;
  for (double x = 50; x > 1e-200; x *= 0.9991) inputs.push_back(x);
  std::vector<long double> truth;
  for (const double x : inputs) truth.push_back(std::tanh(static_cast<long double>(x)));
  on_every_isa([&](Isa isa) {
    std::vector<double> results = inputs;
    version_for(HWY_DISPATCH_TABLE(cap_double), isa)(results);
    EXPECT_LE(worst_error(results, truth, declared.unit) * declared.unit, declared.tanh);
  });
}

TEST(VectorMath, TangentOfSpecialValues) {
  on_every_isa([&](Isa isa) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    std::vector<float> values = {0, infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 1e30f, -1e30f};
    version_for(HWY_DISPATCH_TABLE(cap_float), isa)(values);
    EXPECT_EQ(values[0], 0.0f);
    EXPECT_EQ(values[1], 1.0f);
    EXPECT_EQ(values[2], -1.0f);
    EXPECT_TRUE(std::isnan(values[3]));
    EXPECT_EQ(values[4], 1.0f);
    EXPECT_EQ(values[5], -1.0f);
  });
}

}  // namespace
}  // namespace fresnel::cpu
#endif  // HWY_ONCE
