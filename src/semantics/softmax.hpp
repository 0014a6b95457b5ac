// SPDX-License-Identifier: Apache-2.0
// The online softmax as a small algebra. A State stands for a set of (score, value) pairs; pushing a pair and merging
// two disjoint sets are the only operations, and the empty set is the identity.
//
//     m = max s_j     l = sum exp(s_j - m)     o = sum exp(s_j - m) v_j          result o / l, lse = m + ln l
//
// Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, section 3; Dao et al.,
// "FlashAttention", 2022, section 3.1. This is the law in scalar form; kernels restate it for vectors of rows.
#pragma once

#include <cmath>
#include <limits>
#include <span>

namespace fresnel {

/// exp(x - m) with the one convention the algebra needs: relative to an empty maximum everything weighs nothing.
template <class Real>
[[nodiscard]] inline Real relative_weight(Real x, Real m) {
  constexpr Real none = -std::numeric_limits<Real>::infinity();
  return m == none ? Real(0) : std::exp(x - m);
}

/// One row's running softmax. `o` is the caller's array of Dv accumulators.
template <class Real>
struct State {
  Real m = -std::numeric_limits<Real>::infinity();
  Real l = 0;

  /// Adds one key with score s and value v: both old sums are rescaled whenever the maximum rises.
  void push(Real s, std::span<const Real> v, std::span<Real> o) {
    const Real raised = s > m || std::isnan(s) ? s : m;
    const Real rescale = relative_weight(m, raised);
    const Real weight = relative_weight(s, raised);
    l = l * rescale + weight;
    for (std::size_t d = 0; d < o.size(); ++d) o[d] = o[d] * rescale + weight * v[d];
    m = raised;
  }

  /// Adds the disjoint set `other`, o_other its accumulators. Merging the identity, from either side, changes no bit.
  void merge(const State& other, std::span<const Real> o_other, std::span<Real> o) {
    if (other.weightless()) {
      for (std::size_t d = 0; d < o.size(); ++d) o[d] = o_other[d] == Real(0) ? o[d] : o_other[d];
      return;
    }
    if (weightless()) {
      for (std::size_t d = 0; d < o.size(); ++d) o[d] = o[d] == Real(0) ? o_other[d] : o[d];
      *this = other;
      return;
    }
    const Real raised = other.m > m ? other.m : m;  // a NaN on either side makes a weight, and with it l, NaN
    const Real mine = relative_weight(m, raised);
    const Real theirs = relative_weight(other.m, raised);
    l = l * mine + other.l * theirs;
    for (std::size_t d = 0; d < o.size(); ++d) o[d] = o[d] * mine + o_other[d] * theirs;
    m = raised;
  }

  /// lse of the set: -inf for the empty set.
  [[nodiscard]] Real lse() const { return m + std::log(l); }

 private:
  /// The empty set, or keys that all score -inf: no weight, and accumulators of 0 or, after 0 * Inf, NaN.
  [[nodiscard]] bool weightless() const { return m == -std::numeric_limits<Real>::infinity() && l == Real(0); }
};

/// Turns accumulators into the output row and returns lse: zero and -inf where no key is visible, else o / l.
/// Visibility is counted by the caller: a row whose visible scores are all -inf is not an empty row, and is not finite.
template <class Real>
[[nodiscard]] inline Real finish(const State<Real>& state, std::span<Real> o, bool any_visible) {
  if (!any_visible) {
    for (Real& value : o) value = Real(0);
    return -std::numeric_limits<Real>::infinity();
  }
  for (Real& value : o) value /= state.l;
  return state.lse();
}

}  // namespace fresnel
