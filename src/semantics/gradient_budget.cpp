// SPDX-License-Identifier: Apache-2.0
// The error budget of gradients, in the order in which a backward computes them: weights from scores and lse, dP and D,
// the softmax's derivative, the softcap's, sums, stored output. docs/numerics.md derives every line.
#include "semantics/gradient_budget.hpp"

#include "semantics/growth.hpp"

namespace fresnel {
namespace {

/// What a row has in common for all its keys.
struct Row {
  const GradientFacts& facts;
  const Roundings& roundings;
  Range range;
  double unit;
  double value_growth;  ///< relative error of a sum over Dv
  double lse;           ///< budget of lse
  double delta;         ///< e_D
  double flush;         ///< smallest normal number where subnormal inputs are read as zero, else 0
  double values;        ///< Dv

  Row(const GradientFacts& facts_, const Roundings& roundings_, bool probable)
      : facts(facts_),
        roundings(roundings_),
        range(range_of(facts.row.dtype)),
        unit(roundings.unit + 8 * facts.row.truth_unit),
        lse(probable ? facts.forward.lse_probable : facts.forward.lse),
        flush(roundings.flushes_inputs ? range.normal : 0),
        values(static_cast<double>(facts.dout.size())) {
    value_growth = Growth{roundings.unit, probable}(values + 1) + (values + 8) * facts.row.truth_unit;
    delta = 2 * values * roundings.least;
    const std::vector<double>& budgets = probable ? facts.forward.o_probable : facts.forward.o;
    double size = 0;  // D is not finite where an o is not, nor where it overflows itself
    for (std::size_t d = 0; d < facts.dout.size(); ++d) {
      const double dout = std::abs(facts.dout[d]), o = std::abs(facts.row.o[d]) + budgets[d];
      delta += times(dout, budgets[d]) + times(value_growth, times(dout, o)) + flush * (dout + o);
      size += facts.forward.o_overflow[d] == Overflow::never ? times(dout, o) : range.scores;
    }
    if (!(size < range.scores)) delta = std::numeric_limits<double>::infinity();
  }

  /// Largest computed weight, and by how much it may differ from p: p exp(+-eta).
  struct Weight {
    double most;
    double error;
  };
  [[nodiscard]] Weight weight(std::size_t key, double score_error) const {
    const double exponent = facts.row.x[key] - facts.row.log_sum;
    const double argument = std::abs(exponent) + score_error + lse;
    const double relative =
        roundings.exp_constant + roundings.exp_slope * std::min(argument, 800.0) + 4 * facts.row.truth_unit;
    double eta = score_error + lse + unit * argument + exponent_of(relative);
    if (roundings.log2_scores) eta += 3 * unit * (std::abs(facts.row.max + facts.row.log_sum) + lse);
    const double most = std::exp(exponent + eta);
    if (!(most < range.scores))
      return {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    return {most, most * std::min(eta, 1.0) + roundings.least_exp};
  }

  /// Error of dP - D.
  [[nodiscard]] double difference_error(std::size_t key) const {
    if (!(facts.dp_sizes[key] < range.scores)) return std::numeric_limits<double>::infinity();
    double error = delta + value_growth * facts.dp_sizes[key] + 2 * values * roundings.least;
    if (flush > 0) {
      const double* const v = facts.row.values + static_cast<std::int64_t>(key) * facts.row.value_pitch;
      for (std::size_t d = 0; d < facts.dout.size(); ++d) error += flush * (std::abs(facts.dout[d]) + std::abs(v[d]));
    }
    return error + unit * (std::abs(facts.dp[key] - facts.delta) + error) + 2 * roundings.least;
  }

  /// Error of scale (1 - tanh^2) dS, given that of dS; `uncapped` is the error of the score before the cap.
  [[nodiscard]] double dot_error(std::size_t key, double ds_error, double uncapped) const {
    const double scale = std::abs(facts.row.scale), ds = std::abs(facts.ds[key]);
    if (!std::isfinite(ds_error)) return ds_error;  // times a scale of 0 as well
    double factor = 1, factor_error = 0;
    if (!facts.factors.empty()) {
      // The slope of 1 - tanh^2 is at most 4 / (3 sqrt 3); what rounds z itself is below 2 u, the rest is tanh's.
      factor = facts.factors[key];
      factor_error = std::min(1.0, 2 * roundings.tanh + 9 * unit + 0.77 * uncapped / facts.row.softcap);
    }
    const double most = factor + factor_error;
    double error = times(most, ds_error) + times(factor_error, ds) + 4 * unit * times(most, ds + ds_error);
    error = times(scale, error) + 4 * (1 + scale) * roundings.least;
    if (!(scale * factor * ds + error < range.scores)) return std::numeric_limits<double>::infinity();
    return error + times(roundings.unit_p, scale * factor * ds + error) + roundings.least_p;
  }
};

}  // namespace

GradientErrors gradient_errors_of(const GradientFacts& facts, const Roundings& roundings, bool probable) {
  const Row row(facts, roundings, probable);
  const ScoreErrors scores = score_errors_of(facts.row, roundings, probable);
  GradientErrors errors;
  for (std::size_t key = 0; key < facts.p.size(); ++key) {
    const Row::Weight weight = row.weight(key, scores.score[key]);
    const double away = std::abs(facts.dp[key] - facts.delta), difference = row.difference_error(key);
    double ds = times(weight.most, difference) + times(weight.error, away) +
                2 * row.unit * times(weight.most, away + difference) + 2 * roundings.least;
    if (!std::isfinite(difference)) ds = difference;  // times a weight of 0 as well
    errors.p.push_back(weight.error + times(roundings.unit_p, weight.most) + roundings.least_p);
    errors.ds.push_back(ds);
    errors.dot.push_back(row.dot_error(key, ds, scores.uncapped[key]));
  }
  return errors;
}

GradientAllowance allowance_of(const GradientSum& sum, double probable_error, const Roundings& roundings,
                               double truth_unit, DType dtype) {
  if (sum.terms == 0) return {};
  const Range range = range_of(dtype);
  const double unit = unit_of(dtype), own = (sum.terms + 8) * truth_unit;
  const double lost =
      2 * (sum.terms + 1) * roundings.least + (roundings.flushes_inputs ? times(range.normal, sum.factors) : 0);
  const auto stored = [&](double error, bool probable) {
    const double growth = Growth{roundings.unit, probable}(sum.terms + 2) + own;
    const double summed = error + times(growth, sum.size) + lost;
    const double rounding = unit > roundings.unit ? unit * (std::abs(sum.truth) + summed) : 0;
    return own_rounding * (summed + rounding + half_least_of(dtype));
  };
  GradientAllowance allowance{stored(sum.error, false), 0, Overflow::free};
  allowance.probable = std::min(allowance.worst, stored(probable_error, true));
  if (!sum.unpromised && sum.size < range.sums) allowance.overflow = reach_of(sum.truth, allowance.worst, dtype);
  return allowance;
}

}  // namespace fresnel
