// SPDX-License-Identifier: Apache-2.0
// Gradients against truth and budget, one (batch, key head) at a time in one lane: its rows judge dq and add the errors
// of their pairs to those of dk and dv, which are judged when the head is complete. Slopes come last, since they may be
// shared by all sequences.
#include "checker/gradients.hpp"

#include <memory>
#include <vector>

#include "checker/judging.hpp"
#include "oracle/backward.hpp"
#include "semantics/gradient_budget.hpp"

namespace fresnel {
namespace {

[[nodiscard]] std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

/// Numbers for each element of a tensor's rows, as sums grow.
struct Sums {
  std::vector<double> error, probable, size;
  std::vector<char> unpromised;
  void assign(std::int64_t count) {
    for (std::vector<double>* array : {&error, &probable, &size}) array->assign(index(count), 0.0);
    unpromised.assign(index(count), 0);
  }
  /// Adds one product by |b| to each of `width` elements from `first` on. Zeros meet infinite errors as nothing where
  /// the result is finite, and as NaN where it is not.
  void add(std::int64_t first, const double* b, std::int64_t width, double worst, double likely, double most) {
    if (std::isfinite(most)) {
      for (std::int64_t d = 0; d < width; ++d) {
        const double magnitude = std::abs(b[d]);
        error[index(first + d)] += worst * magnitude;
        probable[index(first + d)] += likely * magnitude;
        size[index(first + d)] += most * magnitude;
      }
      return;
    }
    for (std::int64_t d = 0; d < width; ++d) {
      if (b[d] != 0) {
        error[index(first + d)] = probable[index(first + d)] = size[index(first + d)] =
            std::numeric_limits<double>::infinity();
      } else {
        unpromised[index(first + d)] = 1;
      }
    }
  }
};

/// What every lane reads.
struct Trial {
  const Problem& problem;
  const PassRoundings& roundings;
  const JudgedGradients& gradients;
};

/// One head's share of a slope's gradient.
template <class Real>
struct SlopePart {
  Real truth = 0;
  double error = 0, probable = 0, size = 0, terms = 0;
  bool unpromised = false;
};

template <class Real>
double truth_unit() {
  return static_cast<double>(std::numeric_limits<Real>::epsilon() / 2);
}

template <class Real>
class Judge final : public GradientVisitor<Real> {
 public:
  Judge(const Trial& trial, std::vector<SlopePart<Real>>& slopes) : trial_(trial), slopes_(slopes) { start(); }

  void visit(const TrueGradientRow<Real>& row) override;
  void visit(const TrueGradientHead<Real>& head) override;

  Tally dq, dk, dv;

 private:
  void start();
  void add_pairs(const TrueGradientRow<Real>& row);
  void judge_element(Tally& tally, const JudgedGradient& gradient, Real truth, GradientSum sum, double probable,
                     const std::array<std::int64_t, 4>& at);

