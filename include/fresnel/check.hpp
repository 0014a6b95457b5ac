// SPDX-License-Identifier: Apache-2.0
// The judge: anybody's result against the float64 truth and a proven error budget for every output element.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "fresnel/plan.hpp"

#pragma GCC visibility push(default)  // what stands below is what a shared library exports

namespace fresnel {

/// What a kernel rounds, and where: the data a budget is computed from. docs/numerics.md derives the formulas and says
/// what each field means for a kernel's author; the defaults are a float32 kernel whose functions are exact.
struct Roundings {
  std::string name;             ///< the row, or "default"
  double unit = 0x1p-24;        ///< unit roundoff of scores, row sum and output accumulator
  double unit_p = 0;            ///< unit roundoff of the type P is rounded to; 0: P is not rounded
  double least_p = 0;           ///< absolute error of a P that underflows that type (f16: 2^-25, bf16: 2^-134)
  bool sums_rounded_p = false;  ///< the row sum adds the rounded P
  double least = 0x1p-149;      ///< absolute error of a product that underflows (2^-126 where flushed)
  double least_exp = 0x1p-149;  ///< absolute error of an exponential that underflows
  bool flushes_inputs = false;  ///< subnormal q, k and v are read as zero
  double exp_constant = 0;      ///< e(x) = exp_constant + exp_slope |x|, relative
  double exp_slope = 0;
  double rescale = 0;           ///< e_alpha: relative error of one rescale factor, beyond exp_slope |x|
  double tanh = 0;              ///< e_tanh: relative, near 0 as well
  double log = 0;               ///< e_log: of ln l, relative to 1 + |ln l|
  bool log2_scores = false;     ///< scores are kept in log2 units, or m is rounded after scaling
  std::int64_t tile_keys = 64;  ///< keys summed per tile before tiles are summed
  bool running_sum = false;     ///< keys are added straight to the rescaled sums: their depth is K, not one tile
  std::int64_t splits = 1;      ///< independent key ranges whose (m, l, o) are merged at the end
  double split = 0;            ///< of each product q_d k_d, relative: what is left out where numbers are split in parts
  std::int64_t dot_lanes = 1;  ///< independent partial sums of a dot product: its depth is ceil(D / lanes) + lanes - 1

  bool operator==(const Roundings&) const = default;
};

/// How one output tensor fared. A share is error / budget: 0 where the error is 0, infinity where only the budget is 0
/// or where a value that is not finite is wrong (its error is infinity, too).
struct Judgement {
  std::int64_t count = 0;
  std::int64_t mismatches = 0;           ///< elements beyond the worst-case budget
  std::int64_t mismatches_probable = 0;  ///< elements beyond the probabilistic budget (reported, not judged)
  double max_error = 0;
  double max_share = 0;
  double max_share_probable = 0;
  /// [b, h, i, d] of max_share ([b, h, i, -1] for lse), the first of equals; all -1 where no element is off at all.
  std::array<std::int64_t, 4> at{-1, -1, -1, -1};
};

struct Verdict {
  Judgement o;
  std::optional<Judgement> lse;
  std::optional<Judgement> dq = std::nullopt;
  std::optional<Judgement> dk = std::nullopt;
  std::optional<Judgement> dv = std::nullopt;
  std::optional<Judgement> dalibi_slopes = std::nullopt;  ///< `at` is [-1, h, -1, -1] where slopes are per head
  [[nodiscard]] bool ok() const {
    for (const auto& part : {lse, dq, dk, dv, dalibi_slopes})
      if (part && part->mismatches > 0) return false;
    return o.mismatches == 0;
  }
};

/// How a result of unknown origin is assumed to have been made: input dtype, float32 accumulator with u = 2^-23, tiles
/// of 64 keys, P rounded to the input dtype (float64 accumulators for float64), and functions as common libraries have
/// them.
[[nodiscard]] Roundings default_roundings(const Problem& problem);
/// The roundings a row of the catalogue declares for a problem under a plan.
[[nodiscard]] Roundings roundings_of(const Plan& plan);

/// Judges `result`, o [B, Hq, Sq, Dv] in the problem's dtype and, if present, lse [B, Hq, Sq] in float32 (float64 for
/// float64), of any strides, for these inputs; all of it in host memory. Every element is compared with a wider truth.
/// Gradients (dq, dk, dv, dalibi_slopes) are judged where the result has them, which takes the inputs' dout.
/// A value that is not finite is right only where the truth is not finite either, where the output's type overflows, or
/// where docs/numerics.md promises nothing finite. Runs on `executor` (default: the pool); no thread count changes a
/// verdict. Refuses inputs or results that are not the problem's, indices out of range, and roundings that are no
/// numbers.
[[nodiscard]] Result<Verdict> check(const Problem& problem, const Inputs& inputs, const Outputs& result,
                                    const Roundings& roundings, Executor* executor = nullptr);

/// The same where two kernels made the result: o and lse are judged by `forward`, gradients by `backward`, whose
/// budgets begin with what `forward` allows o and lse to be off by.
[[nodiscard]] Result<Verdict> check(const Problem& problem, const Inputs& inputs, const Outputs& result,
                                    const Roundings& forward, const Roundings& backward, Executor* executor = nullptr);

}  // namespace fresnel

#pragma GCC visibility pop
