// SPDX-License-Identifier: Apache-2.0
// Kernels that are wrong on purpose, from the command line: reached by name alone, judged wrong by check and attend,
// never timed, never listed unless asked for.
#include "controls/controls.hpp"

#include <gtest/gtest.h>

#include "cli/program.hpp"

namespace fresnel::test {
namespace {

constexpr const char* problem = "b1 h2 q8 k64 d32 f32";

TEST(Controls, CheckSaysWrongAndHowToSeeItAgain) {
  const Outcome run = fresnel({"check", "--problem", problem, "--kernel", "control.rescale_forgotten", "--json"});
  EXPECT_EQ(run.code, 1) << shown(run);
  EXPECT_FALSE(run.json()["ok"].get<bool>());
  EXPECT_EQ(run.json()["kernel"], "control.rescale_forgotten");
  EXPECT_GT(run.json()["outputs"]["o"]["mismatches"].get<int>(), 0);
  EXPECT_NE(run.json()["command"].get<std::string>().find("--kernel control.rescale_forgotten"), std::string::npos);
}

TEST(Controls, TheHonestOneIsRight) {
  const Outcome run = fresnel({"check", "--problem", problem, "--kernel", "control.none", "--json"});
  EXPECT_EQ(run.code, 0) << shown(run);
  EXPECT_EQ(run.json()["kernel"], "control.none");
}

TEST(Controls, AttendRunsThemAndJudgesThemWrong) {
  const std::string path = data_case("dense_large_scores");
  const Outcome right = fresnel({"attend", path, "--check", "--kernel", "control.none", "--json"});
  EXPECT_EQ(right.code, 0) << shown(right);
  EXPECT_EQ(right.json()["kernel"], "control.none");
  const Outcome wrong = fresnel({"attend", path, "--check", "--kernel", "control.base_two_lse", "--json"});
  EXPECT_EQ(wrong.code, 1) << shown(wrong);
  EXPECT_FALSE(wrong.json()["check"]["ok"].get<bool>());
}

TEST(Controls, AWrongResultHasNoTime) {
  const Outcome run = fresnel({"time", problem, "--kernel", "cpu.flash", "--kernel", "control.splits_unweighted",
                               "--seconds", "0.01", "--json"});
  EXPECT_EQ(run.code, 1) << shown(run);
  EXPECT_EQ(run.json()["rows"].size(), 2u) << shown(run);
  for (const Json& row : run.json()["rows"]) EXPECT_TRUE(row["median_seconds"].is_null()) << shown(run);
  const Outcome plain = fresnel({"time", problem, "--kernel", "control.splits_unweighted", "--seconds", "0.01"});
  EXPECT_NE(plain.out.find("WRONG"), std::string::npos) << shown(plain);
}

TEST(Controls, AreListedOnlyWhenAskedFor) {
  for (const char* format : {"json", "markdown"}) {
    const Outcome without = fresnel({"kernels", "--format", format});
    EXPECT_EQ(without.out.find("control."), std::string::npos) << shown(without);
    const Outcome with = fresnel({"kernels", "--controls", "--format", format});
    EXPECT_EQ(with.code, 0) << shown(with);
    for (const Kernel& row : controls::rows())
      EXPECT_NE(with.out.find(row.name), std::string::npos) << row.name << shown(with);
    EXPECT_NE(with.out.find("cpu.flash"), std::string::npos) << shown(with);
  }
  EXPECT_EQ(fresnel({"kernels"}).out.find("control."), std::string::npos);
  EXPECT_NE(fresnel({"kernels", "--controls"}).out.find("control.none"), std::string::npos);
}

TEST(Controls, NothingElseKnowsThem) {
  const Outcome explain = fresnel({"explain", problem, "--kernel", "control.none", "--json"});
  EXPECT_EQ(explain.code, 2) << shown(explain);
  EXPECT_EQ(explain.json()["error"]["argument"], "--kernel");
  const Outcome environment = fresnel({"check", "--problem", problem, "--json"}, {{"FRESNEL_KERNEL", "control.none"}});
  EXPECT_EQ(environment.code, 2) << shown(environment);
  EXPECT_EQ(environment.json()["error"]["given"], "'control.none'");
}

TEST(Controls, AMisspeltOneIsRefusedWithTheNearest) {
  const Outcome run = fresnel({"check", "--problem", problem, "--kernel", "control.nome", "--json"});
  EXPECT_EQ(run.code, 2) << shown(run);
  EXPECT_EQ(run.json()["error"]["nearest"], "control.none");
  EXPECT_NE(run.json()["error"]["accepted"].get<std::string>().find("control.tail_counted"), std::string::npos);
  const Outcome plain = fresnel({"check", "--problem", problem, "--kernel", "cpu.flesh", "--json"});
  EXPECT_EQ(plain.json()["error"]["accepted"].get<std::string>().find("control."), std::string::npos) << shown(plain);
}

}  // namespace
}  // namespace fresnel::test
