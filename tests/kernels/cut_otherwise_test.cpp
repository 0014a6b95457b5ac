// SPDX-License-Identifier: Apache-2.0
// Rows cut otherwise than they plan: every habit, every casebook row and the agreement test, on every instruction set.
// The rows for few queries are cut so small that ordinary problems have many chunks and slabs; with the tile that they
// really have, few of their problems reach a merge. cpu.amx has blocks of 128 keys where it plans 64, and of 64 where
// it plans more, so that ordinary problems have several.
#include <gtest/gtest.h>

#include "agreement/agreement.hpp"
#include "habits/casebook.hpp"
#include "support/rows.hpp"

namespace fresnel::test {
namespace {

template <std::int64_t queries, std::int64_t keys>
Tile tile_of(const Problem& /*problem*/, const Machine& /*machine*/) {
  return {queries, keys};
}

/// Rows of the catalogue, on portable tiles where there is no unit: those for few queries with tiles of 3 rows (no
/// whole group of queries) and 8 keys, cpu.amx with three groups of 16 queries, or one of 32 and one of 16.
const std::vector<Kernel>& cut_otherwise() {
  static const std::vector<Kernel> rows = [] {
    std::vector<Kernel> copies;
    for (const Kernel* const row : rows_here()) {
      const bool decodes = row->name == "cpu.decode" || row->name == "cpu.amx_decode";
      if (!decodes && row->name != "cpu.amx") continue;
      copies.push_back(*row);
      copies.back().tile = decodes ? tile_of<3, 8> : tile_of<48, 128>;
      if (decodes) continue;
      copies.push_back(*row);
      copies.back().tile = tile_of<48, 64>;
    }
    return copies;
  }();
  return rows;
}

class CutOtherwise : public testing::TestWithParam<Habit> {};

TEST_P(CutOtherwise, Keeps) {
  for (const Kernel& row : cut_otherwise())
    for (const Isa isa : isas_of(row)) EXPECT_EQ(faults_of(GetParam(), {row, isa, false}), "");
}

std::vector<Habit> all_habits() {
  std::vector<Habit> all;
  for (const auto habits : {hidden_value_habits(), layout_habits(), address_habits(), company_habits(), thread_habits(),
                            option_habits(), score_habits(), size_habits(), workspace_habits(), casebook_mask_rows(),
                            casebook_number_rows(), casebook_shape_rows(), agreement_habits()})
    all.insert(all.end(), habits.begin(), habits.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Every, CutOtherwise, testing::ValuesIn(all_habits()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fresnel::test
