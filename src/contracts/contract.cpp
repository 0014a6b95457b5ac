// SPDX-License-Identifier: Apache-2.0
// From a row to its contract. Bounds, dtypes and features are the row's; ranks, agreement of extents and the rules of
// memory are those of describe and validate, which hold for every row. The figures are those of one plain problem on
// one machine, typed in, so that the same text comes out on every host.
#include "contracts/contract.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "contracts/words.hpp"
#include "fresnel/contract.hpp"

namespace fresnel {
namespace {

using Words = std::vector<std::string>;

OperandLayout input_layout(const Domain& domain) {
  return {.start_offset = domain.unaligned, .axis_orders = names_of(domain.axis_orders)};
}

/// No element twice: outer strides are positive, each at least the extent below it.
OperandLayout output_layout(bool any_address, Words orders) {
  return {.stride_zero = false, .reversed = false, .start_offset = any_address, .axis_orders = std::move(orders)};
}

/// An array of one axis has no outer stride.
OperandLayout dense_layout() { return {.strided = false, .stride_zero = false, .reversed = false}; }

std::string bounds_text(const char* symbol, const Bounds& bounds) {
  if (bounds.most == INT64_MAX) return fmt::format("{} >= {}", symbol, bounds.least);
  return fmt::format("{} <= {} <= {}", bounds.least, symbol, bounds.most);
}

/// The bounds that say more than that an extent is no negative number.
void add_bounds(Words& constraints, const char* symbol, const Bounds& bounds) {
  if (!(bounds == Bounds{})) constraints.push_back(bounds_text(symbol, bounds));
}

std::vector<Operand> inputs_of(const Kernel& row, bool backward) {
  const Domain& domain = row.domain;
  const Words dtypes = names_of(domain.dtypes);
  const auto has = [&](Feature feature) { return domain.features.has(feature); };
  const OperandLayout layout = input_layout(domain);
  Operand q{"q", false, dtypes, {{"b", "hq", "sq", "d"}}, {}, layout};
  add_bounds(q.constraints, "sq", domain.queries);
  add_bounds(q.constraints, "d", domain.head_dim);
  Operand k{"k", false, dtypes, {{"b", "hkv", "sk", "d"}}, {"dtype of q"}, layout};
  k.constraints.emplace_back(has(Feature::grouped_heads) ? "divisible(hq, hkv)" : "hkv = hq");
  add_bounds(k.constraints, "sk", domain.keys);
  Operand v{"v", false, dtypes, {{"b", "hkv", "sk", "dv"}}, {"dtype of q"}, layout};
  add_bounds(v.constraints, "dv", domain.value_dim);
  std::vector<Operand> all{q, k, v};
  if (has(Feature::alibi))
    all.push_back({"alibi_slopes", true, {"f32"}, {{"hq"}, {"b", "hq"}}, {"finite"}, {.axis_orders = {}}});
  if (has(Feature::seqlens_k))
    all.push_back({"seqlens_k", true, {"i32"}, {{"b"}}, {"0 <= seqlens_k[i] <= sk"}, dense_layout()});
  if (!backward) return all;
  // What the forward wrote is read where it lies.
  all.push_back({"o",
                 false,
                 dtypes,
                 {{"b", "hq", "sq", "dv"}},
                 {"dtype of q", "as the forward wrote it"},
                 output_layout(domain.unaligned, names_of(domain.axis_orders))});
  Words wide;
  for (const char* dtype : {"f64", "f32"})
    if (dtype == std::string("f64") ? domain.dtypes.has(DType::f64) : domain.dtypes != Set<DType>{DType::f64})
      wide.emplace_back(dtype);
  all.push_back({"lse",
                 false,
                 wide,
                 {{"b", "hq", "sq"}},
                 {"f64 where q is f64, else f32", "as the forward wrote it"},
                 output_layout(true, {})});
  all.push_back({"dout", false, dtypes, {{"b", "hq", "sq", "dv"}}, {"dtype of q"}, {.axis_orders = {}}});
  return all;
}

std::vector<Output> outputs_of(const Kernel& row, bool backward) {
  const std::string wide = "f64 where q is f64, else f32";
  if (!backward)
    return {{"o",
             false,
             "q",
             {{"b", "hq", "sq", "dv"}},
             output_layout(row.domain.unaligned, names_of(row.domain.axis_orders))},
            {"lse", true, wide, {{"b", "hq", "sq"}}, output_layout(true, {})}};
  std::vector<Output> all{{"dq", true, "q", {{"b", "hq", "sq", "d"}}, output_layout(true, {})},
                          {"dk", true, "q", {{"b", "hkv", "sk", "d"}}, output_layout(true, {})},
                          {"dv", true, "q", {{"b", "hkv", "sk", "dv"}}, output_layout(true, {})}};
  if (row.domain.features.has(Feature::alibi))
    all.push_back({"dalibi_slopes", true, wide, {{"hq"}, {"b", "hq"}}, output_layout(true, {})});
  return all;
}

std::vector<OptionField> options_of(const Domain& domain) {
  const auto has = [&](Feature feature) { return domain.features.has(feature); };
  const std::string magnitude = "2^-126 up to 2^127 (f64: any finite normal number)";
  return {
      {"softmax_scale", "f64", "1 / sqrt(d)", true, "0, or of a magnitude from " + magnitude},
      {"causal", "bool", "false", has(Feature::causal), "true"},
      {"alignment", "enum", "bottom_right", has(Feature::top_left), "top_left"},
      {"window_size_left", "i64", "unbounded", has(Feature::window), "at least 0"},
      {"window_size_right", "i64", "unbounded", has(Feature::window), "at least 0"},
      {"softcap", "f64", "none", has(Feature::softcap), "from " + magnitude},
      {"alibi", "enum", "relative", has(Feature::alibi), "distance, with alibi_slopes"},
  };
}

/// A problem in the middle of the domain.
Problem plain_problem(const Domain& domain, DType dtype) {
  Problem problem;
  problem.dtype = dtype;
  problem.queries = std::clamp<std::int64_t>(1024, domain.queries.least, domain.queries.most);
  problem.keys = std::clamp<std::int64_t>(1024, domain.keys.least, domain.keys.most);
  problem.head_dim = std::clamp<std::int64_t>(64, domain.head_dim.least, domain.head_dim.most);
  problem.value_dim = std::clamp<std::int64_t>(64, domain.value_dim.least, domain.value_dim.most);
  problem.grad = domain.required.has(Feature::grad);
  return problem;
}

Machine plain_machine() {
  Machine machine;
  machine.isa = Isa::avx3;
  machine.tile_unit = TileUnit::amx_bf16;
  return machine;
}

Example example_of(const Kernel& row, const Problem& problem) {
  const auto whole_lines = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  const Machine machine = plain_machine();
  const Tile tile = row.tile(problem, machine);
  return {print(problem), std::string(name(machine.isa)), tile, whole_lines(row.lane_bytes(problem, tile)),
          row.shared_bytes == nullptr ? 0 : whole_lines(row.shared_bytes(problem, tile))};
}

std::vector<Contract> all_contracts() {
  std::vector<Contract> all;
  for (const Kernel& row : catalogue()) all.push_back(contract_of(row));
  return all;
}

}  // namespace

Contract contract_of(const Kernel& row) {
  Contract contract;
  contract.row = &row;
  contract.backward = row.domain.required.has(Feature::grad);
  contract.inputs = inputs_of(row, contract.backward);
  contract.outputs = outputs_of(row, contract.backward);
  contract.options = options_of(row.domain);
  for (const DType dtype : {DType::bf16, DType::f16, DType::f64, DType::f32}) {
    if (!row.domain.dtypes.has(dtype)) continue;
    const Problem problem = plain_problem(row.domain, dtype);
    contract.example = example_of(row, problem);
    contract.roundings[std::string(name(dtype))] = row.roundings(problem, contract.example.tile);
  }
  return contract;
}

Result<std::string> contract_json(std::string_view kernel) {
  const Kernel* const row = find_kernel(kernel);
  if (row != nullptr) return contract_object(contract_of(*row));
  std::string known;
  for (const Kernel& each : catalogue()) known += (known.empty() ? "" : ", ") + std::string(each.name);
  return Refusal{Fault::bad_input, "", "kernel", fmt::format("'{}'", kernel), known, ""};
}

std::string contracts(ContractFormat format) {
  switch (format) {
    case ContractFormat::json: return contracts_document(all_contracts());
    case ContractFormat::markdown: return contracts_page(all_contracts());
    case ContractFormat::fkc: return contracts_fkc(all_contracts());
  }
  return {};
}

}  // namespace fresnel