  const Trial& trial_;
  std::vector<SlopePart<Real>>& slopes_;  ///< [B, Hq]; a head's lane alone writes its own
  Sums keys_, values_, query_;
  std::vector<double> terms_;                    ///< rows that see a key
  std::vector<double> dot_factors_, p_factors_;  ///< of each key: sum |a_j| + e_j
  double query_factors_ = 0;
  std::vector<double> p_, dp_, ds_, factors_;
};

template <class Real>
void Judge<Real>::start() {
  const Problem& problem = trial_.problem;
  keys_.assign(problem.keys * problem.head_dim);
  values_.assign(problem.keys * problem.value_dim);
  for (std::vector<double>* array : {&terms_, &dot_factors_, &p_factors_}) array->assign(index(problem.keys), 0.0);
}

std::vector<double> to_double(std::span<const double> values) { return {values.begin(), values.end()}; }
std::vector<double> to_double(std::span<const long double> values) {
  std::vector<double> rounded;
  for (const long double value : values) rounded.push_back(static_cast<double>(value));
  return rounded;
}

template <class Real>
void Judge<Real>::add_pairs(const TrueGradientRow<Real>& row) {
  const Problem& problem = trial_.problem;
  const RowFacts& facts = row.forward->facts;
  const Budget budget = budget_of(facts, trial_.roundings.forward);
  p_ = to_double(row.p);
  dp_ = to_double(row.dp);
  ds_ = to_double(row.ds);
  factors_ = to_double(row.factors);
  const GradientFacts gradient{facts,   budget, p_, dp_, row.dp_sizes, ds_, factors_, static_cast<double>(row.delta),
                               row.dout};
  const GradientErrors worst = gradient_errors_of(gradient, trial_.roundings.backward, false);
  const GradientErrors likely = gradient_errors_of(gradient, trial_.roundings.backward, true);
  SlopePart<Real>& slope = slopes_[index(row.batch * problem.heads_q + row.head)];
  for (std::size_t at = 0; at < p_.size(); ++at) {
    const std::int64_t key = row.forward->keys.first + static_cast<std::int64_t>(at);
    const double dot = std::abs(facts.scale * (factors_.empty() ? ds_[at] : ds_[at] * factors_[at]));
    const double* const k = row.keys + static_cast<std::int64_t>(at) * problem.head_dim;
    query_.add(0, k, problem.head_dim, worst.dot[at], likely.dot[at], dot + worst.dot[at]);
    query_factors_ += dot + worst.dot[at];
    keys_.add(key * problem.head_dim, row.q.data(), problem.head_dim, worst.dot[at], likely.dot[at],
              dot + worst.dot[at]);
    values_.add(key * problem.value_dim, row.dout.data(), problem.value_dim, worst.p[at], likely.p[at],
                p_[at] + worst.p[at]);
    dot_factors_[index(key)] += dot + worst.dot[at];
    p_factors_[index(key)] += p_[at] + worst.p[at];
    ++terms_[index(key)];
    const auto away = std::abs(static_cast<double>(key - row.position));
    slope.error += away == 0 ? 0 : away * worst.ds[at];
    slope.probable += away == 0 ? 0 : away * likely.ds[at];
    slope.size += away == 0 ? 0 : away * (std::abs(ds_[at]) + worst.ds[at]);
    slope.unpromised |= away == 0 && !std::isfinite(worst.ds[at]);
    ++slope.terms;
  }
}

template <class Real>
void Judge<Real>::judge_element(Tally& tally, const JudgedGradient& gradient, Real truth, GradientSum sum,
                                double probable, const std::array<std::int64_t, 4>& at) {
  if (gradient.expected) truth = static_cast<Real>(element_of(*gradient.expected, at));
  sum.truth = static_cast<double>(truth);
  const GradientAllowance found =
      allowance_of(sum, probable, trial_.roundings.backward, truth_unit<Real>(), trial_.problem.dtype);
  const Allowance allowance{found.worst, found.probable, found.overflow};
  judge(tally, error_of(element_of(*gradient.result, at), truth, sum.terms == 0, allowance), allowance, at);
}

template <class Real>
void Judge<Real>::visit(const TrueGradientRow<Real>& row) {
  const Problem& problem = trial_.problem;
  query_.assign(problem.head_dim);
  query_factors_ = 0;
  if (!row.p.empty()) add_pairs(row);
  for (std::int64_t d = 0; trial_.gradients.dq.result && d < problem.head_dim; ++d)
    judge_element(dq, trial_.gradients.dq, row.dq[index(d)],
                  {0, query_.error[index(d)], query_.size[index(d)], query_factors_, static_cast<double>(row.p.size()),
                   query_.unpromised[index(d)] != 0},
                  query_.probable[index(d)], {row.batch, row.head, row.query, d});
}

template <class Real>
void Judge<Real>::visit(const TrueGradientHead<Real>& head) {
  const Problem& problem = trial_.problem;
  const auto judge_rows = [&](Tally& tally, const JudgedGradient& gradient, std::span<const Real> truths,
                              const Sums& sums, const std::vector<double>& factors, std::int64_t width) {
    if (!gradient.result) return;
    for (std::int64_t key = 0; key < problem.keys; ++key) {
      for (std::int64_t d = 0; d < width; ++d) {
        const std::size_t at = index(key * width + d);
        judge_element(
            tally, gradient, truths[at],
            {0, sums.error[at], sums.size[at], factors[index(key)], terms_[index(key)], sums.unpromised[at] != 0},
            sums.probable[at], {head.batch, head.head_kv, key, d});
      }
    }
  };
  judge_rows(dk, trial_.gradients.dk, head.dk, keys_, dot_factors_, problem.head_dim);
  judge_rows(dv, trial_.gradients.dv, head.dv, values_, p_factors_, problem.value_dim);
  for (std::size_t member = 0; member < head.dslopes.size(); ++member)
    slopes_[index((head.batch * problem.heads_kv + head.head_kv) * problem.group()) + member].truth =
        head.dslopes[member];
  start();
}

/// Slopes per head are summed over the batch.
template <class Real>
Tally judge_slopes(const Trial& trial, const std::vector<SlopePart<Real>>& parts) {
  const Problem& problem = trial.problem;
  const JudgedGradient& gradient = trial.gradients.dslopes;
  const bool shared = problem.alibi_slopes == AlibiSlopes::per_head;
  const DType wide = problem.dtype == DType::f64 ? DType::f64 : DType::f32;
  Tally tally;
  const std::int64_t count = shared ? problem.heads_q : problem.batch * problem.heads_q;
  for (std::int64_t place = 0; place < count; ++place) {
    SlopePart<Real> sum;
    for (std::size_t at = index(place); at < parts.size(); at += index(count)) {
      sum.truth += parts[at].truth;
      sum.error += parts[at].error;
      sum.probable += parts[at].probable;
      sum.size += parts[at].size;
      sum.terms += parts[at].terms;
      sum.unpromised |= parts[at].unpromised;
    }
    const std::int64_t batch = place / problem.heads_q, head = place % problem.heads_q;
    const std::array<std::int64_t, 4> element =
        shared ? std::array<std::int64_t, 4>{head, 0, 0, 0} : std::array<std::int64_t, 4>{batch, head, 0, 0};
    if (gradient.expected) sum.truth = static_cast<Real>(element_of(*gradient.expected, element));
    const GradientAllowance found =
        allowance_of({static_cast<double>(sum.truth), sum.error, sum.size, 0, sum.terms, sum.unpromised}, sum.probable,
                     trial.roundings.backward, truth_unit<Real>(), wide);
    const Allowance allowance{found.worst, found.probable, found.overflow};
    judge(tally, error_of(element_of(*gradient.result, element), sum.truth, sum.terms == 0, allowance), allowance,
          {shared ? -1 : batch, head, -1, -1});
  }
  return tally;
}

}  // namespace

template <class Real>
void judge_gradients(const Problem& problem, const Inputs& inputs, const PassRoundings& roundings,
                     const JudgedGradients& gradients, Executor& executor, Verdict& verdict, Shares& shares) {
  const Trial trial{problem, roundings, gradients};
  std::vector<SlopePart<Real>> slopes(index(problem.batch * problem.heads_q));
  std::vector<std::unique_ptr<Judge<Real>>> lanes(static_cast<std::size_t>(executor.width()));
  for (auto& lane : lanes) lane = std::make_unique<Judge<Real>>(trial, slopes);
  for_each_true_gradient<Real>(problem, inputs, executor, [&](int lane) -> GradientVisitor<Real>& {
    return *lanes[static_cast<std::size_t>(lane)];
  });
  const auto merged = [&](const JudgedGradient& gradient, Tally Judge<Real>::*part, ShareCounts& counts) {
    std::optional<Judgement> judgement;
    if (!gradient.result) return judgement;
    Tally all;
    for (const auto& lane : lanes) merge(all, (*lane).*part);
    counts.add(all.shares);
    judgement = all.judgement;
    return judgement;
  };
  verdict.dq = merged(gradients.dq, &Judge<Real>::dq, shares.dq);
  verdict.dk = merged(gradients.dk, &Judge<Real>::dk, shares.dk);
  verdict.dv = merged(gradients.dv, &Judge<Real>::dv, shares.dv);
  if (!gradients.dslopes.result) return;
  const Tally all = judge_slopes(trial, slopes);
  shares.dalibi_slopes.add(all.shares);
  verdict.dalibi_slopes = all.judgement;
}

template void judge_gradients<double>(const Problem&, const Inputs&, const PassRoundings&, const JudgedGradients&,
                                      Executor&, Verdict&, Shares&);
template void judge_gradients<long double>(const Problem&, const Inputs&, const PassRoundings&, const JudgedGradients&,
                                           Executor&, Verdict&, Shares&);

}  // namespace fresnel
