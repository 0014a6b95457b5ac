// SPDX-License-Identifier: Apache-2.0
// Two doubles as one value: the width every target has (SSE2, NEON, WebAssembly), written with the compilers' own
// vector type because neither compiler vectorises the oracle's and the budget's short inner loops by itself. long
// double has the same interface with one lane. Not for kernels, which have a library for this.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace fresnel {

template <class Real>
struct Lanes;

template <>
struct Lanes<double> {
  static constexpr int count = 2;
  using Value = double __attribute__((vector_size(16)));
  using Bits = std::int64_t __attribute__((vector_size(16)));

  static Value load(const double* from) {
    Value value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  static Value all(double value) { return Value{value, value}; }
  static Value magnitude(Value value) {
    constexpr std::int64_t all_but_sign = INT64_MAX;
    return reinterpret_cast<Value>(reinterpret_cast<Bits>(value) & Bits{all_but_sign, all_but_sign});
  }
  static double lane(Value value, int index) { return value[index]; }
};

template <>
struct Lanes<long double> {
  static constexpr int count = 1;
  using Value = long double;

  static Value load(const double* from) { return static_cast<long double>(*from); }
  static Value all(long double value) { return value; }
  static Value magnitude(Value value) { return std::abs(value); }
  static long double lane(Value value, int) { return value; }
};

}  // namespace fresnel
