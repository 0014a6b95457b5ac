// SPDX-License-Identifier: Apache-2.0
// Formulas as text: what the evaluator takes and refuses, and that every row's printed formulas are its cost function,
// with visible pairs counted one by one.
#include <gtest/gtest.h>

#include <string>

#include "kernels/cost.hpp"
#include "kernels/kernel.hpp"
#include "semantics/mask.hpp"
#include "support/sampling.hpp"

namespace fresnel::test {
namespace {

const std::array<Symbol, 3> symbols{{{"sq", 3}, {"d", 64}, {"dtype_bytes", 2}}};

TEST(Formula, IsEvaluatedAsWritten) {
  const std::pair<const char*, double> cases[] = {
      {"7", 7},
      {"2.25", 2.25},
      {"1 + 2 * 3", 7},
      {"(1 + 2) * 3", 9},
      {"8 - 3 - 2", 3},
      {"8 / 4 / 2", 1},
      {"-sq + 5", 2},
      {"2 * -d", -128},
      {"sq*d", 192},
      {" sq  * d ", 192},
      {"min(sq, d)", 3},
      {"max(sq, d) + 1", 65},
      {"max(min(1, 2), 0.5)", 1},
      {"dtype_bytes * d", 128},
      {"- - 2", 2},
  };
  for (const auto& [text, value] : cases) EXPECT_EQ(evaluate(text, symbols).value(), value) << text;
}

TEST(Formula, IsRefusedWithThePlaceOfItsFault) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"", "the end", "a number"},   {"2 *", "the end", "a number"},
      {"2 3", "'3'", "an operator"}, {"(1 + 2", "the end", ")"},
      {"1)", "')'", "an operator"},  {"sk * 2", "'sk * 2'", "sq, d, dtype_bytes"},
      {"min(1)", "')'", ","},        {"min 1", "'1'", "("},
      {"d d", "'d'", "an operator"}, {"2 ^ 3", "'^ 3'", "an operator"},
      {"D", "'D'", "a number"},      {"1e5", "'e5'", "an operator"},
  };
  for (const auto& [text, given, accepted] : cases) {
    const Result<double> result = evaluate(text, symbols);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.refusal().argument, "formula");
    EXPECT_EQ(result.refusal().given.find(given), 0u) << result.refusal().message();
    EXPECT_NE(result.refusal().accepted.find(accepted), std::string::npos) << result.refusal().message();
  }
  EXPECT_FALSE(evaluate(std::string(100'000, '('), symbols));  // refused, not a full stack
  EXPECT_FALSE(evaluate(std::string(100'000, '-'), symbols));
  EXPECT_TRUE(evaluate(std::string(60, '(') + "1" + std::string(60, ')'), symbols));
}

double counted_pairs(const Problem& problem) {
  const Mask mask = mask_of(problem, problem.keys);
  double pairs = 0;
  for (std::int64_t query = 0; query < problem.queries; ++query)
    for (std::int64_t key = 0; key < problem.keys; ++key) pairs += mask.visible(query, key) ? 1 : 0;
  return pairs;
}

/// Small whole numbers: every sum and product is exact, so that equal means equal.
TEST(Formulas, AreTheCostFunctionsOfTheirRows) {
  int masked = 0;
  for (const Kernel& row : catalogue()) {
    ASSERT_NE(row.formulas, nullptr) << row.name;
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
      Random random(seed);
      Problem problem = random_problem(row.domain, random);
      problem.grad = row.domain.required.has(Feature::grad);
      if (random.chance(9)) problem.queries = 0;
      if (random.chance(9)) problem.keys = 0;
      auto values = symbols_of(problem);
      for (Symbol& symbol : values)
        if (symbol.name == "visible_pairs") {
          EXPECT_EQ(symbol.value, counted_pairs(problem)) << print(problem);
          symbol.value = counted_pairs(problem);
          masked += symbol.value < static_cast<double>(problem.queries * problem.keys) ? 1 : 0;
        }
      const Cost cost = row.cost(problem, {8, 16});
      const std::string line = std::string(row.name) + ": " + print(problem);
      EXPECT_EQ(evaluate(row.formulas->operations, values).value(), cost.operations) << line;
      EXPECT_EQ(evaluate(row.formulas->bytes, values).value(), cost.bytes) << line;
      EXPECT_EQ(evaluate(row.formulas->bytes_unfused, values).value(), cost.bytes_unfused) << line;
      EXPECT_EQ(evaluate(row.formulas->score_bytes, values).value(), cost.score_bytes) << line;
    }
  }
  EXPECT_GT(masked, 100) << "too few problems with a mask";
}

TEST(Formulas, SymbolsAreWhatTheySay) {
  const Problem problem = problem_of("b2 h12/3 q5 k7 d64/32 f16 causal topleft nolse");
  const std::pair<const char*, double> expected[] = {
      {"b", 2},   {"hq", 12},        {"hkv", 3},           {"sq", 5},
      {"sk", 7},  {"d", 64},         {"dv", 32},           {"dtype_bytes", 2},
      {"lse", 0}, {"real_bytes", 4}, {"visible_pairs", 15}};
  EXPECT_EQ(std::size(expected), cost_symbols().size());
  for (const auto& [name, value] : expected) EXPECT_EQ(evaluate(name, symbols_of(problem)).value(), value) << name;
}

}  // namespace
}  // namespace fresnel::test
