// SPDX-License-Identifier: Apache-2.0
// Contracts as JSON. Field names are those of the public structs where there are such.
#include "contracts/document.hpp"

#include "contracts/contract.hpp"
#include "contracts/words.hpp"

namespace fresnel {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Bounds& bounds) {
  Json json{{"least", bounds.least}};
  json["most"] = bounds.most == INT64_MAX ? Json(nullptr) : Json(bounds.most);
  return json;
}

Json to_json(const Domain& domain) {
  return {{"dtypes", names_of(domain.dtypes)},      {"head_dim", to_json(domain.head_dim)},
          {"value_dim", to_json(domain.value_dim)}, {"queries", to_json(domain.queries)},
          {"keys", to_json(domain.keys)},           {"features", names_of(domain.features)},
          {"required", names_of(domain.required)},  {"axis_orders", names_of(domain.axis_orders)},
          {"unaligned", domain.unaligned},          {"isolates_hidden_values", domain.isolates_hidden_values}};
}

Json to_json(const OperandLayout& layout) {
  return {{"last_axis", "contiguous"},   {"strided", layout.strided},           {"stride_zero", layout.stride_zero},
          {"reversed", layout.reversed}, {"start_offset", layout.start_offset}, {"axis_orders", layout.axis_orders}};
}

Json to_json(const Operand& operand) {
  return {{"name", operand.name},     {"optional", operand.optional},       {"dtypes", operand.dtypes},
          {"shapes", operand.shapes}, {"constraints", operand.constraints}, {"layout", to_json(operand.layout)}};
}

Json to_json(const Output& output) {
  return {{"name", output.name},
          {"optional", output.optional},
          {"dtype", output.dtype_rule},
          {"shapes", output.shapes},
          {"layout", to_json(output.layout)}};
}

Json to_json(const OptionField& option) {
  Json json{{"name", option.name}, {"kind", option.kind}, {"unset", option.unset}, {"accepted", option.accepted}};
  json["values"] = option.accepted ? Json(option.values) : Json(nullptr);
  return json;
}

Json cost_of(const Kernel& row) {
  if (row.formulas == nullptr) return nullptr;
  Json symbols = Json::object();
  for (const CostSymbol& symbol : cost_symbols()) symbols[std::string(symbol.name)] = symbol.meaning;
  return {{"provenance", "derived"},
          {"operations", row.formulas->operations},
          {"bytes", row.formulas->bytes},
          {"bytes_unfused", row.formulas->bytes_unfused},
          {"score_bytes", row.formulas->score_bytes},
          {"symbols", symbols}};
}

Json object_of(const Contract& contract) {
  const Kernel& row = *contract.row;
  Json roundings = Json::object();
  for (const char* dtype : {"f64", "f32", "f16", "bf16"})
    if (const auto found = contract.roundings.find(dtype); found != contract.roundings.end())
      roundings[dtype] = to_json(found->second);
  const auto listed = [](const auto& values) {
    Json list = Json::array();
    for (const auto& value : values) list.push_back(to_json(value));
    return list;
  };
  const Example& example = contract.example;
  return {{"name", row.name},
          {"blurb", row.blurb},
          {"device", name(row.device)},
          {"built", row.run != nullptr},
          {"pass", contract.backward ? "backward" : "forward"},
          {"needs_tile_unit", row.needs_tile_unit},
          {"domain", to_json(row.domain)},
          {"prefers", to_json(row.prefers)},
          {"prefers_also", row.prefers_also.dtypes.bits == 0 ? Json() : to_json(row.prefers_also)},
          {"inputs", listed(contract.inputs)},
          {"options", listed(contract.options)},
          {"outputs", listed(contract.outputs)},
          {"cost", cost_of(row)},
          {"workspace",
           {{"shared", row.shared_bytes != nullptr},
            {"alignment", 64},
            {"example",
             {{"problem", example.problem},
              {"isa", example.isa},
              {"tile", {{"queries", example.tile.queries}, {"keys", example.tile.keys}}},
              {"lane_bytes", example.lane_bytes},
              {"shared_bytes", example.shared_bytes}}}}},
          {"roundings", roundings},
          {"budget", "docs/numerics.md"},
          {"determinism", word(row.determinism)}};
}

}  // namespace

Json to_json(const Roundings& roundings) {
  // A binding, so that a field added to the struct does not compile until it is printed here.
  const auto& [name, unit, unit_p, least_p, sums_rounded_p, least, least_exp, flushes_inputs, exp_constant, exp_slope,
               rescale, tanh, log, log2_scores, tile_keys, running_sum, splits, split, dot_lanes] = roundings;
  return {{"name", name},
          {"unit", unit},
          {"unit_p", unit_p},
          {"least_p", least_p},
          {"sums_rounded_p", sums_rounded_p},
          {"least", least},
          {"least_exp", least_exp},
          {"flushes_inputs", flushes_inputs},
          {"exp_constant", exp_constant},
          {"exp_slope", exp_slope},
          {"rescale", rescale},
          {"tanh", tanh},
          {"log", log},
          {"log2_scores", log2_scores},
          {"tile_keys", tile_keys},
          {"running_sum", running_sum},
          {"splits", splits},
          {"split", split},
          {"dot_lanes", dot_lanes}};
}

std::string contract_object(const Contract& contract) { return object_of(contract).dump(2); }

std::string contracts_document(const std::vector<Contract>& contracts) {
  Json rows = Json::array();
  for (const Contract& contract : contracts) rows.push_back(object_of(contract));
  return Json{{"rows", rows}}.dump(2);
}

}  // namespace fresnel
