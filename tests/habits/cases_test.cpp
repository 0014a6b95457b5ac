// SPDX-License-Identifier: Apache-2.0
// Answers from elsewhere: every dense case file, computed by every row on every instruction set, is within the row's
// budget of the truth, and the truth is the file's own answer to far better than any budget.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "habits/habits.hpp"
#include "io/case_file.hpp"
#include "oracle/forward.hpp"

namespace fresnel::test {
namespace {

std::vector<std::filesystem::path> dense_cases() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(FRESNEL_TEST_DATA) / "cases"))
    if (entry.path().filename().string().rfind("dense_", 0) == 0) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

Answer empty_answer(const Case& given) {
  const View q = given.q.view(), v = given.v.view();
  return {{},
          HostTensor(q.dtype, {q.sizes[0], q.sizes[1], q.sizes[2], v.sizes[3]}),
          HostTensor(q.dtype == DType::f64 ? DType::f64 : DType::f32, {q.sizes[0], q.sizes[1], q.sizes[2]})};
}

/// The file's answers were computed in float64, the truth is at least as wide: sums of a few thousand terms stay within
/// 1e-12 of the largest value, or of 1.
void expect_agreement(const std::vector<double>& truth, std::span<const double> expected, const std::string& what) {
  ASSERT_EQ(truth.size(), expected.size()) << what;
  double largest_value = 1;
  for (const double value : expected)
    if (std::isfinite(value)) largest_value = std::max(largest_value, std::abs(value));
  for (std::size_t index = 0; index < truth.size(); ++index) {
    const bool same =
        truth[index] == expected[index] || std::abs(truth[index] - expected[index]) <= 1e-12 * largest_value;
    ASSERT_TRUE(same) << what << ": element " << index << " is " << truth[index] << ", the file says "
                      << expected[index];
  }
}

class DenseCase : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(DenseCase, TheTruthIsTheAnswerOfTheFile) {
  const Case given = read_case(GetParam()).value();
  Answer answer = empty_answer(given);
  const Problem problem = describe(given.options, given.inputs(), answer.outputs()).value();
  const Truth truth = reference(problem, given.inputs()).value();
  ASSERT_TRUE(given.expected_o.has_value());
  expect_agreement(truth.o, given.expected_o->elements<double>(), "o");
  if (given.expected_lse) expect_agreement(truth.lse, given.expected_lse->elements<double>(), "lse");
}

TEST_P(DenseCase, EveryRowIsWithinItsBudget) {
  const Case given = read_case(GetParam()).value();
  for (const Runner& runner : catalogue_runners()) {
    Answer answer = empty_answer(given);
    const Problem problem = describe(given.options, given.inputs(), answer.outputs()).value();
    if (!admits(runner.domain(), problem)) continue;
    const Plan plan = runner.plan(problem, 2).value();
    run_guarded(runner, plan, given.inputs(), answer.outputs(), {2, &default_executor()});
    EXPECT_TRUE(answer.o.guards_intact() && answer.lse->guards_intact()) << runner.name();
    EXPECT_EQ(judged(runner, plan, given.inputs(), answer.outputs()), "") << runner.name();
  }
}

INSTANTIATE_TEST_SUITE_P(Files, DenseCase, testing::ValuesIn(dense_cases()),
                         [](const auto& info) { return info.param.stem().string(); });

}  // namespace
}  // namespace fresnel::test
