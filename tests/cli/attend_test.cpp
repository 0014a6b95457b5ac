// SPDX-License-Identifier: Apache-2.0
// `fresnel attend`: the main job on every dense case of the test data, its JSON, its file, its screen.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <sstream>

#include "cli/program.hpp"
#include "cli/tensor_file.hpp"

namespace fresnel::test {
namespace {

const std::string model_case = std::string(FRESNEL_SOURCE_DIR) + "/examples/smollm2/attention.safetensors";

std::vector<std::string> dense_cases() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(FRESNEL_TEST_DATA) + "/cases"))
    if (entry.path().filename().string().starts_with("dense_")) paths.push_back(entry.path().string());
  return paths;
}

/// Columns of a line: characters that do not continue another one.
int width(const std::string& line) {
  int count = 0;
  for (const char byte : line) count += (static_cast<unsigned char>(byte) & 0xc0) != 0x80 ? 1 : 0;
  return count;
}

void expect_one_screen(const std::string& text) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(width(line), 100) << line;
  EXPECT_LE(count, 24) << text;
}

void expect_judgement(const Json& judgement, std::size_t rank) {
  for (const char* field : {"count", "mismatches", "max_error", "max_share", "at"})
    EXPECT_TRUE(judgement.contains(field)) << judgement;
  EXPECT_TRUE(judgement["count"].is_number_integer() && judgement["mismatches"].is_number_integer()) << judgement;
  if (!judgement["at"].is_null()) {
    EXPECT_EQ(judgement["at"].size(), rank) << judgement;
  }
}

/// Whoever misspelt `tokens` hears that nobody read it.
TEST(Attend, MetadataThatNothingReadsIsNamed) {
  const Folder folder;
  TensorFile file = TensorFile::small_case();
  const std::string path = folder.file("case.safetensors"), result = folder.file("result.safetensors");
  file.metadata["tokns"] = "[]";
  file.metadata["\x1b[2J"] = "";
  file.write(path);
  const Outcome plain = fresnel({"attend", path, "-o", result});
  EXPECT_EQ(plain.code, 0) << shown(plain);
  EXPECT_NE(plain.out.find("unread     \\x1b[2J, tokns: metadata that nothing here reads"), std::string::npos)
      << shown(plain);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"attend", path, "--json"},
                                                {"check", path, result, "--json"},
                                                {"overflow", path, "--json"}}) {
    const Outcome run = fresnel(words);
    EXPECT_EQ(run.json()["metadata_unread"], Json({"\x1b[2J", "tokns"})) << shown(run);
  }
  for (const std::vector<std::string>& words : {std::vector<std::string>{"check", path, result}, {"overflow", path}})
    EXPECT_NE(fresnel(words).out.find("tokns: metadata that"), std::string::npos) << words.front();
  const Outcome none = fresnel({"attend", data_case("dense_small")});
  EXPECT_EQ(none.out.find("unread"), std::string::npos) << shown(none);
  EXPECT_EQ(fresnel({"attend", data_case("dense_small"), "--json"}).json()["metadata_unread"], Json::array());
}

TEST(Attend, EveryDenseCaseIsRightByTheOracleAndByItsExpectedValues) {
  ASSERT_GE(dense_cases().size(), 15u);
  for (const std::string& path : dense_cases()) {
    SCOPED_TRACE(path);
    const Outcome run = fresnel({"attend", path, "--check", "--json"});
    EXPECT_EQ(run.code, 0) << shown(run);
    EXPECT_EQ(run.err, "") << shown(run);
    Json json = run.json();
    ASSERT_TRUE(json.is_object()) << shown(run);
    EXPECT_TRUE(json["check"]["ok"].get<bool>()) << shown(run);
    EXPECT_TRUE(json["expected"]["ok"].get<bool>()) << shown(run);
    expect_judgement(json["check"]["outputs"]["o"], 4);
    expect_judgement(json["check"]["outputs"]["lse"], 3);
    expect_judgement(json["expected"]["outputs"]["o"], 4);
    expect_judgement(json["expected"]["outputs"]["lse"], 3);
  }
}

