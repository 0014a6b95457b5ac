// SPDX-License-Identifier: Apache-2.0
// The order of tiles for (Problem, Tile): the loop nest, written once. Kernels run it, the meter counts it.
//
// Work items are (batch, query head, query tile). Key tiles start at multiples of tile.keys from key 0, whatever the
// mask, so that the partition of a row's keys, and with it the row's bits, depends on nothing but that row's own
// sequence.
//
//          key tiles      0      1      2      3
//     query tile 0       edge   skip   skip   skip       causal: items with more tiles come first, so that the
//     query tile 1       full   edge   skip   skip       longest work starts earliest
//     query tile 2       full   full   edge   skip
#pragma once

#include <algorithm>
#include <cstdint>

#include "fresnel/plan.hpp"
#include "semantics/mask.hpp"

namespace fresnel {

/// One work item of a forward walk.
struct QueryTile {
  std::int64_t batch = 0;
  std::int64_t head = 0;   ///< query head
  std::int64_t first = 0;  ///< first query
  std::int64_t count = 0;  ///< queries in the tile, the last one may be short
};

/// One key tile seen from a query tile, already clipped to the keys that any of its queries sees.
struct KeyTile {
  std::int64_t first = 0;
  std::int64_t count = 0;
  TileClass kind = TileClass::skip;
};

[[nodiscard]] constexpr std::int64_t tiles_of(std::int64_t extent, std::int64_t tile) {
  return extent / tile + (extent % tile != 0 ? 1 : 0);
}

/// Number of work items.
[[nodiscard]] constexpr std::int64_t item_count(const Problem& problem, const Tile& tile) {
  return problem.batch * problem.heads_q * tiles_of(problem.queries, tile.queries);
}

/// Heads whose tiles are walked together under causal: few, so that their K and V stay in the caches from one query
/// tile to the next (16 heads of 2048 keys in float32 at once cost a sixth of cpu.flash's time).
inline constexpr std::int64_t heads_together = 4;

/// The item-th work item. Under causal, query tiles go from the last (longest) to the first, some heads at a time;
/// heads of one kv group are neighbours, so that they share K and V in the caches.
[[nodiscard]] constexpr QueryTile item_at(const Problem& problem, const Tile& tile, std::int64_t item) {
  const std::int64_t tiles = tiles_of(problem.queries, tile.queries);
  const std::int64_t heads = problem.batch * problem.heads_q;
  std::int64_t index = item % tiles, head = item / tiles;
  if (problem.options.causal) {
    const std::int64_t from = item / (heads_together * tiles) * heads_together, within = item - from * tiles;
    const std::int64_t count = std::min(heads_together, heads - from);
    index = tiles - 1 - within / count;
    head = from + within % count;
  }
  const std::int64_t first = index * tile.queries;
  return {head / problem.heads_q, head % problem.heads_q, first, std::min(tile.queries, problem.queries - first)};
}

/// Calls visit(KeyRange) for the key tiles of one query tile in ascending key order, each clipped to the keys that any
/// of its queries sees; tiles nobody sees are skipped.
template <class Visit>
constexpr void for_each_key_span(const Mask& mask, std::int64_t tile_keys, const QueryTile& rows, Visit&& visit) {
  const KeyRange range = mask.range(rows.first, rows.count);
  if (range.empty()) return;
  const std::int64_t start =
      range.first == 0 ? 0 : range.first / tile_keys * tile_keys;  // a division costs a dot product
  for (std::int64_t first = range.first, end = start + tile_keys; first < range.last; first = end, end += tile_keys)
    visit(KeyRange{first, std::min(end, range.last)});
}

/// The same with each tile's class, as seen by the whole query tile.
template <class Visit>
constexpr void for_each_key_tile(const Mask& mask, std::int64_t tile_keys, const QueryTile& rows, Visit&& visit) {
  for_each_key_span(mask, tile_keys, rows, [&](const KeyRange& keys) {
    visit(KeyTile{keys.first, keys.size(), classify(mask, rows.first, rows.count, keys.first, keys.size())});
  });
}

}  // namespace fresnel
