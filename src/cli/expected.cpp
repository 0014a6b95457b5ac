// SPDX-License-Identifier: Apache-2.0
// Expected values judged: see expected.hpp. The budgets are the checker's, from the oracle's facts about each row; only
// the value compared with is another's.
#include "cli/expected.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "oracle/forward.hpp"
#include "runtime/half.hpp"
#include "semantics/budget.hpp"

namespace fresnel::cli {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// |value - expected|; 0 where a value that is not finite is right, infinity where it is wrong.
double error_of(double value, double expected, Overflow overflow) {
  if (value == expected) return 0;
  if (std::isfinite(value) && std::isfinite(expected)) return std::abs(value - expected);
  if (std::isfinite(value)) return infinity;
  if (std::isnan(expected) || overflow == Overflow::free) return 0;
  const bool outward = std::isinf(value) && std::signbit(value) == std::signbit(expected);
  return outward && overflow == Overflow::outward ? 0 : infinity;
}

double share_of(double error, double budget) {
  if (error == 0) return 0;
  return std::isinf(error) || !(budget > 0) ? infinity : error / budget;
}

void add(Judgement& judgement, double error, double budget, double probable_budget,
         const std::array<std::int64_t, 4>& at) {
  const double share = share_of(error, budget), probable = share_of(error, probable_budget);
  ++judgement.count;
  judgement.mismatches += share > 1 ? 1 : 0;
  judgement.mismatches_probable += probable > 1 ? 1 : 0;
  judgement.max_error = std::max(judgement.max_error, error);
  judgement.max_share_probable = std::max(judgement.max_share_probable, probable);
  if (share > judgement.max_share || (share == judgement.max_share && share > 0 && at < judgement.at)) {
    judgement.max_share = share;
    judgement.at = at;
  }
}

/// Adds the judgement of another lane; ties go to the first index, so that the order of lanes changes nothing.
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

struct alignas(64) Lane {
  Judgement o, lse;
};

template <class Real>
void judge_row(const TrueRow<Real>& row, const CaseRun& run, const Roundings& roundings, Lane& lane) {
  const Problem& problem = run.problem;
  Budget budget;
  if (!row.keys.empty()) budget = budget_of(row.facts, roundings);
  const std::int64_t index = (row.batch * problem.heads_q + row.head) * problem.queries + row.query;
  std::array<std::int64_t, 4> at{row.batch, row.head, row.query, -1};
  if (run.given.expected_lse) {
    const double value = load_as_double(run.lse.bytes.data(), run.lse.dtype, index);
    const double expected = load_as_double(run.given.expected_lse->bytes.data(), DType::f64, index);
    add(lane.lse, error_of(value, expected, budget.lse_overflow), budget.lse, budget.lse_probable, at);
  }
  if (!run.given.expected_o) return;
  for (std::int64_t column = 0; column < problem.value_dim; ++column) {
    const auto place = static_cast<std::size_t>(column);
    const double value = load_as_double(run.o.bytes.data(), run.o.dtype, index * problem.value_dim + column);
    const double expected =
        load_as_double(run.given.expected_o->bytes.data(), DType::f64, index * problem.value_dim + column);
    at[3] = column;
    if (row.keys.empty())
      add(lane.o, error_of(value, expected, Overflow::never), 0, 0, at);
    else
      add(lane.o, error_of(value, expected, budget.o_overflow[place]), budget.o[place], budget.o_probable[place], at);
  }
}

template <class Real>
Verdict verdict_on(const CaseRun& run, const Roundings& roundings, Executor& executor) {
  std::vector<Lane> lanes(static_cast<std::size_t>(executor.width()));
  for_each_true_row<Real>(run.problem, run.inputs(), executor, [&](int lane, const TrueRow<Real>& row) {
    judge_row(row, run, roundings, lanes[static_cast<std::size_t>(lane)]);
  });
  Verdict verdict;
  if (run.given.expected_lse) verdict.lse.emplace();
  for (const Lane& lane : lanes) {
    merge(verdict.o, lane.o);
    if (verdict.lse) merge(*verdict.lse, lane.lse);
  }
  return verdict;
}

}  // namespace

Result<std::optional<Verdict>> judge_against_expected(const CaseRun& run, const Roundings& roundings,
                                                      Executor& executor) {
  if (!run.given.expected_o && !run.given.expected_lse) return std::optional<Verdict>();
  if (const Status accepted = accept(run.problem, run.inputs()); !accepted) return accepted.refusal();
  return std::optional<Verdict>(run.problem.dtype == DType::f64 ? verdict_on<long double>(run, roundings, executor)
                                                                : verdict_on<double>(run, roundings, executor));
}

}  // namespace fresnel::cli
