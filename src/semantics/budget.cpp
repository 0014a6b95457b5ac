// SPDX-License-Identifier: Apache-2.0
// The error budget of one query row, in the order in which a kernel computes it: scores, weights, sums, quotient,
// stored output. docs/numerics.md derives every line; the names here are the names there. Weights are handled as
// logarithms, so that an exponent error of 1e11 widens a budget instead of turning it into NaN. Refuses nothing: facts
// that say nothing (an infinite size) give an infinite budget.
#include "semantics/budget.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "semantics/growth.hpp"
#include "semantics/lanes.hpp"

namespace fresnel {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Largest exponent of a ratio of weights that is kept; beyond it only the convex bound is left.
constexpr double ratio_limit = 600;

/// Everything about a row that does not depend on the key.
struct Row {
  const RowFacts& facts;
  const Roundings& roundings;
  Growth growth;
  Range range;
  double keys;       ///< K
  double unit;       ///< u of one operation, and the truth's own errors beside it
  double dot;        ///< relative error of scale (q . k) with respect to A
  double rescales;   ///< R
  double sum_depth;  ///< n
  double flush;      ///< smallest normal number where subnormal inputs are read as zero, else 0

  Row(const RowFacts& facts_, const Roundings& roundings_, bool probable);

  [[nodiscard]] double sum_growth(double more) const {
    return growth(sum_depth + more) + (keys + 8) * facts.truth_unit;
  }
  [[nodiscard]] double score(std::size_t key) const { return facts.max + facts.x[key]; }
  [[nodiscard]] bool in_range(std::size_t key) const;
  [[nodiscard]] double capped_error(std::size_t key, double error) const;
  [[nodiscard]] double uncapped_error(std::size_t key) const;
  [[nodiscard]] double score_error(std::size_t key) const;
  [[nodiscard]] double exponent_error(std::size_t key, double error, double worst) const;
  [[nodiscard]] double likely_rounded_p() const;
};

Row::Row(const RowFacts& facts_, const Roundings& roundings_, bool probable)
    : facts(facts_), roundings(roundings_), growth{roundings.unit, probable}, range(range_of(facts.dtype)) {
  const auto count = static_cast<std::int64_t>(facts.x.size());
  keys = static_cast<double>(count);
  unit = roundings.unit + 8 * facts.truth_unit;
  const std::int64_t lanes = std::max<std::int64_t>(roundings.dot_lanes, 1);
  const std::int64_t depth = std::min(facts.head_dim, (facts.head_dim + lanes - 1) / lanes + lanes - 1);
  const int constants = roundings.log2_scores ? 4 : 2;
  dot = growth(static_cast<double>(depth + constants)) + static_cast<double>(facts.head_dim + 8) * facts.truth_unit +
        roundings.split;
  const std::int64_t tile = std::max<std::int64_t>(roundings.tile_keys, 1);
  const std::int64_t tiles = (facts.first_key + count - 1) / tile - facts.first_key / tile + 1;
  rescales = static_cast<double>(tiles - 1 + 2 * (roundings.splits - 1));
  sum_depth = static_cast<double>(roundings.running_sum ? count : std::min(tile, count)) + 2 * rescales;
  flush = roundings.flushes_inputs ? range.normal : 0;
}

/// Whether the promise of finite scores holds for a key; false for NaN.
bool Row::in_range(std::size_t key) const {
  const double products = facts.products[key];
  const double additive = facts.additive.empty() ? 0 : std::abs(facts.additive[key]);
  return products < range.scores && std::abs(facts.scale) * products < range.scores && additive < range.scores;
}

/// docs/numerics.md, "Softcap": the derivative contracts what comes in, then the cap's own operations add theirs.
double Row::capped_error(std::size_t key, double error) const {
  const double cap = facts.softcap, z = facts.uncapped[key] / cap, width = error / cap;
  // 1 - tanh^2 at z is 4 e^-2|z| / (1 + e^-2|z|)^2, and at a distance `width` from z at most e^(2 width) times that.
  const double tail = 1 + std::exp(-2 * std::abs(z));
  const double carried = std::min(1.0, 4 * std::exp(2 * (width - std::abs(z))) / (tail * tail)) * error;
  const double capped = std::min(cap, cap * std::tanh(std::abs(z)) + carried);
  const double own = roundings.tanh + (roundings.log2_scores ? 7 : 5) * unit;
  return carried + own * capped + cap * roundings.least * (2 + facts.products[key]);
}

/// How far a computed score may be off before softcap and additive terms.
double Row::uncapped_error(std::size_t key) const {
  if (!in_range(key)) return infinity;
  const double scale = std::abs(facts.scale), dims = static_cast<double>(facts.head_dim);
  const double least = roundings.least;
  // Gradual underflow hits products only; flushing hits sums as well.
  const double underflows = least < range.normal ? dims + 1 : 2 * dims + 1;
  double error = times(dot, scale * facts.products[key]) + scale * underflows * least + least * facts.key_sizes[key];
  return error + flush * (scale * (facts.query_size + facts.key_sizes[key]) + facts.key_sizes[key]);
}

/// delta_j: how far a computed final score may be from s_j; infinite where the promised range is left.
double Row::score_error(std::size_t key) const {
  if (!in_range(key)) return infinity;
  const double least = roundings.least;
  double error = uncapped_error(key);
  if (!facts.uncapped.empty()) error = capped_error(key, error);
  if (!facts.additive.empty())
    error += (roundings.log2_scores ? 4 : 2) * unit * std::abs(facts.additive[key]) +
             unit * (std::abs(score(key)) + error) + least;
  if (roundings.log2_scores) error += unit * (std::abs(score(key)) + std::abs(facts.max) + error);
  return error + 4 * least;
}

/// eta_j: by how much the exponent of a weight may be wrong; `error` is the key's delta, `worst` the row's largest.
double Row::exponent_error(std::size_t key, double error, double worst) const {
  const double argument = std::abs(facts.x[key]) + error + worst;
  // Beyond 800 an exponential is 0 in every type, and what it should have been is in the floor.
  const double relative = roundings.exp_constant + roundings.exp_slope * std::min(argument, 800.0) +
                          rescales * roundings.rescale + 4 * facts.truth_unit;
  return error + unit * argument + exponent_of(relative) +
         (roundings.sums_rounded_p && !growth.probable ? exponent_of(roundings.unit_p) : 0);
}

/// The probabilistic column takes the roundings of P, where l sums them too, as independent: times the root of a sum of
/// squares, this bounds what they do to a sum.
double Row::likely_rounded_p() const {
  return roundings.sums_rounded_p && growth.probable ? likely_deviations * exponent_of(roundings.unit_p) : 0;
}

/// What the errors of a row's weights do to sums: sum_j deviation[j] |v_j - o| bounds the error of a weighted mean,
/// sum_j mass[j] |v_j| the weighted mean of magnitudes.
struct Weights {
  std::vector<double> deviation, mass;
  double spread = 0;          ///< root of sum_j mass[j]^2
  double worst_score = 0;     ///< the largest delta
  double worst_exponent = 0;  ///< the largest eta
  double log_most = 0;        ///< ln sum_j p_j exp(eta_j)
  double log_least = 0;       ///< ln sum_j p_j exp(-eta_j)
};

double log_sum_exp(const std::vector<double>& terms) {
  double most = -infinity, sum = 0;
  for (const double term : terms) most = std::max(most, term);
  if (std::isinf(most)) return most;
  for (const double term : terms) sum += std::exp(term - most);
  return most + std::log(sum);
}

Weights weights_of(const Row& row) {
  const RowFacts& facts = row.facts;
  const std::size_t count = facts.x.size();
  Weights weights;
  weights.mass.resize(count);
  weights.deviation.resize(count);
  std::vector<double> eta(count), low(count);
  for (std::size_t key = 0; key < count; ++key) eta[key] = row.score_error(key);
  for (const double error : eta) weights.worst_score = std::max(weights.worst_score, error);
  for (std::size_t key = 0; key < count; ++key) {
    eta[key] = row.exponent_error(key, eta[key], weights.worst_score);
    weights.worst_exponent = std::max(weights.worst_exponent, eta[key]);
    low[key] = facts.x[key] - facts.log_sum - eta[key];
  }
  weights.log_least = log_sum_exp(low);
  double most = -infinity, sum = 0;  // of ln p_j + eta_j - ln of the least sum
  for (std::size_t key = 0; key < count; ++key) {
    const bool unbounded = std::isinf(eta[key]) || std::isinf(weights.log_least);
    const double log_mass = unbounded ? infinity : low[key] + 2 * eta[key] - weights.log_least;
    most = std::max(most, log_mass);
    weights.mass[key] = std::exp(std::min(log_mass, ratio_limit));
    weights.deviation[key] = weights.mass[key] * std::min(eta[key], 1.0);  // exp(a + eta) - exp(a) <= eta exp(a + eta)
    sum += weights.mass[key];
    weights.spread += weights.mass[key] * weights.mass[key];
  }
  weights.spread = std::sqrt(weights.spread);
  weights.log_most = most <= ratio_limit ? weights.log_least + std::log(sum)
                                         : weights.log_least + most + std::log(static_cast<double>(count));
  if (std::isinf(most)) weights.log_most = infinity;
  return weights;
}

/// Sums over keys for one block of columns. The mean of magnitudes is only taken with the worst weights: the probable
/// ones are hardly smaller.
struct Columns {
  static constexpr int width = RowFacts::value_block;
  double worst[width] = {};     ///< sum_j deviation |v_j - o|
  double probable[width] = {};  ///< the same with the probable weights
  double spread[width] = {};    ///< root of sum_j (mass |v_j - o|)^2, where P is rounded
  double mass[width] = {};      ///< sum_j mass |v_j|
  double far[width] = {};       ///< max_j |v_j - o|, or a bound of it
  double large[width] = {};     ///< max_j |v_j|, or a bound of it
};

void add_sums(const RowFacts& facts, const Weights& worst, const Weights& probable, const double* v, const double* o,
              Columns& columns) {
  using L = Lanes<double>;
  constexpr int parts = Columns::width / L::count;
  L::Value center[parts], first[parts] = {}, second[parts] = {}, third[parts] = {};
  for (int part = 0; part < parts; ++part) center[part] = L::load(o + part * L::count);
  for (std::size_t key = 0; key < facts.x.size(); ++key, v += facts.value_pitch) {
    const auto deviation = L::all(worst.deviation[key]), likely = L::all(probable.deviation[key]);
    const auto mass = L::all(worst.mass[key]);
    for (int part = 0; part < parts; ++part) {
      const auto value = L::load(v + part * L::count), away = L::magnitude(value - center[part]);
      first[part] += deviation * away;
      second[part] += likely * away;
      third[part] += mass * L::magnitude(value);
    }
  }
  for (int column = 0; column < Columns::width; ++column) {
    const int part = column / L::count, lane = column % L::count;
    columns.worst[column] = L::lane(first[part], lane);
    columns.probable[column] = L::lane(second[part], lane);
    columns.mass[column] = L::lane(third[part], lane);
  }
}

void add_spread(const RowFacts& facts, const Weights& weights, const double* v, const double* o, Columns& columns) {
  using L = Lanes<double>;
  constexpr int parts = Columns::width / L::count;
  L::Value center[parts], squares[parts] = {};
  for (int part = 0; part < parts; ++part) center[part] = L::load(o + part * L::count);
  for (std::size_t key = 0; key < facts.x.size(); ++key, v += facts.value_pitch) {
    const auto mass = L::all(weights.mass[key]);
    for (int part = 0; part < parts; ++part) {
      const auto away = mass * (L::load(v + part * L::count) - center[part]);
      squares[part] += away * away;
    }
  }
  for (int column = 0; column < Columns::width; ++column)
    columns.spread[column] = std::sqrt(L::lane(squares[column / L::count], column % L::count));
}

void add_extremes(const RowFacts& facts, const double* v, const double* o, Columns& columns) {
  for (std::size_t key = 0; key < facts.x.size(); ++key, v += facts.value_pitch) {
    for (int column = 0; column < Columns::width; ++column) {
      columns.far[column] = std::max(columns.far[column], std::abs(v[column] - o[column]));
      columns.large[column] = std::max(columns.large[column], std::abs(v[column]));
    }
  }
}

/// The sums of the block that begins at column `first`. Extremes cost as much as the sums, so they are only looked up
/// where they matter: where weights are so uncertain that the convex bound is the smaller one, or values so large that
/// their sum may leave the range.
Columns columns_of(const Row& row, const Weights& worst, const Weights& probable, std::size_t first) {
  const RowFacts& facts = row.facts;
  Columns columns;
  double o[Columns::width] = {};
  for (std::size_t at = 0; at < Columns::width && first + at < facts.o.size(); ++at) o[at] = facts.o[first + at];
  add_sums(facts, worst, probable, facts.values + first, o, columns);
  if (row.roundings.sums_rounded_p) add_spread(facts, probable, facts.values + first, o, columns);
  constexpr double certain = 0.25;
  if (worst.worst_exponent > certain || !(row.keys * facts.values_bound < row.range.sums)) {
    add_extremes(facts, facts.values + first, o, columns);
  } else {
    for (int at = 0; at < Columns::width; ++at) {
      columns.large[at] = facts.values_bound;
      columns.far[at] = facts.values_bound + std::abs(o[at]);
    }
  }
  return columns;
}

/// A lower bound of the computed l: its largest weight is 1, and all of it is at least what the exponents leave.
double least_row_sum(const Row& row, const Weights& weights) {
  return std::max(0.25, std::exp(std::min(row.facts.log_sum + weights.log_least - weights.worst_score, ratio_limit)));
}

/// What the budget of one output is made of.
struct Column {
  double o;          ///< the truth
  double deviation;  ///< sum_j deviation |v_j - o|
  double mass;       ///< sum_j mass |v_j|
  double far;        ///< bound of max_j |v_j - o|
  double large;      ///< bound of max_j |v_j|
};

/// The smaller of a sum and its bound; a sum that overflowed, or met infinity times zero on the way, yields the bound.
double bounded(double sum, double bound) { return std::isfinite(sum) ? std::min(sum, bound) : bound; }

/// How far the accumulated output, before it is stored, may be from the truth.
double accumulated_error(const Row& row, const Weights& weights, const Column& column) {
  const Roundings& roundings = row.roundings;
  const double o = std::abs(column.o), row_sum = least_row_sum(row, weights);
  const double moved = bounded(column.deviation, column.far);  // E
  const double size = bounded(column.mass, column.large);      // W
  const double rounded_p = roundings.sums_rounded_p ? 0 : roundings.unit_p;
  const double numerator = moved + times(rounded_p + row.sum_growth(0) * (1 + rounded_p), size);
  const double quotient = numerator + times(row.sum_growth(3), o + numerator);  // T

  const double lost_exp = (row.rescales + 1) * row.keys * roundings.least_exp * (column.large + o);
  const double lost_p = row.keys * roundings.least_p * (roundings.sums_rounded_p ? column.far : column.large);
  const double lost_sums = 2 * (row.keys + 2 * row.rescales) * roundings.least;
  return own_rounding * (quotient + (lost_exp + lost_p + lost_sums) / row_sum + roundings.least + row.flush);
}

/// The budget of one stored output.
double stored_error(const Row& row, double o, double accumulated) {
  const double unit_o = unit_of(row.facts.dtype);
  const double stored = unit_o > row.roundings.unit ? unit_o * (std::abs(o) + accumulated) : 0;
  return own_rounding * (accumulated + stored + half_least_of(row.facts.dtype));
}

double lse_budget(const Row& row, const Weights& weights) {
  const Roundings& roundings = row.roundings;
  const double max = std::abs(row.facts.max), lse = std::abs(row.facts.max + row.facts.log_sum);
  double lost = (row.rescales + 1) * row.keys * roundings.least_exp;
  if (roundings.sums_rounded_p) lost += row.keys * roundings.least_p;
  double error = std::max(weights.log_most, -weights.log_least) + exponent_of(row.sum_growth(0)) +
                 lost / least_row_sum(row, weights) + times(row.likely_rounded_p(), weights.spread);
  const double log = std::abs(row.facts.log_sum) + error + weights.worst_score;  // largest |ln l| of a kernel
  error += roundings.log * (1 + log);
  error += row.unit * (lse + error);
  if (roundings.log2_scores) error += 3 * row.unit * (max + log);
  const double unit_lse = unit_of(row.facts.dtype == DType::f64 ? DType::f64 : DType::f32);
  if (unit_lse > roundings.unit) error += unit_lse * (lse + error);
  return own_rounding * (error + roundings.least);
}

}  // namespace

