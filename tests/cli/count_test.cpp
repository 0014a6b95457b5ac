// SPDX-License-Identifier: Apache-2.0
// `fresnel count`: the rows of the lesson in the documented shape, the tables people read, replays, and refusals in the
// words that were typed.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "cli/program.hpp"

namespace fresnel::test {
namespace {

const Json& facts() {
  static const Json json = Json::parse(std::ifstream(FRESNEL_TEST_DATA "/fused_facts.json"));
  return json;
}

Json rows_of(std::vector<std::string> words) {
  words.insert(words.begin(), "count");
  words.emplace_back("--json");
  const Outcome run = fresnel(words);
  EXPECT_EQ(run.code, 0) << shown(run);
  EXPECT_EQ(run.err, "");
  return run.json()["rows"];
}

/// Names of the lesson's figures and of ours.
const std::vector<std::pair<const char*, const char*>> fields{{"N", "n"},
                                                              {"d", "d"},
                                                              {"B", "b"},
                                                              {"kind", "kind"},
                                                              {"globalReads", "global_reads"},
                                                              {"globalWrites", "global_writes"},
                                                              {"fma", "fma"},
                                                              {"exps", "exps"},
                                                              {"barriers", "barriers"},
                                                              {"sharedReads", "shared_reads"},
                                                              {"sharedWrites", "shared_writes"},
                                                              {"globalBytes", "global_bytes"},
                                                              {"extraMemoryBytes", "extra_memory_bytes"},
                                                              {"sharedPerWorkgroupBytes", "shared_per_workgroup_bytes"},
                                                              {"matchesClosedForm", "matches_closed_form"}};

TEST(Count, WithoutWordsItIsTheLesson) {
  const Json rows = rows_of({});
  const Json& golden = facts()["traffic"]["rows"];
  ASSERT_EQ(rows.size(), golden.size());
  for (std::size_t at = 0; at < rows.size(); ++at) {
    SCOPED_TRACE(golden[at].dump());
    for (const auto& [theirs, ours] : fields) EXPECT_EQ(rows[at].value(ours, Json()), golden[at][theirs]) << ours;
    EXPECT_NEAR(rows[at]["over_theta"], golden[at]["overTheta"], 6e-5);
    EXPECT_NEAR(rows[at]["over_fused"], golden[at]["overFused"], 6e-5);
    EXPECT_EQ(rows[at]["walk"], "each");
  }
}

TEST(Count, OneRowAndASweep) {
  const Json one = rows_of({"--n", "4096", "--d", "64", "--kind", "fused"});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0]["global_bytes"], 270532608);
  EXPECT_EQ(one[0]["score_matrix_bytes"], 67108864);
  const Json sweep = rows_of({"--n", "64,128", "--n", "256", "--d", "16", "--kind", "broken", "--kind", "outer_k"});
  ASSERT_EQ(sweep.size(), 6u);
  EXPECT_EQ(sweep[5]["n"], 256);
  EXPECT_EQ(sweep[5]["kind"], "outer_k");
  for (const Json& row : sweep) EXPECT_EQ(row["matches_closed_form"], true) << row;
}

TEST(Count, TilesMasksHeadsAndLines) {
  EXPECT_EQ(rows_of({"--n", "256", "--d", "64", "--kind", "fused", "--tile", "16"})[0]["b"], 16);
  EXPECT_EQ(rows_of({"--n", "256", "--d", "64", "--kind", "fused", "--memory", "232448"})[0]["b"], 128);
  const Json swept = rows_of({"--n", "256", "--d", "64", "--kind", "fused", "--causal", "--heads", "4/2", "--lse"});
  const Json line = rows_of({"b1 h4/2 q256 k256 d64 f32 causal", "--kind", "fused"});
  EXPECT_EQ(swept, line);
  EXPECT_EQ(line[0]["matches_closed_form"], nullptr) << "a mask skips tiles";
  const Json decode = rows_of({"--n", "1024", "--d", "64", "--kind", "fused", "--queries", "1"});
  EXPECT_EQ(decode[0]["global_reads"], 64 + 2 * 1024 * 64);
  EXPECT_EQ(rows_of({"b1 h1 q64 k64 d16 f32 grad"})[0]["kind"], "backward");
  const Json window =
      rows_of({"--n", "256", "--d", "64", "--kind", "fused", "--window-size-left", "0", "--window-size-right", "0"});
  EXPECT_EQ(window[0]["fma"], 256 / 32 * 32 * 32 * 128) << "the tiles of the diagonal alone";
}

