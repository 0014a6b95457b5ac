// SPDX-License-Identifier: Apache-2.0
// Dtypes, bounds, options, optional operands, layouts and determinism, each taken from the JSON: what is accepted is
// run and judged, what is not is refused by name.
#include "contracts/holds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "support/scenario.hpp"

namespace fresnel::test {
namespace {

struct Extent {
  const char* symbol;
  const char* field;
  std::int64_t Problem::*member;
};
constexpr Extent extents[] = {{"sq", "queries", &Problem::queries},
                              {"sk", "keys", &Problem::keys},
                              {"d", "head_dim", &Problem::head_dim},
                              {"dv", "value_dim", &Problem::value_dim}};

const Json* named(const Json& list, const std::string& name) {
  for (const Json& entry : list)
    if (entry["name"] == name) return &entry;
  return nullptr;
}

bool says(const Json& operand, const std::string& constraint) {
  for (const Json& each : operand["constraints"])
    if (each == constraint) return true;
  return false;
}

/// What the operands' constraints say of an extent: "1 <= d <= 256", "sq >= 2", or nothing.
Bounds bounds_of(const Json& contract, const std::string& symbol) {
  for (const Json& operand : contract["inputs"])
    for (const std::string text : operand["constraints"]) {
      long long least = 0, most = 0;
      char found[16] = "";
      if (std::sscanf(text.c_str(), "%lld <= %15[a-z] <= %lld", &least, found, &most) == 3 && found == symbol)
        return {least, most};
      if (std::sscanf(text.c_str(), "%15[a-z] >= %lld", found, &least) == 2 && found == symbol)
        return {least, INT64_MAX};
    }
  return {};
}

Problem plain(const Json& contract) {
  Problem problem = problem_of("b2 h4/2 q3 k19 d8/5 f32");
  const std::string dtype = contract["inputs"][0]["dtypes"].back();
  for (const DType each : {DType::f64, DType::f32, DType::f16, DType::bf16})
    if (name(each) == dtype) problem.dtype = each;
  for (const Extent& extent : extents) {
    const Bounds bounds = bounds_of(contract, extent.symbol);
    problem.*extent.member = std::clamp(problem.*extent.member, bounds.least, bounds.most);
  }
  const Json* const k = named(contract["inputs"], "k");
  if (says(*k, "hkv = hq")) problem.heads_kv = problem.heads_q;
  problem.grad = contract["pass"] == "backward";
  return problem;
}

void right(const Json& contract, const Runner& runner, const Problem& problem, Faults& faults) {
  ContractCall call(contract, problem);
  const std::string fault = call.fault(runner);
  faults.expect(fault.empty(), "said to be accepted: " + fault);
}

/// The row itself must say no, and name one of the fields.
void refused(const Runner& runner, const Problem& problem, const std::vector<std::string>& fields, Faults& faults) {
  const Result<Plan> plan = runner.plan(problem);
  if (plan) return faults.add(fmt::format("{}: {} is said to be refused", print(problem), fields.front()));
  const std::string& argument = plan.refusal().argument;
  faults.expect(std::find(fields.begin(), fields.end(), argument) != fields.end(),
                fmt::format("{}: refused for {} and not for {}", print(problem), argument, fields.front()));
}

void dtypes_hold(const Json& contract, const Runner& runner, Faults& faults) {
  const std::vector<std::string> declared = contract["inputs"][0]["dtypes"];
  faults.expect(!declared.empty(), "no dtype is declared");
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    Problem problem = plain(contract);
    problem.dtype = dtype;
    if (std::find(declared.begin(), declared.end(), name(dtype)) != declared.end())
      right(contract, runner, problem, faults);
    else
      refused(runner, problem, {"dtype"}, faults);
  }
}

/// A tensor of a dtype that its operand does not list, beside the others as they are.
void dtypes_of_operands_hold(const Json& contract, const Runner&, Faults& faults) {
  Problem problem = plain(contract);
  if (named(contract["inputs"], "alibi_slopes")) problem.alibi_slopes = AlibiSlopes::per_head;
  problem.seqlens_k = named(contract["inputs"], "seqlens_k") != nullptr;
  for (const Json& operand : contract["inputs"]) {
    const std::string operand_name = operand["name"];
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i32}) {
      if (operand_name == "q") continue;  // q decides the others
      ContractCall call(contract, problem);
      Inputs inputs = call.inputs();
      Outputs outputs = call.outputs();
      const auto spoil = [&](auto& view) {
        const bool same = view.dtype == dtype;
        view.dtype = dtype;
        return same;
      };
      bool same = false;
      if (operand_name == "k") same = spoil(inputs.k);
      if (operand_name == "v") same = spoil(inputs.v);
      if (operand_name == "alibi_slopes") same = spoil(*inputs.alibi_slopes);
      if (operand_name == "seqlens_k") same = spoil(*inputs.seqlens_k);
      if (operand_name == "dout") same = spoil(*inputs.dout);
      if (operand_name == "o") same = spoil(outputs.o);
      if (operand_name == "lse") same = spoil(*outputs.lse);
      const Result<Problem> described = describe(problem.options, inputs, outputs);
      faults.expect(described.ok() == same, fmt::format("{} in {}", operand_name, name(dtype)));
      if (!described) faults.expect(described.refusal().argument == operand_name, described.refusal().message());
    }
  }
}