TEST(Attend, JsonHasTheDesignedFields) {
  const Outcome run = fresnel({"attend", model_case, "--json"});
  ASSERT_EQ(run.code, 0) << shown(run);
  Json json = run.json();
  for (const char* field :
       {"problem", "kernel", "seconds", "tflops", "share_of_floor", "bytes_moved", "bytes_unfused", "gradients"})
    EXPECT_TRUE(json.contains(field)) << field << shown(run);
  EXPECT_TRUE(json["share_of_floor"].is_null());
  EXPECT_TRUE(json["gradients"].is_null());
  EXPECT_GT(json["seconds"].get<double>(), 0);
  EXPECT_GT(json["bytes_unfused"].get<double>(), json["bytes_moved"].get<double>());
  EXPECT_FALSE(json.contains("check"));
  EXPECT_FALSE(json.contains("expected"));
}

TEST(Attend, TheKernelThatWasAskedForRan) {
  for (const char* kernel : {"cpu.flash", "cpu.naive"}) {
    const Outcome option = fresnel({"attend", data_case("dense_small"), "--kernel", kernel, "--json"});
    EXPECT_EQ(option.json()["kernel"], kernel) << shown(option);
    const Outcome variable = fresnel({"attend", data_case("dense_small"), "--json"}, {{"FRESNEL_KERNEL", kernel}});
    EXPECT_EQ(variable.json()["kernel"], kernel) << shown(variable);
  }
}

TEST(Attend, ScreenForPeople) {
  const Outcome run = fresnel({"attend", model_case, "--check"});
  ASSERT_EQ(run.code, 0) << shown(run);
  expect_one_screen(run.out);
  EXPECT_EQ(run.out.find('\x1b'), std::string::npos) << "colours without a terminal";
  for (const char* word :
       {"b1 h9/3 q125 k125 d64 f32 causal scale0.125", "median of", "not measured (run `fresnel machine`)", "unfused",
        "scores never written", "RIGHT", "expected", "silver", "\" key\""})
    EXPECT_NE(run.out.find(word), std::string::npos) << word << shown(run);
}

TEST(Attend, OneScreenHoldsEverythingThatCanBeSaid) {
  const Folder folder;
  for (const char* name : {"dense_all", "dense_alibi", "dense_bf16", "dense_f64", "dense_seqlens"}) {
    const Outcome run =
        fresnel({"attend", data_case(name), "--check", "--head", "0", "-o", folder.file("out.safetensors")});
    EXPECT_EQ(run.code, 0) << shown(run);
    expect_one_screen(run.out);
  }
  // Many wrong outputs at once take no more room than many right ones.
  const Outcome wrong =
      fresnel({"attend", data_case("dense_large_scores"), "--check", "--kernel", "control.base_two_lse"});
  EXPECT_EQ(wrong.code, 1) << shown(wrong);
  EXPECT_NE(wrong.out.find("worst at ["), std::string::npos) << shown(wrong);
  expect_one_screen(wrong.out);
}

TEST(Attend, GradientsAreComputedJudgedAndWrittenWhereTheyAreAskedFor) {
  const Folder folder;
  const std::string out = folder.file("out.safetensors");
  for (const char* name : {"dense_all", "dense_alibi", "dense_bf16", "dense_f16", "dense_f64", "dense_more_queries",
                           "dense_seqlens", "dense_softcap", "dense_value_dim", "dense_large_scores"}) {
    SCOPED_TRACE(name);
    const Outcome run = fresnel({"attend", data_case(name), "--check", "--json", "-o", out});
    ASSERT_EQ(run.code, 0) << shown(run);
    Json json = run.json();
    EXPECT_EQ(json["gradients"]["kernel"], "cpu.reference_backward") << shown(run);
    EXPECT_GT(json["gradients"]["seconds"].get<double>(), 0);
    for (const char* gradient : {"dq", "dk", "dv"}) {
      expect_judgement(json["check"]["outputs"][gradient], 4);
      expect_judgement(json["expected"]["outputs"][gradient], 4);
    }
    Json judged = fresnel({"check", data_case(name), out, "--json"}).json();
    EXPECT_TRUE(judged["ok"].get<bool>()) << judged.dump();
    for (const char* gradient : {"dq", "dk", "dv"}) EXPECT_GT(judged["outputs"][gradient]["count"].get<int>(), 0);
  }
  const Outcome people = fresnel({"attend", data_case("dense_small")});
  EXPECT_NE(people.out.find("gradients  dq, dk, dv by cpu.reference_backward"), std::string::npos) << shown(people);
  const Outcome without = fresnel({"attend", model_case});
  EXPECT_EQ(without.out.find("gradients"), std::string::npos) << shown(without);
}

