// SPDX-License-Identifier: Apache-2.0
// Judging gradients: the oracle's backward for the truth (or answers from elsewhere), the gradient budget for every
// element's allowance. Shapes and dtypes have been checked by whoever calls.
#pragma once

#include <optional>

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

/// Adds the judgements of gradients to a verdict. Real is double or long double.
template <class Real>
void judge_gradients(const Problem& problem, const Inputs& inputs, const Roundings& roundings,
                     const JudgedGradients& gradients, Executor& executor, Verdict& verdict);

extern template void judge_gradients<double>(const Problem&, const Inputs&, const Roundings&, const JudgedGradients&,
                                             Executor&, Verdict&);
extern template void judge_gradients<long double>(const Problem&, const Inputs&, const Roundings&,
                                                  const JudgedGradients&, Executor&, Verdict&);

}  // namespace fresnel
