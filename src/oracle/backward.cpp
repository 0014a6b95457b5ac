// SPDX-License-Identifier: Apache-2.0
// The textbook backward. Each (batch, key head) is a problem of its own that one task computes: the forward's oracle
// hands over its rows in order, and their shares of dq, dk and dv are added as they come. Nothing is shared between
// tasks, so no number of threads changes a bit.
#include "oracle/backward.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/half.hpp"
#include "runtime/parallel.hpp"
#include "semantics/words.hpp"

namespace fresnel {
namespace {

[[nodiscard]] std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

/// `view` from element [first, second] of its outer two axes on, one batch and `heads` heads of it.
View part_of(const View& view, std::int64_t batch, std::int64_t head, std::int64_t heads) {
  View part = view;
  std::int64_t offset = batch > 0 ? batch * view.strides[0] : 0;
  if (head > 0) offset += head * view.strides[1];
  if (part.data != nullptr) part.data = static_cast<const std::byte*>(view.data) + offset * size_of(view.dtype);
  part.sizes[0] = 1;
  part.sizes[1] = heads;
  return part;
}

void load_rows(const View& view, std::int64_t rows, std::int64_t width, std::vector<double>& to) {
  to.resize(index(rows * width));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t d = 0; d < width; ++d)
      to[index(row * width + d)] = load_as_double(view.data, view.dtype, (row > 0 ? row * view.strides[2] : 0) + d);
}

/// One (batch, key head) and the sums over its rows.
template <class Real>
class HeadOracle {
 public:
  HeadOracle(const Problem& problem, const Inputs& inputs);
  void compute(std::int64_t batch, std::int64_t head_kv, GradientVisitor<Real>& visitor);

 private:
  void take(std::int64_t batch, std::int64_t head_kv);
  void add(const TrueRow<Real>& row, GradientVisitor<Real>& visitor);
  void weigh(const TrueRow<Real>& row);
  void differentiate(const TrueRow<Real>& row);

