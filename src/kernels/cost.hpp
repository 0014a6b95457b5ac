// SPDX-License-Identifier: Apache-2.0
// Cost formulas shared by rows: operations and bytes that follow from the Problem alone.
#pragma once

#include "fresnel/plan.hpp"

namespace fresnel {

/// Operations of the visible pairs; every input read once, every output written once; and beside them what the unfused
/// way adds: scores and weights written and read back. Lengths are taken as full (seqlens_k is data).
[[nodiscard]] Cost forward_cost(const Problem& problem, const Tile& tile);

/// What the backward computes, five products of matrices, and moves: q, k, v, o, dO and lse read, dq, dk, dv written.
[[nodiscard]] Cost backward_cost(const Problem& problem, const Tile& tile);

}  // namespace fresnel
