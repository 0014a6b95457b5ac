// SPDX-License-Identifier: Apache-2.0
// The textbook forward. K and V of a kv head are converted to contiguous double once, then every query row is computed
// on its own: scores, maximum, sums, quotient. Inner loops run over blocks of eight so that they are vector code in
// double; in long double the same lines are merely correct.
#include "oracle/forward.hpp"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>

#include "runtime/half.hpp"
#include "runtime/parallel.hpp"
#include "semantics/lanes.hpp"

namespace fresnel {
namespace {

constexpr int block = RowFacts::value_block;
/// Doubles of K and V that are held at a time, unless one head needs more: 64 MB.
constexpr std::int64_t batch_doubles = std::int64_t{1} << 23;
constexpr std::int64_t batch_heads = 1024;

/// Round to nearest, subnormals kept: the truth does not depend on what the calling thread has set.
class PlainArithmetic {
 public:
  PlainArithmetic() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~PlainArithmetic() { std::fesetenv(&saved_); }
  PlainArithmetic(const PlainArithmetic&) = delete;
  PlainArithmetic& operator=(const PlainArithmetic&) = delete;

 private:
  std::fenv_t saved_;
};

[[nodiscard]] constexpr std::int64_t padded(std::int64_t width) { return (width + block - 1) / block * block; }

[[nodiscard]] std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

/// Offset of a row of a [B, H, S, D] view; the stride of an axis of length 1 is never used, for its index is 0.
[[nodiscard]] std::int64_t row_offset(const View& view, std::int64_t b, std::int64_t h, std::int64_t row) {
  return b * view.strides[0] + h * view.strides[1] + row * view.strides[2];
}

/// One row as double, exactly, padded with zeros to whole blocks.
void load_row(const View& view, std::int64_t offset, std::int64_t width, double* to) {
  for (std::int64_t d = 0; d < width; ++d) to[d] = load_as_double(view.data, view.dtype, offset + d);
  std::fill(to + width, to + padded(width), 0.0);
}

[[nodiscard]] double sum_of_magnitudes(const double* row, std::int64_t width) {
  double sum = 0;
  for (std::int64_t d = 0; d < width; ++d) sum += std::abs(row[d]);
  return sum;
}

/// Infinite where an element is NaN.
[[nodiscard]] double largest_magnitude(const double* row, std::int64_t width) {
  double most = 0;
  for (std::int64_t d = 0; d < width; ++d)
    most = std::max(most, std::isnan(row[d]) ? std::numeric_limits<double>::infinity() : std::abs(row[d]));
  return most;
}

[[nodiscard]] std::int64_t live_keys_of(const Problem& problem, const Inputs& inputs, std::int64_t b) {
  return inputs.seqlens_k ? static_cast<const std::int32_t*>(inputs.seqlens_k->data)[b] : problem.keys;
}

[[nodiscard]] double slope_of(const Inputs& inputs, std::int64_t b, std::int64_t h) {
  const View& view = *inputs.alibi_slopes;
  return static_cast<const float*>(view.data)[(view.rank == 2 && b > 0 ? b * view.strides[0] : 0) + h];
}

/// K and V of one kv head of one sequence: the keys that some query sees.
struct Head {
  std::int64_t batch = 0;
  Mask mask;
  KeyRange keys;
  std::vector<double> k, v;              ///< rows padded to whole blocks
  std::vector<double> key_sizes;         ///< sum_d |k_jd|
  std::vector<double> value_magnitudes;  ///< max_d |v_jd|, infinite where one is NaN

  void load(const Problem& problem, const Inputs& inputs, std::int64_t kv_index);
};

void Head::load(const Problem& problem, const Inputs& inputs, std::int64_t kv_index) {
  batch = kv_index / problem.heads_kv;
  const std::int64_t head = kv_index % problem.heads_kv;
  mask = mask_of(problem, live_keys_of(problem, inputs, batch));
  keys = mask.range(0, problem.queries);
  const std::int64_t k_pitch = padded(problem.head_dim), v_pitch = padded(problem.value_dim);
  k.resize(index(keys.size() * k_pitch));
  v.resize(index(keys.size() * v_pitch));
  key_sizes.resize(index(keys.size()));
  value_magnitudes.resize(index(keys.size()));
  for (std::int64_t j = 0; j < keys.size(); ++j) {
    double* const k_row = k.data() + j * k_pitch;
    load_row(inputs.k, row_offset(inputs.k, batch, head, keys.first + j), problem.head_dim, k_row);
    double* const v_row = v.data() + j * v_pitch;
    load_row(inputs.v, row_offset(inputs.v, batch, head, keys.first + j), problem.value_dim, v_row);
    value_magnitudes[index(j)] = largest_magnitude(v_row, problem.value_dim);
    key_sizes[index(j)] = sum_of_magnitudes(k_row, problem.head_dim);
  }
}

/// Scratch of one lane, and the computation of one row in it.
template <class Real>
class RowOracle {
 public:
  RowOracle(const Problem& problem, const Inputs& inputs);