TEST(Attend, WrongExpectedGradientsAreFound) {
  const Folder folder;
  for (const char* gradient : {"dq", "dk", "dv"}) {
    TensorFile file = TensorFile::read(data_case("dense_gqa"));
    std::string& bytes = file.bytes_of(std::string("expected_") + gradient);
    double value = 0;
    std::memcpy(&value, bytes.data() + 8 * 5, 8);
    value += 1e-1;
    std::memcpy(bytes.data() + 8 * 5, &value, 8);
    file.write(folder.file("case.safetensors"));
    const Outcome run = fresnel({"attend", folder.file("case.safetensors"), "--check", "--json"});
    EXPECT_EQ(run.code, 1) << shown(run);
    EXPECT_TRUE(run.json()["check"]["ok"].get<bool>());
    EXPECT_EQ(run.json()["expected"]["outputs"][gradient]["mismatches"], 1) << shown(run);
    EXPECT_EQ(run.json()["expected"]["outputs"][gradient]["at"], Json({0, 0, 0, 5}));
  }
}

TEST(Attend, ShowsWhatTheChosenRowAttendsTo) {
  const Outcome run = fresnel({"attend", model_case, "--json"});
  ASSERT_EQ(run.code, 0) << shown(run);
  Json shown_row = run.json()["attended"];
  EXPECT_EQ(shown_row["head"], 4);
  EXPECT_EQ(shown_row["query"], 106);
  EXPECT_EQ(shown_row["token"], " silver");
  EXPECT_EQ(shown_row["visible"], 107);
  ASSERT_EQ(shown_row["keys"].size(), 10u);
  // From the file's own description, which was computed by other software.
  EXPECT_EQ(shown_row["keys"][0]["key"], 11);
  EXPECT_EQ(shown_row["keys"][0]["token"], " key");
  EXPECT_NEAR(shown_row["keys"][0]["weight"].get<double>(), 0.520, 5e-4);
  EXPECT_EQ(shown_row["keys"][1]["key"], 25);
  EXPECT_NEAR(shown_row["keys"][1]["weight"].get<double>(), 0.443, 5e-4);

  Json other = fresnel({"attend", model_case, "--query", "113", "--json"}).json()["attended"];
  EXPECT_EQ(other["head"], 4);
  EXPECT_EQ(other["keys"][0]["token"], " gate");
  EXPECT_NEAR(other["keys"][0]["weight"].get<double>(), 0.985, 5e-4);
}

TEST(Attend, RowsCanBeShownWithoutTokens) {
  const Outcome run = fresnel({"attend", data_case("dense_small"), "--head", "1", "--json"});
  Json row = run.json()["attended"];
  EXPECT_EQ(row["head"], 1) << shown(run);
  EXPECT_EQ(row["query"], 7);
  EXPECT_TRUE(row["token"].is_null());
  double sum = 0;
  for (const Json& key : row["keys"]) sum += key["weight"].get<double>();
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_FALSE(fresnel({"attend", data_case("dense_small"), "--json"}).json().contains("attended"));
}

