// SPDX-License-Identifier: Apache-2.0
// Judging gradients: the oracle's backward for the truth (or answers from elsewhere), the gradient budget for every
// element's allowance. Shapes and dtypes have been checked by whoever calls.
#pragma once

#include <optional>

#include "checker/shares.hpp"
#include "fresnel/check.hpp"

namespace fresnel {

struct JudgedGradient {
  std::optional<View> result;    ///< empty: not judged
  std::optional<View> expected;  ///< float64; empty: the oracle's own
};

struct JudgedGradients {
  JudgedGradient dq, dk, dv, dslopes;
  [[nodiscard]] bool any() const { return dq.result || dk.result || dv.result || dslopes.result; }
};

/// What each pass rounds: the backward reads the o and lse that the forward left.
struct PassRoundings {
  const Roundings& forward;
  const Roundings& backward;
};

/// Adds the judgements of gradients to a verdict, and their shares to `shares`. Real is double or long double.
template <class Real>
void judge_gradients(const Problem& problem, const Inputs& inputs, const PassRoundings& roundings,
                     const JudgedGradients& gradients, Executor& executor, Verdict& verdict, Shares& shares);

extern template void judge_gradients<double>(const Problem&, const Inputs&, const PassRoundings&,
                                             const JudgedGradients&, Executor&, Verdict&, Shares&);
extern template void judge_gradients<long double>(const Problem&, const Inputs&, const PassRoundings&,
                                                  const JudgedGradients&, Executor&, Verdict&, Shares&);

}  // namespace fresnel
