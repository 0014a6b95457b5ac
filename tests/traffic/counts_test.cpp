// SPDX-License-Identifier: Apache-2.0
// The count: the 28 rows of the lesson out of the walk itself, and three ways to the same numbers (the run with its
// arithmetic, the walk without it, the walk that multiplies) with the closed forms as a fourth.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "traffic/emulated.hpp"

namespace fresnel::test {
namespace {

using traffic::Counts;
using traffic::Emulation;
using traffic::Kind;
using traffic::Shape;
using traffic::TileChoice;
using traffic::WalkKind;
using Json = nlohmann::json;

const Json& facts() {
  static const Json json = Json::parse(std::ifstream(FRESNEL_TEST_DATA "/fused_facts.json"));
  return json;
}

Counts counts_in(const Json& row) {
  return {.global_reads = row["globalReads"],
          .global_writes = row["globalWrites"],
          .shared_reads = row["sharedReads"],
          .shared_writes = row["sharedWrites"],
          .barriers = row["barriers"],
          .fma = row["fma"],
          .exps = row["exps"]};
}

std::string print(const Counts& c) {
  return Json{{"global_reads", c.global_reads},
              {"global_writes", c.global_writes},
              {"shared_reads", c.shared_reads},
              {"shared_writes", c.shared_writes},
              {"barriers", c.barriers},
              {"fma", c.fma},
              {"exps", c.exps}}
      .dump();
}

Shape shape(Kind kind, const Problem& problem, const TileChoice& choice = {}) {
  const auto made = traffic::shape_of(kind, problem, choice);
  return made.value();
}

TEST(Counts, TheLessonsRowsComeOutOfTheWalk) {
  ASSERT_EQ(facts()["traffic"]["rows"].size(), 28u);
  for (const Json& row : facts()["traffic"]["rows"]) {
    SCOPED_TRACE(row.dump());
    const Kind kind = *traffic::kind_named(row["kind"].get<std::string>());
    const Shape asked = shape(kind, square(row["N"], row["d"]));
    EXPECT_EQ(asked.tile, row["B"]);
    const Emulation walked = traffic::count(kind, asked, WalkKind::each);
    EXPECT_EQ(walked.counts, counts_in(row)) << print(walked.counts);
    EXPECT_EQ(walked.counts.global_bytes(), row["globalBytes"]);
    EXPECT_EQ(walked.extra_memory_bytes, row["extraMemoryBytes"]);
    EXPECT_EQ(walked.shared_bytes, row["sharedPerWorkgroupBytes"]);
    EXPECT_EQ(traffic::closed_form(kind, asked) == walked.counts, row["matchesClosedForm"]);
    const double share = static_cast<double>(walked.counts.global()) / traffic::theta(kind, asked);
    EXPECT_NEAR(share, row["overTheta"], 5e-5);
  }
}

TEST(Counts, TheLessonsRowsComeOutOfTheRun) {
  for (const Json& row : facts()["traffic"]["rows"]) {
    if (row["N"] > 256) continue;  // 1024 runs in the tests of values, and the walk has no size of its own
    SCOPED_TRACE(row.dump());
    const Kind kind = *traffic::kind_named(row["kind"].get<std::string>());
    const Emulated ran(kind, shape(kind, square(row["N"], row["d"])));
    EXPECT_EQ(ran.emulation.counts, counts_in(row)) << print(ran.emulation.counts);
    EXPECT_EQ(ran.emulation.extra_memory_bytes, row["extraMemoryBytes"]);
    EXPECT_EQ(ran.emulation.shared_bytes, row["sharedPerWorkgroupBytes"]);
    EXPECT_FALSE(ran.emulation.race);
  }
}

/// All ways to count one shape.
void expect_all_ways_equal(Kind kind, const Problem& problem, const TileChoice& choice) {
  SCOPED_TRACE(fresnel::print(problem) + " " + std::string(traffic::name(kind)));
  const Shape asked = shape(kind, problem, choice);
  const Emulation each = traffic::count(kind, asked, WalkKind::each);
  const Emulation closed = traffic::count(kind, asked, WalkKind::closed);
  EXPECT_TRUE(each == closed) << print(each.counts) << "\n" << print(closed.counts);
  const Emulated ran(kind, asked);
  EXPECT_TRUE(each == ran.emulation) << print(each.counts) << "\n" << print(ran.emulation.counts);
  EXPECT_FALSE(ran.emulation.race);
  const auto formula = traffic::closed_form(kind, asked);
  EXPECT_EQ(formula.has_value(), !asked.masked || kind == Kind::unfused);
  EXPECT_EQ(formula.value_or(each.counts), each.counts) << print(*formula) << "\n" << print(each.counts);
}

std::vector<Problem> odd_problems() {
  std::vector<Problem> problems;
  for (const char* line :
       {"b1 h1 q1 k1 d1 f32", "b1 h1 q7 k7 d3 f32", "b2 h4/2 q9 k17 d5/3 f32", "b1 h1 q16 k16 d4 f32 causal",
        "b1 h2 q13 k29 d4 f32 causal", "b1 h1 q29 k13 d4 f32 causal", "b1 h1 q29 k13 d4 f32 causal topleft",
        "b1 h1 q31 k31 d2/4 f32 w5,3", "b1 h1 q31 k31 d2 f32 causal w9,-", "b1 h3/3 q1 k40 d8 f32",
        "b1 h2/1 q12 k12 d4 f32 w0,0", "b1 h1 q0 k5 d4 f32", "b1 h1 q5 k0 d4 f32", "b0 h1 q5 k5 d4 f32",
        "b1 h1 q20 k20 d4 f32 w100,2", "b1 h1 q6 k21 d3 f32 topleft w1,1", "b1 h1 q300 k300 d2 f32 causal"})
    problems.push_back(parse_problem(line).value());
  return problems;
}

TEST(Counts, RunWalkAndClosedFormsAgree) {
  for (Problem problem : odd_problems())
    for (const Kind kind : traffic::all_kinds)
      for (const bool lse : {false, true})
        for (const std::int64_t rows : {1, 3, 4, 8, 64}) {
          problem.grad = kind == Kind::backward;
          problem.lse = lse || problem.grad;
          expect_all_ways_equal(kind, problem, {.rows = rows});
        }
}

TEST(Counts, ACausalMaskSkipsNearlyHalfOfTheTiles) {
  Problem problem = square(4096, 64);
  const Counts whole = traffic::count(Kind::fused, shape(Kind::fused, problem)).counts;
  problem.options.causal = true;
  const Counts half = traffic::count(Kind::fused, shape(Kind::fused, problem)).counts;
  const traffic::Count tiles = 128, square_tile = 32 * 32 * 2 * 64;  // of 32 rows; the diagonal's are computed whole
  EXPECT_EQ(whole.fma, tiles * tiles * square_tile);
  EXPECT_EQ(half.fma, tiles * (tiles + 1) / 2 * square_tile);
  EXPECT_EQ(traffic::count(Kind::unfused, shape(Kind::unfused, problem)).counts.fma, whole.fma);
}

TEST(Counts, AMillionRowsByTheClosedWalk) {
  for (const Kind kind : traffic::all_kinds)
    for (const std::int64_t d : {16, 64, 2048}) {
      Problem problem = square(1 << 20, d);
      problem.grad = problem.lse = kind == Kind::backward;
      const Shape asked = shape(kind, problem, {.memory_bytes = 1 << 15});
      EXPECT_EQ(traffic::count(kind, asked).counts, *traffic::closed_form(kind, asked));
      problem.options.causal = true;
      const Counts causal = traffic::count(kind, shape(kind, problem, {.memory_bytes = 1 << 15})).counts;
      EXPECT_LE(causal.fma, traffic::closed_form(kind, asked)->fma);
      EXPECT_GT(causal.fma, traffic::closed_form(kind, asked)->fma / 2);
    }
}

TEST(Counts, TheTileIsTheLargestThatFits) {
  EXPECT_EQ(shape(Kind::fused, square(64, 16)).tile, 128);
  EXPECT_EQ(shape(Kind::fused, square(64, 64)).tile, 32);
  EXPECT_EQ(shape(Kind::fused, square(64, 65)).tile, 31);
  EXPECT_EQ(shape(Kind::fused, square(64, 64), {.memory_bytes = 232448}).tile, 128);
  EXPECT_EQ(shape(Kind::fused, square(64, 2048)).tile, 1);
  EXPECT_EQ(shape(Kind::fused, square(64, 64), {.rows = 5}).tile, 5);
  Problem problem = square(64, 64, true);
  problem.grad = true;
  EXPECT_EQ(shape(Kind::backward, problem).tile, 31) << "lse and delta take room, too";
}

TEST(Counts, RefusesWhatItCannotCount) {
  const auto refusal = [](Kind kind, const std::string& line, const TileChoice& choice = {}) {
    const auto made = traffic::shape_of(kind, parse_problem(line).value(), choice);
    return made ? std::string() : made.refusal().argument;
  };
  EXPECT_EQ(refusal(Kind::fused, "b1 h1 q64 k64 d64 f32"), "");
  EXPECT_EQ(refusal(Kind::fused, "b1 h1 q64 k64 d2049 f32"), "memory");
  EXPECT_EQ(refusal(Kind::fused, "b1 h1 q64 k64 d64 f32", {.memory_bytes = 511}), "memory");
  EXPECT_EQ(refusal(Kind::fused, "b1 h1 q64 k64 d64 f32", {.memory_bytes = 512}), "");
  EXPECT_EQ(refusal(Kind::unfused, "b1 h1 q64 k64 d64 f32", {.memory_bytes = 1023}), "memory") << "256 threads reduce";
  EXPECT_EQ(refusal(Kind::fused, "b1 h1 q64 k64 d64 f32", {.rows = 0}), "tile");
  EXPECT_EQ(refusal(Kind::fused, "b1 h1 q64 k64 d64 f32", {.rows = 1025}), "tile");
  EXPECT_EQ(refusal(Kind::fused, "b1 h1 q268435456 k268435456 d64 f32"), "queries");
  EXPECT_EQ(refusal(Kind::fused, "b1 h1 q64 k64 d64 bf16"), "dtype");
  EXPECT_EQ(refusal(Kind::fused, "b1 h1 q64 k64 d64 f32 cap5"), "softcap");
  EXPECT_EQ(refusal(Kind::fused, "b1 h1 q64 k64 d64 f32 alibi"), "alibi");
  EXPECT_EQ(refusal(Kind::fused, "b1 h1 q64 k64 d64 f32 lens"), "seqlens_k");
  EXPECT_EQ(refusal(Kind::fused, "b1 h1 q64 k64 d64 f32 grad"), "grad");
}

}  // namespace
}  // namespace fresnel::test
