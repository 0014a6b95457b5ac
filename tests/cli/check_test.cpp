// SPDX-License-Identifier: Apache-2.0
// `fresnel check`: anybody's result for a case, and seeded problems. A judge that never says WRONG is no judge, so most
// of these tests tamper with a good result and demand that the one changed value is found and located.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cli/program.hpp"
#include "cli/tensor_file.hpp"
#include "inputs/inputs.hpp"

namespace fresnel::test {
namespace {

/// A result of our own for a case, ready to be tampered with.
TensorFile result_of(const Folder& folder, const std::string& name) {
  const std::string path = folder.file("result.safetensors");
  const Outcome run = fresnel({"attend", data_case(name), "-o", path});
  EXPECT_EQ(run.code, 0) << shown(run);
  return TensorFile::read(path);
}

void change(std::string& bytes, std::size_t index, float value) {
  std::memcpy(bytes.data() + index * sizeof value, &value, sizeof value);
}

float at(const std::string& bytes, std::size_t index) {
  float value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

TEST(Check, AGoodResultIsRight) {
  const Folder folder;
  result_of(folder, "dense_small").write(folder.file("result.safetensors"));
  const Outcome run = fresnel({"check", data_case("dense_small"), folder.file("result.safetensors")});
  EXPECT_EQ(run.code, 0) << shown(run);
  for (const char* word :
       {"output", "values", "wrong", "of budget", "of probable", "where", "256", "lse", "RIGHT", "default"})
    EXPECT_NE(run.out.find(word), std::string::npos) << word << shown(run);
}

TEST(Check, ATamperedGradientIsFoundWhereItIs) {
  const Folder folder;
  const std::string path = folder.file("result.safetensors");
  // dense_small: k is [1, 2, 8, 16] like q and v; element [0, 1, 3, 5] is number (8 + 3) 16 + 5.
  constexpr std::size_t index = (8 + 3) * 16 + 5;
  for (const char* gradient : {"dq", "dk", "dv"}) {
    TensorFile file = result_of(folder, "dense_small");
    change(file.bytes_of(gradient), index, at(file.bytes_of(gradient), index) + 1e-2f);
    file.write(path);
    const Outcome run = fresnel({"check", data_case("dense_small"), path, "--json"});
    EXPECT_EQ(run.code, 1) << shown(run);
    Json outputs = run.json()["outputs"];
    EXPECT_EQ(outputs["o"]["mismatches"], 0);
    EXPECT_EQ(outputs[gradient]["mismatches"], 1) << shown(run);
    EXPECT_EQ(outputs[gradient]["at"], Json({0, 1, 3, 5}));
  }
}

TEST(Check, SeededGradientsAreJudgedEachPassByItsOwnRow) {
  const std::string problem = "b2 h4/2 q17 k33 d24/40 bf16 causal w16,- cap5 alibi lens bshd grad";
  const Outcome run = fresnel({"check", "--problem", problem, "--inputs", "uniform", "--seed", "7", "--json"});
  EXPECT_EQ(run.code, 0) << shown(run);
  Json json = run.json();
  EXPECT_EQ(json["kernel"], "cpu.flash");
  EXPECT_EQ(json["backward_kernel"], "cpu.reference_backward");
  EXPECT_EQ(json["roundings"]["name"], "cpu.flash");
  EXPECT_EQ(json["roundings_backward"]["name"], "cpu.reference_backward");
  EXPECT_TRUE(json["guards_intact"].get<bool>());
  EXPECT_EQ(json["outputs"]["o"]["count"], 2 * 4 * 17 * 40);
  EXPECT_EQ(json["outputs"]["dq"]["count"], 2 * 4 * 17 * 24);
  EXPECT_EQ(json["outputs"]["dk"]["count"], 2 * 2 * 33 * 24);
  EXPECT_EQ(json["outputs"]["dv"]["count"], 2 * 2 * 33 * 40);
  EXPECT_EQ(json["outputs"]["dalibi_slopes"]["count"], 4);
  const Outcome table = fresnel({"check", "--problem", problem});
  EXPECT_EQ(table.code, 0) << shown(table);
  for (const char* word : {"cpu.flash, gradients cpu.reference_backward", "dq", "dalibi_slopes", "RIGHT"})
    EXPECT_NE(table.out.find(word), std::string::npos) << word << shown(table);
}

TEST(Check, AKernelForcedOnOnePassIsInTheCommandThatRunsItAgain) {
  for (const auto& [forced, forward] : {std::pair("cpu.naive", "cpu.naive"), {"cpu.reference_backward", "cpu.flash"}}) {
    Json json = fresnel({"check", "--problem", "b1 h1 q5 k9 d8 f32 grad", "--kernel", forced, "--json"}).json();
    EXPECT_EQ(json["kernel"], forward);
    EXPECT_EQ(json["backward_kernel"], "cpu.reference_backward");
    EXPECT_NE(json["command"].get<std::string>().find(std::string("--kernel ") + forced), std::string::npos);
  }
}

TEST(Check, SeededGradientsOfEveryKindOfInputs) {
  for (const InputKind& kind : input_kinds()) {
    const Outcome run = fresnel({"check", "--problem", "b2 h2/1 q19 k37 d16 f32 causal lens grad", "--inputs",
                                 std::string(kind.name), "--json"});
    EXPECT_EQ(run.code, 0) << kind.name << shown(run);
  }
}

TEST(Check, AWrongForwardIsWrongBesideItsGradients) {
  const Outcome run =
      fresnel({"check", "--problem", "b1 h1 q8 k32 d32 f32 grad", "--kernel", "control.base_two_lse", "--json"});
  EXPECT_EQ(run.code, 1) << shown(run);
  EXPECT_EQ(run.json()["outputs"]["lse"]["mismatches"], 8) << shown(run);
  EXPECT_GT(run.json()["outputs"]["dq"]["mismatches"], 0) << "gradients that were made from it";
}

TEST(Check, OneTamperedValueIsFoundWhereItIs) {
  const Folder folder;
  const std::string path = folder.file("result.safetensors");
  // dense_small: o is [1, 2, 8, 16]; element [0, 1, 3, 5] is number (8 + 3) 16 + 5.
  constexpr std::size_t index = (8 + 3) * 16 + 5;
  TensorFile file = result_of(folder, "dense_small");
  change(file.bytes_of("o"), index, at(file.bytes_of("o"), index) + 1e-3f);
  file.write(path);
  const Outcome run = fresnel({"check", data_case("dense_small"), path, "--json"});
  EXPECT_EQ(run.code, 1) << shown(run);
  EXPECT_EQ(run.err, "");
  Json json = run.json();
  EXPECT_FALSE(json["ok"].get<bool>());
  EXPECT_EQ(json["outputs"]["o"]["count"], 256);
  EXPECT_EQ(json["outputs"]["o"]["mismatches"], 1);
  EXPECT_EQ(json["outputs"]["o"]["at"], Json({0, 1, 3, 5}));
  EXPECT_NEAR(json["outputs"]["o"]["max_error"].get<double>(), 1e-3, 1e-5);
  EXPECT_GT(json["outputs"]["o"]["max_share"].get<double>(), 1);
  EXPECT_EQ(json["outputs"]["lse"]["mismatches"], 0);
  const Outcome plain = fresnel({"check", data_case("dense_small"), path});
  EXPECT_EQ(plain.code, 1);
  EXPECT_NE(plain.out.find("[0, 1, 3, 5]"), std::string::npos) << shown(plain);
  EXPECT_NE(plain.out.find("WRONG"), std::string::npos) << shown(plain);
}

TEST(Check, LseIsJudgedToo) {
  const Folder folder;
  const std::string path = folder.file("result.safetensors");
  TensorFile file = result_of(folder, "dense_small");
  std::string& lse = file.bytes_of("lse");
  change(lse, 9, at(lse, 9) / std::log(2.0f));  // base 2
  file.write(path);
  Json json = fresnel({"check", data_case("dense_small"), path, "--json"}).json();
  EXPECT_EQ(json["outputs"]["o"]["mismatches"], 0);
  EXPECT_EQ(json["outputs"]["lse"]["mismatches"], 1);
  EXPECT_EQ(json["outputs"]["lse"]["at"], Json({0, 1, 1}));
  file.remove("lse");
  file.write(path);
  const Outcome without = fresnel({"check", data_case("dense_small"), path, "--json"});
  EXPECT_EQ(without.code, 0) << shown(without);
  EXPECT_FALSE(without.json()["outputs"].contains("lse"));
}

TEST(Check, NaNIsWrongAndPrintedAsAString) {
  const Folder folder;
  const std::string path = folder.file("result.safetensors");
  TensorFile file = result_of(folder, "dense_small");
  change(file.bytes_of("o"), 0, std::numeric_limits<float>::quiet_NaN());
  file.write(path);
  const Outcome run = fresnel({"check", data_case("dense_small"), path, "--json"});
  EXPECT_EQ(run.code, 1) << shown(run);
  Json o = run.json()["outputs"]["o"];
  EXPECT_EQ(o["mismatches"], 1);
  EXPECT_EQ(o["max_share"], "inf");
  EXPECT_EQ(o["max_error"], "inf");
}

TEST(Check, RoundingsAreNamed) {
  const Folder folder;
  const std::string path = folder.file("result.safetensors");
  result_of(folder, "dense_bf16").write(path);
  for (const char* roundings : {"default", "cpu.flash", "cpu.naive"}) {
    const Outcome run = fresnel({"check", data_case("dense_bf16"), path, "--roundings", roundings, "--json"});
    EXPECT_EQ(run.code, 0) << shown(run);
    EXPECT_EQ(run.json()["roundings"]["name"], roundings) << shown(run);
  }
  const Outcome unknown = fresnel({"check", data_case("dense_bf16"), path, "--roundings", "cpu.flesh", "--json"});
  EXPECT_EQ(unknown.code, 2) << shown(unknown);
  EXPECT_EQ(unknown.json()["error"]["nearest"], "cpu.flash") << shown(unknown);
}

TEST(Check, AResultForAnotherCaseIsRefused) {
  const Folder folder;
  const std::string path = folder.file("result.safetensors");
  TensorFile file = result_of(folder, "dense_small");
  EXPECT_EQ(fresnel({"check", data_case("dense_gqa"), path}).code, 2);
  file.remove("o");
  file.write(path);
  EXPECT_EQ(fresnel({"check", data_case("dense_small"), path}).code, 2);
  file.set_f32("o", {1, 2, 8, 16});
  file.set_f32("dq", {1, 2, 8, 15});
  file.write(path);
  EXPECT_EQ(fresnel({"check", data_case("dense_small"), path}).code, 2);
}

TEST(Check, SeededProblems) {
  const std::string problem = "b2 h4/2 q33 k65 d24/40 bf16 causal w16,- cap5 alibi lens bshd";
  for (const char* kernel : {"cpu.flash", "cpu.naive"}) {
    const Outcome run = fresnel({"check", "--problem", problem, "--inputs", "uniform", "--seed", "7", "--kernel",
                                 kernel, "--threads", "3", "--json"});
    EXPECT_EQ(run.code, 0) << shown(run);
    Json json = run.json();
    EXPECT_TRUE(json["ok"].get<bool>()) << shown(run);
    EXPECT_EQ(json["kernel"], kernel);
    EXPECT_EQ(json["problem"], problem);
    EXPECT_TRUE(json["guards_intact"].get<bool>());
    EXPECT_EQ(json["command"], "fresnel check --problem '" + problem + "' --inputs uniform --seed 7 --kernel " +
                                   kernel + " --threads 3");
    EXPECT_EQ(json["outputs"]["o"]["count"], 2 * 4 * 33 * 40);
  }
}

TEST(Check, WhatTheCommandSaysRunsAgain) {
  const Outcome first =
      fresnel({"check", "--problem", "b1 h1 q5 k9 d8 f32", "--seed", "18446744073709551615", "--json"});
  ASSERT_EQ(first.code, 0) << shown(first);
  const Outcome second = fresnel(
      {"check", "--problem", "b1 h1 q5 k9 d8 f32", "--inputs", "normal", "--seed", "18446744073709551615", "--json"});
  EXPECT_EQ(first.json()["outputs"], second.json()["outputs"]);
}

TEST(Check, WithoutLse) {
  const Outcome run = fresnel({"check", "--problem", "b1 h1 q5 k9 d8 f32 nolse", "--json"});
  EXPECT_EQ(run.code, 0) << shown(run);
  EXPECT_FALSE(run.json()["outputs"].contains("lse")) << shown(run);
}

}  // namespace
}  // namespace fresnel::test
