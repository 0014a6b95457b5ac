// SPDX-License-Identifier: Apache-2.0
// `fresnel record` and `fresnel audit` as typed: exit codes, JSON, and refusals that leave nothing behind.
#include <gtest/gtest.h>

#include <fstream>

#include "cli/program.hpp"

namespace fresnel::test {
namespace {

std::vector<std::string> small_record(const std::string& folder) {
  return {"record",
          folder,
          "b1 h1 q4 k40 d8 f32",
          "--kernel",
          "cpu.naive",
          "--kernel",
          "control.blocks_averaged",
          "--repeats",
          "3",
          "--seed",
          "7",
          "--json"};
}

TEST(Record, AsTypedIsAudited) {
  const Folder folder;
  const Outcome record = fresnel(small_record(folder.file("record")));
  ASSERT_EQ(record.code, 0) << shown(record);
  EXPECT_EQ(record.json()["ok"], true);
  EXPECT_EQ(record.json()["groups"][0]["kernels"][0]["samples"].size(), 3u);
  EXPECT_EQ(folder.contents(), std::vector<std::string>{"record"});

  const Outcome audit = fresnel({"audit", folder.file("record"), "--json"});
  EXPECT_EQ(audit.code, 0) << shown(audit);
  EXPECT_EQ(audit.json()["faults"], Json::array());
  EXPECT_EQ(audit.json()["manifest_sha256"], record.json()["manifest_sha256"]);
  EXPECT_EQ(audit.json()["judged"], 2);
  const Outcome plain = fresnel({"audit", folder.file("record"), "--sources", FRESNEL_SOURCE_DIR});
  EXPECT_EQ(plain.code, 0) << shown(plain);
  EXPECT_NE(plain.out.find("HOLDS"), std::string::npos) << shown(plain);
}

TEST(Audit, FailsForAChangedByteAndForAStaleSource) {
  const Folder folder;
  ASSERT_EQ(fresnel(small_record(folder.file("record"))).code, 0);
  const Outcome stale = fresnel({"audit", folder.file("record"), "--sources", folder.path().string(), "--json"});
  EXPECT_EQ(stale.code, 1) << shown(stale);
  EXPECT_EQ(stale.json()["ok"], false);
  EXPECT_EQ(stale.json()["faults"], Json::array());
  EXPECT_GT(stale.json()["changed_sources"].size(), 100u);

  std::ofstream(folder.file("record/results.json"), std::ios::app) << "\n";
  const Outcome changed = fresnel({"audit", folder.file("record")});
  EXPECT_EQ(changed.code, 1) << shown(changed);
  EXPECT_NE(changed.out.find("results.json was changed"), std::string::npos) << shown(changed);
}

TEST(Record, RefusesByName) {
  const Folder folder;
  const std::string target = folder.file("record"), problem = "b1 h1 q4 k4 d8 f32";
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"record", "--json"}, "DIR"},
      {{"record", target, "--json"}, "--protocol"},
      {{"record", target, problem, "--json"}, "--protocol"},
      {{"record", target, problem, "--kernel", "cpu.flush", "--json"}, "cpu_flush.kernel"},
      {{"record", target, problem, "--kernel", "cpu.naive", "--repeats", "-1", "--json"}, "--repeats"},
      {{"record", target, problem, "--kernel", "cpu.naive", "--protocol", "x", "--json"}, "--protocol"},
      {{"record", folder.path().string(), problem, "--kernel", "cpu.naive", "--json"}, "DIR"},
      {{"audit", "--json"}, "DIR"},
      {{"audit", data_case("dense_gqa"), "--sources", "/nowhere", "--json"}, nullptr},
  };
  for (const auto& [words, argument] : cases) {
    const Outcome run = fresnel(words);
    EXPECT_EQ(run.code, 2) << shown(run);
    if (argument != nullptr) {
      EXPECT_EQ(run.json()["error"]["argument"], argument) << shown(run);
    }
  }
  EXPECT_EQ(folder.contents(), std::vector<std::string>());
}

}  // namespace
}  // namespace fresnel::test