TEST(Attend, HostileTokensArePrintedEscaped) {
  const Folder folder;
  TensorFile file = TensorFile::small_case();
  file.metadata["tokens"] = R"(["\u001b[2J", "\u202egnal", "a\nb", "漢字", "", "ok"])";
  file.write(folder.file("case.safetensors"));
  const Outcome run = fresnel({"attend", folder.file("case.safetensors")});
  ASSERT_EQ(run.code, 0) << shown(run);
  EXPECT_EQ(run.out.find('\x1b'), std::string::npos) << shown(run);
  EXPECT_EQ(run.out.find("\u202e"), std::string::npos) << shown(run);
  for (const char* word : {"\\x1b[2J", "\\u202egnal", "a\\nb", "漢字"})
    EXPECT_NE(run.out.find(word), std::string::npos) << word << shown(run);
  expect_one_screen(run.out);
}

TEST(Attend, WritesItsResultAndReadsItBack) {
  const Folder folder;
  const std::string out = folder.file("out.safetensors");
  for (const char* name : {"dense_small", "dense_bf16", "dense_f16", "dense_f64", "dense_seqlens", "dense_value_dim"}) {
    SCOPED_TRACE(name);
    const Outcome run = fresnel({"attend", data_case(name), "-o", out});
    ASSERT_EQ(run.code, 0) << shown(run);
    EXPECT_EQ(folder.contents(), std::vector<std::string>{"out.safetensors"});
    const Outcome judged = fresnel({"check", data_case(name), out, "--roundings", "cpu.flash", "--json"});
    EXPECT_EQ(judged.code, 0) << shown(judged);
    EXPECT_TRUE(judged.json()["outputs"].contains("lse")) << shown(judged);
  }
}

TEST(Attend, SameFileForAnyNumberOfThreads) {
  const Folder folder;
  std::string first;
  for (const char* threads : {"1", "2", "7"}) {
    const std::string out = folder.file("out.safetensors");
    const Outcome run = fresnel({"attend", model_case, "-o", out, "--threads", threads});
    ASSERT_EQ(run.code, 0) << shown(run);
    if (first.empty()) first = read_bytes(out);
    EXPECT_EQ(read_bytes(out), first) << threads;
  }
}

TEST(Attend, WrongExpectedValuesAreFoundAndTheResultIsStillWritten) {
  const Folder folder;
  TensorFile file = TensorFile::read(data_case("dense_gqa"));
  double value = 0;
  std::string& bytes = file.bytes_of("expected_o");
  std::memcpy(&value, bytes.data() + 8 * 5, 8);
  value += 1e-3;
  std::memcpy(bytes.data() + 8 * 5, &value, 8);
  file.write(folder.file("case.safetensors"));
  const Outcome run =
      fresnel({"attend", folder.file("case.safetensors"), "--check", "--json", "-o", folder.file("out.safetensors")});
  EXPECT_EQ(run.code, 1) << shown(run);
  Json json = run.json();
  EXPECT_TRUE(json["check"]["ok"].get<bool>());
  EXPECT_FALSE(json["expected"]["ok"].get<bool>());
  EXPECT_EQ(json["expected"]["outputs"]["o"]["mismatches"], 1);
  EXPECT_EQ(json["expected"]["outputs"]["o"]["at"], Json({0, 0, 0, 5}));
  EXPECT_TRUE(std::filesystem::exists(folder.file("out.safetensors")));
  const Outcome plain = fresnel({"attend", folder.file("case.safetensors"), "--check"});
  EXPECT_EQ(plain.code, 1);
  EXPECT_NE(plain.out.find("WRONG"), std::string::npos) << shown(plain);
  EXPECT_EQ(fresnel({"attend", folder.file("case.safetensors")}).code, 0) << "not judged without --check";
}

TEST(Attend, EmptyExtents) {
  const Folder folder;
  for (const auto& [q, kv] :
       std::vector<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>>{{{1, 2, 0, 8}, {1, 1, 6, 8}},
                                                                                    {{1, 2, 4, 8}, {1, 1, 0, 8}},
                                                                                    {{0, 2, 4, 8}, {0, 1, 6, 8}},
                                                                                    {{1, 0, 4, 8}, {1, 0, 6, 8}}}) {
    TensorFile file = TensorFile::small_case();
    file.set_f32("q", q);
    file.set_f32("k", kv);
    file.set_f32("v", kv);
    file.write(folder.file("case.safetensors"));
    for (const char* json : {"--check", "--json"}) {
      const Outcome run =
          fresnel({"attend", folder.file("case.safetensors"), "--check", json, "-o", folder.file("out.safetensors")});
      EXPECT_EQ(run.code, 0) << shown(run);
    }
  }
}

}  // namespace
}  // namespace fresnel::test
