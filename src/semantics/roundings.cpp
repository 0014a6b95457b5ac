// SPDX-License-Identifier: Apache-2.0
// What is assumed of a result whose maker is unknown: a fused kernel on a matrix unit with the usual fast functions.
// Every figure is a ceiling over what common libraries declare; docs/numerics.md, "Results of unknown origin", says
// why.
#include "fresnel/check.hpp"
#include "semantics/budget.hpp"

namespace fresnel {

Roundings default_roundings(const Problem& problem) {
  const bool wide = problem.dtype == DType::f64;
  const bool half = problem.dtype == DType::f16 || problem.dtype == DType::bf16;
  Roundings roundings;
  roundings.name = "default";
  roundings.unit = wide ? 0x1p-53 : 0x1p-23;  // a matrix unit may truncate
  roundings.unit_p = half ? unit_of(problem.dtype) : 0;
  if (half) roundings.least_p = problem.dtype == DType::f16 ? 0x1p-25 : 0x1p-126;
  roundings.least = roundings.least_exp = wide ? 0x1p-1022 : 0x1p-126;
  roundings.flushes_inputs = true;
  roundings.exp_constant = wide ? 0x1p-50 : 0x1p-18;  // 32 units in the last place
  roundings.exp_slope = roundings.unit;
  roundings.rescale = 8 * roundings.unit;
  roundings.tanh = half ? 0x1p-10 : 16 * roundings.unit;  // hardware tanh beside half inputs
  roundings.log = 8 * roundings.unit;
  roundings.log2_scores = true;
  return roundings;
}

}  // namespace fresnel
