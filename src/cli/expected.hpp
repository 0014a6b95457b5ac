// SPDX-License-Identifier: Apache-2.0
// Our result against the expected values of a case, which are answers from elsewhere.
#pragma once

#include <optional>

#include "cli/case_run.hpp"
#include "fresnel/check.hpp"

namespace fresnel::cli {

/// |result - expected| against the budget that the roundings allow around the truth: o, lse and gradients where the
/// case expects them. Nothing where it expects none; a case that does not expect o has an o of no elements.
[[nodiscard]] Result<std::optional<Verdict>> judge_against_expected(CaseRun& run, const Roundings& roundings,
                                                                    Executor& executor);

}  // namespace fresnel::cli
