// SPDX-License-Identifier: Apache-2.0
// Contracts are kept: what the library prints about each row is turned back into calls of that row, and a contract with
// one word changed is found out.
#include <gtest/gtest.h>

#include "contracts/holds.hpp"
#include "fresnel/contract.hpp"
#include "support/rows.hpp"

namespace fresnel::test {
namespace {

std::vector<Runner> runners_of_both_passes() {
  std::vector<Runner> runners;
  for (const Kernel* const row : rows_here()) runners.emplace_back(*row, isas_of(*row).back(), is_listed(*row));
  return runners;
}

Json contract_of_row(const Kernel& row) { return Json::parse(contract_json(row.name).value()); }

TEST(Contracts, RowsDoWhatIsPrinted) {
  ASSERT_GE(runners_of_both_passes().size(), 4u);
  for (const Runner& runner : runners_of_both_passes())
    EXPECT_EQ(broken_claims(contract_of_row(runner.row()), runner), "") << runner.name();
}

/// Every claim, wrong: each must be found by the test of its name.
TEST(Contracts, AFalseWordIsFound) {
  struct Lie {
    const char* claim;
    const char* row;
    void (*tell)(Json& contract);
  };
  const Lie lies[] = {
      {"dtypes", "cpu.flash", [](Json& c) { c["inputs"][0]["dtypes"].erase(0); }},
      {"dtypes", "cpu.amx",
       [](Json& c) {
         c["inputs"][0]["dtypes"] = {"f32", "bf16"};
       }},
      {"bounds", "cpu.flash", [](Json& c) { c["inputs"][0]["constraints"][0] = "1 <= d <= 577"; }},
      {"bounds", "cpu.flash", [](Json& c) { c["inputs"][2]["constraints"][1] = "2 <= dv <= 576"; }},
      {"bounds", "cpu.decode", [](Json& c) { c["domain"]["queries"]["most"] = 33; }},
      {"options", "cpu.naive", [](Json& c) { c["options"][5]["accepted"] = false; }},
      {"options", "cpu.amx", [](Json& c) { c["options"][5]["accepted"] = true; }},
      {"options", "cpu.flash", [](Json& c) { c["options"].erase(1); }},
      {"optional_operands", "cpu.flash", [](Json& c) { c["inputs"][1]["constraints"][1] = "hkv = hq"; }},
      {"optional_operands", "cpu.flash", [](Json& c) { c["inputs"].erase(4); }},
      {"layouts", "cpu.flash", [](Json& c) { c["inputs"][0]["layout"]["reversed"] = false; }},
      {"layouts", "cpu.flash", [](Json& c) { c["inputs"][2]["layout"]["start_offset"] = false; }},
      {"layouts", "cpu.flash", [](Json& c) { c["outputs"][0]["layout"]["stride_zero"] = true; }},
      {"layouts", "cpu.reference_backward", [](Json& c) { c["outputs"][1]["layout"]["reversed"] = true; }},
      {"determinism", "cpu.flash", [](Json& c) { c["determinism"] = "none"; }},
  };
  for (const Runner& runner : runners_of_both_passes())
    for (const Lie& lie : lies) {
      if (runner.row().name != lie.row) continue;
      Json contract = contract_of_row(runner.row());
      lie.tell(contract);
      EXPECT_NE(broken_claims(contract, runner).find(std::string(lie.claim) + ": "), std::string::npos)
          << lie.claim << " of " << lie.row;
    }
}

TEST(Contracts, AreRefusedForWhatIsNoKernel) {
  const auto none = contract_json("cpu.flush");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.refusal().argument, "kernel");
  EXPECT_NE(none.refusal().accepted.find("cpu.flash"), std::string::npos);
}

TEST(Contracts, TheDocumentHoldsEveryRow) {
  const Json rows = Json::parse(contracts(ContractFormat::json))["rows"];
  ASSERT_EQ(rows.size(), catalogue().size());
  for (std::size_t row = 0; row < rows.size(); ++row)
    EXPECT_EQ(rows[row], contract_of_row(catalogue()[row])) << catalogue()[row].name;
}

}  // namespace
}  // namespace fresnel::test
