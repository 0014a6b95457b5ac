// SPDX-License-Identifier: Apache-2.0
// The table itself: every row is complete, names are words with dots, and cost formulas agree with counting by hand.
#include <gtest/gtest.h>

#include <cctype>
#include <set>

#include "kernels/kernel.hpp"
#include "semantics/mask.hpp"

namespace fresnel {
namespace {

TEST(Catalogue, RowsAreComplete) {
  for (const Kernel& row : catalogue()) {
    SCOPED_TRACE(row.name);
    EXPECT_FALSE(row.blurb.empty());
    EXPECT_NE(row.domain.dtypes, Set<DType>{});
    EXPECT_NE(row.tile, nullptr);
    EXPECT_NE(row.lane_bytes, nullptr);
    EXPECT_NE(row.cost, nullptr);
    EXPECT_NE(row.roundings, nullptr);
    EXPECT_EQ(find_kernel(row.name), &row);
  }
}

TEST(Catalogue, NamesAreUniqueWordsWithDots) {
  std::set<std::string_view> names;
  for (const Kernel& row : catalogue()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    for (const char letter : row.name)
      EXPECT_TRUE(std::islower(static_cast<unsigned char>(letter)) ||
                  std::isdigit(static_cast<unsigned char>(letter)) || letter == '.' || letter == '_')
          << row.name;
  }
  EXPECT_EQ(find_kernel("cpu.flash2"), nullptr);
  EXPECT_EQ(find_kernel(""), nullptr);
}

/// Visible pairs counted one by one.
double counted_pairs(const Mask& mask) {
  double pairs = 0;
  for (std::int64_t query = 0; query < mask.queries; ++query)
    for (std::int64_t key = 0; key < mask.keys; ++key) pairs += mask.visible(query, key) ? 1 : 0;
  return pairs;
}

TEST(Cost, VisiblePairsAgreeWithCounting) {
  for (const char* mask : {"", " causal", " causal topleft", " topleft", " w2,1", " w0,0", " w3,-", " w-,2",
                           " causal w4,-", " topleft w1,3"}) {
    for (int queries = 0; queries <= 7; ++queries) {
      for (int keys = 0; keys <= 7; ++keys) {
        const std::string line = "b1 h1 q" + std::to_string(queries) + " k" + std::to_string(keys) + " d1 f32" + mask;
        const Problem problem = parse_problem(line).value();
        EXPECT_EQ(visible_pairs(mask_of(problem, problem.keys)), counted_pairs(mask_of(problem, problem.keys))) << line;
      }
    }
  }
}

TEST(Cost, FormulasByHand) {
  const Problem problem = parse_problem("b2 h4/2 q8 k16 d32/24 bf16").value();
  for (const Kernel& row : catalogue()) {
    if (row.domain.required.has(Feature::grad)) continue;  // another pass, another formula
    const Cost cost = row.cost(problem, {8, 16});
    EXPECT_EQ(cost.operations, 2.0 * (2 * 4 * 8 * 16) * (32 + 24));
    EXPECT_EQ(cost.score_bytes, 4.0 * 2 * 4 * 8 * 16);
    EXPECT_EQ(cost.bytes, 2.0 * (2 * 4 * 8 * (32 + 24) + 2 * 2 * 16 * (32 + 24)) + 4.0 * 2 * 4 * 8);
    EXPECT_EQ(cost.bytes_unfused, cost.bytes + 4 * cost.score_bytes);
  }
}

}  // namespace
}  // namespace fresnel
