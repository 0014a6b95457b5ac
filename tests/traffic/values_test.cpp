// SPDX-License-Identifier: Apache-2.0
// The emulated kernels compute attention: judged by the oracle at the sizes of the lesson and under masks, and the
// fused one bit for bit a scalar loop over the softmax's State.
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>

#include "semantics/softmax.hpp"
#include "traffic/emulated.hpp"

namespace fresnel::test {
namespace {

using traffic::Kind;
using traffic::Shape;
using Json = nlohmann::json;

const Json& facts() {
  static const Json json = Json::parse(std::ifstream(FRESNEL_TEST_DATA "/fused_facts.json"));
  return json;
}

/// One query row by State alone, keys in order, the maximum raised once for each tile.
std::vector<float> row_by_state(const Emulated& run, const Shape& shape, std::int64_t query) {
  const auto wide = static_cast<std::size_t>(shape.width()), deep = static_cast<std::size_t>(shape.value_width());
  const auto keys = static_cast<std::size_t>(shape.problem.keys), tile = static_cast<std::size_t>(shape.tile);
  State<float> state;
  std::vector<float> o(deep), none(deep), scores(keys);
  for (std::size_t j = 0; j < keys; ++j) {
    float dot = 0;
    for (std::size_t c = 0; c < wide; ++c)
      dot += run.q[static_cast<std::size_t>(query) * wide + c] * run.k[j * wide + c];
    scores[j] = shape.scale * dot;
  }
  for (std::size_t first = 0; first < keys; first += tile) {
    const std::size_t last = std::min(first + tile, keys);
    // A tile without weight raises the maximum; after that no key does, and a push only adds.
    State<float> risen;
    for (std::size_t j = first; j < last; ++j) risen.m = std::max(risen.m, scores[j]);
    risen.m = std::max(risen.m, state.m);
    state.merge(risen, none, o);
    for (std::size_t j = first; j < last; ++j) state.push(scores[j], std::span(run.v).subspan(j * deep, deep), o);
  }
  static_cast<void>(finish<float>(state, o, true));
  return o;
}

void expect_same_bits(const Emulated& run, const Shape& shape) {
  const auto deep = static_cast<std::size_t>(shape.value_width());
  for (std::int64_t query = 0; query < shape.problem.queries; ++query) {
    const std::vector<float> o = row_by_state(run, shape, query);
    for (std::size_t c = 0; c < deep; ++c)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(o[c]),
                std::bit_cast<std::uint32_t>(run.o[static_cast<std::size_t>(query) * deep + c]))
          << "query " << query << ", column " << c;
  }
}

TEST(Values, TheLessonsKernelsAreRightAndTheBrokenOneIsCaught) {
  ASSERT_EQ(facts()["correctness"]["rows"].size(), 18u);
  for (const Json& row : facts()["correctness"]["rows"]) {
    SCOPED_TRACE(row.dump());
    const Kind kind = *traffic::kind_named(row["kind"].get<std::string>());
    const Shape shape = traffic::shape_of(kind, square(row["N"], row["d"])).value();
    const Emulated run(kind, shape);
    const Verdict verdict = run.judged();
    EXPECT_EQ(verdict.ok(), row["ok"]) << verdict.o.max_share;
    EXPECT_EQ(verdict.o.count, row["outputs"]);
    EXPECT_EQ(verdict.o.mismatches > 0, row["mismatches"] > 0);
    EXPECT_EQ(row["ok"], kind != Kind::broken || row["N"] <= row["B"]) << "a row that fits one tile needs no rescale";
    EXPECT_TRUE(run.emulation == traffic::count(kind, shape));
    EXPECT_FALSE(run.emulation.race);
    if (kind == Kind::fused && shape.problem.queries < 1024) expect_same_bits(run, shape);
    RecordProperty(row["kind"].get<std::string>() + row["N"].dump() + "x" + row["d"].dump(),
                   std::to_string(verdict.o.max_share));
  }
}

TEST(Values, EveryKindIsRightUnderMasks) {
  for (const char* line :
       {"b1 h1 q33 k33 d8 f32", "b2 h4/2 q9 k17 d5/3 f32 causal", "b1 h2 q13 k29 d4 f32 causal",
        "b1 h1 q29 k13 d4 f32 causal", "b1 h1 q29 k13 d4 f32 causal topleft", "b1 h2/1 q31 k31 d2/4 f32 w5,3",
        "b1 h1 q31 k31 d2 f32 causal w9,-", "b1 h3 q1 k40 d8 f32 scale-0.7", "b1 h1 q6 k21 d3 f32 topleft w1,1",
        "b1 h1 q300 k300 d2 f32 causal", "b1 h1 q5 k0 d4 f32"})
    for (const Kind kind : {Kind::unfused, Kind::fused, Kind::outer_k, Kind::backward})
      for (const std::int64_t rows : {1, 4, 64}) {
        SCOPED_TRACE(std::string(line) + " " + std::string(traffic::name(kind)) + " tile " + std::to_string(rows));
        Problem problem = parse_problem(line).value();
        problem.grad = kind == Kind::backward;
        const Shape shape = traffic::shape_of(kind, problem, {.rows = rows}).value();
        const Emulated run(kind, shape);
        const Verdict verdict = run.judged();
        EXPECT_TRUE(verdict.ok()) << verdict.o.mismatches << " of " << verdict.o.count << ", " << verdict.o.max_share;
        EXPECT_EQ(verdict.dq.has_value(), kind == Kind::backward);
      }
}

}  // namespace
}  // namespace fresnel::test
