// SPDX-License-Identifier: Apache-2.0
// Contracts as a page for people: docs/kernels.md is what this prints, word for word. Sentences are made from the
// row's data, so that the page cannot say what the table does not.
#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "contracts/contract.hpp"
#include "contracts/words.hpp"

namespace fresnel {
namespace {

using Words = std::vector<std::string>;

std::string shapes_of(const std::vector<Words>& shapes) {
  Words texts;
  for (const Words& shape : shapes) texts.push_back("[" + joined(shape, ", ") + "]");
  return joined(texts, " or ");
}

std::string layout_of(const OperandLayout& layout) {
  Words words{"last axis contiguous"};
  if (layout.strided && layout.stride_zero && layout.reversed)
    words.emplace_back("outer strides free, 0 and negative too");
  else if (layout.strided)
    words.emplace_back("outer strides positive, no element twice");
  words.emplace_back(layout.start_offset ? "any element's address" : "address and outer strides in 16 bytes");
  if (layout.axis_orders.size() == 1) words.push_back(layout.axis_orders.front() + " only");
  return joined(words, "; ");
}

/// Powers of two as such: a reader knows 2^-24, not 5.96e-08.
std::string number(double value) {
  int exponent = 0;
  if (value == 0) return "0";
  if (std::frexp(value, &exponent) == 0.5) return fmt::format("2^{}", exponent - 1);
  return fmt::format("{:.3g}", value);
}

/// The sentence about where keys are summed.
std::string depth_of(const Roundings& r) {
  std::string text = r.running_sum ? "keys are added straight to the rescaled sums"
                                   : fmt::format("keys are summed in tiles of {}, then tiles", r.tile_keys);
  if (r.splits > 1) text += fmt::format("; {} ranges of keys are merged at the end", r.splits);
  if (r.split > 0) text += fmt::format("; numbers are split in parts, which loses {} of a product", number(r.split));
  if (r.dot_lanes > 1) text += fmt::format("; a dot product has {} partial sums", r.dot_lanes);
  return text;
}

std::string roundings_table(const Contract& contract) {
  std::string text =
      "| dtype | unit | P rounded | least | least exp | exp | rescale | tanh | log | sums |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n";
  for (const char* dtype : {"f64", "f32", "f16", "bf16"}) {
    const auto found = contract.roundings.find(dtype);
    if (found == contract.roundings.end()) continue;
    const Roundings& r = found->second;
    std::string p = r.unit_p == 0 ? "no" : number(r.unit_p) + (r.sums_rounded_p ? ", and l sums it so" : "");
    text += fmt::format("| {} | {} | {} | {}{} | {} | {}{} | {} | {} | {} | {} |\n", dtype, number(r.unit), p,
                        number(r.least), r.flushes_inputs ? ", inputs too" : "", number(r.least_exp),
                        number(r.exp_constant), r.exp_slope == 0 ? "" : " + " + number(r.exp_slope) + " abs(x)",
                        number(r.rescale), number(r.tanh), number(r.log), depth_of(r));
  }
  return text;
}

std::string operands_table(const Contract& contract) {
  std::string text = "| input | dtypes | shape | must hold | memory |\n|---|---|---|---|---|\n";
  for (const Operand& operand : contract.inputs)
    text += fmt::format("| `{}`{} | {} | {} | {} | {} |\n", operand.name, operand.optional ? ", optional" : "",
                        joined(operand.dtypes, " "), shapes_of(operand.shapes), joined(operand.constraints, "; "),
                        layout_of(operand.layout));
  text += "\n| output | dtype | shape | memory |\n|---|---|---|---|\n";
  for (const Output& output : contract.outputs)
    text += fmt::format("| `{}`{} | {} | {} | {} |\n", output.name, output.optional ? ", optional" : "",
                        output.dtype_rule == "q" ? "that of q" : output.dtype_rule, shapes_of(output.shapes),
                        layout_of(output.layout));
  return text;
}

std::string options_table(const Contract& contract) {
  std::string text = "| option | kind | unset | accepted beside that |\n|---|---|---|---|\n";
  for (const OptionField& option : contract.options)
    text += fmt::format("| `{}` | {} | {} | {} |\n", option.name, option.kind, option.unset,
                        option.accepted ? option.values : "nothing");
  return text;
}

std::string cost_text(const Kernel& row) {
  if (row.formulas == nullptr) return {};
  const CostFormulas& f = *row.formulas;
  return fmt::format(
      "    operations     {}\n    bytes          {}\n    bytes_unfused  {}\n    score_bytes    {}\n\n"
      "Bytes are those of inputs read once and outputs written once; the unfused way adds {}.\n",
      f.operations, f.bytes, f.bytes_unfused, f.score_bytes, f.unfused_way);
}

std::string workspace_text(const Contract& contract) {
  const Example& e = contract.example;
  return fmt::format(
      "Workspace, at a multiple of 64 bytes: {}a slice for each lane. For `{}` on {}: tile {} x {}, {} bytes a "
      "lane{}.\n",
      contract.row->shared_bytes == nullptr ? "" : "what lanes share, then ", e.problem, e.isa, e.tile.queries,
      e.tile.keys, e.lane_bytes, e.shared_bytes == 0 ? "" : fmt::format(" and {} shared", e.shared_bytes));
}

std::string promises_of(const Contract& contract) {
  const Kernel& row = *contract.row;
  std::string text = "Same bits from run to run, for any number of threads, any executor and any company in the batch.";
  text += row.domain.isolates_hidden_values
              ? " Hidden values that are not finite reach no row that does not see them.\n"
              : " Hidden values that are not finite may reach rows of their tile.\n";
  return text;
}

std::string section_of(const Contract& contract) {
  const Kernel& row = *contract.row;
  std::string text = fmt::format("## {}\n\n{}.\n\n", row.name, capitalised(row.blurb));
  text += fmt::format("{} on {}{}. {}.\n\n", contract.backward ? "Backward" : "Forward", name(row.device),
                      row.needs_tile_unit ? ", needs the tile unit" : "", chosen_of(row));
  text += operands_table(contract) + "\n" + options_table(contract) + "\n" + cost_text(row) + "\n";
  text += roundings_table(contract) + "\n" + workspace_text(contract) + "\n" + promises_of(contract);
  return text;
}

constexpr std::string_view introduction =
    R"(# Kernels and their contracts

<!-- This page is generated: fresnel kernels --format markdown > docs/kernels.md -->

Every row of the catalogue, in order of preference. The page is printed from the table that planning reads; a test
compares it, and other tests turn it into calls: each dtype, bound, option and layout below is tried from inside, and
one step outside is refused by name. `fresnel kernels --format json` and `--format fkc` say the same to programs,
`fresnel explain PROBLEM` which row a problem gets.

)";

constexpr std::string_view legend =
    R"(Every operand lies on the kernel's device; slopes and lengths may lie on the host. No output may meet another tensor's
bytes, and nothing is allocated in `run`. [semantics.md](semantics.md) is what options mean, [numerics.md](numerics.md)
how roundings become the budget of every output element: `unit` is the unit roundoff of scores, row sum and accumulator,
`least` what a product that underflows loses, the other columns relative errors.

)";

std::string overview(const std::vector<Contract>& contracts) {
  std::string text =
      "| kernel | pass | device | dtypes | D | Dv | queries | keys | features | chosen | same bits |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const Contract& contract : contracts) {
    const Kernel& row = *contract.row;
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", row.name,
                        contract.backward ? "backward" : "forward", name(row.device),
                        joined(names_of(row.domain.dtypes), " "), bounds_of(row.domain.head_dim),
                        bounds_of(row.domain.value_dim), bounds_of(row.domain.queries), bounds_of(row.domain.keys),
                        features_of(row.domain), preference_of(row), word(row.determinism));
  }
  return text;
}

}  // namespace

std::string contracts_page(const std::vector<Contract>& contracts) {
  std::string text = std::string(introduction) + overview(contracts) + "\n" + std::string(legend);
  text += "Names in shapes and formulas:\n\n| name | is |\n|---|---|\n";
  for (const CostSymbol& symbol : cost_symbols()) text += fmt::format("| `{}` | {} |\n", symbol.name, symbol.meaning);
  for (const Contract& contract : contracts) text += "\n" + section_of(contract);
  return text;
}

}  // namespace fresnel
