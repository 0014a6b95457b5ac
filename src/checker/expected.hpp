// SPDX-License-Identifier: Apache-2.0
// Judging a result by answers from elsewhere instead of the oracle's own: the same rules, the same budgets (which are
// the oracle's facts about the row, whoever computed the answer), another number to be compared with.
#pragma once

#include <optional>

#include "fresnel/check.hpp"
#include "fresnel/view.hpp"

namespace fresnel {

/// Answers in float64: o [B, Hq, Sq, Dv], lse [B, Hq, Sq] and gradients in their inputs' shapes. What is absent is not
/// judged.
struct Expected {
  std::optional<View> o, lse;
  std::optional<View> dq = std::nullopt;
  std::optional<View> dk = std::nullopt;
  std::optional<View> dv = std::nullopt;
  std::optional<View> dalibi_slopes = std::nullopt;
};

/// As `check`, with `expected` for the truth. Rows that see no key must equal it exactly. Outputs that `result` or
/// `expected` lacks are not judged: `o` then counts 0 elements, and `lse` is empty.
[[nodiscard]] Result<Verdict> check_against(const Problem& problem, const Inputs& inputs, const Expected& expected,
                                            const Outputs& result, const Roundings& roundings,
                                            Executor* executor = nullptr);
[[nodiscard]] Result<Verdict> check_against(const Problem& problem, const Inputs& inputs, const Expected& expected,
                                            const Outputs& result, const Roundings& forward, const Roundings& backward,
                                            Executor* executor = nullptr);

}  // namespace fresnel
