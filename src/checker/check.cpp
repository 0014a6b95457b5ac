// SPDX-License-Identifier: Apache-2.0
// The judge. Every row's truth comes from the oracle (or from elsewhere, check_against) and every element's allowance
// from the budget; what is left to decide here is what a value that is not finite means. It trusts nothing of the
// result but its declared shape, and it judges a result by the roundings it is given, never by those it would fit.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checker/expected.hpp"
#include "checker/gradients.hpp"
#include "checker/judging.hpp"
#include "oracle/forward.hpp"
#include "semantics/views.hpp"

namespace fresnel {
namespace {

/// One lane's part of the verdict, on a cache line of its own.
struct alignas(64) Lane {
  Tally o, lse;
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
Verdict verdict_on(const Trial& trial, Executor& executor, Shares& shares) {
  std::vector<Lane> lanes(static_cast<std::size_t>(executor.width()));
  for_each_true_row<Real>(trial.problem, trial.inputs, executor, [&](int lane, const TrueRow<Real>& row) {
    judge_row(row, trial, lanes[static_cast<std::size_t>(lane)]);
  });
  Lane all;
  for (const Lane& lane : lanes) {
    merge(all.o, lane.o);
    merge(all.lse, lane.lse);
  }
  shares.o.add(all.o.shares);
  shares.lse.add(all.lse.shares);
  Verdict verdict{all.o.judgement, {}};
  if (trial.lse) verdict.lse = all.lse.judgement;
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

/// The gradients that are judged: those that the result has and, where there are answers from elsewhere, they have too.
JudgedGradients gradients_of(const Outputs& result, const Expected* expected) {
  const auto pair = [&](const std::optional<MutableView>& given, const std::optional<View> Expected::*answer) {
    JudgedGradient gradient;
    if (!given || (expected != nullptr && !(expected->*answer))) return gradient;
    gradient.result = as_input(*given);
    if (expected != nullptr) gradient.expected = expected->*answer;
    return gradient;
  };
  return {pair(result.dq, &Expected::dq), pair(result.dk, &Expected::dk), pair(result.dv, &Expected::dv),
          pair(result.dalibi_slopes, &Expected::dalibi_slopes)};
}

Objection objection_to_gradients(const Problem& problem, const Inputs& inputs, const JudgedGradients& gradients) {
  if (!gradients.any()) return std::nullopt;
  if (!inputs.dout) return refuse("dout", "none, beside gradients", "the gradient of o, which they come from");
  const DType wide = problem.dtype == DType::f64 ? DType::f64 : DType::f32;
  const auto object = [](const JudgedGradient& gradient, Tensor tensor, const char* expected_name, DType dtype,
                         std::initializer_list<std::int64_t> extents) -> Objection {
    if (!gradient.result) return std::nullopt;
    tensor.view = *gradient.result;
    if (auto fault = objection_to_result(tensor, dtype, extents)) return fault;
    if (!gradient.expected) return std::nullopt;
    tensor.view = *gradient.expected;
    tensor.name = expected_name;
    return objection_to_result(tensor, DType::f64, extents);
  };
  const auto& [batch, heads, heads_kv, queries, keys] =
      std::tie(problem.batch, problem.heads_q, problem.heads_kv, problem.queries, problem.keys);
  if (auto fault = object(gradients.dq, {"dq", {}, 4, {"batch", "heads", "queries", "head_dim"}}, "expected_dq",
                          problem.dtype, {batch, heads, queries, problem.head_dim}))
    return fault;
  if (auto fault = object(gradients.dk, {"dk", {}, 4, {"batch", "kv heads", "keys", "head_dim"}}, "expected_dk",
                          problem.dtype, {batch, heads_kv, keys, problem.head_dim}))
    return fault;
  if (auto fault = object(gradients.dv, {"dv", {}, 4, {"batch", "kv heads", "keys", "value_dim"}}, "expected_dv",
                          problem.dtype, {batch, heads_kv, keys, problem.value_dim}))
    return fault;
  if (!gradients.dslopes.result) return std::nullopt;
  if (!inputs.alibi_slopes)
    return refuse("dalibi_slopes", "a gradient without alibi_slopes", "the gradient of a tensor that is there");
  if (problem.alibi_slopes == AlibiSlopes::per_head)
    return object(gradients.dslopes, {"dalibi_slopes", {}, 1, {"heads"}}, "expected_dalibi_slopes", wide, {heads});
  return object(gradients.dslopes, {"dalibi_slopes", {}, 2, {"batch", "heads"}}, "expected_dalibi_slopes", wide,
                {batch, heads});
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
                  {"tanh", roundings.tanh},           {"log", roundings.log},
                  {"split", roundings.split}};
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
                          const PassRoundings& roundings, Executor* executor, Shares& shares) {
  if (const Status accepted = accept(problem, inputs); !accepted) return accepted.refusal();
  Trial trial{problem, inputs, roundings.forward, as_input(result.o), {}, expected};
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
  const JudgedGradients gradients = gradients_of(result, expected);
  if (auto fault = objection_to_gradients(problem, inputs, gradients)) return *std::move(fault);
  for (const Roundings* pass : {&roundings.forward, &roundings.backward})
    if (auto fault = objection_to_roundings(*pass)) return *std::move(fault);
  Executor& team = executor != nullptr ? *executor : default_executor();
  Verdict verdict = problem.dtype == DType::f64 ? verdict_on<long double>(trial, team, shares)
                                                : verdict_on<double>(trial, team, shares);
  if (!gradients.any()) return verdict;
  if (problem.dtype == DType::f64) {
    judge_gradients<long double>(problem, inputs, roundings, gradients, team, verdict, shares);
  } else {
    judge_gradients<double>(problem, inputs, roundings, gradients, team, verdict, shares);
  }
  return verdict;
}

}  // namespace

Result<Verdict> check(const Problem& problem, const Inputs& inputs, const Outputs& result, const Roundings& roundings,
                      Executor* executor) {
  return check(problem, inputs, result, roundings, roundings, executor);
}

Result<Verdict> check(const Problem& problem, const Inputs& inputs, const Outputs& result, const Roundings& forward,
                      const Roundings& backward, Executor* executor) {
  Shares unasked;
  return judge_all(problem, inputs, nullptr, result, {forward, backward}, executor, unasked);
}

Result<Verdict> check_with_shares(const Problem& problem, const Inputs& inputs, const Outputs& result,
                                  const Roundings& forward, const Roundings& backward, Executor* executor,
                                  Shares& shares) {
  return judge_all(problem, inputs, nullptr, result, {forward, backward}, executor, shares);
}

Result<Verdict> check_against(const Problem& problem, const Inputs& inputs, const Expected& expected,
                              const Outputs& result, const Roundings& roundings, Executor* executor) {
  return check_against(problem, inputs, expected, result, roundings, roundings, executor);
}

Result<Verdict> check_against(const Problem& problem, const Inputs& inputs, const Expected& expected,
                              const Outputs& result, const Roundings& forward, const Roundings& backward,
                              Executor* executor) {
  Shares unasked;
  return judge_all(problem, inputs, &expected, result, {forward, backward}, executor, unasked);
}

}  // namespace fresnel
