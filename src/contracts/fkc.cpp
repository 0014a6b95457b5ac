// SPDX-License-Identifier: Apache-2.0
// Contracts in the FKC form: a markdown file with YAML front matter and, for each kernel, one `fkc` block of YAML.
// Fields are those of that form; where fresnel says more than it has a field for (bounds, what the last axis must be,
// roundings) a field is added. The YAML is written out here line by line; text is quoted as JSON strings are, which
// YAML reads alike.
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "contracts/contract.hpp"
#include "contracts/words.hpp"
#include "fresnel/fresnel.h"

namespace fresnel {
namespace {

using Words = std::vector<std::string>;

std::string in_quotes(std::string_view text) { return nlohmann::json(text).dump(); }

/// Shortest text that reads back; YAML 1.1 takes an exponent for text unless a point stands before it.
std::string number(double value) {
  std::string text = fmt::format("{}", value);
  const std::size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) text.insert(exponent, ".0");
  return text;
}

const char* yes(bool value) { return value ? "true" : "false"; }
const char* taken(bool value) { return value ? "accepted" : "rejected"; }

std::string upper(std::string text) {
  for (char& letter : text)
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  return text;
}

std::string dtypes_of(const Words& dtypes) {
  Words upper_case;
  for (const std::string& dtype : dtypes) upper_case.push_back(upper(dtype));
  return "[" + joined(upper_case, ", ") + "]";
}

std::string backend_of(const Kernel& row) { return capitalised(name(row.device)); }

std::string layout_of(const OperandLayout& layout) {
  std::string text = fmt::format(
      "{{ contiguous: accepted, strided: {}, broadcast_stride0: {}, start_offset: {}, reverse_strides: {}, "
      "last_axis: contiguous",
      taken(layout.strided), taken(layout.stride_zero), taken(layout.start_offset), taken(layout.reversed));
  if (!layout.axis_orders.empty()) text += ", axis_orders: [" + joined(layout.axis_orders, ", ") + "]";
  return text + " }";
}

/// "4", or "[1, 2]" where there is a choice.
std::string rank_of(const std::vector<Words>& shapes) {
  Words ranks;
  for (const Words& shape : shapes) ranks.push_back(fmt::format("{}", shape.size()));
  return ranks.size() == 1 ? ranks.front() : "[" + joined(ranks, ", ") + "]";
}

std::string shape_of(const std::vector<Words>& shapes) {
  Words texts;
  for (const Words& shape : shapes) texts.push_back("[" + joined(shape, ", ") + "]");
  return joined(texts, " or ");
}

std::string accept_of(const Contract& contract) {
  std::string text = "accept:\n  inputs:\n";
  for (const Operand& operand : contract.inputs) {
    text += fmt::format("    - name: {}\n      dtypes: {}\n      layout: {}\n      rank: {}\n      shape: {}\n",
                        operand.name, dtypes_of(operand.dtypes), layout_of(operand.layout), rank_of(operand.shapes),
                        in_quotes(shape_of(operand.shapes)));
    if (!operand.constraints.empty())
      text += fmt::format("      shape_constraint: {}\n", in_quotes(joined(operand.constraints, "; ")));
    if (operand.optional) text += "      optional: true\n";
  }
  return text;
}

std::string params_of(const Contract& contract) {
  std::string text =
      fmt::format("op_params:\n  variant: {}\n  fields:\n", contract.backward ? "FlashAttnBackward" : "FlashAttn");
  for (const OptionField& option : contract.options) {
    const bool plain = option.kind == "bool" || option.kind == "enum";
    text += fmt::format("    {}: {{ kind: {}, unset: {}, accepted: {}", option.name,
                        plain ? option.kind : in_quotes("Option<" + option.kind + ">"), in_quotes(option.unset),
                        yes(option.accepted));
    text += option.accepted ? fmt::format(", note: {} }}\n", in_quotes(option.values)) : " }\n";
  }
  return text;
}

std::string return_of(const Contract& contract) {
  std::string text = fmt::format("return:\n  {}:\n", contract.backward ? "bundle" : "outputs");
  for (const Output& output : contract.outputs) {
    const std::string dtype = output.dtype_rule == "q" ? "passthrough(q)" : in_quotes(output.dtype_rule);
    text += fmt::format(
        "    - name: {}\n      dtype_rule: {}\n      shape_rule: {}\n      layout: {}\n"
        "      layout_guarantee: as_given\n      aliasing: none\n",
        output.name, dtype, in_quotes(shape_of(output.shapes)), layout_of(output.layout));
    if (output.optional) text += "      optional: true\n";
  }
  return text;
}

std::string caps_of(const Kernel& row) {
  return fmt::format(
      "caps:\n  awkward_layout_strategy: accepts_strided\n  fast_paths: []\n  in_place: false\n"
      "  alignment_bytes: {}\n  access_granularity_bits: 8\n  tile_unit: {}\n  isolates_hidden_values: {}\n",
      row.domain.unaligned ? "element" : "16", row.needs_tile_unit ? "required" : "unused",
      yes(row.domain.isolates_hidden_values));
}

std::string cost_of(const Contract& contract) {
  const Kernel& row = *contract.row;
  if (row.formulas == nullptr) return {};
  std::string text = fmt::format(
      "cost:\n  provenance: derived\n  class: attention\n  flops: {}\n  bytes_moved: {}\n  bytes_unfused: {}\n"
      "  score_bytes: {}\n  overhead_ns: ~\n"
      "  memory: {{ device_bytes: 0, host_bytes: \"shared_bytes + lanes * lane_bytes\", disk_bytes: 0 }}\n  symbols:\n",
      in_quotes(row.formulas->operations), in_quotes(row.formulas->bytes), in_quotes(row.formulas->bytes_unfused),
      in_quotes(row.formulas->score_bytes));
  for (const CostSymbol& symbol : cost_symbols())
    text += fmt::format("    {}: {}\n", symbol.name, in_quotes(symbol.meaning));
  text += "    lanes: \"tasks that run at once, from the plan\"\n    lane_bytes: \"workspace of one, from the plan\"\n";
  return text + "    shared_bytes: \"workspace of all, from the plan\"\n";
}

std::string precision_of(const Contract& contract) {
  std::string text =
      "precision:\n  bit_stable_on_same_hardware: true\n  max_ulp: ~\n  max_relative: ~\n  max_absolute: ~\n"
      "  audited: true\n  budget: \"docs/numerics.md\"\n  roundings:\n";
  for (const auto& [dtype, r] : contract.roundings)
    text += fmt::format(
        "    {}: {{ unit: {}, unit_p: {}, sums_rounded_p: {}, least: {}, least_exp: {}, flushes_inputs: {}, "
        "exp_constant: {}, exp_slope: {}, rescale: {}, tanh: {}, log: {}, tile_keys: {}, splits: {}, split: {}, "
        "dot_lanes: {} "
        "}}\n",
        upper(dtype), number(r.unit), number(r.unit_p), yes(r.sums_rounded_p), number(r.least), number(r.least_exp),
        yes(r.flushes_inputs), number(r.exp_constant), number(r.exp_slope), number(r.rescale), number(r.tanh),
        number(r.log), r.tile_keys, r.splits, number(r.split), r.dot_lanes);
  return text + "  notes: \"every output element has a budget of its own that follows from these roundings\"\n";
}

std::string section_of(const Contract& contract) {
  const Kernel& row = *contract.row;
  std::string text = fmt::format("\n## {} ({})\n\n", row.name, row.blurb);
  text += fmt::format(
      "{} pass on {}{}. {}. A query that sees no key gets 0 and an lse of -inf; positions, masks and the order "
      "of\n"
      "scale, softcap and ALiBi are those of docs/semantics.md.\n\n",
      contract.backward ? "The backward" : "The forward", name(row.device),
      row.needs_tile_unit ? ", on its tile unit" : "", chosen_of(row));
  text += fmt::format(
      "```fkc\nkernel: {}\nfused_op: {}\nblurb: {}\nbackend: {}\nkernel_source: \"fresnel\"\n"
      "entry_point: \"fresnel::attend\"\nkernel_revision_hash: auto\n",
      row.name, contract.backward ? "FLASH_ATTN_BACKWARD" : "FLASH_ATTN", in_quotes(row.blurb), backend_of(row));
  text += accept_of(contract) + params_of(contract) + return_of(contract) + caps_of(row) + cost_of(contract) +
          precision_of(contract);
  return text + "determinism: same_hardware_bitwise\n```\n";
}

}  // namespace

std::string contracts_fkc(const std::vector<Contract>& contracts) {
  std::string text = fmt::format(
      "---\nfkc_version: 1\nprovider:\n  name: fresnel\n  backend: Cpu\n  kernel_source: \"fresnel\"\n"
      "  link_registry: \"fresnel::catalogue\"\n  revision_base: {}\n---\n\n# fresnel: attention kernel contracts\n\n"
      "Exact attention in tiles, one section for each row of the catalogue, in order of preference. Operands are\n"
      "[batch, heads, sequence, width] views with strides in elements; the last axis is contiguous, an axis of length "
      "1\n"
      "may have any stride. `fresnel kernels --format fkc` prints this file.\n",
      in_quotes(fresnel_version()));
  for (const Contract& contract : contracts) text += section_of(contract);
  return text;
}

}  // namespace fresnel
