// SPDX-License-Identifier: Apache-2.0
// A finished row (o, lse) is the State {m = lse, l = 1, o}: its weights relative to lse add up to 1. So parts merge by
// the law's own State::merge, one rescale of a row each, and the sum is finished like any other row. Bound by memory:
// every element is read once and the row being made stays in the first-level cache.
#include "kernels/cache/merge.hpp"

#include <array>
#include <cmath>
#include <limits>

#include "semantics/softmax.hpp"

namespace fresnel::cache {
namespace {

/// Offset of row (b, h, i) in elements.
template <class AnyView>
std::int64_t row_offset(const AnyView& view, const std::array<std::int64_t, 3>& at) {
  return at[0] * view.strides[0] + at[1] * view.strides[1] + at[2] * view.strides[2];
}

/// A row without weight adds nothing, but where all rows are like that, whatever is not 0 (NaN: visible keys that all
/// score -inf) has to show.
template <class Real>
void keep_what_is_not_zero(std::span<const Real> from, std::span<Real> o) {
  for (std::size_t d = 0; d < o.size(); ++d)
    if (o[d] == Real(0)) o[d] = from[d];
}

}  // namespace

template <class Real>
void merge_row(std::span<const Partial> parts, const Merged& result, std::int64_t row) {
  const std::int64_t heads = result.lse.sizes[1], queries = result.lse.sizes[2];
  const std::array<std::int64_t, 3> at{row / queries / heads, row / queries % heads, row % queries};
  const auto width = static_cast<std::size_t>(result.o.sizes[3]);
  const std::span<Real> o(static_cast<Real*>(result.o.data) + row_offset(result.o, at), width);
  Real& lse = static_cast<Real*>(result.lse.data)[row_offset(result.lse, at)];

  constexpr Real no_weight = -std::numeric_limits<Real>::infinity();
  State<Real> state;
  for (Real& value : o) value = Real(0);
  for (const Partial& part : parts) {
    const Real weight = static_cast<const Real*>(part.lse.data)[row_offset(part.lse, at)];
    const std::span<const Real> from(static_cast<const Real*>(part.o.data) + row_offset(part.o, at), width);
    const bool first = state.l == Real(0);
    if (weight == no_weight) {
      if (first) keep_what_is_not_zero(from, o);
      continue;
    }
    if (first)
      for (Real& value : o) value = Real(0);
    state.merge({weight, Real(1)}, from, o);
  }
  if (state.l == Real(0)) {
    lse = no_weight;
  } else if (state.l == Real(1)) {  // one part weighs: its row stands as it is, down to the sign of a zero
    lse = state.m;
  } else {
    lse = finish(state, o, true);
  }
}

template void merge_row<float>(std::span<const Partial>, const Merged&, std::int64_t);
template void merge_row<double>(std::span<const Partial>, const Merged&, std::int64_t);

}  // namespace fresnel::cache
