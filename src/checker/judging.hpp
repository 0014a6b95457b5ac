// SPDX-License-Identifier: Apache-2.0
// Judging one element, and adding it to the verdict on its tensor: what outputs and gradients share. It decides what a
// value that is not finite means and nothing else.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "checker/shares.hpp"
#include "fresnel/check.hpp"
#include "runtime/half.hpp"
#include "semantics/budget.hpp"

namespace fresnel {

/// The allowance of one element.
struct Allowance {
  double worst = 0;
  double probable = 0;
  Overflow overflow = Overflow::never;
};

/// |value - truth|, with what is not finite decided: 0 where that is right, infinity where it is wrong. `exact`: the
/// truth is a definite answer, infinities included (a row that sees no key), not a sign of trouble.
template <class Real>
double error_of(double value, Real truth, bool exact, const Allowance& allowance) {
  const Real given = static_cast<Real>(value);
  if (given == truth) return 0;  // equal infinities match
  if (exact && !std::isfinite(truth)) return std::numeric_limits<double>::infinity();
  if (!std::isfinite(truth)) return std::isfinite(value) ? std::numeric_limits<double>::infinity() : 0;
  // Two finite numbers are no infinite distance apart, though it may be beyond double where Real is wider.
  if (std::isfinite(value))
    return static_cast<double>(std::min<Real>(std::abs(given - truth), std::numeric_limits<double>::max()));
  if (allowance.overflow == Overflow::free) return 0;
  const bool outward = allowance.overflow == Overflow::outward && std::signbit(value) == std::signbit(truth);
  const bool within = std::isinf(value) && (outward || allowance.overflow == Overflow::either);
  return within ? 0 : std::numeric_limits<double>::infinity();
}

inline double share_of(double error, double budget) {
  if (error == 0) return 0;
  return std::isinf(error) || !(budget > 0) ? std::numeric_limits<double>::infinity() : error / budget;
}

/// A judgement in the making.
struct Tally {
  Judgement judgement;
  ShareCounts shares;
};

/// Adds one element to the verdict on its tensor. Ties of the largest share go to the first index, so that the order in
/// which elements arrive changes nothing.
inline void judge(Tally& tally, double error, const Allowance& allowance, const std::array<std::int64_t, 4>& at) {
  Judgement& judgement = tally.judgement;
  const double share = share_of(error, allowance.worst), probable = share_of(error, allowance.probable);
  tally.shares.add(share);
  ++judgement.count;
  if (share > 1) ++judgement.mismatches;
  if (probable > 1) ++judgement.mismatches_probable;
  judgement.max_error = std::max(judgement.max_error, error);
  judgement.max_share_probable = std::max(judgement.max_share_probable, probable);
  if (share > judgement.max_share || (share == judgement.max_share && share > 0 && at < judgement.at)) {
    judgement.max_share = share;
    judgement.at = at;
  }
}

inline void merge(Tally& into, const Tally& from) {
  into.shares.add(from.shares);
  Judgement& all = into.judgement;
  const Judgement& part = from.judgement;
  all.count += part.count;
  all.mismatches += part.mismatches;
  all.mismatches_probable += part.mismatches_probable;
  all.max_error = std::max(all.max_error, part.max_error);
  all.max_share_probable = std::max(all.max_share_probable, part.max_share_probable);
  if (part.max_share > all.max_share || (part.max_share == all.max_share && part.max_share > 0 && part.at < all.at)) {
    all.max_share = part.max_share;
    all.at = part.at;
  }
}

inline double element_of(const View& view, const std::array<std::int64_t, 4>& at) {
  std::int64_t offset = 0;
  for (int axis = 0; axis < view.rank; ++axis) {
    const auto place = static_cast<std::size_t>(axis);
    if (at[place] > 0) offset += at[place] * view.strides[place];
  }
  return load_as_double(view.data, view.dtype, offset);
}

}  // namespace fresnel
