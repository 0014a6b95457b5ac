// SPDX-License-Identifier: Apache-2.0
// How far an honest kernel may be from the truth: one pure function from the facts of one query row and the roundings
// of a kernel to a bound for every output of the row. docs/numerics.md derives each term under the name used here. It
// knows neither the oracle that supplies the facts nor any kernel, and it refuses to guess: what is not in Roundings is
// exact.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "fresnel/check.hpp"
#include "fresnel/view.hpp"

namespace fresnel {

/// The exact mathematics of one query row, to the accuracy of the oracle. The arrays over keys hold one number for each
/// visible key, in key order.
struct RowFacts {
  DType dtype = DType::f32;    ///< of q, k, v and o; float64 problems are accumulated in float64, all others in float32
  std::int64_t head_dim = 1;   ///< D
  std::int64_t first_key = 0;  ///< index of the first visible key; the others follow without gaps
  double scale = 1;            ///< softmax scale
  double softcap = 0;          ///< c; 0: none
  double max = 0;              ///< m, the largest final score
  double log_sum = 0;          ///< ln l = ln sum_j exp(s_j - m); lse is max + log_sum
  double truth_unit = 0x1p-53;  ///< unit roundoff of whoever computed these facts and the truth
  double query_size = 0;        ///< sum_d |q_d|

  std::span<const double> x;          ///< s_j - m, final scores relative to the largest, at most 0
  std::span<const double> products;   ///< sum_d |q_d k_jd|
  std::span<const double> key_sizes;  ///< sum_d |k_jd|
  std::span<const double> uncapped;   ///< scale (q . k_j) before the softcap; empty where there is none
  std::span<const double> additive;   ///< ALiBi's term; empty where there is none

  std::span<const double> o;       ///< the true output row, Dv values
  const double* values = nullptr;  ///< v of the first visible key; rows of value_pitch elements, Dv of them used
  std::int64_t value_pitch = 0;    ///< a multiple of `value_block`; what pads a row is finite
  /// A bound of every |v_jd| of the visible keys; infinity always is one and only costs time.
  double values_bound = std::numeric_limits<double>::infinity();
  static constexpr int value_block = 8;
};

/// When a value that is not finite is right although the truth is finite.
enum class Overflow : std::uint8_t {
  never,
  outward,  ///< the infinity of the truth's sign: truth and budget reach what the output dtype rounds to infinity
  either,   ///< the infinity of either sign: the budget reaches across 0 to the other one as well
  free,     ///< any: sums or scores may leave the range in which finite values are promised
};

/// Which infinities lie within `error` of `truth` where `dtype` is stored: never, outward or either.
[[nodiscard]] Overflow reach_of(double truth, double error, DType dtype);

/// The allowed distance from the truth.
struct Budget {
  std::vector<double> o;           ///< worst case, per column
  std::vector<double> o_probable;  ///< each gamma_n replaced by min(gamma_n, 6 sqrt(n) u)
  std::vector<Overflow> o_overflow;
  double lse = 0;
  double lse_probable = 0;
  Overflow lse_overflow = Overflow::never;
};

/// The budget of one row. A row without visible keys (`x` empty) has budget 0: its answer is exact.
[[nodiscard]] Budget budget_of(const RowFacts& facts, const Roundings& roundings);

/// delta_j of every visible key, and the same before softcap and additive terms: what a backward's scores are off by.
struct ScoreErrors {
  std::vector<double> score, uncapped;
};
[[nodiscard]] ScoreErrors score_errors_of(const RowFacts& facts, const Roundings& roundings, bool probable);

/// Unit roundoff of an output dtype (2^-53, 2^-24, 2^-11, 2^-8 for f64, f32, f16, bf16).
[[nodiscard]] double unit_of(DType dtype);

}  // namespace fresnel
