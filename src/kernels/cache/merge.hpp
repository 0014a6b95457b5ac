// SPDX-License-Identifier: Apache-2.0
// Merging rows of partial results, (o, lse), in the order given. Finds no fault: planner/merge.cpp has looked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fresnel/merge.hpp"

namespace fresnel::cache {

/// Merges row `row` of [B, Hq, Sq], counted with Sq fastest, in `Real`.
template <class Real>
void merge_row(std::span<const Partial> parts, const Merged& result, std::int64_t row);

}  // namespace fresnel::cache
