// SPDX-License-Identifier: Apache-2.0
// The oracle's gradients against the slopes of its own forward (central differences in float64, one element at a time,
// every option), and against answers that other software computed.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "io/case_file.hpp"
#include "oracle/backward.hpp"
#include "oracle/sample.hpp"

namespace fresnel::test {
namespace {

/// A float64 problem with a loss: sum of dO o over all elements.
struct Slopes {
  Sample sample;
  HostTensor dout;

  explicit Slopes(const std::string& line)
      : sample(normal_sample(line, 7)),
        dout(DType::f64,
             {sample.problem.batch, sample.problem.heads_q, sample.problem.queries, sample.problem.value_dim}) {
    Numbers numbers(11);
    dout.fill([&](const Index&) { return numbers.normal(); });
  }
  [[nodiscard]] Inputs inputs() const {
    Inputs inputs = sample.inputs();
    inputs.dout = dout.view();
    return inputs;
  }
  [[nodiscard]] double loss() const {
    const auto executor = make_executor(1);
    long double sum = 0;
    for_each_true_row<long double>(sample.problem, sample.inputs(), *executor, [&](int, const auto& row) {
      for (std::size_t d = 0; d < row.o.size(); ++d)
        sum += row.o[d] *
               static_cast<long double>(dout.get({row.batch, row.head, row.query, static_cast<std::int64_t>(d)}));
    });
    return static_cast<double>(sum);
  }
  /// d loss / d element: the error of a central difference is step^2 / 6 times a third derivative, and 2^-52 / step.
  double slope(HostTensor& tensor, const Index& at, double step) {
    const double value = tensor.get(at);
    tensor.set(at, value + step);
    const double high = tensor.get(at), above = loss();
    tensor.set(at, value - step);
    const double low = tensor.get(at), below = loss();
    tensor.set(at, value);
    return (above - below) / (high - low);
  }
};

void expect_slopes(Slopes& slopes, HostTensor& tensor, const std::vector<double>& gradients, const char* name,
                   double step) {
  ASSERT_EQ(static_cast<std::int64_t>(gradients.size()), tensor.elements()) << name;
  std::size_t place = 0;
  tensor.for_each_index([&](const Index& at) {
    const double gradient = gradients[place++];
    EXPECT_NEAR(slopes.slope(tensor, at, step), gradient, 2e-7 * (1 + std::abs(gradient))) << name << print(at);
  });
}

class Differences : public testing::TestWithParam<const char*> {};

TEST_P(Differences, AreTheGradients) {
  Slopes slopes(GetParam());
  const auto found = reference_gradients(slopes.sample.problem, slopes.inputs());
  ASSERT_TRUE(found.ok()) << found.refusal().message();
  constexpr double step = 0x1p-14;
  expect_slopes(slopes, slopes.sample.q, found->dq, "dq", step);
  expect_slopes(slopes, slopes.sample.k, found->dk, "dk", step);
  expect_slopes(slopes, slopes.sample.v, found->dv, "dv", step);
  if (slopes.sample.slopes) expect_slopes(slopes, *slopes.sample.slopes, found->dalibi_slopes, "slopes", 0x1p-12);
}

INSTANTIATE_TEST_SUITE_P(
    Options, Differences,
    testing::Values("b1 h1 q3 k4 d3 f64", "b2 h4/2 q3 k5 d2/3 f64", "b1 h2 q4 k4 d2 f64 causal",
                    "b1 h1 q3 k5 d2 f64 causal topleft", "b1 h1 q5 k2 d2 f64 causal", "b1 h1 q4 k6 d2 f64 w1,1",
                    "b1 h2/1 q3 k4 d3 f64 cap1.5", "b1 h1 q3 k4 d2 f64 scale-0.5", "b2 h2 q3 k4 d2 f64 alibi",
                    "b2 h2 q3 k4 d2 f64 alibi:distance:batch", "b3 h1 q3 k5 d2 f64 causal lens",
                    "b2 h4/2 q4 k6 d2/3 f64 causal topleft w2,- cap2 scale0.7 alibi:batch lens bshd"),
    [](const auto& parameter) { return "case" + std::to_string(parameter.index); });

TEST(Gradients, OfEmptyRowsAndUnseenKeysAreZero) {
  Slopes slopes("b1 h1 q5 k3 d2 f64 causal");  // queries 0 and 1 see nothing
  slopes.dout.set({0, 0, 0, 0}, std::nan(""));
  slopes.sample.q.set({0, 0, 1, 1}, std::nan(""));
  const auto found = reference_gradients(slopes.sample.problem, slopes.inputs());
  ASSERT_TRUE(found.ok());
  for (std::size_t at = 0; at < 4; ++at) EXPECT_EQ(found->dq[at], 0);
  for (const double value : found->dk) EXPECT_TRUE(std::isfinite(value));
  Slopes unseen("b1 h1 q1 k3 d2 f64 causal topleft");  // keys 1 and 2 are seen by nobody
  unseen.sample.k.set({0, 0, 2, 0}, std::nan(""));
  unseen.sample.v.set({0, 0, 1, 1}, std::nan(""));
  const auto rest = reference_gradients(unseen.sample.problem, unseen.inputs());
  ASSERT_TRUE(rest.ok());
  for (std::size_t at = 2; at < 6; ++at) EXPECT_EQ(rest->dk[at] + rest->dv[at], 0);
  for (const double value : rest->dq) EXPECT_TRUE(std::isfinite(value));
}

TEST(Gradients, NeedAnOutputGradient) {
  const Sample sample = normal_sample("b1 h1 q2 k2 d2 f64");
  const auto refused = reference_gradients(sample.problem, sample.inputs());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.refusal().argument, "dout");
}

std::set<std::string> cases_with_gradients() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(FRESNEL_TEST_DATA "/cases"))
    if (entry.path().filename().string().starts_with("dense_")) names.insert(entry.path().stem().string());
  return names;
}