TEST(Count, ThroughABlockTable) {
  const std::vector<std::string> words{"--n", "1024", "--d", "64", "--queries", "1", "--heads", "8/2", "--tile", "32"};
  std::vector<std::string> pages = words;
  pages.insert(pages.end(), {"--paged", "--check"});
  std::vector<std::string> pieces = words;
  pieces.insert(pieces.end(), {"--kind", "fused"});
  const Json paged = rows_of(pages), whole = rows_of(pieces);
  ASSERT_EQ(paged.size(), 1u) << "fused alone";
  EXPECT_EQ(paged[0]["page_size"], 16);
  EXPECT_EQ(whole[0]["page_size"], 0);
  EXPECT_EQ(paged[0]["matches_closed_form"], true);
  EXPECT_EQ(paged[0]["check"]["ok"], true);
  EXPECT_EQ(paged[0]["check"]["same_counts"], true);
  EXPECT_EQ(paged[0]["compulsory_bytes"], whole[0]["compulsory_bytes"]);
  EXPECT_EQ(paged[0]["global_reads"], whole[0]["global_reads"].get<std::int64_t>() + 8 * 1024 / 16);
  const Json odd = rows_of({"--n", "256", "--d", "64", "--paged", "--page-size", "7", "--kind", "broken"});
  EXPECT_EQ(odd[0]["page_size"], 7);
  EXPECT_EQ(odd[0]["matches_closed_form"], true);
  const Outcome run = fresnel({"count", "--n", "256", "--paged", "--page-size", "48", "--machine", "h100", "--caches"});
  EXPECT_EQ(run.code, 0) << shown(run);
  for (const char* word : {"tile  page  kind", "  48  fused", "n, d, tile, page, kind"})
    EXPECT_NE(run.out.find(word), std::string::npos) << word << shown(run);
  EXPECT_EQ(fresnel({"count", "--n", "256"}).out.find("page"), std::string::npos);
}

TEST(Count, AMillionRowsByTheClosedWalk) {
  const Json row = rows_of({"--n", "1048576", "--d", "64", "--kind", "unfused"})[0];
  EXPECT_EQ(row["walk"], "closed");
  EXPECT_EQ(row["matches_closed_form"], true);
  EXPECT_EQ(row["extra_memory_bytes"], std::int64_t{4} << 40);
}

TEST(Count, TablesForPeople) {
  const Outcome run = fresnel({"count", "--n", "4096", "--machine", "h100"});
  ASSERT_EQ(run.code, 0) << shown(run);
  for (const char* word : {"285,736,960", "17,301,504", "538,968,064", "270,532,608", "0 of 67,108,864", "equal",
                           "NVIDIA H100", "set by", "143,360"})
    EXPECT_NE(run.out.find(word), std::string::npos) << word << shown(run);
  EXPECT_EQ(run.out.find("DIFFERS"), std::string::npos);
  const Outcome masked = fresnel({"count", "b1 h1 q64 k64 d16 f32 causal"});
  EXPECT_NE(masked.out.find("none"), std::string::npos) << shown(masked);
}

TEST(Count, KernelsOfTheCatalogue) {
  const Json row = rows_of({"--kernel", "cpu.naive", "b1 h1 q64 k64 d16 f32 nolse", "--machine", "a100"})[0];
  EXPECT_EQ(row["kernel"], "cpu.naive");
  EXPECT_EQ(row["tile"], Json({{"queries", 1}, {"keys", 64}}));
  EXPECT_EQ(row["levels"]["cache"]["read_bytes"], 4 * (64 * 16 + 64 * 64 * 32));
  EXPECT_EQ(row["levels"]["memory"]["written_bytes"], 4 * 64 * 16);
  EXPECT_EQ(row["machine"]["name"], "a100");
  EXPECT_TRUE(row["machine"]["seconds"].is_number());
  const Outcome run = fresnel({"count", "--kernel", "cpu.flash", "--kernel", "cpu.naive", "b1 h1 q64 k64 d16 f32"});
  EXPECT_EQ(run.code, 0) << shown(run);
  for (const char* word : {"cpu.flash", "cpu.naive", "1 x 64", "memory, at least", "16.4 kB never written"})
    EXPECT_NE(run.out.find(word), std::string::npos) << word << shown(run);
}