void bounds_hold(const Json& contract, const Runner& runner, Faults& faults) {
  for (const Extent& extent : extents) {
    const Bounds bounds = bounds_of(contract, extent.symbol);
    const Json& domain = contract["domain"][extent.field];
    const std::int64_t most = domain["most"].is_null() ? INT64_MAX : domain["most"].get<std::int64_t>();
    faults.expect(domain["least"] == bounds.least && most == bounds.most,
                  fmt::format("bounds of {} differ from the domain's", extent.field));
    Problem problem = plain(contract);
    for (const std::int64_t edge : {bounds.least, bounds.most}) {
      problem.*extent.member = edge;
      if (edge <= 4096)  // what a test can hold in memory
        right(contract, runner, problem, faults);
      else if (edge != INT64_MAX)
        faults.expect(runner.plan(problem).ok(), fmt::format("{}: said to be accepted", print(problem)));
    }
    problem.*extent.member = bounds.least - 1;
    if (bounds.least > 0) refused(runner, problem, {extent.field}, faults);
    if (bounds.most == INT64_MAX) continue;
    problem.*extent.member = bounds.most + 1;
    refused(runner, problem, {extent.field}, faults);
  }
}

/// A problem with the option set, and the names under which it may be refused.
struct Setting {
  const char* option;
  std::function<void(Problem&)> set;
  std::vector<std::string> fields;
};

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all{
      {"softmax_scale", [](Problem& p) { p.options.softmax_scale = -0.5; }, {"softmax_scale"}},
      {"causal", [](Problem& p) { p.options.causal = true; }, {"causal"}},
      {"alignment", [](Problem& p) { p.options.alignment = Alignment::top_left; }, {"alignment"}},
      {"window_size_left", [](Problem& p) { p.options.window_size_left = 0; }, {"window"}},
      {"window_size_right", [](Problem& p) { p.options.window_size_right = 2; }, {"window"}},
      {"softcap", [](Problem& p) { p.options.softcap = 3; }, {"softcap"}},
      {"alibi",
       [](Problem& p) {
         p.alibi_slopes = AlibiSlopes::per_head;
         p.options.alibi = AlibiForm::distance;
       },
       {"alibi_slopes"}},
  };
  return all;
}

void options_hold(const Json& contract, const Runner& runner, Faults& faults) {
  for (const Setting& setting : settings()) {
    const Json* const option = named(contract["options"], setting.option);
    if (option == nullptr) {
      faults.add(fmt::format("{} is not mentioned", setting.option));
      continue;
    }
    Problem problem = plain(contract);
    setting.set(problem);
    if ((*option)["accepted"])
      right(contract, runner, problem, faults);
    else
      refused(runner, problem, setting.fields, faults);
  }
  faults.expect(contract["options"].size() == settings().size(), "an option that no test sets");
}

