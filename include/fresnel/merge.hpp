// SPDX-License-Identifier: Apache-2.0
// Partial results of disjoint sets of keys, merged into the result of their union: docs/semantics.md, rule 7.
#pragma once

#include <span>

#include "fresnel/executor.hpp"
#include "fresnel/result.hpp"
#include "fresnel/view.hpp"

#pragma GCC visibility push(default)  // what stands below is what a shared library exports

namespace fresnel {

/// What attention over one set of keys gave: o [B, Hq, Sq, Dv] and lse [B, Hq, Sq], both f32 or both f64, any strides.
struct Partial {
  View o, lse;
};

/// Where the merged rows go: shapes and dtype of the parts; its memory meets no part's.
struct Merged {
  MutableView o, lse;
};

/// Merges `parts`, to be given in ascending order of their keys, since every kernel merges in that order and another
/// one may round differently. A row with lse = -inf holds no key that weighs anything: it is the identity, and merging
/// it, from either side, changes no bit of the others. A sink is merged as the part (0, sink). Without parts every row
/// is the identity, (0, -inf). Same bits for any executor (default: the pool).
[[nodiscard]] Status merge(std::span<const Partial> parts, const Merged& result, Executor* executor = nullptr);

}  // namespace fresnel

#pragma GCC visibility pop
