// SPDX-License-Identifier: Apache-2.0
// What the budgets of outputs and of gradients are both made of: how roundings accumulate, and where types overflow and
// underflow. docs/numerics.md uses the same names. It knows no formula of attention.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "fresnel/view.hpp"

namespace fresnel {

/// Budgets are computed in double: their own relative rounding error is far below this.
inline constexpr double own_rounding = 1 + 0x1p-20;

/// A product of bounds, where nothing times infinity is nothing.
[[nodiscard]] inline double times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

/// At least -ln(1 - e), the exponent error that corresponds to a relative error of at most e.
[[nodiscard]] inline double exponent_of(double e) {
  return e < 1 ? e / (1 - e) : std::numeric_limits<double>::infinity();
}

/// Smallest normal number and promised range of the type that sums are kept in (docs/semantics.md, rule 4).
struct Range {
  double normal;
  double scores;  ///< finite scores are promised below
  double sums;    ///< finite sums of P V are promised below
};
[[nodiscard]] inline Range range_of(DType dtype) {
  return dtype == DType::f64 ? Range{0x1p-1022, 0x1p1022, 0x1p1023} : Range{0x1p-126, 0x1p126, 0x1p127};
}

/// The least magnitude that is stored as infinity. For float64 the range of sums ends earlier.
[[nodiscard]] inline double overflow_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return std::numeric_limits<double>::infinity();
    case DType::f16: return 65520;
    case DType::bf16: return std::ldexp(2 - 0x1p-8, 127);
    default: return std::ldexp(2 - 0x1p-24, 127);
  }
}

[[nodiscard]] inline double half_least_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0;  // 2^-1075 is below double's own range; `least` covers it
    case DType::f16: return 0x1p-25;
    case DType::bf16: return 0x1p-134;
    default: return 0x1p-150;
  }
}

/// Standard deviations at most that a sum of independent errors is assumed to be off: lambda of Higham and Mary 2019.
inline constexpr double likely_deviations = 6;

/// One column of the verdict: how `n` roundings accumulate in the worst case, or in all probability.
struct Growth {
  double unit;
  bool probable;

  /// gamma_n, Higham 2002, section 3.1; with `probable` at most 6 sqrt(n) u, Higham and Mary 2019, theorem 2.4.
  [[nodiscard]] double operator()(double n) const {
    const double worst = n * unit < 1 ? n * unit / (1 - n * unit) : std::numeric_limits<double>::infinity();
    return probable ? std::min(worst, likely_deviations * std::sqrt(n) * unit) : worst;
  }
};

}  // namespace fresnel
