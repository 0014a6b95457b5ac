// SPDX-License-Identifier: Apache-2.0
// Which row of the catalogue serves a Problem on a Machine: the questions plan and explain share.
#pragma once

#include <optional>
#include <string>

#include "kernels/kernel.hpp"

namespace fresnel {

/// The row asked for: PlanOptions::kernel, else FRESNEL_KERNEL, else empty.
[[nodiscard]] std::string requested_kernel(const PlanOptions& options);

/// Why a row does not serve the problem here; nothing when it does. Builds text.
[[nodiscard]] std::optional<Refusal> refusal_of(const Kernel& row, const Problem& problem, const Machine& machine);

/// The plan of one row, in the table or not; a refusal where the row does not serve the problem.
[[nodiscard]] Result<Plan> plan_row(const Kernel& row, const Problem& problem, const Machine& machine,
                                    const PlanOptions& options);

/// plan(), choosing only among rows that are part of this build when `built_only`: planning for another machine ignores
/// what is built here, running does not.
[[nodiscard]] Result<Plan> plan_among(const Problem& problem, const Machine& machine, const PlanOptions& options,
                                      bool built_only);

/// What a call takes: the forward and, where gradients are asked for, the backward.
struct Passes {
  Plan forward;
  std::optional<Plan> backward;
};

/// Plans every pass of a problem; a row asked for by name is forced on the pass that it serves.
[[nodiscard]] Result<Passes> plan_passes(const Problem& problem, const Machine& machine, const PlanOptions& options,
                                         bool built_only);

/// The same question as refusal_of, without text.
[[nodiscard]] bool serves(const Kernel& row, const Problem& problem, const Machine& machine);

}  // namespace fresnel