class GradientCase : public testing::TestWithParam<std::string> {};

/// Both computed in float64: every element within a few thousand roundings of the largest of its tensor.
void expect_close(const std::vector<double>& found, const std::optional<OwnedTensor>& expected, const char* name) {
  if (!expected) return;
  const auto values = expected->elements<double>();
  ASSERT_EQ(found.size(), values.size()) << name;
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  for (std::size_t at = 0; at < values.size(); ++at)
    ASSERT_NEAR(found[at], values[at], 1e-11 * largest) << name << " " << at;
}

TEST_P(GradientCase, AgreesWithIndependentSoftware) {
  const Result<Case> file = read_case(std::string(FRESNEL_TEST_DATA "/cases/") + GetParam() + ".safetensors");
  ASSERT_TRUE(file.ok()) << file.refusal().message();
  ASSERT_TRUE(file->dout && file->expected_dq && file->expected_dk && file->expected_dv);
  OwnedTensor o =
      OwnedTensor::zeros(file->q.dtype, {file->q.shape[0], file->q.shape[1], file->q.shape[2], file->v.shape[3]})
          .value();
  Inputs inputs = file->inputs();
  const Result<Problem> problem = describe(file->options, inputs, {o.mutable_view(), {}});
  ASSERT_TRUE(problem.ok()) << problem.refusal().message();
  inputs.dout = file->dout->view();
  const auto found = reference_gradients(*problem, inputs);
  ASSERT_TRUE(found.ok()) << found.refusal().message();
  expect_close(found->dq, file->expected_dq, "dq");
  expect_close(found->dk, file->expected_dk, "dk");
  expect_close(found->dv, file->expected_dv, "dv");
  expect_close(found->dalibi_slopes, file->expected_dalibi_slopes, "dalibi_slopes");
}

INSTANTIATE_TEST_SUITE_P(All, GradientCase, testing::ValuesIn(cases_with_gradients()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace fresnel::test