void optional_operands_hold(const Json& contract, const Runner& runner, Faults& faults) {
  const Json* const slopes = named(contract["inputs"], "alibi_slopes");
  for (const AlibiSlopes form : {AlibiSlopes::per_head, AlibiSlopes::per_batch_and_head}) {
    Problem problem = plain(contract);
    problem.alibi_slopes = form;
    slopes != nullptr ? right(contract, runner, problem, faults) : refused(runner, problem, {"alibi_slopes"}, faults);
  }
  Problem problem = plain(contract);
  problem.seqlens_k = true;
  const bool lengths = named(contract["inputs"], "seqlens_k") != nullptr;
  lengths ? right(contract, runner, problem, faults) : refused(runner, problem, {"seqlens_k"}, faults);
  problem = plain(contract);
  problem.heads_q = 4;
  for (const std::int64_t heads : {1, 2, 3, 4}) {
    problem.heads_kv = heads;
    const Json& k = *named(contract["inputs"], "k");
    const bool accepted = says(k, "divisible(hq, hkv)") ? 4 % heads == 0 : heads == 4;
    accepted ? right(contract, runner, problem, faults) : refused(runner, problem, {"heads_kv"}, faults);
  }
  const Json* const lse = named(contract["outputs"], "lse");
  problem = plain(contract);
  problem.lse = false;
  if (lse != nullptr && (*lse)["optional"]) right(contract, runner, problem, faults);
}

/// One way to place a tensor, and the flag that says whether it may be.
struct Way {
  const char* flag;
  Placement placement;
};

std::vector<Way> ways_of(int rank) {
  std::vector<Way> ways{{"start_offset", {.shift = 1}}};
  if (rank == 1) return ways;
  ways.push_back({"strided", {.row_padding = 3}});
  for (std::size_t axis = 0; axis + 1 < static_cast<std::size_t>(rank); ++axis) {
    ways.push_back({"reversed", {}});
    ways.back().placement.reversed[axis] = true;
    ways.push_back({"stride_zero", {}});
    ways.back().placement.expanded[axis] = true;
  }
  return ways;
}

/// Placed as the flag allows, the answer has the bits of dense memory; else the tensor is refused by name.
void placement_holds(const Json& contract, const Runner& runner, const Problem& problem, const Change& change,
                     bool accepted, Faults& faults) {
  ContractCall placed(contract, problem, change);
  const Result<Problem> described = placed.described();
  if (described.ok() != accepted)
    return faults.add(fmt::format("{} is {}", change.tensor, accepted ? described.refusal().message() : "accepted"));
  if (!accepted) return faults.expect(described.refusal().argument == change.tensor, described.refusal().message());
  Change copied = change;
  copied.dense = true;
  ContractCall dense(contract, problem, copied);
  for (ContractCall* const call : {&placed, &dense}) {
    const std::string fault = call->fault(runner);
    faults.expect(fault.empty(), change.tensor + ": " + fault);
  }
  faults.expect(placed.bits() == dense.bits(), change.tensor + ": other bits than dense memory gives");
}

Problem with_everything(const Json& contract) {
  Problem problem = plain(contract);
  problem.seqlens_k = named(contract["inputs"], "seqlens_k") != nullptr;
  if (named(contract["inputs"], "alibi_slopes") != nullptr) problem.alibi_slopes = AlibiSlopes::per_batch_and_head;
  return problem;
}

