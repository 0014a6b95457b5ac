// SPDX-License-Identifier: Apache-2.0
// The oracle against answers that other software computed in float64: every dense case of tests/data/cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "fresnel/executor.hpp"
#include "io/case_file.hpp"
#include "oracle/forward.hpp"

namespace fresnel::test {
namespace {

/// How far two honest float64 computations of a row may be apart, to first order: every score off by its sum's
/// roundings and a few more, every weight by its score's error and those of exp, both sums by one rounding for each
/// key.
struct Tolerance {
  double o = 0, lse = 0;
};

Tolerance tolerance_of(const RowFacts& facts) {
  constexpr double u = 0x1p-53;
  double exponent = 0;
  for (std::size_t key = 0; key < facts.x.size(); ++key) {
    const double size = std::abs(facts.max) + std::abs(facts.x[key]);
    const double additive = facts.additive.empty() ? 0 : std::abs(facts.additive[key]);
    exponent =
        std::max(exponent, u * (static_cast<double>(facts.head_dim + 4) * std::abs(facts.scale) * facts.products[key] +
                                4 * (size + additive) + 4));
  }
  const double sums = u * static_cast<double>(facts.x.size() + 4);
  // Two computations, each with a numerator and a denominator that are off.
  return {4 * (exponent + sums) * facts.values_bound, 2 * (exponent + sums + 2 * u * std::abs(facts.max))};
}

template <class Real>
void compare(const Case& file, const Problem& problem) {
  const auto expected_o = file.expected_o->elements<double>();
  const auto expected_lse = file.expected_lse->elements<double>();
  const auto executor = make_executor(1);
  std::int64_t rows = 0;
  double largest_tolerance = 0;
  for_each_true_row<Real>(problem, file.inputs(), *executor, [&](int, const TrueRow<Real>& row) {
    Tolerance tolerance;
    if (!row.keys.empty()) tolerance = tolerance_of(row.facts);
    largest_tolerance = std::max(largest_tolerance, tolerance.o);
    const auto at = static_cast<std::size_t>((row.batch * problem.heads_q + row.head) * problem.queries + row.query);
    ++rows;
    if (row.keys.empty()) {
      EXPECT_EQ(expected_lse[at], -std::numeric_limits<double>::infinity());
    } else {
      EXPECT_NEAR(static_cast<double>(row.lse), expected_lse[at], tolerance.lse) << "row " << at;
    }
    for (std::size_t d = 0; d < row.o.size(); ++d)
      EXPECT_NEAR(static_cast<double>(row.o[d]), expected_o[at * row.o.size() + d], tolerance.o)
          << "row " << at << ", column " << d;
  });
  EXPECT_EQ(rows, problem.batch * problem.heads_q * problem.queries);
  EXPECT_LT(largest_tolerance, 1e-9);  // scores of thousands; below 1e-11 elsewhere
}

std::set<std::string> dense_cases() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(FRESNEL_TEST_DATA "/cases"))
    if (entry.path().filename().string().starts_with("dense_")) names.insert(entry.path().stem().string());
  return names;
}

class DenseCase : public testing::TestWithParam<std::string> {};

TEST_P(DenseCase, AgreesWithIndependentSoftware) {
  const Result<Case> file = read_case(std::string(FRESNEL_TEST_DATA "/cases/") + GetParam() + ".safetensors");
  ASSERT_TRUE(file.ok()) << file.refusal().message();
  ASSERT_TRUE(file->expected_o && file->expected_lse);
  const std::int64_t sizes[] = {file->q.shape[0], file->q.shape[1], file->q.shape[2], file->v.shape[3]};
  OwnedTensor o = OwnedTensor::zeros(file->q.dtype, {sizes[0], sizes[1], sizes[2], sizes[3]}).value();
  const Result<Problem> problem = describe(file->options, file->inputs(), {o.mutable_view(), {}});
  ASSERT_TRUE(problem.ok()) << problem.refusal().message();
  const Status accepted = accept(*problem, file->inputs());
  ASSERT_TRUE(accepted.ok()) << accepted.refusal().message();
  if (problem->dtype == DType::f64) {
    compare<long double>(*file, *problem);
  } else {
    compare<double>(*file, *problem);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DenseCase, testing::ValuesIn(dense_cases()),
                         [](const auto& parameter) { return parameter.param; });

TEST(DenseCases, AreAllThere) { EXPECT_GE(dense_cases().size(), 19u); }

}  // namespace
}  // namespace fresnel::test
