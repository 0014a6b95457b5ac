// SPDX-License-Identifier: Apache-2.0
// `fresnel time`: verified, then timed. No test here looks at how long anything took.
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/program.hpp"
#include "planner/selection.hpp"

namespace fresnel::test {
namespace {

TEST(Time, EveryRowThatFitsIsVerifiedAndTimed) {
  const Outcome run =
      fresnel({"time", "b1 h2 q65 k65 d32 f32 causal", "b1 h1 q1 k200 d64 bf16", "--seconds", "0.05", "--json"});
  ASSERT_EQ(run.code, 0) << shown(run);
  Json rows = run.json()["rows"];
  std::size_t expected = 0;
  for (const char* line : {"b1 h2 q65 k65 d32 f32 causal", "b1 h1 q1 k200 d64 bf16"})
    for (const Kernel& row : catalogue()) expected += serves(row, parse_problem(line).value(), Machine::host()) ? 1 : 0;
  ASSERT_EQ(rows.size(), expected) << shown(run);
  ASSERT_GE(rows.size(), 4u) << "two problems, cpu.flash and cpu.naive";
  for (const Json& row : rows) {
    for (const char* field :
         {"problem", "kernel", "threads", "median_seconds", "tflops", "gbps", "share_of_floor", "samples"})
      EXPECT_TRUE(row.contains(field)) << field << shown(run);
    EXPECT_TRUE(row["ok"].get<bool>());
    EXPECT_TRUE(row["check"]["ok"].get<bool>());
    std::vector<double> samples = row["samples"].get<std::vector<double>>();
    ASSERT_FALSE(samples.empty());
    std::sort(samples.begin(), samples.end());
    const double median = row["median_seconds"].get<double>();
    EXPECT_GE(median, samples.front());
    EXPECT_LE(median, samples.back());
  }
  EXPECT_EQ(rows[0]["samples"].size(), rows[1]["samples"].size()) << "interleaved rows have equally many runs";
}

/// Runs of some milliseconds for more than two seconds: a log hears of it, and a document is all there is elsewhere.
TEST(Time, ALongStepIsSaidOnStandardError) {
  const std::string problem = "b1 h4 q700 k700 d64 f32";
  const Outcome run = fresnel({"time", problem, "--kernel", "cpu.naive", "--seconds", "2.5", "--json"});
  ASSERT_EQ(run.code, 0) << shown(run);
  EXPECT_NE(run.err.find("fresnel: timing " + problem + "\n"), std::string::npos) << shown(run);
  EXPECT_EQ(run.json()["rows"].size(), 1u) << shown(run);
}

TEST(Time, OnlyTheKernelsAskedFor) {
  const Outcome run = fresnel({"time", "b1 h1 q33 k33 d16 f32", "--kernel", "cpu.naive", "--threads", "1", "--seconds",
                               "0.01", "--inputs", "large", "--json"});
  ASSERT_EQ(run.code, 0) << shown(run);
  ASSERT_EQ(run.json()["rows"].size(), 1u);
  EXPECT_EQ(run.json()["rows"][0]["kernel"], "cpu.naive");
  EXPECT_EQ(run.json()["rows"][0]["threads"], 1);
}

TEST(Time, TableForPeople) {
  const Outcome run = fresnel({"time", "b1 h1 q33 k33 d16 f32", "--seconds", "0.01"});
  ASSERT_EQ(run.code, 0) << shown(run);
  for (const char* word :
       {"b1 h1 q33 k33 d16 f32", "cpu.flash", "cpu.naive", "RIGHT", "median", "FLOP/s", "not measured"})
    EXPECT_NE(run.out.find(word), std::string::npos) << word << shown(run);
}

/// Operations as a row counts them.
double operations(const Json& row) { return row["tflops"].get<double>() * row["median_seconds"].get<double>(); }

TEST(Time, BothPassesOfAProblemWithGradients) {
  const std::string problem = "b1 h2/1 q33 k40 d24 f32 causal alibi grad";
  const Outcome run = fresnel({"time", problem, "--seconds", "0.01", "--json"});
  ASSERT_EQ(run.code, 0) << shown(run);
  Json rows = run.json()["rows"];
  ASSERT_EQ(rows.size(), 3u) << shown(run);
  const char* const kernels[] = {"cpu.flash", "cpu.naive", "cpu.reference_backward"};
  for (std::size_t at = 0; at < 3; ++at) {
    EXPECT_EQ(rows[at]["kernel"], kernels[at]);
    EXPECT_EQ(rows[at]["problem"], problem);
    EXPECT_EQ(rows[at]["pass"], at == 2 ? "backward" : "forward");
    EXPECT_EQ(rows[at]["check"]["outputs"].contains("dalibi_slopes"), at == 2) << shown(run);
    EXPECT_FALSE(rows[at]["samples"].empty());
  }
  EXPECT_NEAR(operations(rows[2]) / operations(rows[0]), 2.5, 1e-6) << "five products of matrices against two";
  const Outcome table = fresnel({"time", problem, "--seconds", "0.01"});
  EXPECT_NE(table.out.find("cpu.reference_backward"), std::string::npos) << shown(table);
}

TEST(Time, OnlyThePassOfTheKernelAskedFor) {
  for (const auto& [kernel, pass] : {std::pair("cpu.naive", "forward"), {"cpu.reference_backward", "backward"}}) {
    const Outcome run = fresnel({"time", "b1 h1 q9 k9 d8 f64 grad", "--kernel", kernel, "--seconds", "0.01", "--json"});
    ASSERT_EQ(run.code, 0) << shown(run);
    ASSERT_EQ(run.json()["rows"].size(), 1u) << shown(run);
    EXPECT_EQ(run.json()["rows"][0]["kernel"], kernel);
    EXPECT_EQ(run.json()["rows"][0]["pass"], pass);
  }
  const Outcome refused = fresnel({"time", "b1 h1 q9 k9 d8 f64", "--kernel", "cpu.reference_backward", "--json"});
  EXPECT_EQ(refused.code, 2) << shown(refused);
  EXPECT_EQ(refused.json()["error"]["argument"], "grad") << shown(refused);
}

TEST(Time, AWrongForwardHasNoTimeNorHaveItsGradients) {
  const Outcome run = fresnel({"time", "b1 h1 q8 k32 d32 f32 grad", "--kernel", "control.base_two_lse", "--kernel",
                               "cpu.reference_backward", "--seconds", "0.01", "--json"});
  EXPECT_EQ(run.code, 1) << shown(run);
  ASSERT_EQ(run.json()["rows"].size(), 2u) << shown(run);
  for (const Json& row : run.json()["rows"]) EXPECT_TRUE(row["median_seconds"].is_null()) << shown(run);
}

TEST(Time, EmptyProblems) {
  const Outcome run = fresnel(
      {"time", "b1 h1 q0 k4 d8 f32", "b0 h1 q4 k4 d8 f32", "b1 h1 q0 k4 d8 f32 grad", "--seconds", "0.01", "--json"});
  EXPECT_EQ(run.code, 0) << shown(run);
  EXPECT_TRUE(run.json().is_object()) << shown(run);
}

}  // namespace
}  // namespace fresnel::test
