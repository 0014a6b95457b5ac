// SPDX-License-Identifier: Apache-2.0
// K and V through a block table: the bits of the run with K and V in one piece, whatever the pages and their order;
// three ways to the same counts and a formula as a fourth; barriers that are missed; and the cache simulator's pools.
#include <gtest/gtest.h>

#include <bit>

#include "traffic/emulated.hpp"
#include "traffic/simulate.hpp"

namespace fresnel::test {
namespace {

using traffic::Count;
using traffic::Counts;
using traffic::Emulation;
using traffic::Kind;
using traffic::Shape;
using traffic::WalkKind;

Shape shape(const std::string& line, std::int64_t rows, std::int64_t page_size, Kind kind = Kind::fused) {
  return traffic::shape_of(kind, parse_problem(line).value(), {.rows = rows, .page_size = page_size}).value();
}

const std::vector<std::string> lines{"b1 h1 q7 k7 d3 f32",
                                     "b2 h4/2 q9 k17 d5/3 f32",
                                     "b3 h4/2 q1 k29 d4 f32",
                                     "b1 h2 q13 k29 d4 f32 causal",
                                     "b2 h1 q29 k13 d4 f32 causal topleft",
                                     "b1 h1 q31 k31 d2/4 f32 w5,3",
                                     "b1 h1 q6 k21 d3 f32 topleft w1,1",
                                     "b2 h2/1 q5 k48 d2 f32",
                                     "b1 h1 q5 k0 d4 f32",
                                     "b1 h1 q0 k5 d4 f32",
                                     "b0 h1 q5 k5 d4 f32"};
// Tiles that divide pages, pages that divide tiles, the same, and neither.
constexpr std::int64_t tiles[]{1, 3, 4, 8, 64}, page_sizes[]{1, 2, 3, 4, 6, 16, 100};

template <class Body>
void for_each_shape(Kind kind, Body&& body) {
  for (const std::string& line : lines)
    for (const std::int64_t rows : tiles)
      for (const std::int64_t page : page_sizes) {
        SCOPED_TRACE(line + " tile " + std::to_string(rows) + " page " + std::to_string(page));
        body(shape(line, rows, page, kind), shape(line, rows, 0, kind));
      }
}

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> all;
  for (const float value : values) all.push_back(std::bit_cast<std::uint32_t>(value));
  return all;
}

TEST(Paged, PagesAndTheirOrderChangeNoBit) {
  for (const Kind kind : {Kind::fused, Kind::broken})
    for_each_shape(kind, [&](const Shape& paged, const Shape& whole) {
      const cli::EmulatedRun pages = emulated(kind, paged), piece = emulated(kind, whole);
      EXPECT_EQ(bits(pages.o), bits(piece.o));
      EXPECT_EQ(bits(pages.lse), bits(piece.lse));
    });
}

TEST(Paged, TheTableIsOutOfOrder) {
  const cli::EmulatedRun run = emulated(Kind::fused, shape("b2 h1 q1 k40 d4 f32", 8, 16));
  const std::vector<std::uint32_t> blocks = bits(run.block_table);
  EXPECT_EQ(blocks, (std::vector<std::uint32_t>{6, 1, 5, 2, 4, 3}));
}

TEST(Paged, RunWalksAndFormulaAgree) {
  for_each_shape(Kind::fused, [&](const Shape& paged, const Shape&) {
    const Emulation each = traffic::count(Kind::fused, paged, WalkKind::each);
    EXPECT_TRUE(each == traffic::count(Kind::fused, paged, WalkKind::closed));
    const cli::EmulatedRun ran = emulated(Kind::fused, paged);
    EXPECT_TRUE(each == ran.emulation);
    EXPECT_FALSE(ran.emulation.race);
    const auto formula = traffic::closed_form(Kind::fused, paged);
    EXPECT_EQ(formula.has_value(), !paged.masked);
    EXPECT_EQ(formula.value_or(each.counts), each.counts);
  });
}

TEST(Paged, WhatATableCosts) {
  const auto costs = [](std::int64_t rows, std::int64_t page) {
    const Counts paged = traffic::count(Kind::fused, shape("b2 h4/2 q64 k192 d8 f32", rows, page)).counts;
    const Counts whole = traffic::count(Kind::fused, shape("b2 h4/2 q64 k192 d8 f32", rows, 0)).counts;
    const Count entries = paged.global_reads - whole.global_reads;
    EXPECT_EQ(paged.shared_writes - whole.shared_writes, entries);
    EXPECT_EQ(paged.shared_reads - whole.shared_reads, entries * static_cast<Count>(rows)) << "each thread reads each";
    EXPECT_EQ(paged.barriers, whole.barriers);
    EXPECT_EQ(paged.global_writes, whole.global_writes);
    EXPECT_EQ(paged.fma, whole.fma);
    EXPECT_EQ(paged.exps, whole.exps);
    return entries;
  };
  EXPECT_EQ(costs(32, 16), 2 * 4 * 2 * 12u) << "a word for each page, tile of queries and head";
  EXPECT_EQ(costs(16, 32), 2 * 4 * 4 * 12u) << "for each tile of keys where pages are larger";
  EXPECT_EQ(costs(32, 48), 2 * 4 * 2 * 8u) << "6 tiles, of which two lie across pages";
}

TEST(Paged, AMillionKeysByTheClosedWalk) {
  for (const std::int64_t page : {1, 16, 24, 4096}) {
    const Shape paged = shape("b4 h32/8 q1 k1048576 d128 f32", 128, page);
    EXPECT_EQ(traffic::count(Kind::fused, paged).counts, *traffic::closed_form(Kind::fused, paged)) << page;
  }
}

TEST(Paged, TheEntriesTakeWorkgroupMemory) {
  const Problem problem = square(256, 64);
  const Shape paged = traffic::shape_of(Kind::fused, problem, {.page_size = 16}).value();
  EXPECT_EQ(paged.tile, 31) << "32 rows leave no word for the table";
  EXPECT_LE(traffic::count(Kind::fused, paged).shared_bytes, traffic::default_memory_bytes);
  EXPECT_EQ(traffic::count(Kind::fused, shape("b1 h1 q64 k64 d64 f32", 32, 16)).shared_bytes, 4 * (32 * 128 + 2));
  EXPECT_EQ(traffic::count(Kind::fused, shape("b1 h1 q64 k64 d64 f32", 32, 48)).shared_bytes, 4 * (32 * 128 + 2));
  EXPECT_EQ(traffic::most_pages(5, 3), 3) << "two of its own and one cut at each end, at most";
}

// None is left over: the barrier before the entries are used also stands between a tile and the next one's rows.
TEST(Paged, EveryBarrierIsMissed) {
  for (const std::int64_t page : {1, 2, 3, 8}) {
    const Shape paged = shape("b1 h1 q5 k5 d4 f32 nolse", 2, page);
    const Count barriers = traffic::count(Kind::fused, paged).counts.barriers;
    EXPECT_EQ(barriers, 3u * 3 * 2);
    Count unneeded = 0;
    for (Count idle = 1; idle <= barriers; ++idle) {
      const bool missed = emulated(Kind::fused, paged, idle).emulation.race.has_value();
      unneeded += missed ? 0 : 1;
    }
    EXPECT_EQ(unneeded, 0u) << page;
  }
}

TEST(Paged, RefusesByName) {
  const auto refusal = [](Kind kind, std::int64_t page) {
    Problem problem = square(64, 16);
    problem.grad = problem.lse = kind == Kind::backward;
    const auto made = traffic::shape_of(kind, problem, {.page_size = page});
    return made ? std::string() : made.refusal().argument;
  };
  for (const Kind kind : {Kind::unfused, Kind::outer_k, Kind::backward}) EXPECT_EQ(refusal(kind, 16), "paged");
  for (const Kind kind : {Kind::fused, Kind::broken}) EXPECT_EQ(refusal(kind, 16), "");
  EXPECT_EQ(refusal(Kind::fused, -1), "page_size");
  const Problem long_one = parse_problem("b1 h1 q1 k1073741824 d1 f32").value();
  const auto made = traffic::shape_of(Kind::fused, long_one, {.rows = 3, .page_size = 2});
  ASSERT_FALSE(made) << "tile by tile";
  EXPECT_EQ(made.refusal().argument, "queries");
  EXPECT_TRUE(traffic::shape_of(Kind::fused, long_one, {.rows = 4, .page_size = 2}));
}

TEST(Paged, CachesSeeThePoolAndTheTable) {
  const traffic::HierarchyShape large{128, {}, {{"L2", 1 << 24, 16}}, 2};
  for (const std::int64_t page : {16, 32, 48}) {
    const Shape paged = shape("b2 h4/2 q1 k192 d32 f32 nolse", 32, page);
    const auto through = traffic::simulate(Kind::fused, paged, large).value();
    constexpr Count table = 1;  // 24 words at most, in a line
    EXPECT_EQ(through.memory_reads, 2u * 4 + 2 * (2 * 2 * 192) + table) << "q, k and v a line a row, once";
    EXPECT_EQ(through.memory_writes, 2u * 4);
  }
  const traffic::HierarchyShape none{4, {}, {}, 1};
  const Shape paged = shape("b2 h4/2 q5 k50 d8 f32", 8, 6);
  const auto through = traffic::simulate(Kind::fused, paged, none).value();
  EXPECT_EQ(through.memory_reads, traffic::count(Kind::fused, paged).counts.global_reads) << "every word that is asked";
}

}  // namespace
}  // namespace fresnel::test