void layouts_hold(const Json& contract, const Runner& runner, Faults& faults) {
  const Problem problem = with_everything(contract);
  for (const char* list : {"inputs", "outputs"})
    for (const Json& tensor : contract[list]) {
      const Json& layout = tensor["layout"];
      faults.expect(layout["last_axis"] == "contiguous", "a last axis that need not be contiguous");
      const int rank = static_cast<int>(tensor["shapes"].back().size());
      for (const Way& way : ways_of(rank))
        placement_holds(contract, runner, problem, {tensor["name"], way.placement}, layout[way.flag], faults);
      for (const auto order : {AxisOrder::bhsd, AxisOrder::bshd}) {
        const std::vector<std::string> orders = layout["axis_orders"];
        const char* const word = order == AxisOrder::bhsd ? "bhsd" : "bshd";
        const bool accepted = orders.empty() || std::find(orders.begin(), orders.end(), word) != orders.end();
        placement_holds(contract, runner, problem, {tensor["name"], {.order = order}}, accepted, faults);
      }
    }
}

/// Every last axis, stretched: refused by the tensor's name.
void last_axes_hold(const Json& contract, const Runner&, Faults& faults) {
  const Problem problem = with_everything(contract);
  ContractCall call(contract, problem);
  for (const char* list : {"inputs", "outputs"})
    for (const Json& tensor : contract[list]) {
      const std::string tensor_name = tensor["name"];
      Inputs inputs = call.inputs();
      Outputs outputs = call.outputs();
      const auto stretch = [&](auto& view) {
        const auto last = static_cast<std::size_t>(view.rank - 1);
        view.strides[last] = 2;
      };
      const std::pair<const char*, View*> views[] = {
          {"q", &inputs.q},
          {"k", &inputs.k},
          {"v", &inputs.v},
          {"dout", inputs.dout ? &*inputs.dout : nullptr},
          {"alibi_slopes", inputs.alibi_slopes ? &*inputs.alibi_slopes : nullptr},
          {"seqlens_k", inputs.seqlens_k ? &*inputs.seqlens_k : nullptr}};
      for (const auto& [name, view] : views)
        if (name == tensor_name) stretch(*view);
      const std::pair<const char*, MutableView*> written[] = {
          {"o", &outputs.o},
          {"lse", outputs.lse ? &*outputs.lse : nullptr},
          {"dq", outputs.dq ? &*outputs.dq : nullptr},
          {"dk", outputs.dk ? &*outputs.dk : nullptr},
          {"dv", outputs.dv ? &*outputs.dv : nullptr},
          {"dalibi_slopes", outputs.dalibi_slopes ? &*outputs.dalibi_slopes : nullptr}};
      for (const auto& [name, view] : written)
        if (name == tensor_name) stretch(*view);
      const Result<Problem> described = describe(problem.options, inputs, outputs);
      faults.expect(!described && described.refusal().argument == tensor_name, tensor_name + ": stretched last axis");
    }
}

void determinism_holds(const Json& contract, const Runner& runner, Faults& faults) {
  if (contract["determinism"] != "bitwise") return faults.add("a promise that no test knows");
  Problem problem = with_everything(contract);
  problem.keys = std::min<std::int64_t>(150, bounds_of(contract, "sk").most);
  std::vector<std::uint64_t> first;
  for (const int lanes : {1, 2, 7}) {
    ContractCall call(contract, problem);
    const std::string fault = call.fault(runner, lanes);
    faults.expect(fault.empty(), fault);
    if (first.empty()) first = call.bits();
    faults.expect(call.bits() == first, fmt::format("{} lanes give other bits", lanes));
  }
}

constexpr Claim all_claims[] = {
    {"dtypes", dtypes_hold},       {"dtypes_of_operands", dtypes_of_operands_hold},
    {"bounds", bounds_hold},       {"options", options_hold},
    {"layouts", layouts_hold},     {"optional_operands", optional_operands_hold},
    {"last_axes", last_axes_hold}, {"determinism", determinism_holds},
};

}  // namespace

std::span<const Claim> claims() { return all_claims; }

std::string broken_claims(const Json& contract, const Runner& runner) {
  std::string text;
  for (const Claim& claim : claims()) {
    Faults faults;
    try {
      claim.check(contract, runner, faults);
    } catch (const std::exception& error) {
      faults.add(error.what());
    }
    if (!faults.none()) text += fmt::format("{}: {}\n", claim.name, faults.message());
  }
  return text;
}

}  // namespace fresnel::test
