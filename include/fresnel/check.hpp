// SPDX-License-Identifier: Apache-2.0
// The judge: anybody's result against the float64 truth and a proven error budget for every output element.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "fresnel/plan.hpp"

namespace fresnel {

/// What a kernel rounds, and where: the data a budget is computed from. docs/numerics.md derives the formulas and says
/// what each field means for a kernel's author; the defaults are a float32 kernel whose functions are exact.
struct Roundings {
  std::string name;             ///< the row, or "default"
  double unit = 0x1p-24;        ///< unit roundoff of scores, row sum and output accumulator
  double unit_p = 0;            ///< unit roundoff of the type P is rounded to; 0: P is not rounded
  double least_p = 0;           ///< absolute error of a P that underflows that type (2^-25 for f16)
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
  std::int64_t dot_lanes = 1;   ///< independent partial sums of a dot product: its depth is ceil(D / lanes) + lanes - 1

  bool operator==(const Roundings&) const = default;
};

/// How one output tensor fared.
struct Judgement {
  std::int64_t count = 0;
  std::int64_t mismatches = 0;           ///< elements beyond the worst-case budget
  std::int64_t mismatches_probable = 0;  ///< elements beyond the probabilistic budget (reported, not judged)
  double max_error = 0;
  double max_share = 0;                  ///< largest error / budget; 0 where both are 0, infinity where only the budget is
  double max_share_probable = 0;
  std::array<std::int64_t, 4> at{-1, -1, -1, -1};  ///< [b, h, i, d] of max_share ([b, h, i, -1] for lse)
};

struct Verdict {
  Judgement o;
  std::optional<Judgement> lse;
  [[nodiscard]] bool ok() const { return o.mismatches == 0 && (!lse || lse->mismatches == 0); }
};

/// How a result of unknown origin is assumed to have been made: input dtype, float32 accumulator with u = 2^-23, tiles of
/// 64 keys, P rounded to the input dtype (float64 accumulators for float64).
[[nodiscard]] Roundings default_roundings(const Problem& problem);
/// The roundings a row of the catalogue declares for a problem under a plan.
[[nodiscard]] Roundings roundings_of(const Plan& plan);

/// Judges `result` (o, and lse if present) for these inputs. Every element is compared; NaN matches only where the truth
/// is not finite. Runs on `executor` (default: the pool).
[[nodiscard]] Result<Verdict> check(const Problem& problem, const Inputs& inputs, const Outputs& result,
                                    const Roundings& roundings, Executor* executor = nullptr);

}  // namespace fresnel
