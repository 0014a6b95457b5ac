// SPDX-License-Identifier: Apache-2.0
// Replays of the catalogue: by hand where that is possible, and against the walk itself, tile by tile and row by row.
#include <gtest/gtest.h>

#include "traffic/machines.hpp"
#include "traffic/replay.hpp"
#include "walk/walk.hpp"

namespace fresnel::test {
namespace {

using traffic::Replay;

Problem problem_of(const std::string& line) { return parse_problem(line).value(); }

Replay replay(const char* kernel, const Problem& problem, const Tile& tile) {
  return traffic::replay(*find_kernel(kernel), problem, tile).value();
}

TEST(Replay, OneTileAsksForEverythingOnce) {
  const Replay one = replay("cpu.flash", problem_of("b1 h1 q64 k64 d16 f32 nolse"), {64, 64});
  EXPECT_EQ(one.visible, 64 * 64);
  EXPECT_EQ(one.visited, 64 * 64);
  EXPECT_EQ(one.fma, 64 * 64 * 32);
  EXPECT_EQ(one.cache, one.memory);
  EXPECT_EQ(one.memory.reads, 4 * 3 * 64 * 16);
  EXPECT_EQ(one.memory.writes, 4 * 64 * 16);
  EXPECT_EQ(one.tile.reads, 4 * 64 * 64 * 32);
  EXPECT_EQ(one.working_set, 4 * 64 * 32);
  EXPECT_EQ(one.score_bytes, 4 * 64 * 64);
}

TEST(Replay, EveryTileOfQueriesReadsTheKeysAgain) {
  const Replay tiled = replay("cpu.flash", problem_of("b1 h1 q256 k256 d16 bf16"), {64, 64});
  EXPECT_EQ(tiled.cache.reads, 2 * (256 * 16 + 4 * 256 * 32));
  EXPECT_EQ(tiled.cache.writes, 2 * 256 * 16 + 4 * 256);
  const Replay rows = replay("cpu.naive", problem_of("b1 h1 q256 k256 d16 bf16"), {1, 64});
  EXPECT_EQ(rows.cache.reads, 2 * (256 * 16 + 256 * 256 * 32));
  EXPECT_EQ(rows.memory, tiled.memory);
}

TEST(Replay, ACacheThatHoldsKAndVLeavesTheLeast) {
  const Replay tiled = replay("cpu.flash", problem_of("b1 h1 q256 k256 d16 f32"), {64, 64});
  EXPECT_EQ(tiled.working_set, 4 * 256 * 32);
  EXPECT_EQ(tiled.beyond(tiled.working_set), tiled.memory.bytes());
  EXPECT_EQ(tiled.beyond(tiled.working_set - 1), tiled.cache.bytes());
}

TEST(Replay, GroupedDecodingReadsKAndVOnceForTheGroup) {
  const Problem problem = problem_of("b1 h8/2 q1 k1024 d64 f32 nolse");
  const Replay grouped = replay("cpu.decode", problem, {32, 512});
  const double states = 4 * 8 * 2 * (64 + 2);  // two chunks
  EXPECT_EQ(grouped.cache.reads, 4 * (2 * 1024 * 128 + 2 * 8 * 64) + states);
  EXPECT_EQ(grouped.cache.writes, 4 * 8 * 64 + states);
  const Replay single = replay("cpu.flash", problem, {64, 64});
  EXPECT_EQ(single.cache.reads, 4 * (8 * 1024 * 128 + 8 * 64));
  EXPECT_EQ(grouped.memory, single.memory);
  EXPECT_EQ(grouped.visited, single.visited);
}

#if defined(__x86_64__)
TEST(Replay, PackingMovesKAndVOnceMore) {
  const Problem problem = problem_of("b1 h8/2 q64 k128 d64 bf16");
  const Replay packed = replay("cpu.amx", problem, {64, 64}), plain = replay("cpu.flash", problem, {64, 64});
  EXPECT_EQ(packed.cache.reads - plain.cache.reads, 2 * 2 * 128 * 128);
  EXPECT_EQ(packed.cache.writes - plain.cache.writes, 2 * 2 * 128 * 128);
}
#endif

const std::vector<std::string> lines{"b1 h1 q1 k1 d1 f32",           "b2 h4/2 q9 k17 d5/3 f32",
                                     "b1 h1 q16 k16 d4 f64 causal",  "b1 h2 q13 k29 d4 f16 causal",
                                     "b1 h1 q29 k13 d4 f32 causal",  "b1 h1 q29 k13 d4 f32 causal topleft",
                                     "b1 h1 q31 k31 d2/4 bf16 w5,3", "b1 h1 q31 k31 d2 f32 causal w9,-",
                                     "b1 h6/3 q7 k40 d8 f32 w0,0",   "b1 h1 q0 k5 d4 f32",
                                     "b1 h1 q5 k0 d4 f32",           "b1 h0 q5 k5 d4 f32"};

TEST(Replay, ForwardRowsAskForWhatTheirWalkVisits) {
  for (const std::string& line : lines)
    for (const Tile tile : {Tile{1, 64}, Tile{4, 4}, Tile{8, 3}, Tile{64, 16}}) {
      SCOPED_TRACE(line);
      const Problem problem = problem_of(line);
      const Mask mask = mask_of(problem, problem.keys);
      double words = 0, pairs = 0;
      for (std::int64_t item = 0; item < item_count(problem, tile); ++item) {
        const QueryTile rows = item_at(problem, tile, item);
        bool any = false;
        for_each_key_tile(mask, tile.keys, rows, [&](const KeyTile& keys) {
          words += static_cast<double>(keys.count * (problem.head_dim + problem.value_dim));
          pairs += static_cast<double>(rows.count * keys.count);
          any = true;
        });
        words += any ? static_cast<double>(rows.count * problem.head_dim) : 0;
      }
      const Replay found = replay("cpu.flash", problem, tile);
      EXPECT_EQ(found.cache.reads, words * static_cast<double>(size_of(problem.dtype)));
      EXPECT_EQ(found.visited, pairs);
      EXPECT_LE(found.visible, found.visited);
      EXPECT_LE(found.memory.writes, found.cache.writes);
    }
}

TEST(Replay, TheBackwardLoadsAQueryForEachTileOfKeysInBothSweeps) {
  for (const std::string& line : lines)
    for (const Tile tile : {Tile{16, 32}, Tile{4, 4}, Tile{3, 8}}) {
      SCOPED_TRACE(line);
      const Problem problem = problem_of(line + " grad");
      if (problem.heads_q == 0) continue;
      const Mask mask = mask_of(problem, problem.keys);
      const auto size = static_cast<double>(size_of(problem.dtype));
      const double wide = static_cast<double>(problem.head_dim), deep = static_cast<double>(problem.value_dim);
      const double row = size * (wide + 2 * deep) + (problem.dtype == DType::f64 ? 8 : 4);
      double bytes = 0;
      for (std::int64_t item = 0; item < item_count(problem, tile); ++item) {
        const QueryTile rows = item_at(problem, tile, item);
        for_each_key_tile(mask, tile.keys, rows, [&](const KeyTile& keys) {
          bytes += size * static_cast<double>(keys.count) * (wide + deep);
          for (std::int64_t at = 0; at < rows.count; ++at) {
            const KeyRange seen = mask.range(rows.first + at);
            const bool sees = !seen.empty() && seen.first < keys.first + keys.count && keys.first < seen.last;
            bytes += sees ? 2 * row : 0;  // once in each sweep
          }
        });
      }
      const double kv_heads = static_cast<double>(problem.batch * problem.heads_kv);
      if (problem.queries > 0)
        bytes += kv_heads * size * static_cast<double>(mask.range(0, problem.queries).size()) * (wide + deep);
      EXPECT_DOUBLE_EQ(replay("cpu.reference_backward", problem, tile).cache.reads, bytes);
    }
}

TEST(Replay, AWalkThatIsNotDescribedIsRefused) {
  Kernel unknown = *find_kernel("cpu.flash");
  unknown.name = "cpu.unknown";
  const auto none = traffic::replay(unknown, problem_of("b1 h1 q4 k4 d4 f32"), {4, 4});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.refusal().argument, "kernel");
}

TEST(Roofline, TheLongestPartIsTheLimit) {
  traffic::Rates rates = *traffic::machine_named("h100");
  rates.flops = 100, rates.exps = 10, rates.shared_bytes = 1000, rates.memory_bytes = {};
  const traffic::Roofline lines_of = traffic::roofline({200, 30, 1000, 1e9}, rates);
  ASSERT_NE(lines_of.limit(), nullptr);
  EXPECT_EQ(lines_of.limit()->name, "exponentials");
  EXPECT_EQ(lines_of.limit()->seconds, 3);
  EXPECT_FALSE(lines_of.parts[3].seconds);
  EXPECT_EQ(traffic::roofline({1, 1, 1, 1}, *traffic::machine_named("webgpu")).limit(), nullptr);
  EXPECT_EQ(traffic::machine_named("tpu"), nullptr);
}

TEST(Roofline, RatesAreThoseOfTheDataSheets) {
  EXPECT_NEAR(*traffic::machine_named("h100")->flops, 66.9e12, 0.1e12);
  EXPECT_NEAR(*traffic::machine_named("a100")->flops, 19.5e12, 0.1e12);
  EXPECT_EQ(traffic::machine_named("h200")->memory_bytes, 4.8e12);
}

}  // namespace
}  // namespace fresnel::test