TEST(Count, AMachineThatWasNotMeasuredHasNoTimes) {
  const Json row = rows_of({"--n", "64", "--d", "16", "--kind", "fused", "--machine", "cpu"})[0];
  EXPECT_EQ(row["machine"]["seconds"], nullptr);
  EXPECT_EQ(row["machine"]["limit"], nullptr);
  const Outcome run = fresnel({"count", "--n", "64", "--machine", "webgpu"});
  EXPECT_NE(run.out.find("unknown"), std::string::npos) << shown(run);
}

TEST(Count, ThroughTheCachesOfAMachine) {
  const Json row = rows_of({"--n", "1024", "--d", "64", "--kind", "fused", "--machine", "h100", "--caches"})[0];
  const Json& caches = row["caches"];
  EXPECT_EQ(caches["line_bytes"], 128);
  EXPECT_EQ(caches["memory_read_bytes"], 3 * 1024 * 64 * 4) << "an L2 of 50 MiB holds K and V";
  EXPECT_EQ(caches["memory_written_bytes"], 1024 * 64 * 4);
  EXPECT_EQ(caches["levels"].size(), 2u);
  EXPECT_EQ(caches["levels"][1]["reads"].get<std::int64_t>() * 128, row["global_reads"].get<std::int64_t>() * 4);
  EXPECT_TRUE(caches["device_memory_seconds"].is_number());
  const Json cold = rows_of(
      {"--n", "1024", "--d", "64", "--kind", "unfused", "--machine", "h200", "--caches", "--cold"})[0]["caches"];
  EXPECT_EQ(cold["memory_read_bytes"], 3 * 1024 * 64 * 4 + 2 * 4 * 1024 * 1024) << "scores are read twice";
  EXPECT_EQ(cold["memory_written_bytes"], 0) << "and fit the cache";
  const Json kernel = rows_of({"--kernel", "cpu.flash", "b1 h1 q64 k64 d64 f32", "--machine", "cpu", "--caches"})[0];
  EXPECT_EQ(kernel["caches"]["line_bytes"], 64);
  EXPECT_EQ(kernel["caches"]["device_memory_seconds"], nullptr) << "not measured";
  const Outcome run = fresnel({"count", "--n", "1024", "--machine", "a100", "--caches"});
  EXPECT_EQ(run.code, 0) << shown(run);
  for (const char* word : {"through its caches", "of the least", "1.00 x", "L2"})
    EXPECT_NE(run.out.find(word), std::string::npos) << word << shown(run);
}