  const Problem& problem_;
  const Inputs& inputs_;
  const std::unique_ptr<Executor> alone_ = make_executor(1);
  Problem part_;
  Inputs given_;
  Mask mask_;
  std::int64_t batch_ = 0, head_kv_ = 0;
  KeyRange seen_;          ///< keys that some query sees
  std::vector<double> k_;  ///< of them
  std::vector<double> q_, dout_, dp_sizes_;
  std::vector<Real> p_, dp_, ds_, factors_, dq_, dk_, dv_, dslopes_;
  Real delta_ = 0;
};

template <class Real>
HeadOracle<Real>::HeadOracle(const Problem& problem, const Inputs& inputs)
    : problem_(problem), inputs_(inputs), part_(problem), given_(inputs) {
  part_.batch = 1;
  part_.heads_q = problem.group();
  part_.heads_kv = 1;
  if (inputs.alibi_slopes) part_.alibi_slopes = AlibiSlopes::per_head;
}

template <class Real>
void HeadOracle<Real>::take(std::int64_t batch, std::int64_t head_kv) {
  const std::int64_t group = problem_.group(), head = head_kv * group;
  batch_ = batch;
  head_kv_ = head_kv;
  given_.q = part_of(inputs_.q, batch, head, group);
  given_.k = part_of(inputs_.k, batch, head_kv, 1);
  given_.v = part_of(inputs_.v, batch, head_kv, 1);
  given_.dout = part_of(*inputs_.dout, batch, head, group);
  std::int64_t live = problem_.keys;
  if (inputs_.seqlens_k) {
    const auto* lengths = static_cast<const std::int32_t*>(inputs_.seqlens_k->data) + batch;
    live = *lengths;
    given_.seqlens_k = View(lengths, DType::i32, {1});
  }
  if (inputs_.alibi_slopes) {
    const View& slopes = *inputs_.alibi_slopes;
    const std::int64_t offset = (slopes.rank == 2 && batch > 0 ? batch * slopes.strides[0] : 0) + head;
    given_.alibi_slopes = View(static_cast<const float*>(slopes.data) + offset, DType::f32, {group});
  }
  mask_ = mask_of(part_, live);
  seen_ = mask_.range(0, part_.queries);
  View keys = given_.k;
  if (!seen_.empty() && seen_.first > 0)
    keys.data = static_cast<const std::byte*>(keys.data) + seen_.first * keys.strides[2] * size_of(keys.dtype);
  load_rows(keys, seen_.size(), problem_.head_dim, k_);
  dk_.assign(index(problem_.keys * problem_.head_dim), Real(0));
  dv_.assign(index(problem_.keys * problem_.value_dim), Real(0));
  dslopes_.assign(inputs_.alibi_slopes && problem_.heads_q > 0 ? index(group) : 0, Real(0));
}

/// p_j, dp_j, D and ds_j.
template <class Real>
void HeadOracle<Real>::weigh(const TrueRow<Real>& row) {
  const std::size_t count = index(row.keys.size());
  for (std::vector<Real>* array : {&p_, &dp_, &ds_}) array->resize(count);
  dp_sizes_.resize(count);
  delta_ = 0;
  for (std::size_t key = 0; key < count; ++key) {
    const double* const v = row.facts.values + static_cast<std::int64_t>(key) * row.facts.value_pitch;
    Real sum = 0;
    double size = 0;
    for (std::size_t d = 0; d < dout_.size(); ++d) {
      sum += static_cast<Real>(dout_[d]) * static_cast<Real>(v[d]);
      size += std::abs(dout_[d] * v[d]);
    }
    p_[key] = row.weights[key] / row.weight_sum;
    dp_[key] = sum;
    dp_sizes_[key] = size;
    delta_ += p_[key] * sum;
  }
  for (std::size_t key = 0; key < count; ++key) ds_[key] = p_[key] * (dp_[key] - delta_);
}

/// The cap's own derivative.
template <class Real>
void HeadOracle<Real>::differentiate(const TrueRow<Real>& row) {
  factors_.resize(row.facts.uncapped.size());
  for (std::size_t key = 0; key < factors_.size(); ++key) {
    const Real tanh = std::tanh(static_cast<Real>(row.facts.uncapped[key]) / static_cast<Real>(row.facts.softcap));
    factors_[key] = (1 - tanh) * (1 + tanh);
  }
}

template <class Real>
void HeadOracle<Real>::add(const TrueRow<Real>& row, GradientVisitor<Real>& visitor) {
  const std::int64_t head_dim = problem_.head_dim, value_dim = problem_.value_dim;
  const std::int64_t head = head_kv_ * problem_.group() + row.head, position = mask_.position(row.query);
  dq_.assign(index(head_dim), Real(0));
  if (row.keys.empty()) {
    visitor.visit(
        TrueGradientRow<Real>{batch_, head, row.query, position, &row, {}, {}, {}, {}, {}, 0, {}, {}, nullptr, dq_});
    return;
  }
  const auto row_at = [&](const View& view) {
    View at = part_of(view, 0, row.head, 1);
    if (row.query > 0) at.data = static_cast<const std::byte*>(at.data) + row.query * at.strides[2] * size_of(at.dtype);
    return at;
  };
  load_rows(row_at(given_.q), 1, head_dim, q_);
  load_rows(row_at(*given_.dout), 1, value_dim, dout_);
  weigh(row);
  differentiate(row);
  const Real scale = part_.options.softmax_scale ? static_cast<Real>(*part_.options.softmax_scale)
                                                 : 1 / std::sqrt(static_cast<Real>(head_dim));
  for (std::size_t key = 0; key < p_.size(); ++key) {
    const std::int64_t at = row.keys.first + static_cast<std::int64_t>(key);
    const Real ds = scale * (factors_.empty() ? ds_[key] : ds_[key] * factors_[key]);
    const double* const k = k_.data() + (at - seen_.first) * head_dim;
    Real* const dk = dk_.data() + at * head_dim;
    Real* const dv = dv_.data() + at * value_dim;
    for (std::size_t d = 0; d < q_.size(); ++d) {
      dq_[d] += ds * static_cast<Real>(k[d]);
      dk[d] += ds * static_cast<Real>(q_[d]);
    }
    for (std::size_t d = 0; d < dout_.size(); ++d) dv[d] += p_[key] * static_cast<Real>(dout_[d]);
    if (dslopes_.empty()) continue;
    const std::int64_t away = at - position;
    const bool lowered = part_.options.alibi == AlibiForm::distance && away > 0;
    dslopes_[index(row.head)] += ds_[key] * static_cast<Real>(lowered ? -away : away);
  }
  visitor.visit(TrueGradientRow<Real>{batch_, head, row.query, position, &row, p_, dp_, ds_, factors_, dp_sizes_,
                                      delta_, q_, dout_, k_.data() + (row.keys.first - seen_.first) * head_dim, dq_});
}

template <class Real>
void HeadOracle<Real>::compute(std::int64_t batch, std::int64_t head_kv, GradientVisitor<Real>& visitor) {
  take(batch, head_kv);
  if (problem_.heads_q > 0)  // key heads may be there without query heads
    for_each_true_row<Real>(part_, given_, *alone_, [&](int, const TrueRow<Real>& row) { add(row, visitor); });
  visitor.visit(TrueGradientHead<Real>{batch_, head_kv_, dk_, dv_, dslopes_});
}

}  // namespace

