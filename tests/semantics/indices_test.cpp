// SPDX-License-Identifier: Apache-2.0
// check_indices: every element of the index arrays and slopes, the first and the last included, and arrays that do not
// fit the problem. Device arrays must not be read: their addresses here are invented.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "fresnel/plan.hpp"

namespace fresnel {
namespace {

Problem parsed(const char* line) {
  const Result<Problem> problem = parse_problem(line);
  EXPECT_TRUE(problem.ok()) << line;
  return problem ? *problem : Problem{};
}

void expect_refused(const Problem& problem, const Inputs& inputs, const std::string& argument, const std::string& given,
                    const std::string& accepted, const std::string& nearest = "") {
  const Status status = check_indices(problem, inputs);
  ASSERT_FALSE(status.ok()) << argument << " " << given;
  EXPECT_EQ(status.refusal().argument, argument) << status.refusal().message();
  EXPECT_NE(status.refusal().given.find(given), std::string::npos) << status.refusal().message();
  EXPECT_NE(status.refusal().accepted.find(accepted), std::string::npos) << status.refusal().message();
  EXPECT_EQ(status.refusal().nearest, nearest) << status.refusal().message();
}

TEST(CheckIndices, LengthsLieWithinTheKeys) {
  const Problem problem = parsed("b4 h2 q3 k9 d8 f32 lens");
  std::array<std::int32_t, 4> lengths{0, 9, 5, 1};
  Inputs inputs;
  inputs.seqlens_k = View{lengths.data(), DType::i32, {4}};
  EXPECT_TRUE(check_indices(problem, inputs).ok());
  for (std::size_t b = 0; b < 4; ++b) {
    const std::string argument = "seqlens_k[" + std::to_string(b) + "]";
    const std::int32_t good = lengths[b];
    lengths[b] = 10;
    expect_refused(problem, inputs, argument, "10", "a key count from 0 to 9", "9");
    lengths[b] = -1;
    expect_refused(problem, inputs, argument, "-1", "a key count from 0 to 9", "0");
    lengths[b] = INT32_MIN;
    expect_refused(problem, inputs, argument, "-2147483648", "a key count from 0 to 9", "0");
    lengths[b] = good;
  }
}

TEST(CheckIndices, LongKeysTakeAnyLength) {
  std::array<std::int32_t, 1> lengths{INT32_MAX};
  Inputs inputs;
  inputs.seqlens_k = View{lengths.data(), DType::i32, {1}, {-7}};  // the stride of a length-1 axis is ignored
  EXPECT_TRUE(check_indices(parsed("b1 h1 q1 k4294967296 d1 f32 lens"), inputs).ok());
}

TEST(CheckIndices, SlopesAreFinite) {
  std::array<float, 6> slopes{0.5f, -0.f, 1e30f, -2.f, 1e-44f, 1.f};
  Inputs inputs;
  inputs.alibi_slopes = View{slopes.data(), DType::f32, {2, 3}};
  const Problem per_batch = parsed("b2 h3 q3 k9 d8 f32 alibi:batch");
  EXPECT_TRUE(check_indices(per_batch, inputs).ok());
  for (std::size_t i = 0; i < 6; ++i) {
    const float good = slopes[i];
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      slopes[i] = bad;
      expect_refused(per_batch, inputs, "alibi_slopes[" + std::to_string(i / 3) + "," + std::to_string(i % 3) + "]",
                     std::isnan(bad) ? "nan" : "inf", "a finite number");
    }
    slopes[i] = good;
  }
  slopes[1] = std::numeric_limits<float>::quiet_NaN();
  inputs.alibi_slopes = View{slopes.data(), DType::f32, {3}};
  expect_refused(parsed("b2 h3 q3 k9 d8 f32 alibi"), inputs, "alibi_slopes[1]", "nan", "a finite number");
}

TEST(CheckIndices, SlopeStridesAreFollowed) {
  std::array<float, 10> slopes{};
  slopes.fill(std::numeric_limits<float>::quiet_NaN());
  slopes[0] = slopes[1] = slopes[7] = slopes[8] = 1;  // rows of two, seven apart, NaN between
  Inputs inputs;
  inputs.alibi_slopes = View{slopes.data(), DType::f32, {2, 2}, {7, 1}};
  const Problem problem = parsed("b2 h2 q3 k9 d8 f32 alibi:batch");
  EXPECT_TRUE(check_indices(problem, inputs).ok());
  inputs.alibi_slopes->strides[0] = 0;
  EXPECT_TRUE(check_indices(problem, inputs).ok());
  inputs.alibi_slopes->data = slopes.data() + 7;
  inputs.alibi_slopes->strides[0] = -7;
  EXPECT_TRUE(check_indices(problem, inputs).ok());
  inputs.alibi_slopes->strides[0] = -6;
  expect_refused(problem, inputs, "alibi_slopes[1,1]", "nan", "a finite number");
}

TEST(CheckIndices, ArraysFitTheProblem) {
  std::array<std::int32_t, 2> lengths{1, 2};
  std::array<float, 4> slopes{1, 1, 1, 1};
  Inputs none, with_lengths, with_slopes;
  with_lengths.seqlens_k = View{lengths.data(), DType::i32, {2}};
  with_slopes.alibi_slopes = View{slopes.data(), DType::f32, {2, 2}};
  const Problem plain = parsed("b2 h2 q3 k9 d8 f32"), lens = parsed("b2 h2 q3 k9 d8 f32 lens"),
                alibi = parsed("b2 h2 q3 k9 d8 f32 alibi"), per_batch = parsed("b2 h2 q3 k9 d8 f32 alibi:batch");
  EXPECT_TRUE(check_indices(plain, none).ok());
  expect_refused(lens, none, "seqlens_k", "nothing", "the array that the problem has");
  expect_refused(plain, with_lengths, "seqlens_k", "an array that the problem does not have", "nothing");
  expect_refused(per_batch, none, "alibi_slopes", "nothing", "the array that the problem has");
  expect_refused(plain, with_slopes, "alibi_slopes", "an array that the problem does not have", "nothing");
  EXPECT_TRUE(check_indices(per_batch, with_slopes).ok());
  expect_refused(alibi, with_slopes, "alibi_slopes", "rank 2 [2,2]", "rank 1 [heads], as the problem says");
  with_slopes.alibi_slopes = View{slopes.data(), DType::f32, {2}};
  expect_refused(per_batch, with_slopes, "alibi_slopes", "rank 1 [2]", "rank 2 [batch, heads], as the problem says");
  expect_refused(parsed("b3 h2 q3 k9 d8 f32 lens"), with_lengths, "seqlens_k", "batch = 2", "batch = 3", "3");
  with_lengths.seqlens_k->dtype = DType::f32;
  expect_refused(lens, with_lengths, "seqlens_k", "f32", "i32", "i32");
  with_lengths.seqlens_k = View{nullptr, DType::i32, {2}};
  expect_refused(lens, with_lengths, "seqlens_k", "a null pointer", "an address");
}

TEST(CheckIndices, DeviceArraysAreNotRead) {
  Inputs inputs;
  inputs.seqlens_k = View{reinterpret_cast<const void*>(0x1000), DType::i32, {2}};
  inputs.alibi_slopes = View{reinterpret_cast<const void*>(0x2000), DType::f32, {2}};
  inputs.seqlens_k->device = inputs.alibi_slopes->device = Device::cuda;
  EXPECT_TRUE(check_indices(parsed("b2 h2 q3 k9 d8 f32 alibi lens"), inputs).ok());
}

TEST(CheckIndices, EmptyArrays) {
  Inputs inputs;
  inputs.seqlens_k = View{nullptr, DType::i32, {0}};
  inputs.alibi_slopes = View{nullptr, DType::f32, {0, 2}};
  EXPECT_TRUE(check_indices(parsed("b0 h2 q3 k9 d8 f32 alibi:batch lens"), inputs).ok());
}

}  // namespace
}  // namespace fresnel
