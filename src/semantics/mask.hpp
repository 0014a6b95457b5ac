// SPDX-License-Identifier: Apache-2.0
// Who sees whom. Causal, windows, lengths and alignment all reduce to one interval of keys per query, and everything a
// tiled kernel asks (which key tiles, which of them need element tests) follows from that interval.
//
//     keys      0        first(q)          last(q)         keys
//     query q   . . . . . [ visible ........ ] . . . . . . .
//
// Pure functions of integers: shared by kernels, oracle, meter and, later, device code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "fresnel/problem.hpp"

namespace fresnel {

/// Half-open interval of keys; empty when first >= last.
struct KeyRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  [[nodiscard]] constexpr bool empty() const { return first >= last; }
  [[nodiscard]] constexpr std::int64_t size() const { return empty() ? 0 : last - first; }
  bool operator==(const KeyRange&) const = default;
};

/// The mask of one sequence: its own lengths, alignment, causal and windows.
struct Mask {
  static constexpr std::int64_t unbounded = std::numeric_limits<std::int64_t>::max();

  std::int64_t queries = 0;
  std::int64_t keys = 0;    ///< live keys of this sequence (seqlens_k, else Sk)
  std::int64_t offset = 0;  ///< position of query 0
  std::int64_t left = unbounded;
  std::int64_t right = unbounded;  ///< 0 under causal

  /// Position of a query: key j stands at position j.
  [[nodiscard]] constexpr std::int64_t position(std::int64_t query) const { return query + offset; }

  /// The law itself: does query q see key j?
  [[nodiscard]] constexpr bool visible(std::int64_t query, std::int64_t key) const {
    const std::int64_t p = position(query);
    // Differences cannot overflow: positions and keys are lengths, and unbounded is only compared against.
    return key >= 0 && key < keys && (left == unbounded || p - key <= left) && (right == unbounded || key - p <= right);
  }

  /// Keys that `query` sees.
  [[nodiscard]] constexpr KeyRange range(std::int64_t query) const { return range(query, 1); }

  /// Union of the keys that any of `count` queries from `query` sees: rows are monotone, so the union is the interval
  /// from the first row's first key to the last row's last key.
  [[nodiscard]] constexpr KeyRange range(std::int64_t query, std::int64_t count) const {
    const std::int64_t low = position(query);
    const std::int64_t high = position(query + count - 1);
    // A bound that reaches beyond the keys counts as none, so that INT64_MAX - 1 is as harmless as "unbounded".
    return {left < low ? low - left : 0, right < keys - high ? high + right + 1 : keys};
  }
};

/// The mask of a sequence that has `live_keys` keys (seqlens_k[b], or Sk).
[[nodiscard]] constexpr Mask mask_of(const Problem& problem, std::int64_t live_keys) {
  Mask mask;
  mask.queries = problem.queries;
  mask.keys = live_keys;
  mask.offset = problem.options.alignment == Alignment::bottom_right ? live_keys - problem.queries : 0;
  if (problem.options.window_size_left) mask.left = *problem.options.window_size_left;
  if (problem.options.window_size_right) mask.right = *problem.options.window_size_right;
  if (problem.options.causal) mask.right = std::min<std::int64_t>(mask.right, 0);
  return mask;
}

/// Sum of min(max(first + i, 0), most) for i in [0, count), without a loop: the values rise by one between two flats.
[[nodiscard]] constexpr double clamped_ramp_sum(std::int64_t first, std::int64_t count, std::int64_t most) {
  const std::int64_t rise = std::clamp<std::int64_t>(-first, 0, count);           // values before it are 0
  const std::int64_t flat = std::clamp<std::int64_t>(most - first, rise, count);  // values from it on are `most`
  const double low = static_cast<double>(first + rise), high = static_cast<double>(first + flat - 1);
  return (low + high) / 2 * static_cast<double>(flat - rise) +
         static_cast<double>(count - flat) * static_cast<double>(most);
}

/// Number of visible (query, key) pairs of a sequence: window bounds are never negative, so a row's interval clamped to
/// [0, keys] has the size clamp(p + right + 1) - clamp(p - left).
[[nodiscard]] constexpr double visible_pairs(const Mask& mask) {
  const std::int64_t reach = mask.queries + mask.keys;  // a bound this far is no bound
  const std::int64_t left = std::min(mask.left, reach), right = std::min(mask.right, reach);
  return clamped_ramp_sum(mask.position(0) + right + 1, mask.queries, mask.keys) -
         clamped_ramp_sum(mask.position(0) - left, mask.queries, mask.keys);
}

/// What a (query tile, key tile) pair needs.
enum class TileClass : std::uint8_t {
  skip,  ///< no query of the tile sees any key of it
  full,  ///< every query sees every key: no element test
  edge,  ///< some pairs are hidden: test elements
};

/// Classifies queries [query, query + query_count) against keys [key, key + key_count).
[[nodiscard]] constexpr TileClass classify(const Mask& mask, std::int64_t query, std::int64_t query_count,
                                           std::int64_t key, std::int64_t key_count) {
  const KeyRange all = mask.range(query, query_count);
  if (all.empty() || key >= all.last || key + key_count <= all.first) return TileClass::skip;
  // The intersection of all rows' intervals: from the last row's first key to the first row's last key.
  const KeyRange top = mask.range(query), bottom = mask.range(query + query_count - 1);
  const bool full = !top.empty() && !bottom.empty() && bottom.first <= key && key + key_count <= top.last;
  return full ? TileClass::full : TileClass::edge;
}

}  // namespace fresnel
