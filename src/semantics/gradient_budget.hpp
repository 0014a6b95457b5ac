// SPDX-License-Identifier: Apache-2.0
// How far an honest backward may be from the true gradients: per (query, key) pair, the errors of the weight and of the
// score's derivative; per output element, what becomes of them in a sum. docs/numerics.md, "Gradients", derives it.
// Sums over pairs are whoever calls's to make; nothing here knows an oracle or a kernel.
#pragma once

#include <span>
#include <vector>

#include "semantics/budget.hpp"

namespace fresnel {

/// The exact backward of one query row, beside its forward facts. One number for each visible key.
struct GradientFacts {
  const RowFacts& row;
  const Budget& forward;  ///< of the same row: what o and lse may be off by
  std::span<const double> p, dp, dp_sizes, ds;
  std::span<const double> factors;  ///< 1 - tanh^2; empty where there is no softcap
  double delta = 0;                 ///< D = sum_d dO_d o_d
  std::span<const double> dout;
};

/// Errors of a pair, infinite where nothing is promised.
struct GradientErrors {
  std::vector<double> p;    ///< of the weight, as it multiplies dO
  std::vector<double> ds;   ///< of the derivative of the final score
  std::vector<double> dot;  ///< of the derivative of q . k
};

[[nodiscard]] GradientErrors gradient_errors_of(const GradientFacts& facts, const Roundings& roundings, bool probable);

/// A gradient's element: a sum of `terms` products a_j b_j, where a_j errs by e_j.
struct GradientSum {
  double truth = 0;
  double error = 0;    ///< sum e_j |b_j|
  double size = 0;     ///< sum (|a_j| + e_j) |b_j|
  double factors = 0;  ///< sum |a_j| + e_j, which subnormal b_j are lost times where they are flushed
  double terms = 0;
  bool unpromised = false;  ///< some b_j is 0 where nothing is promised of a_j, and infinity times 0 is NaN
};

/// What one element may be off by when it is stored as `dtype`, and whether an infinity is right. A sum without terms
/// is exact.
struct GradientAllowance {
  double worst = 0;
  double probable = 0;
  Overflow overflow = Overflow::never;
};
[[nodiscard]] GradientAllowance allowance_of(const GradientSum& sum, double probable_error, const Roundings& roundings,
                                             double truth_unit, DType dtype);

}  // namespace fresnel
