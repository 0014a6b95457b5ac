// SPDX-License-Identifier: Apache-2.0
// The true gradients, by the textbook: for every query row the weights, then the softmax's derivative, then sums over
// keys (dq) and over queries and the heads of a group (dk, dv), in the oracle's wide types. It stands on the oracle's
// forward and knows nothing of lse tricks, tiles or kernels.
//
//     dp_j = dO . v_j      D = sum_j p_j dp_j      ds_j = p_j (dp_j - D)      (with respect to the final score)
//     dq = sum_j scale c'_j ds_j k_j      dk_j = sum scale c'_j ds_j q      dv_j = sum p_j dO      c' = 1 - tanh^2
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "oracle/forward.hpp"

namespace fresnel {

/// One query row; valid during the visit only. Arrays over keys hold one number for each visible key; a row that sees
/// none has no arrays and a dq of zeros.
template <class Real>
struct TrueGradientRow {
  std::int64_t batch = 0;
  std::int64_t head = 0;  ///< query head
  std::int64_t query = 0;
  std::int64_t position = 0;               ///< where the query stands among the keys
  const TrueRow<Real>* forward = nullptr;  ///< its `head` counts within the group, its batch is 0
  std::span<const Real> p;                 ///< weights
  std::span<const Real> dp;                ///< sum_d dO_d v_jd
  std::span<const Real> ds;                ///< gradient of the final score
  std::span<const Real> factors;           ///< 1 - tanh^2; empty where there is no softcap
  std::span<const double> dp_sizes;        ///< sum_d |dO_d v_jd|
  Real delta = 0;                          ///< D
  std::span<const double> q, dout;
  const double* keys = nullptr;  ///< k of the first visible key, rows of D elements
  std::span<const Real> dq;
};

/// All rows of one key head of one sequence, summed.
template <class Real>
struct TrueGradientHead {
  std::int64_t batch = 0;
  std::int64_t head_kv = 0;
  std::span<const Real> dk;       ///< [Sk, D]
  std::span<const Real> dv;       ///< [Sk, Dv]
  std::span<const Real> dslopes;  ///< of each query head of the group; empty where there are no slopes
};

/// Gets all that one lane computes: the rows of a head, then that head.
template <class Real>
class GradientVisitor {
 public:
  GradientVisitor() = default;
  GradientVisitor(const GradientVisitor&) = default;
  GradientVisitor& operator=(const GradientVisitor&) = default;
  virtual ~GradientVisitor() = default;
  virtual void visit(const TrueGradientRow<Real>& row) = 0;
  virtual void visit(const TrueGradientHead<Real>& head) = 0;
};

/// Visits every (batch, key head), each from one task: its rows head by head in query order, then their sums. `accept`
/// must have said yes to inputs with a dout.
template <class Real>
void for_each_true_gradient(const Problem& problem, const Inputs& inputs, Executor& executor,
                            const std::function<GradientVisitor<Real>&(int lane)>& visitor_of);

extern template void for_each_true_gradient(const Problem&, const Inputs&, Executor&,
                                            const std::function<GradientVisitor<double>&(int)>&);
extern template void for_each_true_gradient(const Problem&, const Inputs&, Executor&,
                                            const std::function<GradientVisitor<long double>&(int)>&);

/// All gradients, rounded to double.
struct TrueGradients {
  std::vector<double> dq;             ///< [B, Hq, Sq, D]
  std::vector<double> dk;             ///< [B, Hkv, Sk, D]
  std::vector<double> dv;             ///< [B, Hkv, Sk, Dv]
  std::vector<double> dalibi_slopes;  ///< as alibi_slopes; empty without
};

/// Computes all gradients by the oracle on `executor` (default: the pool); refuses inputs without dout.
[[nodiscard]] Result<TrueGradients> reference_gradients(const Problem& problem, const Inputs& inputs,
                                                        Executor* executor = nullptr);

/// As `accept`, and there is a dout.
[[nodiscard]] Status accept_gradients(const Problem& problem, const Inputs& inputs);

}  // namespace fresnel
