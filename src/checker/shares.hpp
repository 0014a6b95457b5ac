// SPDX-License-Identifier: Apache-2.0
// How shares of the budget are spread over many elements: counts by size, so that a median of ten million costs no more
// memory than one of ten. Only the report on how tight budgets are asks for it; no verdict depends on it.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "fresnel/check.hpp"

namespace fresnel {

/// Counts of shares, `steps` buckets to an octave: a median is known to within 3%.
class ShareCounts {
 public:
  void add(double share) {
    ++count_;
    if (share > 0) ++buckets_[bucket_of(share)];
  }
  void add(const ShareCounts& other) {
    count_ += other.count_;
    for (std::size_t at = 0; at < buckets_.size(); ++at) buckets_[at] += other.buckets_[at];
  }
  [[nodiscard]] std::int64_t count() const { return count_; }
  /// Elements that are not off at all.
  [[nodiscard]] std::int64_t exact() const {
    return count_ - std::accumulate(buckets_.begin(), buckets_.end(), std::int64_t{0});
  }

  /// Shares from 2^(e - 1) to below 2^e at place e + 15, e from -15 to 0: the first also has all below, the last one
  /// more, at place 16, all from 1 on.
  [[nodiscard]] std::array<std::int64_t, 17> by_octave() const {
    std::array<std::int64_t, 17> counts{};
    for (std::size_t at = 0; at < buckets_.size(); ++at) {
      const int above = static_cast<int>(at) / steps - (octaves - 16);
      counts[static_cast<std::size_t>(std::max(above, 0))] += buckets_[at];
    }
    return counts;
  }

  /// The share that half of the elements do not exceed; 0 where half of them, or all of none, are not off at all.
  [[nodiscard]] double median() const {
    std::int64_t above = count_ / 2;  // elements that may lie beyond
    for (std::size_t at = buckets_.size(); at-- > 0; above -= buckets_[at])
      if (buckets_[at] > above) return std::exp2((static_cast<double>(at) + 0.5) / steps - octaves);
    return 0;
  }

 private:
  static constexpr int steps = 16, octaves = 48;
  static std::size_t bucket_of(double share) {
    const double place = (std::log2(share) + octaves) * steps;
    return static_cast<std::size_t>(std::clamp(place, 0.0, static_cast<double>(steps * (octaves + 1) - 1)));
  }

  std::int64_t count_ = 0;
  std::array<std::int64_t, static_cast<std::size_t>(steps) * (octaves + 1)> buckets_{};  ///< of shares above 0
};

/// The shares behind each judgement of a verdict.
struct Shares {
  ShareCounts o, lse, dq, dk, dv, dalibi_slopes;
};

/// `check`, which adds every element's share to `shares` as well.
[[nodiscard]] Result<Verdict> check_with_shares(const Problem& problem, const Inputs& inputs, const Outputs& result,
                                                const Roundings& forward, const Roundings& backward, Executor* executor,
                                                Shares& shares);

}  // namespace fresnel
