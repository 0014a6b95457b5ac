// SPDX-License-Identifier: Apache-2.0
// Golden traces of the online softmax: running maximum and sum per tile of 4 keys on real scores, an eight-number
// vector with a broken twin, and the half-precision overflow that the running maximum is there to avoid.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/half.hpp"
#include "semantics/softmax.hpp"

namespace fresnel::test {
namespace {

using Json = nlohmann::json;

/// The facts give scores and traces rounded to four decimals.
constexpr double rounding = 2e-4;

const Json& facts() {
  static const Json json = Json::parse(std::ifstream(FRESNEL_TEST_DATA "/fused_facts.json"));
  return json;
}

TEST(Trace, OfRealScoresPerTileOfFourKeys) {
  ASSERT_EQ(facts()["probe"]["heads"].size(), 4u);
  for (const Json& head : facts()["probe"]["heads"]) {
    const std::vector<double> scores = head["row"];
    State<double> pushed, merged;
    std::array<double, 1> pushed_o{}, merged_o{};
    double rises = 0;
    for (const Json& step : head["trace"]) {
      const std::size_t first = step["keys"][0], last = step["keys"][1];
      State<double> tile;
      std::array<double, 1> tile_o{};
      for (std::size_t key = first; key <= last; ++key) {
        const std::array<double, 1> value{static_cast<double>(key)};
        rises += scores[key] > pushed.m ? 1 : 0;
        pushed.push(scores[key], value, pushed_o);
        tile.push(scores[key], value, tile_o);
      }
      merged.merge(tile, tile_o, merged_o);
      for (const State<double>* state : {&pushed, &merged}) {
        EXPECT_NEAR(state->m, step["m"], rounding);
        EXPECT_NEAR(state->l, step["l"], rounding * 4);  // four terms may each be off
      }
      EXPECT_NEAR(pushed_o[0], merged_o[0], 1e-12);
    }
    EXPECT_NEAR(pushed.m, head["rowMax"], rounding);
    EXPECT_GT(rises, 0);
  }
}

TEST(Trace, OfTheEightNumberVectorAndItsBrokenTwin) {
  const Json& vector = facts()["controls"]["vector"];
  const std::vector<double> values = vector["values"];
  ASSERT_EQ(values.size(), 8u);
  State<double> state;
  double broken_m = -std::numeric_limits<double>::infinity(), broken_l = 0;
  for (std::size_t at = 0; at < values.size(); ++at) {
    state.push(values[at], {}, {});
    EXPECT_NEAR(state.m, vector["trace"][at]["m"], rounding);
    EXPECT_NEAR(state.l, vector["trace"][at]["l"], rounding);
    broken_m = std::max(broken_m, values[at]);  // the old sum keeps the scale of the old maximum
    broken_l += std::exp(values[at] - broken_m);
    EXPECT_NEAR(broken_l, vector["brokenTrace"][at]["l"], rounding);
  }
  EXPECT_NEAR(state.l, 1.8051, rounding);
  EXPECT_NEAR(broken_l, 4.8316, rounding);
  EXPECT_EQ(vector["sum"], 1.8051);
  EXPECT_EQ(vector["brokenSum"], 4.8316);
}

TEST(Trace, OfTheOverflowThatTheMaximumAvoids) {
  const Json& overflow = facts()["overflow"];
  EXPECT_NEAR(std::log(65520.0), overflow["threshold"], 5e-5);
  const std::vector<double> scores = facts()["probe"]["heads"][3]["row"];
  double naive = 0, top = 0;
  for (const double s : scores) {
    naive += std::exp(s);
    top = std::max(top, s);
  }
  EXPECT_NEAR(naive, 30315.06, 30315.06 * rounding);
  EXPECT_EQ(f16_to_float(float_to_f16(static_cast<float>(naive))), overflow["probeRow"]["naiveSum"].get<float>());
  EXPECT_NEAR(top * overflow["probeRow"]["overflowFactor"].get<double>(), overflow["threshold"], 1e-3);
}

}  // namespace
}  // namespace fresnel::test
