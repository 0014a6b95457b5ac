// SPDX-License-Identifier: Apache-2.0
// exp and tanh of the C library, which cpu.reference_backward calls, against long double: what
// src/kernels/cpu/roundings.cpp declares of them has to hold on whatever library this is built with.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu.hpp"

namespace fresnel::cpu {
namespace {

/// The largest error found, in units of the type's roundoff, and where.
template <class T>
struct Worst {
  double units = 0;
  T at = 0;
};

/// Relative errors of `function` on `inputs`, less what `least` forgives where the result underflows.
template <class T, class Function, class Truth>
Worst<T> worst_of(const std::vector<T>& inputs, double unit, double least, Function function, Truth truth) {
  Worst<T> worst;
  for (const T x : inputs) {
    const long double exact = truth(static_cast<long double>(x));
    const long double off = std::abs(static_cast<long double>(function(x)) - exact) - static_cast<long double>(least);
    if (!(off > 0)) continue;
    const double units = static_cast<double>(off / std::abs(exact)) / unit;
    if (!(units <= worst.units)) worst = {units, x};  // NaN is worst of all
  }
  return worst;
}

/// Numbers of either sign, `each` of them in every octave from 2^first to 2^last.
template <class T>
std::vector<T> octaves(int first, int last, int each) {
  std::vector<T> numbers;
  std::uint64_t state = 1;
  for (int octave = first; octave < last; ++octave) {
    for (int count = 0; count < each; ++count) {
      state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
      const double mantissa = 1 + std::ldexp(static_cast<double>(state >> 12), -52);
      numbers.push_back(static_cast<T>(std::ldexp(count % 2 == 0 ? mantissa : -mantissa, octave)));
    }
  }
  return numbers;
}

/// Arguments of exp that give a finite result, evenly spread: score - lse is seldom above 0, but may be.
template <class T>
std::vector<T> exponents(double lowest, double highest, int count) {
  std::vector<T> numbers;
  for (int at = 0; at <= count; ++at)
    numbers.push_back(static_cast<T>(lowest + (highest - lowest) * (at + 0.37 * (at % 3)) / (count + 1)));
  return numbers;
}

template <class T>
void check_exponential(const char* line, double lowest, double highest) {
  const Problem problem = parse_problem(line).value();
  const Roundings declared = backward_roundings(problem, {16, 32});
  std::vector<T> inputs = exponents<T>(lowest, highest, 400'000);
  for (const T x : octaves<T>(-60, 6, 2000)) inputs.push_back(x);
  const auto worst = worst_of(
      inputs, declared.unit, declared.least_exp, [](T x) { return std::exp(x); },
      [](long double x) { return std::exp(x); });
  testing::Test::RecordProperty("exp_units", std::to_string(worst.units));
  EXPECT_LE(worst.units * declared.unit, declared.exp_constant) << "exp(" << worst.at << ")";
}

template <class T>
void check_tangent(const char* line, int lowest_octave) {
  const Problem problem = parse_problem(line).value();
  const Roundings declared = backward_roundings(problem, {16, 32});
  const auto worst = worst_of(
      octaves<T>(lowest_octave, 6, 4000), declared.unit, declared.least, [](T x) { return std::tanh(x); },
      [](long double x) { return std::tanh(x); });
  testing::Test::RecordProperty("tanh_units", std::to_string(worst.units));
  EXPECT_LE(worst.units * declared.unit, declared.tanh) << "tanh(" << worst.at << ")";
}

TEST(LibraryMath, FloatExponentialKeepsItsDeclaredError) { check_exponential<float>("b1 h1 q1 k1 d1 f32", -104, 88.7); }
TEST(LibraryMath, DoubleExponentialKeepsItsDeclaredError) {
  check_exponential<double>("b1 h1 q1 k1 d1 f64", -746, 709.7);
}
TEST(LibraryMath, FloatTangentKeepsItsDeclaredError) { check_tangent<float>("b1 h1 q1 k1 d1 f32", -126); }
TEST(LibraryMath, DoubleTangentKeepsItsDeclaredError) { check_tangent<double>("b1 h1 q1 k1 d1 f64", -200); }

template <class T>
void check_special_values() {
  constexpr T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  volatile T zero = 0;  // or the compiler answers for the library
  EXPECT_EQ(std::exp(T(zero)), T(1));
  EXPECT_EQ(std::exp(T(zero - infinity)), T(0));
  EXPECT_TRUE(std::isnan(std::exp(T(zero + nan))));
  EXPECT_EQ(std::tanh(T(zero)), T(0));
  EXPECT_EQ(std::tanh(T(zero + infinity)), T(1));
  EXPECT_EQ(std::tanh(T(zero - infinity)), T(-1));
  EXPECT_TRUE(std::isnan(std::tanh(T(zero + nan))));
}

TEST(LibraryMath, SpecialValues) {
  check_special_values<float>();
  check_special_values<double>();
}

}  // namespace
}  // namespace fresnel::cpu
