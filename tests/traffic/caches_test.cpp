// SPDX-License-Identifier: Apache-2.0
// Caches on streams whose misses can be counted by hand, and kernels through caches that are too small, too large or
// not there.
#include <gtest/gtest.h>

#include "traffic/emulated.hpp"
#include "traffic/simulate.hpp"
#include "traffic/stream.hpp"

namespace fresnel::test {
namespace {

using traffic::Cache;
using traffic::Count;
using traffic::Hierarchy;
using traffic::HierarchyShape;
using traffic::Kind;
using traffic::Shape;
using traffic::Simulation;
using traffic::Stream;

constexpr std::int64_t line = 64;

/// Misses of reading lines [0, count) `times` times, `step` lines apart.
int misses(Cache& cache, std::uint64_t count, int times, std::uint64_t step = 1) {
  int missed = 0;
  for (int time = 0; time < times; ++time)
    for (std::uint64_t at = 0; at < count; ++at) missed += cache.touch(at * step, false).hit ? 0 : 1;
  return missed;
}

TEST(Caches, AScanMissesEachLineOnce) {
  Cache cache({"", 64 * line, 4}, line);
  EXPECT_EQ(misses(cache, 1000, 1), 1000);
}

TEST(Caches, ALoopThatFitsMissesOnlyAtFirst) {
  Cache cache({"", 64 * line, 4}, line);
  EXPECT_EQ(misses(cache, 64, 10), 64);
}

// The least recently used line is always the one that is needed next.
TEST(Caches, ALoopOneLineTooLongMissesItsWholeSetForEver) {
  Cache whole({"", 64 * line, 64}, line);
  EXPECT_EQ(misses(whole, 65, 10), 650);
  Cache sets({"", 64 * line, 4}, line);
  EXPECT_EQ(misses(sets, 65, 10), 64 - 4 + 5 * 10) << "16 sets of 4: only the set with five lines suffers";
}

TEST(Caches, LinesOfOneSetConflictInACacheThatIsNearlyEmpty) {
  Cache cache({"", 64 * line, 4}, line);  // 16 sets
  EXPECT_EQ(misses(cache, 4, 10, 16), 4);
  Cache other({"", 64 * line, 4}, line);
  EXPECT_EQ(misses(other, 5, 10, 16), 50);
  Cache spread({"", 64 * line, 4}, line);
  EXPECT_EQ(misses(spread, 5, 10, 17), 5);
}

TEST(Caches, UsingALineKeepsIt) {
  Cache cache({"", 2 * line, 2}, line);
  EXPECT_FALSE(cache.touch(1, false).hit);
  EXPECT_FALSE(cache.touch(2, false).hit);
  EXPECT_TRUE(cache.touch(1, false).hit);
  EXPECT_FALSE(cache.touch(3, false).hit);  // throws 2 out
  EXPECT_TRUE(cache.find(1));
  EXPECT_FALSE(cache.find(2));
}

TEST(Caches, AWrittenLineIsThrownOutWithItsData) {
  Cache cache({"", 2 * line, 2}, line);
  cache.touch(1, true);
  cache.touch(2, false);
  const Cache::Outcome third = cache.touch(3, false);
  EXPECT_TRUE(third.throws_out);
  EXPECT_EQ(third.thrown, 1u);
  EXPECT_FALSE(cache.touch(4, false).throws_out) << "2 was only read";
  cache.touch(4, true);
  std::vector<std::uint64_t> left;
  cache.empty([&](std::uint64_t written) { left.push_back(written); });
  EXPECT_EQ(left, std::vector<std::uint64_t>{4});
  EXPECT_FALSE(cache.find(3));
}

TEST(Caches, WritesOfACpuFetchAndThoseOfAGpuDoNot) {
  HierarchyShape shape{line, {}, {{"L2", 4 * line, 4}}, 1, false, false};
  for (const bool fetches : {false, true}) {
    shape.fetches_on_write = fetches;
    Hierarchy caches(shape);
    for (std::uint64_t at = 0; at < 8; ++at) caches.touch(0, at, true);
    EXPECT_EQ(caches.memory_reads(), fetches ? 8u : 0u);
    EXPECT_EQ(caches.memory_writes(), 4u);
    caches.flush();
    EXPECT_EQ(caches.memory_writes(), 8u);
  }
}

TEST(Caches, LevelsPassOnWhatTheyMiss) {
  Hierarchy caches({line, {{"L1", 4 * line, 4}}, {{"L2", 16 * line, 16}}, 2, false, false});
  for (int time = 0; time < 3; ++time)
    for (std::uint64_t at = 0; at < 8; ++at) caches.touch(0, at, false);
  EXPECT_EQ(caches.levels()[0], (traffic::LevelCounts{24, 24, 0, 0}));
  EXPECT_EQ(caches.levels()[1], (traffic::LevelCounts{24, 8, 0, 0}));
  for (std::uint64_t at = 0; at < 8; ++at) caches.touch(1, at, false);  // another workgroup: its own L1, the same L2
  EXPECT_EQ(caches.levels()[0], (traffic::LevelCounts{32, 32, 0, 0}));
  EXPECT_EQ(caches.levels()[1], (traffic::LevelCounts{32, 8, 0, 0}));
  EXPECT_EQ(caches.memory_reads(), 8u);
}

TEST(Caches, WhatIsWrittenBackIsNotFetched) {
  Hierarchy caches({line, {{"L1", 2 * line, 2}}, {{"L2", line, 1}}, 1, true, false});
  for (std::uint64_t at = 0; at < 4; ++at) caches.touch(0, at, true);
  EXPECT_EQ(caches.levels()[1], (traffic::LevelCounts{4, 4, 2, 2})) << "each fetched once, two written back";
  caches.flush();
  EXPECT_EQ(caches.memory_reads(), 4u);
  EXPECT_EQ(caches.memory_writes(), 4u);
}

TEST(Caches, WritingThroughBringsNothingIn) {
  Hierarchy caches({line, {{"L1", 4 * line, 4, true}}, {{"L2", 8 * line, 8}}, 1, false, true});
  caches.touch(0, 1, true);
  caches.touch(0, 1, false);
  EXPECT_EQ(caches.levels()[0], (traffic::LevelCounts{1, 1, 1, 1}));
  EXPECT_EQ(caches.levels()[1], (traffic::LevelCounts{1, 0, 1, 1}));
  caches.touch(0, 1, false);
  EXPECT_EQ(caches.levels()[0].read_misses, 1u);
  caches.end_kernel();
  caches.touch(0, 1, false);
  EXPECT_EQ(caches.levels()[0].read_misses, 2u) << "emptied between kernels";
}

TEST(Caches, WorkgroupsOnOneMultiprocessorShareItsCache) {
  HierarchyShape shape{line, {{"L1", 4 * line, 4}}, {}, 4, false, false};
  shape.multiprocessors = 2;
  Hierarchy caches(shape);
  for (std::int64_t slot = 0; slot < 4; ++slot) caches.touch(slot, 7, false);
  EXPECT_EQ(caches.levels()[0], (traffic::LevelCounts{4, 2, 0, 0})) << "0 and 2 on one, 1 and 3 on the other";
}

TEST(Caches, ColdCachesForgetBetweenKernels) {
  HierarchyShape shape{line, {}, {{"L2", 4 * line, 4}}, 1, false, false};
  shape.cold = true;
  Hierarchy caches(shape);
  for (int kernel = 0; kernel < 2; ++kernel) {
    caches.begin_kernel();
    caches.touch(0, 7, true);
    caches.touch(0, 8, false);
  }
  caches.flush();
  EXPECT_EQ(caches.memory_reads(), 2u);
  EXPECT_EQ(caches.memory_writes(), 0u) << "what stays in a cache is not the kernel's";
}

std::vector<std::uint64_t> lines_of(Stream stream) {
  std::vector<std::uint64_t> lines;
  while (stream.next(line, [&](std::uint64_t at, bool) { lines.push_back(at); })) continue;
  return lines;
}

TEST(Streams, RunsAreCutIntoLines) {
  using Lines = std::vector<std::uint64_t>;
  EXPECT_EQ(lines_of({}), Lines{});
  Stream stream;
  stream.blocks = {{0, 256, 1, 0, false}};
  EXPECT_EQ(lines_of(stream), (Lines{0, 1, 2, 3}));
  stream.blocks = {{60, 8, 1, 0, false}};
  EXPECT_EQ(lines_of(stream), (Lines{0, 1}));
  stream.blocks = {{0, 4, 32, 4, false}};
  EXPECT_EQ(lines_of(stream), (Lines{0, 1})) << "32 threads, neighbouring words";
  stream.blocks = {{0, 4, 3, 640, false}, {128, 0, 1, 0, false}, {64, 64, 1, 0, true}};
  EXPECT_EQ(lines_of(stream), (Lines{0, 10, 20, 1}));
  stream.blocks = {{32, 64, 3, 64, false}};
  EXPECT_EQ(lines_of(stream), (Lines{0, 1, 2, 3})) << "a line that two runs share is asked for once";
}

TEST(Streams, WorkgroupsTakeTurns) {
  // Two at a time, of three: their lines alternate, and the third begins where the first ends.
  HierarchyShape shape{line, {{"L1", 4 * line, 4}}, {}, 2, false, false};
  Hierarchy caches(shape);
  std::vector<std::int64_t> started;
  traffic::take_turns(caches, 3, [&](std::int64_t index, Stream& stream) {
    started.push_back(index);
    stream.blocks.push_back({static_cast<std::uint64_t>(index) * 1024, index == 0 ? line : 4 * line, 1, 0, false});
  });
  EXPECT_EQ(started, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(caches.memory_reads(), 9u);
  traffic::take_turns(caches, 0, [&](std::int64_t, Stream&) { ADD_FAILURE(); });
  Hierarchy one({line, {}, {{"L2", line, 1}}, 2, false, false});
  traffic::take_turns(one, 2, [&](std::int64_t index, Stream& stream) {
    for (int time = 0; time < 3; ++time) stream.blocks.push_back({static_cast<std::uint64_t>(index) * 64, 64, 1, 0});
  });
  EXPECT_EQ(one.memory_reads(), 6u) << "each throws out the line of the other";
  traffic::take_turns(one, 4, [&](std::int64_t index, Stream& stream) {
    if (index % 2 == 1) stream.blocks.push_back({0, 64, 1, 0});
  });
  EXPECT_EQ(one.memory_reads(), 7u) << "a workgroup that asks for nothing gives its place to the next";
}

Shape shaped(Kind kind, const Problem& problem) { return traffic::shape_of(kind, problem).value(); }

Simulation simulated(Kind kind, const Shape& shape, std::int64_t cache_bytes, std::int64_t line_bytes = 128) {
  const HierarchyShape caches{line_bytes, {}, {{"L2", cache_bytes, 16}}, 264, false, true};
  return traffic::simulate(kind, shape, caches).value();
}

TEST(Simulations, WithoutACacheEveryRequestReachesMemory) {
  for (const Kind kind : traffic::all_kinds) {
    SCOPED_TRACE(traffic::name(kind));
    Problem problem = square(256, 64, kind == Kind::backward);
    problem.grad = kind == Kind::backward;
    const Shape shape = traffic::shape_of(kind, problem, {.memory_bytes = 32768}).value();
    const traffic::Counts counts = traffic::count(kind, shape).counts;
    const Simulation words = simulated(kind, shape, 0, 4);
    EXPECT_EQ(words.memory_reads, counts.global_reads);
    EXPECT_EQ(words.memory_writes, counts.global_writes);
  }
}

TEST(Simulations, MasksAndGroupsAskForTheSameWordsAsTheCount) {
  for (const char* text : {"b2 h4/2 q9 k17 d5/3 f32 causal", "b1 h2 q13 k29 d4 f32 causal topleft",
                           "b1 h2/1 q31 k31 d2/4 f32 w5,3", "b1 h1 q33 k1 d8 f32", "b1 h1 q0 k5 d4 f32"})
    for (const Kind kind : traffic::all_kinds)
      for (const std::int64_t rows : {1, 4, 64}) {
        SCOPED_TRACE(std::string(text) + " " + std::string(traffic::name(kind)));
        Problem problem = parse_problem(text).value();
        problem.grad = kind == Kind::backward;
        const Shape shape = traffic::shape_of(kind, problem, {.rows = rows}).value();
        const traffic::Counts counts = traffic::count(kind, shape).counts;
        const Simulation words = simulated(kind, shape, 0, 4);
        EXPECT_EQ(words.memory_reads, counts.global_reads);
        EXPECT_EQ(words.memory_writes, counts.global_writes);
      }
}

TEST(Simulations, ACacheThatHoldsEverythingLeavesTheLeast) {
  for (const Kind kind : {Kind::fused, Kind::outer_k}) {
    const Shape shape = shaped(kind, square(1024, 64));
    const Simulation all = simulated(kind, shape, 64 << 20);
    EXPECT_EQ(all.read_bytes(), 3u * 1024 * 64 * 4);
    const Count states = kind == Kind::outer_k ? 2 * 1024 * 4 : 0;  // l and m are written back in the end
    EXPECT_EQ(all.written_bytes(), 1024u * 64 * 4 + states);
  }
  const Shape shape = shaped(Kind::unfused, square(1024, 64));
  const Simulation all = simulated(Kind::unfused, shape, 64 << 20);
  EXPECT_EQ(all.read_bytes(), 3u * 1024 * 64 * 4);
  EXPECT_EQ(all.written_bytes(), 1024u * 64 * 4 + 4u * 1024 * 1024) << "the weights are left in the cache";
}

TEST(Simulations, ScoresThatDoNotFitPassThroughMemoryFourTimes) {
  const Shape shape = shaped(Kind::unfused, square(2048, 64));  // 16 MiB of scores
  const Count matrix = Count{4} * 2048 * 2048;
  const Simulation small = simulated(Kind::unfused, shape, 2 << 20);
  EXPECT_GE(small.read_bytes(), 2 * matrix);
  EXPECT_GE(small.written_bytes(), 2 * matrix);
  EXPECT_LE(small.read_bytes() + small.written_bytes(), 4 * matrix + matrix / 2);
  const Simulation fused = simulated(Kind::fused, shaped(Kind::fused, square(2048, 64)), 2 << 20);
  EXPECT_LE(fused.read_bytes() + fused.written_bytes(), matrix / 4);
}

TEST(Simulations, MachinesHoldAsManyWorkgroupsAsTheirMemoryAllows) {
  const Shape shape = shaped(Kind::fused, square(4096, 16));
  const auto caches = traffic::caches_of(*traffic::machine_named("h100"), shape, 16384).value();
  EXPECT_EQ(caches.in_flight, 132 * 13) << "13 times 17 KiB of 228";
  EXPECT_EQ(caches.own[0].bytes, (256 << 10) - 13 * 17408) << "what workgroup memory leaves";
  EXPECT_EQ(caches.multiprocessors, 132);
  EXPECT_EQ(caches.shared[0].bytes, 25 << 20) << "one of two halves";
  const auto roomy = traffic::caches_of(*traffic::machine_named("h100"), shape, 1024).value();
  EXPECT_EQ(roomy.in_flight, 132 * 16) << "2048 threads, 128 each";
  const auto huge = traffic::caches_of(*traffic::machine_named("a100"), shape, 1 << 20).value();
  EXPECT_EQ(huge.in_flight, 108);
  EXPECT_EQ(huge.own[0].bytes, 0);
  EXPECT_EQ(traffic::caches_of(*traffic::machine_named("webgpu"), shape, 1024).refusal().argument, "machine");
}

// Device memory in MB as Nsight Compute saw it under the same kernels in CUDA (docs/counting.md, "Beside an H200").
TEST(Simulations, AnH200ReadsAndWritesWhatIsPredicted) {
  struct Measured {
    std::int64_t n, d;
    Kind kind;
    double read, written;
  };
  for (const Measured& row :
       {Measured{1024, 16, Kind::unfused, 8.6, 0}, Measured{1024, 16, Kind::fused, 0.2, 0},
        Measured{2048, 16, Kind::unfused, 34.0, 0}, Measured{4096, 16, Kind::unfused, 135.5, 85.5},
        Measured{4096, 16, Kind::fused, 0.8, 0}, Measured{2048, 64, Kind::unfused, 35.2, 0.3},
        Measured{2048, 64, Kind::fused, 1.6, 0}, Measured{4096, 64, Kind::unfused, 137.7, 85.6},
        Measured{4096, 64, Kind::fused, 3.2, 0}}) {
    SCOPED_TRACE(std::to_string(row.n) + " x " + std::to_string(row.d) + " " + std::string(traffic::name(row.kind)));
    const Shape shape = shaped(row.kind, square(row.n, row.d));
    const std::int64_t memory = traffic::count(row.kind, shape).shared_bytes;
    HierarchyShape caches = traffic::caches_of(*traffic::machine_named("h200"), shape, memory).value();
    caches.cold = true;
    const Simulation found = traffic::simulate(row.kind, shape, caches).value();
    const auto near = [](double measured) { return 0.05 * measured + 0.35; };  // the least it tells apart is 0.3
    EXPECT_NEAR(static_cast<double>(found.read_bytes()) / 1e6, row.read, near(row.read));
    EXPECT_NEAR(static_cast<double>(found.written_bytes()) / 1e6, row.written, near(row.written));
  }
}

TEST(Simulations, ARowOfTheCatalogueByItsTiles) {
  const Problem problem = parse_problem("b1 h2 q256 k256 d64 f32 causal").value();
  const HierarchyShape none{64, {}, {{"L2", 0, 16}}, 2, false, false};
  const Kernel& flash = *find_kernel("cpu.flash");
  const Simulation through = traffic::simulate(flash, problem, {64, 64}, none).value();
  // Queries 2 x 256, keys of 64, 128, 192 and 256 for the four tiles of each head.
  EXPECT_EQ(through.read_bytes(), 4u * 2 * (256 * 64 + 640 * 128));
  EXPECT_EQ(through.written_bytes(), 4u * 2 * (256 * 64 + 256));
  const auto other = traffic::simulate(*find_kernel("cpu.decode"), problem, {32, 512}, none);
  EXPECT_EQ(other.refusal().argument, "caches");
}

TEST(Simulations, WhatWouldTakeMinutesIsRefused) {
  const Shape shape = shaped(Kind::fused, square(1 << 18, 64));
  const auto refused = traffic::simulate(Kind::fused, shape, {128, {}, {{"L2", 1 << 20, 16}}, 1, false, false});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.refusal().argument, "caches");
}

}  // namespace
}  // namespace fresnel::test
