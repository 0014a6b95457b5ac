// SPDX-License-Identifier: Apache-2.0
// Results: what is written is read, and what does not answer the problem is refused by name.
#include "io/results_file.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "io/raw_file.hpp"

namespace fresnel {
namespace {

using test::expect_refusal;
using test::RawTensor;

Problem small_problem(DType dtype = DType::f32) {
  Problem problem;
  problem.batch = 2;
  problem.heads_q = 4;
  problem.heads_kv = 2;
  problem.queries = 3;
  problem.keys = 5;
  problem.head_dim = 8;
  problem.value_dim = 6;
  problem.dtype = dtype;
  return problem;
}

Result<Results> parsed(const std::vector<RawTensor>& tensors, DType dtype = DType::f32) {
  return parse_results(test::raw_case({}, tensors), small_problem(dtype), "f");
}

TEST(ResultsFile, RoundTrip) {
  const test::TemporaryDirectory directory;
  std::vector<float> o(2 * 4 * 3 * 6), lse(2 * 4 * 3);
  std::iota(o.begin(), o.end(), 1.0f);
  std::iota(lse.begin(), lse.end(), -7.0f);
  const View o_view = View(o.data(), DType::f32, {2, 3, 4, 6}).transposed(1, 2);
  const View lse_view(lse.data(), DType::f32, {2, 4, 3});
  ASSERT_TRUE(write_results(directory / "r", o_view, lse_view, {{"kernel", "cpu.flash"}}));
  auto read = read_results(directory / "r", small_problem());
  ASSERT_TRUE(read) << read.refusal().message();
  EXPECT_EQ(read->metadata, (Metadata{{"kernel", "cpu.flash"}}));
  EXPECT_EQ(read->o.elements<float>()[6], o[4 * 6]) << "row 1 of head 0 lies one step of 4 heads further in memory";
  const Outputs outputs = read->outputs();
  EXPECT_EQ(outputs.o.sizes, (std::array<std::int64_t, 4>{2, 4, 3, 6}));
  ASSERT_TRUE(outputs.lse);
  EXPECT_EQ(static_cast<const float*>(outputs.lse->data)[23], lse[23]);

  ASSERT_TRUE(write_results(directory / "r", o_view, std::nullopt));
  read = read_results(directory / "r", small_problem());
  ASSERT_TRUE(read) << read.refusal().message();
  EXPECT_FALSE(read->lse);
  EXPECT_FALSE(read->outputs().lse);
}

TEST(ResultsFile, TakesEveryDtypeWithItsLse) {
  EXPECT_TRUE(parsed({{"o", "F64", {2, 4, 3, 6}}, {"lse", "F64", {2, 4, 3}}}, DType::f64));
  EXPECT_TRUE(parsed({{"o", "F16", {2, 4, 3, 6}}, {"lse", "F32", {2, 4, 3}}}, DType::f16));
  EXPECT_TRUE(parsed({{"lse", "F32", {2, 4, 3}}, {"o", "BF16", {2, 4, 3, 6}}}, DType::bf16));
}

TEST(ResultsFile, RefusesByName) {
  const RawTensor o{"o", "F32", {2, 4, 3, 6}};
  expect_refusal(parsed({}), "o", "no such tensor", "tensor o");
  expect_refusal(parsed({{"lse", "F32", {2, 4, 3}}}), "o", "no such tensor", "tensor o");
  expect_refusal(parsed({{"o", "F64", {2, 4, 3, 6}}}), "o", "f64 [2,4,3,6]", "f32 [B=2,Hq=4,Sq=3,Dv=6]");
  expect_refusal(parsed({o}, DType::bf16), "o", "f32 [2,4,3,6]", "bf16 [B=2");
  expect_refusal(parsed({{"o", "F32", {2, 3, 4, 6}}}), "o", "[2,3,4,6]", "[B=2,Hq=4,Sq=3,Dv=6]");
  expect_refusal(parsed({{"o", "F32", {2, 4, 3, 8}}}), "o", "[2,4,3,8]", "Dv=6");
  expect_refusal(parsed({o, {"lse", "F64", {2, 4, 3}}}), "lse", "f64", "f32 [B=2,Hq=4,Sq=3]");
  expect_refusal(parsed({o, {"lse", "F32", {2, 3, 4}}}), "lse", "[2,3,4]", "[B=2,Hq=4,Sq=3]");
  expect_refusal(parsed({o, {"expected_o", "F64", {2, 4, 3, 6}}}), "expected_o", "an unknown tensor name", "o, lse");
  expect_refusal(parsed({o, {"out", "F32", {1}}}), "out", "an unknown tensor name", "o, lse");
  expect_refusal(parsed({o, {"dq", "F32", {2, 4, 3, 8}}}), "dq", "a problem without dout", "o, lse");
  expect_refusal(parsed({o, {"dbias", "F32", {1}}}), "dbias", "not supported yet", "o, lse", Fault::unsupported);
}

TEST(ResultsFile, TakesGradientsThatWereAskedFor) {
  Problem problem = small_problem();
  problem.grad = true;
  const auto parsed_with = [&](std::vector<RawTensor> tensors) {
    tensors.insert(tensors.begin(), {"o", "F32", {2, 4, 3, 6}});
    return parse_results(test::raw_case({}, tensors), problem, "f");
  };
  const RawTensor dq{"dq", "F32", {2, 4, 3, 8}}, dk{"dk", "F32", {2, 2, 5, 8}}, dv{"dv", "F32", {2, 2, 5, 6}};
  auto all = parsed_with({dq, dk, dv});
  ASSERT_TRUE(all) << all.refusal().message();
  const Outputs outputs = all->outputs();
  EXPECT_TRUE(outputs.dq && outputs.dk && outputs.dv);
  EXPECT_FALSE(outputs.dalibi_slopes);
  EXPECT_TRUE(parsed_with({dk}));
  expect_refusal(parsed_with({{"dq", "F32", {2, 4, 3, 6}}}), "dq", "[2,4,3,6]", "D=8");
  expect_refusal(parsed_with({{"dk", "F32", {2, 4, 5, 8}}}), "dk", "[2,4,5,8]", "Hkv=2");
  expect_refusal(parsed_with({{"dv", "F16", {2, 2, 5, 6}}}), "dv", "f16", "f32 [B=2");
  expect_refusal(parsed_with({{"dalibi_slopes", "F32", {4}}}), "dalibi_slopes", "without alibi_slopes", "there");
  problem.alibi_slopes = AlibiSlopes::per_head;
  EXPECT_TRUE(parsed_with({{"dalibi_slopes", "F32", {4}}}));
  expect_refusal(parsed_with({{"dalibi_slopes", "F32", {2, 4}}}), "dalibi_slopes", "[2,4]", "[Hq=4]");
}

}  // namespace
}  // namespace fresnel
