// SPDX-License-Identifier: Apache-2.0
// The truth: attention by the textbook, one query row at a time, in two passes (the maximum, then the sums), in a wider
// type than any kernel uses. It knows who sees whom (semantics/mask.hpp) and nothing of tiles, walks or kernels. It is
// made to be believed first and to be quick second; it refuses what `validate` and `accept` refuse.
//
// float64 problems are computed in long double, exp, tanh and log included; all others in double. Keys that no query of
// a sequence sees are never read, and a row only touches the keys it sees.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "fresnel/executor.hpp"
#include "fresnel/plan.hpp"
#include "semantics/budget.hpp"
#include "semantics/mask.hpp"

namespace fresnel {

/// One query row, with everything a budget needs; valid during the visit only.
template <class Real>
struct TrueRow {
  std::int64_t batch = 0;
  std::int64_t head = 0;  ///< query head
  std::int64_t query = 0;
  KeyRange keys;                  ///< visible keys
  std::span<const Real> o;        ///< Dv values; zeros where no key is visible
  Real lse = 0;                   ///< natural log; -inf where no key is visible
  RowFacts facts;                 ///< `x` is empty where no key is visible
  std::span<const Real> weights;  ///< exp(s_j - m), one for each visible key
  Real weight_sum = 0;            ///< their sum
};

/// Checks that the inputs are those of the problem: valid, on the host, of the right shapes and dtypes, indices in
/// range.
[[nodiscard]] Status accept(const Problem& problem, const Inputs& inputs);

/// Visits every query row of a problem once, from tasks of `executor` and in no particular order, with the number of
/// the visiting lane in [0, executor.width()): rows of one lane come one after another. Real is double or long double,
/// and `accept` must have said yes.
template <class Real>
void for_each_true_row(const Problem& problem, const Inputs& inputs, Executor& executor,
                       const std::function<void(int lane, const TrueRow<Real>&)>& visit);

extern template void for_each_true_row(const Problem&, const Inputs&, Executor&,
                                       const std::function<void(int, const TrueRow<double>&)>&);
extern template void for_each_true_row(const Problem&, const Inputs&, Executor&,
                                       const std::function<void(int, const TrueRow<long double>&)>&);

/// The whole answer, rounded to double.
struct Truth {
  std::vector<double> o;    ///< [B, Hq, Sq, Dv]
  std::vector<double> lse;  ///< [B, Hq, Sq]
};

/// Computes a problem by the oracle on `executor` (default: the pool).
[[nodiscard]] Result<Truth> reference(const Problem& problem, const Inputs& inputs, Executor* executor = nullptr);

/// What one query attends to.
struct TrueWeights {
  KeyRange keys;                ///< visible keys
  std::vector<double> scores;   ///< final scores, one for each visible key
  std::vector<double> weights;  ///< softmax of the scores
  double lse = 0;
};

/// Scores and weights of one row; refuses an index outside the problem.
[[nodiscard]] Result<TrueWeights> reference_row(const Problem& problem, const Inputs& inputs, std::int64_t batch,
                                                std::int64_t head, std::int64_t query);

}  // namespace fresnel
