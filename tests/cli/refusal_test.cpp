// SPDX-License-Identifier: Apache-2.0
// Every "no" of the command line: one sentence on standard error that names the argument, the right exit code, one JSON
// document under --json and nothing else, and never a file left behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "cli/program.hpp"
#include "cli/tensor_file.hpp"

namespace fresnel::test {
namespace {

/// What a refusal must look like, with and without --json.
void expect_refused(const std::vector<std::string>& words, int code, const std::string& argument,
                    const std::string& fragment = "") {
  const Outcome plain = fresnel(words);
  EXPECT_EQ(plain.code, code) << shown(plain);
  EXPECT_EQ(plain.out, "") << shown(plain);
  EXPECT_TRUE(plain.err.starts_with("fresnel: ")) << shown(plain);
  EXPECT_EQ(std::count(plain.err.begin(), plain.err.end(), '\n'), 1) << shown(plain);
  EXPECT_NE(plain.err.find(argument), std::string::npos) << argument << "\n" << shown(plain);
  EXPECT_NE(plain.err.find(fragment), std::string::npos) << fragment << "\n" << shown(plain);

  std::vector<std::string> with_json = words;
  with_json.insert(with_json.begin() + (words.empty() ? 0 : 1), "--json");
  const Outcome run = fresnel(with_json);
  EXPECT_EQ(run.code, code) << shown(run);
  EXPECT_EQ(run.err, "") << shown(run);
  Json document = run.json();
  ASSERT_TRUE(document.is_object() && document.contains("error")) << shown(run);
  const Json& error = document["error"];
  for (const char* field : {"argument", "given", "accepted", "message"})
    EXPECT_TRUE(error.contains(field) && error[field].is_string()) << field << "\n" << shown(run);
  EXPECT_NE(error["argument"].get<std::string>().find(argument), std::string::npos) << argument << "\n" << shown(run);
  EXPECT_NE(plain.err.find(error["message"].get<std::string>()), std::string::npos) << shown(run);
}

TEST(Refusal, Usage) {
  expect_refused({}, 2, "command", "attend");
  expect_refused({"atend"}, 2, "command", "nearest: attend");
  expect_refused({"frobnicate"}, 2, "command", "explain");
  expect_refused({"attend"}, 2, "CASE");
  expect_refused({"attend", "--chek", data_case("dense_small")}, 2, "--chek", "nearest: --check");
  expect_refused({"attend", data_case("dense_small"), "extra"}, 2, "arguments", "extra");
  expect_refused({"attend", data_case("dense_small"), "--kernel"}, 2, "--kernel", "nothing");
  expect_refused({"attend", data_case("dense_small"), "--check=7"}, 2, "--check");
  expect_refused({"attend", data_case("dense_small"), "--kernel", "cpu.flash", "--kernel", "cpu.naive"}, 2, "--kernel",
                 "more than once");
  expect_refused({"check", data_case("dense_small")}, 2, "RESULT");
  expect_refused({"check", data_case("dense_small"), "--problem", "b1 h1 q4 k4 d8 f32"}, 2, "CASE");
  expect_refused({"check", "a", "b", "--seed", "3"}, 2, "--seed", "--problem");
  expect_refused({"time"}, 2, "PROBLEM");
  expect_refused({"kernels", "--format", "yaml"}, 2, "--format", "markdown");
  expect_refused({"machine", "--cached", "--measure"}, 2, "--cached");
  expect_refused({"machine", "--cached"}, 2, "--cached", "fresnel machine");
}

TEST(Refusal, Threads) {
  for (const char* threads : {"0", "-1", "abc", "2.5", "", "99999999999999999999", "1000000"})
    expect_refused({"attend", data_case("dense_small"), "--threads", threads}, 2, "--threads", "whole number");
  expect_refused({"attend", data_case("dense_small"), "--threads=-3"}, 2, "--threads");
}

TEST(Refusal, Numbers) {
  const std::string problem = "b1 h1 q4 k4 d8 f32";
  for (const char* seconds : {"0", "-1", "nan", "inf", "0x10", "1e9", "1s"})
    expect_refused({"time", problem, "--seconds", seconds}, 2, "--seconds");
  for (const char* seed : {"-1", "x", "1.0", "18446744073709551616"})
    expect_refused({"check", "--problem", problem, "--seed", seed}, 2, "--seed");
}

TEST(Refusal, Devices) {
  for (const char* device : {"cuda", "cuda:0", "cuda:17", "webgpu"}) {
    expect_refused({"attend", data_case("dense_small"), "--device", device}, 3, "--device", "no such device here");
    expect_refused({"time", "b1 h1 q4 k4 d8 f32", "--device", device}, 3, "--device");
  }
  for (const char* device : {"gpu", "cuda:", "cuda:x", "CPU", ""})
    expect_refused({"attend", data_case("dense_small"), "--device", device}, 2, "--device", "cuda:N");
}

TEST(Refusal, Kernels) {
  expect_refused({"attend", data_case("dense_small"), "--kernel", "cpu.flush"}, 2, "--kernel", "nearest: cpu.flash");
  expect_refused({"explain", "b1 h1 q4 k4 d8 f32", "--kernel", "nothing.like.it"}, 2, "--kernel", "cpu.naive");
  expect_refused({"time", "b1 h1 q4 k4 d8 f32", "--kernel", "cpu.flash", "--kernel", "x"}, 2, "--kernel");
  const Outcome forced = fresnel({"attend", data_case("dense_small")}, {{"FRESNEL_KERNEL", "no.such"}});
  EXPECT_EQ(forced.code, 2) << shown(forced);
  EXPECT_NE(forced.err.find("FRESNEL_KERNEL: given 'no.such'"), std::string::npos) << shown(forced);
}

TEST(Refusal, ProblemLines) {
  expect_refused({"explain", "b1 h1 q4 k4 d8 f32 scalenan"}, 2, "problem", "scaleX");
  expect_refused({"explain", "b1 h1 q4 k4 d8 f32 w-1,0"}, 2, "problem", "w-1,0");
  expect_refused({"explain", "b1 h8/3 q4 k4 d8 f32"}, 2, "heads", "8");
  expect_refused({"explain", ""}, 2, "PROBLEM");
  expect_refused({"time", "b1 h1 q4 k4 d8 f32", "nonsense"}, 2, "problem", "nonsense");
  expect_refused({"check", "--problem", "b1 h1 q4 k4 d8 f32 causel"}, 2, "problem", "nearest: causal");
  expect_refused({"check", "--problem", "b1 h1 q4 k4 d8 f32", "--inputs", "nice"}, 2, "inputs", "normal");
}

TEST(Refusal, EveryRowRefuses) {
  const std::string wide = "b1 h1 q4 k4 d4096 f32";
  for (const auto& words : std::vector<std::vector<std::string>>{{"check", "--problem", wide}, {"time", wide}})
    expect_refused(words, 2, "head_dim", "4096");
  const Outcome plain = fresnel({"explain", wide});
  EXPECT_EQ(plain.code, 2) << shown(plain);
  const Outcome run = fresnel({"explain", wide, "--json"});
  EXPECT_EQ(run.code, 2) << shown(run);
  EXPECT_TRUE(run.json().contains("error")) << shown(run);
  EXPECT_GE(run.json()["rows"].size(), 2u) << shown(run);
  for (const Json& row : run.json()["rows"]) EXPECT_FALSE(row["chosen"].get<bool>()) << shown(run);
}

TEST(Refusal, FilesThatAreNoCases) {
  const Folder folder;
  expect_refused({"attend", folder.file("absent.safetensors")}, 2, "absent.safetensors");
  expect_refused({"attend", folder.path().string()}, 2, folder.path().string());
  expect_refused({"attend", "/dev/null"}, 2, "/dev/null");
  expect_refused({"attend", data_case("paged_basic")}, 2, "");
  write_bytes(folder.file("empty.safetensors"), "");
  expect_refused({"attend", folder.file("empty.safetensors")}, 2, "empty.safetensors");
  const std::string whole = read_bytes(data_case("dense_small"));
  for (const std::size_t length : {7u, 8u, 100u, 700u, 5000u}) {
    write_bytes(folder.file("cut.safetensors"), whole.substr(0, length));
    expect_refused({"attend", folder.file("cut.safetensors")}, 2, "cut.safetensors");
  }
  expect_refused({"check", data_case("dense_small"), folder.file("absent.safetensors")}, 2, "absent.safetensors");
  expect_refused({"check", data_case("dense_small"), data_case("dense_small")}, 2, "");
}

TEST(Refusal, CasesWithFaults) {
  struct Fault {
    std::function<void(TensorFile&)> plant;
    std::string argument;
  };
  const std::vector<Fault> faults{
      {[](TensorFile& file) { file.set_problem(R"({"casual": true})"); }, "casual"},
      {[](TensorFile& file) { file.set_problem(R"({"causal": 1})"); }, "causal"},
      {[](TensorFile& file) { file.set_problem(R"({"causal": true, "causal": false})"); }, "causal"},
      {[](TensorFile& file) { file.set_problem(R"({"window_size_left": -1})"); }, "window_size_left"},
      {[](TensorFile& file) { file.set_problem(R"({"softcap": 0})"); }, "softcap"},
      {[](TensorFile& file) { file.set_problem(R"({"softmax_scale": NaN})"); }, "problem"},
      {[](TensorFile& file) { file.set_problem(R"({"softmax_scale": 1e300})"); }, "softmax_scale"},
      {[](TensorFile& file) { file.set_problem("{"); }, "problem"},
      {[](TensorFile& file) {
         file.set_f32("q", {2, 4, 8});
       },
       "q"},
      {[](TensorFile& file) {
         file.set_f32("k", {1, 1, 6, 9});
       },
       "k"},
      {[](TensorFile& file) {
         file.set_f32("q", {1, 3, 4, 8}), file.set_f32("k", {1, 2, 6, 8}), file.set_f32("v", {1, 2, 6, 8});
       },
       "heads"},
      {[](TensorFile& file) {
         file.set("v", "F64", {1, 1, 6, 8}, std::string(6 * 8 * 8, '\0'));
       },
       "v"},
      {[](TensorFile& file) { file.remove("v"); }, "v"},
      {[](TensorFile& file) { file.set_f32("qq", {1}); }, "qq"},
      {[](TensorFile& file) {
         file.set_f32("expected_o", {1, 2, 4, 8});
       },
       "expected_o"},
      {[](TensorFile& file) { file.set("seqlens_k", "I32", {1}, std::string("\x07\0\0\0", 4)); }, "seqlens_k"},
      {[](TensorFile& file) { file.metadata["show"] = R"({"batch": 0, "head": 2, "query": 0})"; }, "show"},
  };
  const Folder folder;
  const std::string path = folder.file("case.safetensors");
  TensorFile::small_case().write(path);
  const Outcome sound = fresnel({"attend", path});
  ASSERT_EQ(sound.code, 0) << shown(sound);
  for (const Fault& fault : faults) {
    TensorFile file = TensorFile::small_case();
    fault.plant(file);
    file.write(path);
    SCOPED_TRACE(file.metadata.dump());
    expect_refused({"attend", path, "-o", folder.file("out.safetensors")}, 2, fault.argument);
    EXPECT_EQ(folder.contents(), std::vector<std::string>{"case.safetensors"});
  }
}

TEST(Refusal, RowsOutsideTheProblem) {
  const std::string path = data_case("dense_small");  // b1 h2 q8
  expect_refused({"attend", path, "--head", "2"}, 2, "--head", "from 0 to 1");
  expect_refused({"attend", path, "--query", "8"}, 2, "--query", "from 0 to 7");
  expect_refused({"attend", path, "--batch", "1"}, 2, "--batch", "0");
  expect_refused({"attend", path, "--query", "-1"}, 2, "--query");
  expect_refused({"attend", path, "--query", "last"}, 2, "--query");
}

TEST(Refusal, Outputs) {
  const Folder folder;
  const std::string path = data_case("dense_small");
  for (const char* name : {"out", "out.npy", "out.safetensors.txt"})
    expect_refused({"attend", path, "-o", folder.file(name)}, 2, "--output", ".safetensors");
  expect_refused({"attend", path, "-o", ""}, 2, "--output", ".safetensors");
  expect_refused({"attend", path, "-o", folder.file("absent/out.safetensors")}, 3, "out.safetensors");
  EXPECT_TRUE(folder.contents().empty());
  std::filesystem::create_directory(folder.path() / "d.safetensors");
  expect_refused({"attend", path, "-o", folder.file("d.safetensors")}, 3, "d.safetensors");
  EXPECT_EQ(folder.contents(), std::vector<std::string>{"d.safetensors"});

  const std::string copy = folder.file("case.safetensors");
  write_bytes(copy, read_bytes(path));
  expect_refused({"attend", copy, "-o", copy}, 2, "--output", "the case itself");
  EXPECT_EQ(read_bytes(copy), read_bytes(path));
}

TEST(Refusal, AnOutputThatCannotBePrintedIsAFailure) {
  const Outcome run = fresnel_into("/dev/full", {"kernels", "--json"});
  EXPECT_EQ(run.code, 3) << shown(run);
  EXPECT_NE(run.err.find("standard output"), std::string::npos) << shown(run);
}

TEST(Refusal, NothingFromAFileReachesTheTerminalRaw) {
  const Folder folder;
  TensorFile file = TensorFile::small_case();
  file.set_f32("q\x1b[2Jx", {1});
  file.write(folder.file("case.safetensors"));
  const Outcome run = fresnel({"attend", folder.file("case.safetensors")});
  EXPECT_EQ(run.code, 2) << shown(run);
  EXPECT_EQ(run.err.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace fresnel::test