template <class Real>
void for_each_true_gradient(const Problem& problem, const Inputs& inputs, Executor& executor,
                            const std::function<GradientVisitor<Real>&(int lane)>& visitor_of) {
  const int lanes = executor.width();
  std::vector<std::unique_ptr<HeadOracle<Real>>> oracles(static_cast<std::size_t>(lanes));
  for (auto& oracle : oracles) oracle = std::make_unique<HeadOracle<Real>>(problem, inputs);
  parallel_for(executor, lanes, problem.batch * problem.heads_kv, [&](int lane, std::int64_t item) {
    oracles[static_cast<std::size_t>(lane)]->compute(item / problem.heads_kv, item % problem.heads_kv,
                                                     visitor_of(lane));
  });
}

template void for_each_true_gradient(const Problem&, const Inputs&, Executor&,
                                     const std::function<GradientVisitor<double>&(int)>&);
template void for_each_true_gradient(const Problem&, const Inputs&, Executor&,
                                     const std::function<GradientVisitor<long double>&(int)>&);

Status accept_gradients(const Problem& problem, const Inputs& inputs) {
  if (Status accepted = accept(problem, inputs); !accepted) return accepted;
  if (!inputs.dout) return refuse("dout", "none", "the gradient of o, which the gradients of its inputs come from");
  return Done{};
}

namespace {

/// Rounds and files what it is shown; lanes write to places of their own.
template <class Real>
class Collector final : public GradientVisitor<Real> {
 public:
  Collector(const Problem& problem, TrueGradients& all, std::vector<Real>& dslopes)
      : problem_(problem), all_(all), dslopes_(dslopes) {}

  void visit(const TrueGradientRow<Real>& row) override {
    store(row.dq, (row.batch * problem_.heads_q + row.head) * problem_.queries + row.query, all_.dq);
  }
  void visit(const TrueGradientHead<Real>& head) override {
    const std::int64_t at = head.batch * problem_.heads_kv + head.head_kv;
    store(head.dk, at, all_.dk);
    store(head.dv, at, all_.dv);
    std::copy(head.dslopes.begin(), head.dslopes.end(), dslopes_.begin() + at * problem_.group());
  }

 private:
  static void store(std::span<const Real> values, std::int64_t block, std::vector<double>& to) {
    for (std::size_t at = 0; at < values.size(); ++at)
      to[index(block) * values.size() + at] = static_cast<double>(values[at]);
  }

  const Problem& problem_;
  TrueGradients& all_;
  std::vector<Real>& dslopes_;  ///< [B, Hq]
};

template <class Real>
TrueGradients gradients_of(const Problem& problem, const Inputs& inputs, Executor& executor) {
  const std::int64_t heads = problem.batch * problem.heads_q, heads_kv = problem.batch * problem.heads_kv;
  TrueGradients all{std::vector<double>(index(heads * problem.queries * problem.head_dim)),
                    std::vector<double>(index(heads_kv * problem.keys * problem.head_dim)),
                    std::vector<double>(index(heads_kv * problem.keys * problem.value_dim)),
                    {}};
  std::vector<Real> dslopes(index(problem.heads_kv > 0 ? heads : 0));
  Collector<Real> collector(problem, all, dslopes);
  for_each_true_gradient<Real>(problem, inputs, executor, [&](int) -> GradientVisitor<Real>& { return collector; });
  if (problem.alibi_slopes == AlibiSlopes::none) return all;
  const bool by_batch = problem.alibi_slopes == AlibiSlopes::per_batch_and_head;
  std::vector<Real> sums(index(by_batch ? heads : problem.heads_q));
  for (std::size_t at = 0; at < dslopes.size(); ++at) sums[at % sums.size()] += dslopes[at];
  for (const Real sum : sums) all.dalibi_slopes.push_back(static_cast<double>(sum));
  return all;
}

}  // namespace

Result<TrueGradients> reference_gradients(const Problem& problem, const Inputs& inputs, Executor* executor) {
  if (const Status accepted = accept_gradients(problem, inputs); !accepted) return accepted.refusal();
  Executor& team = executor != nullptr ? *executor : default_executor();
  return problem.dtype == DType::f64 ? gradients_of<long double>(problem, inputs, team)
                                     : gradients_of<double>(problem, inputs, team);
}

}  // namespace fresnel
