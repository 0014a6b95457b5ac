// SPDX-License-Identifier: Apache-2.0
// cpu.decode cut so small that ordinary problems have many chunks and slabs: every habit, every casebook row and the
// agreement test, on every instruction set. With the tile that it really has, few of their problems reach a merge.
#include <gtest/gtest.h>

#include "agreement/agreement.hpp"
#include "habits/casebook.hpp"

namespace fresnel::test {
namespace {

/// The row of the catalogue with tiles of 3 rows (no whole group of queries) and 8 keys.
const Kernel& finely_cut() {
  static const Kernel row = [] {
    Kernel copy = *find_kernel("cpu.decode");
    copy.name = "cpu.decode, finely cut";
    copy.tile = [](const Problem&, const Machine&) { return Tile{3, 8}; };
    return copy;
  }();
  return row;
}

class DecodeKernel : public testing::TestWithParam<Habit> {};

TEST_P(DecodeKernel, KeepsFinelyCut) {
  for (const Isa isa : isas_here()) EXPECT_EQ(faults_of(GetParam(), {finely_cut(), isa, false}), "");
}

std::vector<Habit> all_habits() {
  std::vector<Habit> all;
  for (const auto habits : {hidden_value_habits(), layout_habits(), address_habits(), company_habits(), thread_habits(),
                            option_habits(), score_habits(), size_habits(), workspace_habits(), casebook_mask_rows(),
                            casebook_number_rows(), casebook_shape_rows(), agreement_habits()})
    all.insert(all.end(), habits.begin(), habits.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Every, DecodeKernel, testing::ValuesIn(all_habits()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fresnel::test
