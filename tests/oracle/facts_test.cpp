// SPDX-License-Identifier: Apache-2.0
// The facts of a row, from which budgets are made: each against its own definition, on rows that do not begin at key 0.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <type_traits>

#include "fresnel/executor.hpp"
#include "oracle/forward.hpp"
#include "oracle/sample.hpp"

namespace fresnel::test {
namespace {

template <class Real>
void expect_facts(const Sample& sample, const TrueRow<Real>& row) {
  const Problem& problem = sample.problem;
  const RowFacts& facts = row.facts;
  const std::int64_t kv_head = row.head / problem.group();
  const double scale = 1 / std::sqrt(static_cast<double>(problem.head_dim)), cap = *problem.options.softcap;
  const std::int64_t position = row.query + problem.keys - problem.queries;
  ASSERT_EQ(facts.x.size(), static_cast<std::size_t>(row.keys.size()));
  EXPECT_EQ(facts.dtype, problem.dtype);
  EXPECT_EQ(facts.head_dim, problem.head_dim);
  EXPECT_EQ(facts.first_key, row.keys.first);
  EXPECT_NEAR(facts.scale, scale, 1e-16);
  EXPECT_EQ(facts.softcap, cap);
  constexpr double truth_unit = std::is_same_v<Real, double> ? 0x1p-53 : static_cast<double>(LDBL_EPSILON / 2);
  double query_size = 0, sum = 0, bound = 0;
  for (std::int64_t d = 0; d < problem.head_dim; ++d)
    query_size += std::abs(sample.q.get({row.batch, row.head, row.query, d}));
  EXPECT_EQ(facts.truth_unit, truth_unit);
  EXPECT_NEAR(facts.query_size, query_size, 1e-13);
  for (std::size_t at = 0; at < facts.x.size(); ++at) {
    const std::int64_t j = row.keys.first + static_cast<std::int64_t>(at);
    double dot = 0, products = 0, key_size = 0;
    for (std::int64_t d = 0; d < problem.head_dim; ++d) {
      const double k = sample.k.get({row.batch, kv_head, j, d});
      const double product = sample.q.get({row.batch, row.head, row.query, d}) * k;
      dot += product;
      products += std::abs(product);
      key_size += std::abs(k);
    }
    const double additive = sample.slopes->get({row.head}) * static_cast<double>(j - position);
    EXPECT_NEAR(facts.uncapped[at], scale * dot, 1e-13);
    EXPECT_NEAR(facts.products[at], products, 1e-12);
    EXPECT_NEAR(facts.key_sizes[at], key_size, 1e-13);
    EXPECT_NEAR(facts.additive[at], additive, 1e-14);
    EXPECT_NEAR(facts.max + facts.x[at], cap * std::tanh(scale * dot / cap) + additive, 1e-13);
    EXPECT_LE(facts.x[at], 0);
    sum += std::exp(facts.x[at]);
    for (std::int64_t d = 0; d < problem.value_dim; ++d) {
      const double value = sample.v.get({row.batch, kv_head, j, d});
      EXPECT_EQ(facts.values[static_cast<std::int64_t>(at) * facts.value_pitch + d], value);
      bound = std::max(bound, std::abs(value));
    }
  }
  EXPECT_NEAR(facts.log_sum, std::log(sum), 1e-14);
  EXPECT_NEAR(static_cast<double>(row.lse), facts.max + facts.log_sum, 1e-14);
  EXPECT_EQ(facts.values_bound, bound);
  EXPECT_EQ(facts.value_pitch % RowFacts::value_block, 0);
  for (std::size_t d = 0; d < facts.o.size(); ++d) EXPECT_EQ(facts.o[d], static_cast<double>(row.o[d]));
}

TEST(Facts, AreWhatTheySay) {
  const auto executor = make_executor(1);
  const Sample narrow = normal_sample("b2 h4/2 q3 k30 d11/5 f32 w6,1 cap3 alibi");
  std::int64_t rows = 0;
  for_each_true_row<double>(narrow.problem, narrow.inputs(), *executor, [&](int, const TrueRow<double>& row) {
    EXPECT_GT(row.keys.first, 0);
    expect_facts(narrow, row);
    ++rows;
  });
  EXPECT_EQ(rows, 2 * 4 * 3);
  const Sample wide = normal_sample("b2 h4/2 q3 k30 d11/5 f64 w6,1 cap3 alibi");
  for_each_true_row<long double>(wide.problem, wide.inputs(), *executor,
                                 [&](int, const TrueRow<long double>& row) { expect_facts(wide, row); });
}

TEST(Facts, AreAbsentWhereTheOptionIs) {
  const auto executor = make_executor(1);
  const Sample plain = normal_sample("b1 h1 q4 k2 d8 f32 causal");
  for_each_true_row<double>(plain.problem, plain.inputs(), *executor, [&](int, const TrueRow<double>& row) {
    EXPECT_TRUE(row.facts.uncapped.empty());
    EXPECT_TRUE(row.facts.additive.empty());
    EXPECT_EQ(row.facts.softcap, 0);
    EXPECT_EQ(row.facts.x.empty(), row.query < 2);
  });
}

}  // namespace
}  // namespace fresnel::test