  /// Row (head, query) of the sequence that `kv` belongs to; the result points into this object and into `kv`.
  const TrueRow<Real>& compute(const Head& kv, std::int64_t head, std::int64_t query);

 private:
  void resize(std::int64_t keys);
  void multiply_keys(const double* k);
  void finish_scores(std::int64_t distance, std::optional<double> slope);
  void weigh();
  void multiply_values(const double* v);
  void describe(const Head& kv);

  const Problem& problem_;
  const Inputs& inputs_;
  const Real scale_;
  std::vector<double> q_;
  std::vector<Real> scores_;  ///< scores, then weights
  std::vector<Real> o_;
  std::vector<double> products_, uncapped_, additive_, x_, rounded_o_;
  Real max_ = 0, sum_ = 0;
  TrueRow<Real> row_;
};

template <class Real>
Real scale_of(const Options& options, std::int64_t head_dim) {
  return options.softmax_scale ? static_cast<Real>(*options.softmax_scale) : 1 / std::sqrt(static_cast<Real>(head_dim));
}

template <class Real>
RowOracle<Real>::RowOracle(const Problem& problem, const Inputs& inputs)
    : problem_(problem),
      inputs_(inputs),
      scale_(scale_of<Real>(problem.options, problem.head_dim)),
      q_(index(padded(problem.head_dim))),
      o_(index(padded(problem.value_dim))),
      rounded_o_(index(problem.value_dim)) {}

template <class Real>
void RowOracle<Real>::resize(std::int64_t keys) {
  scores_.resize(index(keys));
  products_.resize(index(keys));
  x_.resize(index(keys));
  uncapped_.resize(problem_.options.softcap ? index(keys) : 0);
  additive_.resize(inputs_.alibi_slopes ? index(keys) : 0);
}

/// scores_[j] = q . k_j and products_[j] = sum_d |q_d k_jd|, each in `block` partial sums.
template <class Real>
void RowOracle<Real>::multiply_keys(const double* k) {
  using L = Lanes<Real>;
  constexpr int parts = block / L::count;
  const std::int64_t width = padded(problem_.head_dim);
  for (std::size_t key = 0; key < scores_.size(); ++key, k += width) {
    typename L::Value sums[parts] = {}, sizes[parts] = {};
    for (std::int64_t d = 0; d < width; d += block) {
      for (int part = 0; part < parts; ++part) {
        const std::int64_t at = d + part * L::count;
        const auto product = L::load(q_.data() + at) * L::load(k + at);
        sums[part] += product;
        sizes[part] += L::magnitude(product);
      }
    }
    for (int part = 1; part < parts; ++part) {
      sums[0] += sums[part];
      sizes[0] += sizes[part];
    }
    Real sum = 0, size = 0;
    for (int lane = 0; lane < L::count; ++lane) {
      sum += L::lane(sums[0], lane);
      size += L::lane(sizes[0], lane);
    }
    scores_[key] = sum;
    products_[key] = static_cast<double>(size);
  }
}

/// From dot products to final scores (scale, softcap, ALiBi) and their maximum. `distance` is the first visible key's
/// position minus the query's.
template <class Real>
void RowOracle<Real>::finish_scores(std::int64_t distance, std::optional<double> slope) {
  max_ = -std::numeric_limits<Real>::infinity();
  for (std::size_t key = 0; key < scores_.size(); ++key) {
    Real s = scale_ * scores_[key];
    if (problem_.options.softcap) {
      const Real cap = static_cast<Real>(*problem_.options.softcap);
      uncapped_[key] = static_cast<double>(s);
      s = cap * std::tanh(s / cap);
    }
    if (slope) {
      const std::int64_t away = distance + static_cast<std::int64_t>(key);
      const bool relative = problem_.options.alibi == AlibiForm::relative;
      const Real term = static_cast<Real>(*slope) * static_cast<Real>(relative || away < 0 ? away : -away);
      additive_[key] = static_cast<double>(term);
      s += term;
    }
    scores_[key] = s;
    if (s > max_) max_ = s;  // NaN is no maximum; it comes back as a NaN weight
  }
}

template <class Real>
void RowOracle<Real>::weigh() {
  sum_ = 0;
  for (std::size_t key = 0; key < scores_.size(); ++key) {
    const Real x = scores_[key] - max_;
    x_[key] = static_cast<double>(x);
    scores_[key] = std::exp(x);
    sum_ += scores_[key];
  }
}

template <class Real>
void RowOracle<Real>::multiply_values(const double* v) {
  using L = Lanes<Real>;
  constexpr int parts = block / L::count;
  const std::int64_t width = padded(problem_.value_dim);
  for (std::int64_t first = 0; first < width; first += block) {
    typename L::Value sums[parts] = {};
    const double* values = v + first;
    for (const Real score : scores_) {
      const auto weight = L::all(score);
      for (int part = 0; part < parts; ++part) sums[part] += weight * L::load(values + part * L::count);
      values += width;
    }
    for (int lane = 0; lane < block; ++lane)
      o_[index(first + lane)] = L::lane(sums[lane / L::count], lane % L::count) / sum_;
  }
}

/// Fills in what a budget needs.
template <class Real>
void RowOracle<Real>::describe(const Head& kv) {
  RowFacts& facts = row_.facts;
  const std::int64_t value_pitch = padded(problem_.value_dim);
  facts.dtype = problem_.dtype;
  facts.head_dim = problem_.head_dim;
  facts.first_key = row_.keys.first;
  facts.scale = static_cast<double>(scale_);
  facts.softcap = problem_.options.softcap.value_or(0);
  facts.max = static_cast<double>(max_);
  facts.log_sum = static_cast<double>(std::log(sum_));
  facts.truth_unit = static_cast<double>(std::numeric_limits<Real>::epsilon() / 2);
  facts.query_size = sum_of_magnitudes(q_.data(), problem_.head_dim);
  facts.x = x_;
  facts.products = products_;
  const std::size_t skipped = index(row_.keys.first - kv.keys.first);
  facts.key_sizes = std::span(kv.key_sizes).subspan(skipped, x_.size());
  facts.uncapped = uncapped_;
  facts.additive = additive_;
  for (std::size_t d = 0; d < rounded_o_.size(); ++d) rounded_o_[d] = static_cast<double>(o_[d]);
  facts.o = rounded_o_;
  facts.values = kv.v.data() + skipped * index(value_pitch);
  facts.value_pitch = value_pitch;
  facts.values_bound = 0;
  for (const double magnitude : std::span(kv.value_magnitudes).subspan(skipped, x_.size()))
    facts.values_bound = std::max(facts.values_bound, magnitude);
}

template <class Real>
const TrueRow<Real>& RowOracle<Real>::compute(const Head& kv, std::int64_t head, std::int64_t query) {
  row_ = {kv.batch, head, query, kv.mask.range(query), {}, 0, {}, {}, 0};
  row_.o = std::span(o_).first(index(problem_.value_dim));
  if (row_.keys.empty()) {
    std::fill(o_.begin(), o_.end(), Real(0));
    row_.lse = -std::numeric_limits<Real>::infinity();
    return row_;
  }
  const std::int64_t skipped = row_.keys.first - kv.keys.first;
  resize(row_.keys.size());
  load_row(inputs_.q, row_offset(inputs_.q, kv.batch, head, query), problem_.head_dim, q_.data());
  multiply_keys(kv.k.data() + skipped * padded(problem_.head_dim));
  std::optional<double> slope;
  if (inputs_.alibi_slopes) slope = slope_of(inputs_, kv.batch, head);
  finish_scores(row_.keys.first - kv.mask.position(query), slope);
  weigh();
  multiply_values(kv.v.data() + skipped * padded(problem_.value_dim));
  row_.lse = max_ + std::log(sum_);
  row_.weights = scores_;
  row_.weight_sum = sum_;
  describe(kv);
  return row_;
}

/// How many kv heads are converted at a time.
std::int64_t heads_at_once(const Problem& problem) {
  const std::int64_t width = padded(problem.head_dim) + padded(problem.value_dim) + 1;
  const std::int64_t rows = std::max<std::int64_t>(batch_doubles / width, 1);
  return std::clamp<std::int64_t>(rows / std::max<std::int64_t>(problem.keys, 1), 1, batch_heads);
}

}  // namespace

template <class Real>
void for_each_true_row(const Problem& problem, const Inputs& inputs, Executor& executor,
                       const std::function<void(int lane, const TrueRow<Real>&)>& visit) {
  const std::int64_t kv_heads = problem.batch * problem.heads_kv, group = problem.group();
  if (kv_heads == 0 || problem.heads_q == 0 || problem.queries == 0) return;
  const PlainArithmetic here;  // and again in every task: an executor need not hand on its caller's arithmetic
  const int lanes = executor.width();
  std::vector<RowOracle<Real>> oracles(static_cast<std::size_t>(lanes), RowOracle<Real>(problem, inputs));
  std::vector<Head> heads(index(std::min(heads_at_once(problem), kv_heads)));
  for (std::int64_t first = 0; first < kv_heads; first += static_cast<std::int64_t>(heads.size())) {
    const std::int64_t count = std::min(static_cast<std::int64_t>(heads.size()), kv_heads - first);
    parallel_for(executor, lanes, count, [&](int, std::int64_t at) {
      const PlainArithmetic arithmetic;
      heads[index(at)].load(problem, inputs, first + at);
    });
    parallel_for(executor, lanes, count * group * problem.queries, [&](int lane, std::int64_t row) {
      const PlainArithmetic arithmetic;
      const std::int64_t query = row % problem.queries, at = row / problem.queries / group;
      const std::int64_t kv_head = (first + at) % problem.heads_kv;
      const std::int64_t head = kv_head * group + row / problem.queries % group;
      visit(lane, oracles[static_cast<std::size_t>(lane)].compute(heads[index(at)], head, query));
    });
  }
}

template void for_each_true_row(const Problem&, const Inputs&, Executor&,
                                const std::function<void(int, const TrueRow<double>&)>&);
template void for_each_true_row(const Problem&, const Inputs&, Executor&,
                                const std::function<void(int, const TrueRow<long double>&)>&);

namespace {

template <class Real>
Truth truth_of(const Problem& problem, const Inputs& inputs, Executor& executor) {
  const std::int64_t rows = problem.batch * problem.heads_q * problem.queries;
  Truth truth{std::vector<double>(index(rows * problem.value_dim)), std::vector<double>(index(rows))};
  for_each_true_row<Real>(problem, inputs, executor, [&](int, const TrueRow<Real>& row) {
    const std::int64_t at = (row.batch * problem.heads_q + row.head) * problem.queries + row.query;
    truth.lse[index(at)] = static_cast<double>(row.lse);
    for (std::int64_t d = 0; d < problem.value_dim; ++d)
      truth.o[index(at * problem.value_dim + d)] = static_cast<double>(row.o[index(d)]);
  });
  return truth;
}

template <class Real>
TrueWeights weights_of(const Problem& problem, const Inputs& inputs, std::int64_t b, std::int64_t h, std::int64_t i) {
  const PlainArithmetic arithmetic;
  Head kv;
  kv.load(problem, inputs, b * problem.heads_kv + h / problem.group());
  RowOracle<Real> oracle(problem, inputs);
  const TrueRow<Real>& row = oracle.compute(kv, h, i);
  TrueWeights result{row.keys, {}, {}, static_cast<double>(row.lse)};
  for (const double x : row.facts.x) {
    result.scores.push_back(row.facts.max + x);
    result.weights.push_back(std::exp(x - row.facts.log_sum));
  }
  return result;
}

}  // namespace

Result<Truth> reference(const Problem& problem, const Inputs& inputs, Executor* executor) {
  if (const Status accepted = accept(problem, inputs); !accepted) return accepted.refusal();
  Executor& team = executor != nullptr ? *executor : default_executor();
  return problem.dtype == DType::f64 ? truth_of<long double>(problem, inputs, team)
                                     : truth_of<double>(problem, inputs, team);
}

Result<TrueWeights> reference_row(const Problem& problem, const Inputs& inputs, std::int64_t batch, std::int64_t head,
                                  std::int64_t query) {
  if (const Status accepted = accept(problem, inputs); !accepted) return accepted.refusal();
  const struct {
    const char* name;
    std::int64_t given, extent;
  } indices[] = {{"batch", batch, problem.batch}, {"head", head, problem.heads_q}, {"query", query, problem.queries}};
  for (const auto& [name, given, extent] : indices)
    if (given < 0 || given >= extent)
      return Refusal{Fault::bad_input, {}, name, std::to_string(given), "an index below " + std::to_string(extent), {}};
  return problem.dtype == DType::f64 ? weights_of<long double>(problem, inputs, batch, head, query)
                                     : weights_of<double>(problem, inputs, batch, head, query);
}

}  // namespace fresnel
