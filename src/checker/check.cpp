// SPDX-License-Identifier: Apache-2.0
// The judge. Every row's truth comes from the oracle (or from elsewhere, check_against) and every element's allowance
// from the budget; what is left to decide here is what a value that is not finite means. It trusts nothing of the
// result but its declared shape, and it judges a result by the roundings it is given, never by those it would fit.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checker/expected.hpp"
#include "oracle/forward.hpp"
#include "runtime/half.hpp"
#include "semantics/budget.hpp"
#include "semantics/views.hpp"

namespace fresnel {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The allowance of one element.
struct Allowance {
  double worst = 0;
  double probable = 0;
  Overflow overflow = Overflow::never;
};

/// |value - truth|, with what is not finite decided: 0 where that is right, infinity where it is wrong. `exact`: the
/// truth is a definite answer, infinities included (a row that sees no key), not a sign of trouble.
template <class Real>
double error_of(double value, Real truth, bool exact, const Allowance& allowance) {
  const Real given = static_cast<Real>(value);
  if (given == truth) return 0;  // equal infinities match
  if (exact && !std::isfinite(truth)) return infinity;
  if (!std::isfinite(truth)) return std::isfinite(value) ? infinity : 0;
  if (std::isfinite(value)) return static_cast<double>(std::abs(given - truth));
  if (allowance.overflow == Overflow::free) return 0;
  const bool outward = std::isinf(value) && std::signbit(value) == std::signbit(truth);
  return outward && allowance.overflow == Overflow::outward ? 0 : infinity;
}

double share_of(double error, double budget) {
  if (error == 0) return 0;
  return std::isinf(error) || !(budget > 0) ? infinity : error / budget;
}

/// Adds one element to the verdict on its tensor. Ties of the largest share go to the first index, so that the order in
/// which elements arrive changes nothing.
void judge(Judgement& judgement, double error, const Allowance& allowance, const std::array<std::int64_t, 4>& at) {
  const double share = share_of(error, allowance.worst), probable = share_of(error, allowance.probable);
  ++judgement.count;
  if (share > 1) ++judgement.mismatches;
  if (probable > 1) ++judgement.mismatches_probable;
  judgement.max_error = std::max(judgement.max_error, error);
  judgement.max_share_probable = std::max(judgement.max_share_probable, probable);
  if (share > judgement.max_share || (share == judgement.max_share && share > 0 && at < judgement.at)) {
    judgement.max_share = share;
    judgement.at = at;
  }
}

void merge(Judgement& all, const Judgement& part) {
  all.count += part.count;
  all.mismatches += part.mismatches;
  all.mismatches_probable += part.mismatches_probable;
  all.max_error = std::max(all.max_error, part.max_error);
  all.max_share_probable = std::max(all.max_share_probable, part.max_share_probable);
  if (part.max_share > all.max_share || (part.max_share == all.max_share && part.max_share > 0 && part.at < all.at)) {
    all.max_share = part.max_share;
    all.at = part.at;
  }
}

double element_of(const View& view, const std::array<std::int64_t, 4>& at) {
  std::int64_t offset = 0;
  for (int axis = 0; axis < view.rank; ++axis) {
    const auto place = static_cast<std::size_t>(axis);
    if (at[place] > 0) offset += at[place] * view.strides[place];
  }
  return load_as_double(view.data, view.dtype, offset);
}

/// One lane's part of the verdict, on a cache line of its own.
struct alignas(64) Lane {
  Judgement o, lse;
};

/// What is judged, and by what.
struct Trial {
  const Problem& problem;
  const Inputs& inputs;
  const Roundings& roundings;
  std::optional<View> o, lse;  ///< the outputs that are judged
  const Expected* expected;    ///< null: the oracle's own truth
};

template <class Real>
void judge_row(const TrueRow<Real>& row, const Trial& trial, Lane& lane) {
  const bool empty = row.keys.empty();
  Budget budget;  // an empty row is exact: no budget
  if (!empty) budget = budget_of(row.facts, trial.roundings);
  std::array<std::int64_t, 4> at{row.batch, row.head, row.query, -1};
  if (trial.lse) {
    const Real truth = trial.expected ? static_cast<Real>(element_of(*trial.expected->lse, at)) : row.lse;
    const Allowance allowance{budget.lse, budget.lse_probable, budget.lse_overflow};
    judge(lane.lse, error_of(element_of(*trial.lse, at), truth, empty, allowance), allowance, at);
  }
  for (std::size_t column = 0; trial.o && column < row.o.size(); ++column) {
    at[3] = static_cast<std::int64_t>(column);
    const Real truth = trial.expected ? static_cast<Real>(element_of(*trial.expected->o, at)) : row.o[column];
    Allowance allowance;
    if (!empty) allowance = {budget.o[column], budget.o_probable[column], budget.o_overflow[column]};
    judge(lane.o, error_of(element_of(*trial.o, at), truth, empty, allowance), allowance, at);
  }
}

template <class Real>
Verdict verdict_on(const Trial& trial, Executor& executor) {
  std::vector<Lane> lanes(static_cast<std::size_t>(executor.width()));
  for_each_true_row<Real>(trial.problem, trial.inputs, executor, [&](int lane, const TrueRow<Real>& row) {
    judge_row(row, trial, lanes[static_cast<std::size_t>(lane)]);
  });
  Verdict verdict;
  if (trial.lse) verdict.lse.emplace();
  for (const Lane& lane : lanes) {
    merge(verdict.o, lane.o);
    if (verdict.lse) merge(*verdict.lse, lane.lse);
  }
  return verdict;
}

/// Shape, dtype and place of a result; its strides are free.
Objection objection_to_result(const Tensor& tensor, DType dtype, std::initializer_list<std::int64_t> extents) {
  if (auto fault = objection_to_shape(tensor)) return fault;
  int axis = 0;
  for (const std::int64_t extent : extents)
    if (auto fault = objection_to_extent(tensor, axis++, extent, "as in the problem")) return fault;
  const View& view = tensor.view;
  if (view.dtype != dtype) return refuse(tensor.name, spell(view.dtype), spell(dtype), spell(dtype));
  if (view.device != Device::cpu) return refuse(tensor.name, "memory of a device", "host memory", "cpu");
  if (view.elements() == 0) return std::nullopt;
  const auto width = static_cast<std::uintptr_t>(size_of(dtype));
  if (view.data == nullptr || reinterpret_cast<std::uintptr_t>(view.data) % width != 0)
    return refuse(tensor.name, fmt::format("address {}", fmt::ptr(view.data)),
                  fmt::format("an address that is a multiple of {} bytes", width));
  return std::nullopt;
}

/// o and lse under the names that the caller knows them by, in the dtypes that they must have.
Objection objection_to_pair(const Problem& problem, const std::optional<View>& o, const char* o_name, DType o_dtype,
                            const std::optional<View>& lse, const char* lse_name, DType lse_dtype) {
  if (o)
    if (auto fault = objection_to_result({o_name, *o, 4, {"batch", "heads", "queries", "value_dim"}}, o_dtype,
                                         {problem.batch, problem.heads_q, problem.queries, problem.value_dim}))
      return fault;
  if (!lse) return std::nullopt;
  return objection_to_result({lse_name, *lse, 3, {"batch", "heads", "queries"}}, lse_dtype,
                             {problem.batch, problem.heads_q, problem.queries});
}

Objection objection_to_roundings(const Roundings& roundings) {
  const auto word = [](const char* field, double given, const char* accepted) {
    return refuse(fmt::format("roundings.{}", field), fmt::format("{}", given), accepted);
  };
  const struct {
    const char* name;
    double value;
  } relative[] = {{"unit", roundings.unit},           {"unit_p", roundings.unit_p},
                  {"least_p", roundings.least_p},     {"least", roundings.least},
                  {"least_exp", roundings.least_exp}, {"exp_constant", roundings.exp_constant},
                  {"exp_slope", roundings.exp_slope}, {"rescale", roundings.rescale},
                  {"tanh", roundings.tanh},           {"log", roundings.log}};
  for (const auto& [name, value] : relative)
    if (!(value >= 0 && value < 1)) return word(name, value, "a number from 0 to below 1");
  const struct {
    const char* name;
    std::int64_t value;
  } counts[] = {{"tile_keys", roundings.tile_keys}, {"splits", roundings.splits}, {"dot_lanes", roundings.dot_lanes}};
  for (const auto& [name, value] : counts)
    if (value < 1) return word(name, static_cast<double>(value), "a count of at least 1");
  return std::nullopt;
}

Result<Verdict> judge_all(const Problem& problem, const Inputs& inputs, const Expected* expected, const Outputs& result,
                          const Roundings& roundings, Executor* executor) {
  if (const Status accepted = accept(problem, inputs); !accepted) return accepted.refusal();
  Trial trial{problem, inputs, roundings, as_input(result.o), {}, expected};
  if (result.lse) trial.lse = as_input(*result.lse);
  const DType wide = problem.dtype == DType::f64 ? DType::f64 : DType::f32;
  if (auto fault = objection_to_pair(problem, trial.o, "o", problem.dtype, trial.lse, "lse", wide))
    return *std::move(fault);
  if (expected != nullptr) {
    if (auto fault = objection_to_pair(problem, expected->o, "expected_o", DType::f64, expected->lse, "expected_lse",
                                       DType::f64))
      return *std::move(fault);
    if (!expected->o) trial.o.reset();
    if (!expected->lse) trial.lse.reset();
  }
  if (auto fault = objection_to_roundings(roundings)) return *std::move(fault);
  Executor& team = executor != nullptr ? *executor : default_executor();
  return problem.dtype == DType::f64 ? verdict_on<long double>(trial, team) : verdict_on<double>(trial, team);
}

}  // namespace

Result<Verdict> check(const Problem& problem, const Inputs& inputs, const Outputs& result, const Roundings& roundings,
                      Executor* executor) {
  return judge_all(problem, inputs, nullptr, result, roundings, executor);
}

Result<Verdict> check_against(const Problem& problem, const Inputs& inputs, const Expected& expected,
                              const Outputs& result, const Roundings& roundings, Executor* executor) {
  return judge_all(problem, inputs, &expected, result, roundings, executor);
}

}  // namespace fresnel