TEST(Count, WhatIsCountedIsRunAndJudged) {
  const std::vector<std::string> lesson{"count", "--d", "64", "--kind", "fused", "--kind", "broken", "--check"};
  std::vector<std::string> words = lesson;
  words.insert(words.end(), {"--n", "256", "--json"});
  const Outcome run = fresnel(words);
  EXPECT_EQ(run.code, 1) << "broken is wrong where a row spans two tiles\n" << shown(run);
  const Json& rows = run.json()["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["check"]["ok"], true);
  EXPECT_EQ(rows[0]["check"]["outputs"]["o"]["count"], 256 * 64);
  EXPECT_EQ(rows[1]["check"]["ok"], false);
  for (const Json& row : rows) {
    EXPECT_EQ(row["check"]["same_counts"], true);
    EXPECT_EQ(row["check"]["raced"], false);
  }
  words = lesson;
  words.insert(words.end(), {"--n", "32"});
  const Outcome one_tile = fresnel(words);
  EXPECT_EQ(one_tile.code, 0) << "and right where it fits one\n" << shown(one_tile);
  EXPECT_NE(one_tile.out.find("RIGHT"), std::string::npos);
  const Outcome gradients = fresnel({"count", "b1 h4/2 q40 k50 d16 f32 causal grad", "--check"});
  EXPECT_EQ(gradients.code, 0) << shown(gradients);
  EXPECT_NE(gradients.out.find("dk"), std::string::npos) << shown(gradients);
}

void expect_refused(std::vector<std::string> words, const std::string& argument, const std::string& fragment = "") {
  words.insert(words.begin(), "count");
  const Outcome plain = fresnel(words);
  EXPECT_EQ(plain.code, 2) << shown(plain);
  EXPECT_EQ(plain.out, "");
  EXPECT_TRUE(plain.err.starts_with("fresnel: ")) << shown(plain);
  EXPECT_NE(plain.err.find(fragment), std::string::npos) << shown(plain);
  words.emplace_back("--json");
  const Outcome json = fresnel(words);
  EXPECT_EQ(json.code, 2);
  EXPECT_EQ(json.json()["error"]["argument"], argument) << shown(json);
}

TEST(Count, RefusesByName) {
  expect_refused({"--n", "0"}, "--n", "from 1");
  expect_refused({"--n", "1,,2"}, "--n");
  expect_refused({"--n", "268435456", "--d", "64"}, "--n", "64 bits");
  expect_refused({"--d", "4096"}, "--memory", "32768");
  expect_refused({"--kind", "fuzed"}, "--kind", "nearest: fused");
  expect_refused({"--tile", "1025"}, "--tile", "1024");
  expect_refused({"--tile", "4", "--memory", "4096"}, "--tile", "one of them");
  expect_refused({"--machine", "h10"}, "--machine", "nearest: h100");
  expect_refused({"--check", "--n", "8192", "--d", "64"}, "--check", "2^31");
  expect_refused({"--check", "--kernel", "cpu.flash", "b1 h1 q64 k64 d64 f32"}, "--check");
  expect_refused({"--cold", "--machine", "h100"}, "--cold", "--caches");
  expect_refused({"--caches"}, "--caches", "--machine");
  expect_refused({"--caches", "--machine", "webgpu"}, "--machine", "known");
  expect_refused({"--caches", "--machine", "h100", "--n", "65536"}, "--caches", "2^28");
  expect_refused({"--caches", "--machine", "h100", "--kernel", "cpu.flash", "b1 h1 q64 k64 d64 f32"}, "--machine",
                 "cpu");
  for (const char* kind : {"unfused", "outer_k", "backward"})
    expect_refused({"--paged", "--kind", kind}, "--paged", "fused or broken");
  expect_refused({"--paged", "b1 h1 q64 k64 d16 f32 grad"}, "--paged", "fused or broken");
  expect_refused({"--paged", "--kernel", "cpu.flash", "b1 h1 q64 k64 d16 f32"}, "--paged", "in one piece");
  expect_refused({"--page-size", "16"}, "--page-size", "with --paged");
  expect_refused({"--paged", "--page-size", "0"}, "--page-size", "from 1");
  expect_refused({"--paged", "--page-size", "many"}, "--page-size");
  expect_refused({"--paged", "--d", "2048", "--memory", "16384"}, "--memory", "16388");
  expect_refused({"--heads", "8/"}, "--heads");
  expect_refused({"--heads", "8/3"}, "heads_kv");
  expect_refused({"--window-size-left", "-1"}, "--window-size-left");
  expect_refused({"b1 h1 q64 k64 d16 bf16"}, "dtype", "f32");
  expect_refused({"b1 h1 q64 k64 d16 f32", "--n", "64"}, "--n", "one of them");
  expect_refused({"b1 h1 q64 k64 d16 f32", "--causal"}, "PROBLEM", "in the line itself");
  expect_refused({"b1 h1 q64 k64 d16 f32 grad", "--kind", "fused"}, "grad");
  expect_refused({"--kernel", "cpu.flash"}, "PROBLEM");
  expect_refused({"--kernel", "cpu.flush", "b1 h1 q64 k64 d16 f32"}, "--kernel", "nearest: cpu.flash");
  expect_refused({"--kernel", "cpu.flash", "--tile", "4", "b1 h1 q64 k64 d16 f32"}, "--tile");
  expect_refused({"--kernel", "cpu.decode", "b1 h1 q64 k64 d16 f32"}, "queries");
}

}  // namespace
}  // namespace fresnel::test