double unit_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x1p-53;
    case DType::f16: return 0x1p-11;
    case DType::bf16: return 0x1p-8;
    default: return 0x1p-24;
  }
}

ScoreErrors score_errors_of(const RowFacts& facts, const Roundings& roundings, bool probable) {
  const Row row(facts, roundings, probable);
  ScoreErrors errors;
  for (std::size_t key = 0; key < facts.x.size(); ++key) {
    errors.score.push_back(row.score_error(key));
    errors.uncapped.push_back(row.uncapped_error(key));
  }
  return errors;
}

Overflow reach_of(double truth, double error, DType dtype) {
  const double overflow = overflow_of(dtype), size = std::abs(truth);
  if (size + error < overflow) return Overflow::never;
  return error - size < overflow ? Overflow::outward : Overflow::either;
}

Budget budget_of(const RowFacts& facts, const Roundings& roundings) {
  Budget budget;
  budget.o.assign(facts.o.size(), 0);
  budget.o_probable.assign(facts.o.size(), 0);
  budget.o_overflow.assign(facts.o.size(), Overflow::never);
  if (facts.x.empty()) return budget;

  const Row worst(facts, roundings, false), probable(facts, roundings, true);
  const Weights worst_weights = weights_of(worst), probable_weights = weights_of(probable);
  budget.lse = lse_budget(worst, worst_weights);
  budget.lse_probable = std::min(budget.lse, lse_budget(probable, probable_weights));
  if (std::isinf(worst_weights.worst_score)) budget.lse_overflow = Overflow::free;
  for (std::size_t first = 0; first < facts.o.size(); first += Columns::width) {
    const Columns sums = columns_of(worst, worst_weights, probable_weights, first);
    for (std::size_t at = 0; at < Columns::width && first + at < facts.o.size(); ++at) {
      const Column column{facts.o[first + at], sums.worst[at], sums.mass[at], sums.far[at], sums.large[at]};
      Column likely = column;
      likely.deviation = sums.probable[at] + times(probable.likely_rounded_p(), sums.spread[at]);
      const double error = accumulated_error(worst, worst_weights, column);
      const double likely_error = std::min(error, accumulated_error(probable, probable_weights, likely));
      budget.o[first + at] = stored_error(worst, column.o, error);
      budget.o_probable[first + at] = stored_error(probable, column.o, likely_error);
      Overflow& overflow = budget.o_overflow[first + at];
      overflow = reach_of(column.o, error, facts.dtype);
      if (budget.lse_overflow == Overflow::free || !(worst.keys * column.large < worst.range.sums))
        overflow = Overflow::free;
    }
  }
  return budget;
}

}  // namespace fresnel
