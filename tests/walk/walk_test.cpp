// SPDX-License-Identifier: Apache-2.0
// The walk against visible(), by brute force: work items cover every (batch, head, query) once, key tiles cover every
// visible pair once and in ascending order, never a tile nobody sees, and `full` only where everybody sees everything.
#include "walk/walk.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace fresnel {
namespace {

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

/// Walks the rows of one sequence and checks every tile against visible().
void check_rows(const Mask& mask, std::int64_t tile_keys, const QueryTile& rows) {
  std::vector<int> visits(static_cast<std::size_t>(mask.keys), 0);
  std::int64_t previous = -1;
  for_each_key_tile(mask, tile_keys, rows, [&](const KeyTile& tile) {
    ASSERT_GT(tile.count, 0);
    ASSERT_GE(tile.first, previous) << "key tiles must ascend";
    ASSERT_EQ(tile.first / tile_keys, (tile.first + tile.count - 1) / tile_keys) << "a tile crosses the grid";
    ASSERT_LE(tile.first + tile.count, mask.keys);
    previous = tile.first + tile.count;
    std::int64_t seen = 0;
    for (std::int64_t j = tile.first; j < tile.first + tile.count; ++j) {
      ++visits[static_cast<std::size_t>(j)];
      bool by_any = false;
      for (std::int64_t q = rows.first; q < rows.first + rows.count; ++q) {
        seen += mask.visible(q, j);
        by_any |= mask.visible(q, j);
      }
      ASSERT_TRUE(by_any) << "key " << j << " is visited though nobody sees it";
    }
    ASSERT_EQ(tile.kind, seen == rows.count * tile.count ? TileClass::full : TileClass::edge);
  });
  for (std::int64_t j = 0; j < mask.keys; ++j) {
    ASSERT_LE(visits[static_cast<std::size_t>(j)], 1) << "key " << j << " is visited twice";
    for (std::int64_t q = rows.first; q < rows.first + rows.count; ++q)
      ASSERT_TRUE(!mask.visible(q, j) || visits[static_cast<std::size_t>(j)] == 1)
          << "visible key " << j << " is missed";
  }
}

TEST(Walk, KeyTilesCoverWhatIsVisible) {
  const std::vector<std::optional<std::int64_t>> windows{std::nullopt, 0, 1, 2, 3, 4, huge - 1, huge};
  Problem problem;
  for (problem.queries = 0; problem.queries <= 9; ++problem.queries)
    for (std::int64_t live = 0; live <= 9; ++live)
      for (const Alignment alignment : {Alignment::bottom_right, Alignment::top_left})
        for (const bool causal : {false, true})
          for (const auto& left : windows)
            for (const auto& right : windows) {
              problem.options.alignment = alignment;
              problem.options.causal = causal;
              problem.options.window_size_left = left;
              problem.options.window_size_right = right;
              const Mask mask = mask_of(problem, live);
              for (const Tile tile : {Tile{1, 1}, Tile{2, 3}, Tile{3, 2}, Tile{4, 4}, Tile{16, 16}})
                for (std::int64_t q = 0; q < problem.queries; q += tile.queries) {
                  check_rows(mask, tile.keys, {0, 0, q, std::min(tile.queries, problem.queries - q)});
                  if (HasFatalFailure())
                    FAIL() << print(problem) << " live " << live << " rows from " << q << " tile " << tile.keys;
                }
            }
}

TEST(Walk, ItemsCoverEveryRowOnce) {
  for (const bool causal : {false, true})
    for (std::int64_t batch = 0; batch <= 3; ++batch)
      for (std::int64_t heads = 0; heads <= 3; ++heads)
        for (std::int64_t queries = 0; queries <= 9; ++queries)
          for (std::int64_t tile_queries : {1, 2, 4, 9, 64}) {
            Problem problem;
            problem.batch = batch;
            problem.heads_q = problem.heads_kv = heads;
            problem.queries = queries;
            problem.options.causal = causal;
            const Tile tile{tile_queries, 1};
            std::vector<int> visits(static_cast<std::size_t>(batch * heads * queries), 0);
            for (std::int64_t item = 0; item < item_count(problem, tile); ++item) {
              const QueryTile rows = item_at(problem, tile, item);
              ASSERT_GT(rows.count, 0);
              ASSERT_LE(rows.count, tile_queries);
              ASSERT_EQ(rows.first % tile_queries, 0);
              ASSERT_TRUE(rows.batch >= 0 && rows.batch < batch && rows.head >= 0 && rows.head < heads);
              ASSERT_TRUE(rows.first >= 0 && rows.first + rows.count <= queries);
              for (std::int64_t q = rows.first; q < rows.first + rows.count; ++q)
                ++visits[static_cast<std::size_t>((rows.batch * heads + rows.head) * queries + q)];
            }
            for (const int count : visits) ASSERT_EQ(count, 1);
          }
}

/// Under causal masks some heads go together, and of these no item has more key tiles than the one before it; heads are
/// neighbours, in order.
TEST(Walk, LongestItemsComeFirstUnderCausal) {
  const Problem problem = *parse_problem("b2 h4/2 q37 k53 d8 f32 causal");
  const Tile tile{8, 8};
  const std::int64_t together = heads_together * tiles_of(problem.queries, tile.queries);
  ASSERT_EQ(item_count(problem, tile), 2 * together);
  std::int64_t previous = huge;
  for (std::int64_t item = 0; item < item_count(problem, tile); ++item) {
    const QueryTile rows = item_at(problem, tile, item);
    if (item == together) previous = huge;
    std::int64_t count = 0;
    for_each_key_tile(mask_of(problem, problem.keys), tile.keys, rows, [&](const KeyTile&) { ++count; });
    ASSERT_LE(count, previous);
    previous = count;
    const std::int64_t head = rows.batch * problem.heads_q + rows.head;
    ASSERT_EQ(head, item / together * heads_together + item % heads_together);
  }
}

/// Tiles of the largest legal problems: counts and ends do not overflow.
TEST(Walk, HugeExtents) {
  constexpr std::int64_t big = (std::int64_t{1} << 60) - 1;
  EXPECT_EQ(tiles_of(big, 1), big);
  EXPECT_EQ(tiles_of(big, big), 1);
  EXPECT_EQ(tiles_of(1, huge), 1);
  EXPECT_EQ(tiles_of(huge, huge), 1);
  EXPECT_EQ(tiles_of(0, 64), 0);
  Problem problem;
  problem.queries = problem.keys = big;
  problem.options.causal = true;
  problem.options.window_size_left = 100;
  const Tile tile{64, 64};
  const std::int64_t items = item_count(problem, tile);
  EXPECT_EQ(items, std::int64_t{1} << 54);
  for (const std::int64_t item : {std::int64_t{0}, std::int64_t{1}, items / 2, items - 1}) {
    const QueryTile rows = item_at(problem, tile, item);
    const Mask mask = mask_of(problem, problem.keys);
    std::int64_t keys = 0, tiles = 0;
    for_each_key_tile(mask, tile.keys, rows, [&](const KeyTile& key_tile) {
      keys += key_tile.count;
      ++tiles;
    });
    EXPECT_EQ(keys, std::min(rows.first, std::int64_t{100}) + rows.count);
    EXPECT_LE(tiles, 4);
  }
}

static_assert(tiles_of(9, 4) == 3);

}  // namespace
}  // namespace fresnel
