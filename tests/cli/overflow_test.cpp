// SPDX-License-Identifier: Apache-2.0
// `fresnel overflow`: golden figures of a real row of scores, and what a score to either side of the threshold, a mask
// and scores that are not finite do to the counts.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "cli/program.hpp"
#include "cli/tensor_file.hpp"

namespace fresnel::test {
namespace {

const Json& facts() {
  static const Json json = Json::parse(std::ifstream(FRESNEL_TEST_DATA "/fused_facts.json"));
  return json;
}

std::string bytes_of(const std::vector<double>& values) {
  std::string bytes(values.size() * sizeof(double), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());  // no values, no address
  return bytes;
}

/// One head of width 1 in float64: score (i, j) is scale * q[i] * k[j], exactly what is asked for when one factor is 1.
std::string case_of(const Folder& folder, const std::vector<double>& q, const std::vector<double>& k, double scale = 1,
                    const std::string& more = "") {
  TensorFile file;
  const auto queries = static_cast<std::int64_t>(q.size()), keys = static_cast<std::int64_t>(k.size());
  file.set("q", "F64", {1, 1, queries, 1}, bytes_of(q));
  file.set("k", "F64", {1, 1, keys, 1}, bytes_of(k));
  file.set("v", "F64", {1, 1, keys, 1}, bytes_of(std::vector<double>(k.size(), 1)));
  file.set_problem("{\"softmax_scale\": " + Json(scale).dump() + more + "}");
  const std::string path = folder.file("case.safetensors");
  file.write(path);
  return path;
}

Json overflow_of(const std::string& path) {
  const Outcome run = fresnel({"overflow", path, "--json"});
  EXPECT_EQ(run.code, 0) << shown(run);
  EXPECT_EQ(run.err, "");
  return run.json();
}

TEST(Overflow, OfTheProbeRow) {
  const Folder folder;
  const Json& row = facts()["probe"]["heads"][3]["row"];
  const Json& golden = facts()["overflow"]["probeRow"];
  const Json json = overflow_of(case_of(folder, {1}, row));
  EXPECT_NEAR(json["threshold"], facts()["overflow"]["threshold"], 5e-5);
  EXPECT_EQ(json["threshold"], std::log(65520.0));
  EXPECT_EQ(json["scores"], row.size());
  EXPECT_EQ(json["overflowing"], 0);
  EXPECT_EQ(json["largest"], golden["max"]);
  EXPECT_EQ(json["largest_at"], Json({0, 0, 0, 3}));
  EXPECT_DOUBLE_EQ(json["least"], -5.3251);  // kept as its distance from the largest
  const Json& worst = json["worst_row"];
  EXPECT_EQ(worst["at"], Json({0, 0, 0}));
  EXPECT_EQ(worst["largest"], golden["max"]);
  EXPECT_EQ(worst["naive_sum"], golden["naiveSum"]);
  EXPECT_EQ(worst["naive_finite"], golden["naiveFinite"]);
  EXPECT_NEAR(worst["safe_sum"], golden["safeSum"], 1e-3);
  EXPECT_NEAR(json["overflow_factor"], golden["overflowFactor"], 5e-5);
}

TEST(Overflow, OfTheProbeRowScaledToEitherSideOfItsFactor) {
  const Folder folder;
  const std::vector<double> row = facts()["probe"]["heads"][3]["row"];
  const double factor = overflow_of(case_of(folder, {1}, row))["overflow_factor"];
  const Json below = overflow_of(case_of(folder, {1}, row, factor * 0.9995));
  EXPECT_EQ(below["overflowing"], 0);
  EXPECT_TRUE(below["worst_row"]["naive_finite"].get<bool>());
  const Json above = overflow_of(case_of(folder, {1}, row, factor * 1.0001));
  EXPECT_EQ(above["overflowing"], 1);
  EXPECT_EQ(above["rows_overflowing"], 1);
  EXPECT_EQ(above["worst_row"]["naive_sum"], "inf");
  EXPECT_FALSE(above["worst_row"]["naive_finite"].get<bool>());
  EXPECT_NEAR(above["worst_row"]["safe_sum"], 1, 1e-3);
}

TEST(Overflow, TheThresholdItselfOverflows) {
  const Folder folder;
  const double threshold = std::log(65520.0), below = std::nextafter(threshold, 0);
  const Json json = overflow_of(case_of(folder, {1}, {below, threshold, -threshold}));
  EXPECT_EQ(json["overflowing"], 1);
  EXPECT_EQ(json["overflow_factor"], 1);
}

TEST(Overflow, ASumOverflowsBeforeAnyTermDoes) {
  const Folder folder;
  const Json json = overflow_of(case_of(folder, {1, 0.5}, {10.5, 10.5, 10.5}));  // exp(10.5) = 36,316
  EXPECT_EQ(json["overflowing"], 0);
  EXPECT_EQ(json["rows"], 2);
  EXPECT_EQ(json["rows_overflowing"], 1);
  EXPECT_EQ(json["worst_row"]["at"], Json({0, 0, 0}));
  EXPECT_EQ(json["worst_row"]["safe_sum"], 3);
}

TEST(Overflow, HiddenScoresDoNotCount) {
  const Folder folder;
  const Json json = overflow_of(case_of(folder, {1, 1}, {1, 20}, 1, ", \"causal\": true"));
  EXPECT_EQ(json["scores"], 3);
  EXPECT_EQ(json["overflowing"], 1);
  EXPECT_EQ(json["largest_at"], Json({0, 0, 1, 1}));
}

TEST(Overflow, WithoutAPositiveScoreNoScaleOverflows) {
  const Folder folder;
  const Json json = overflow_of(case_of(folder, {1}, {-1, -2}));
  EXPECT_TRUE(json["overflow_factor"].is_null());
  const Json nothing = overflow_of(case_of(folder, {1, 1}, {}));
  EXPECT_EQ(nothing["scores"], 0);
  EXPECT_TRUE(nothing["largest"].is_null());
  EXPECT_TRUE(nothing["worst_row"].is_null());
}

TEST(Overflow, RowsThatAreNotFiniteAreLeftOutAndSaid) {
  const Folder folder;
  const double inf = std::numeric_limits<double>::infinity();
  const std::string path = case_of(folder, {1, inf, std::nan("")}, {1, 2});
  const Json json = overflow_of(path);
  EXPECT_EQ(json["rows"], 1);
  EXPECT_EQ(json["rows_left_out"], 2);
  EXPECT_EQ(json["largest"], 2);
  EXPECT_NE(fresnel({"overflow", path}).out.find("2 rows"), std::string::npos);
}

TEST(Overflow, HeadsAddUpToAllForAnyThreads) {
  const Outcome one = fresnel({"overflow", data_case("dense_large_scores"), "--threads", "1", "--json"});
  const Outcome three = fresnel({"overflow", data_case("dense_large_scores"), "--threads", "3", "--json"});
  ASSERT_EQ(one.code, 0) << shown(one);
  EXPECT_EQ(one.out, three.out);
  Json json = one.json();
  std::int64_t scores = 0, overflowing = 0;
  double largest = -std::numeric_limits<double>::infinity();
  for (const Json& head : json["heads"]) {
    scores += head["scores"].get<std::int64_t>();
    overflowing += head["overflowing"].get<std::int64_t>();
    largest = std::max(largest, head["largest"].get<double>());
  }
  EXPECT_EQ(json["scores"], scores);
  EXPECT_EQ(json["overflowing"], overflowing);
  EXPECT_GT(overflowing, 0) << shown(one);
  EXPECT_EQ(json["largest"], largest);
}

TEST(Overflow, ARealLayerHasAScoreThatOverflows) {
  const Json json = overflow_of(FRESNEL_SOURCE_DIR "/examples/smollm2/attention.safetensors");
  EXPECT_EQ(json["scores"], 9 * 125 * 126 / 2);  // causal
  EXPECT_EQ(json["overflowing"], 1);
  EXPECT_NEAR(json["largest"], 11.2044, 5e-5);
  EXPECT_FALSE(json["worst_row"]["naive_finite"].get<bool>());
}

TEST(Overflow, TableForPeople) {
  const Folder folder;
  const Outcome run = fresnel({"overflow", case_of(folder, {1}, facts()["probe"]["heads"][3]["row"])});
  ASSERT_EQ(run.code, 0) << shown(run);
  for (const char* word : {"11.0901", "10.3194", "30320", "1.0747", "0 of 1", "finite", "all"})
    EXPECT_NE(run.out.find(word), std::string::npos) << word << shown(run);
}

TEST(Overflow, RefusesWhatIsNoCase) {
  EXPECT_EQ(fresnel({"overflow"}).code, 2);
  const Outcome run = fresnel({"overflow", "/nowhere.safetensors", "--json"});
  EXPECT_EQ(run.code, 2) << shown(run);
  EXPECT_TRUE(run.json()["error"].contains("argument")) << shown(run);
}

}  // namespace
}  // namespace fresnel::test
