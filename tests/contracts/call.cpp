// SPDX-License-Identifier: Apache-2.0
#include "contracts/call.hpp"

#include <fmt/format.h>

#include "kernels/cost.hpp"
#include "support/scenario.hpp"

namespace fresnel::test {
namespace {

DType dtype_of(const std::string& word) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i32})
    if (name(dtype) == word) return dtype;
  throw std::runtime_error("a dtype that does not exist: " + word);
}

/// Is the tensor part of a call that asks for the problem?
bool wanted(const std::string& tensor, const Problem& problem) {
  if (tensor == "alibi_slopes" || tensor == "dalibi_slopes") return problem.alibi_slopes != AlibiSlopes::none;
  if (tensor == "seqlens_k") return problem.seqlens_k;
  if (tensor == "lse") return problem.lse;
  return true;
}

}  // namespace

ContractCall::ContractCall(const Json& contract, const Problem& problem, const Change& change) : problem_(problem) {
  const std::string q = std::string(name(problem.dtype)), wide = problem.dtype == DType::f64 ? "f64" : "f32";
  for (const Json& operand : contract["inputs"]) {
    const std::vector<std::string> dtypes = operand["dtypes"];
    const std::vector<std::string> rules = operand["constraints"];
    const auto says = [&](const char* rule) { return std::find(rules.begin(), rules.end(), rule) != rules.end(); };
    const bool as_q = operand["name"] == "q" || says("dtype of q");
    const std::string dtype = as_q ? q : says("f64 where q is f64, else f32") ? wide : dtypes.front();
    add(operand, dtype, change, true);
  }
  for (const Json& output : contract["outputs"]) {
    add(output, output["dtype"] == "q" ? q : wide, change, false);
    if (has(output["name"])) written_.push_back(output["name"]);
  }
}

void ContractCall::add(const Json& tensor, const std::string& dtype, const Change& change, bool input) {
  const std::string tensor_name = tensor["name"];
  if (!wanted(tensor_name, problem_)) return;
  const auto symbols = symbols_of(problem_);
  const auto& shapes = tensor["shapes"];
  const bool by_batch = shapes.size() > 1 && problem_.alibi_slopes == AlibiSlopes::per_batch_and_head;
  std::vector<std::int64_t> sizes;
  for (const std::string axis : shapes[by_batch ? 1 : 0])
    sizes.push_back(static_cast<std::int64_t>(evaluate(axis, symbols).value()));
  const bool changed = change.tensor == tensor_name;
  const Placement placement = changed && !change.dense ? change.placement : Placement();
  tensors_.insert_or_assign(tensor_name, HostTensor(dtype_of(dtype), sizes, placement));
  if (input && tensor_name != "o" && tensor_name != "lse") fill(tensor_name, changed ? change.placement : Placement());
}

/// Numbers that depend on the tensor and the logical index alone, and not at all on axes that are stored once.
void ContractCall::fill(const std::string& name, const Placement& placement) {
  tensors_.at(name).fill([&](Index at) {
    for (std::size_t axis = 0; axis < at.size(); ++axis)
      if (placement.expanded[axis]) at[axis] = 0;
    std::uint64_t seed = std::hash<std::string>()(name);
    for (const std::int64_t index : at) seed = Random(seed + static_cast<std::uint64_t>(index)).next();
    if (name == "seqlens_k") return static_cast<double>(problem_.keys - at[0] % 2);
    const double value = Random(seed).real();
    return name == "alibi_slopes" ? (value + 1.01) / 8 : 2 * value;
  });
}

Inputs ContractCall::inputs() {
  Inputs inputs{tensors_.at("q").view(), tensors_.at("k").view(), tensors_.at("v").view(), {}, {}};
  if (has("alibi_slopes")) inputs.alibi_slopes = tensors_.at("alibi_slopes").view();
  if (has("seqlens_k")) inputs.seqlens_k = tensors_.at("seqlens_k").view();
  if (has("dout")) inputs.dout = tensors_.at("dout").view();
  return inputs;
}

Outputs ContractCall::outputs() {
  Outputs outputs{tensors_.at("o").mutable_view(), {}};
  const std::pair<const char*, std::optional<MutableView>*> optional[] = {{"lse", &outputs.lse},
                                                                          {"dq", &outputs.dq},
                                                                          {"dk", &outputs.dk},
                                                                          {"dv", &outputs.dv},
                                                                          {"dalibi_slopes", &outputs.dalibi_slopes}};
  for (const auto& [name, view] : optional)
    if (has(name)) *view = tensors_.at(name).mutable_view();
  return outputs;
}

Result<Problem> ContractCall::described() { return describe(problem_.options, inputs(), outputs()); }

std::string ContractCall::fault(const Runner& runner, int lanes) {
  const Result<Problem> asked = described();
  if (!asked) return asked.refusal().message();
  const Result<Plan> plan = runner.plan(*asked, lanes);
  if (!plan) return plan.refusal().message();
  const auto wrong = [&](const std::string& what) { return runner.name() + ": " + print(*asked) + ": " + what; };
  Roundings forward = runner.roundings(*plan);
  if (asked->grad) {
    Problem first = *asked;
    first.grad = false;
    const Plan made = fresnel::plan(first, Machine::host()).value();
    run_guarded(runner, made, inputs(), outputs(), {lanes, nullptr});
    forward = roundings_of(made);
  }
  run_guarded(runner, *plan, inputs(), outputs(), {lanes, nullptr});
  for (const auto& [name, tensor] : tensors_)
    if (!tensor.guards_intact()) return wrong("wrote beside " + name);
  const Result<Verdict> verdict = check(*asked, inputs(), outputs(), forward, runner.roundings(*plan));
  if (!verdict) return wrong(verdict.refusal().message());
  return verdict->ok() ? std::string() : wrong("outside its budget");
}

std::vector<std::uint64_t> ContractCall::bits() const {
  std::vector<std::uint64_t> all;
  for (const std::string& name : written_) {
    const HostTensor& tensor = tensors_.at(name);
    tensor.for_each_index([&](const Index& at) { all.push_back(tensor.bits(at)); });
  }
  return all;
}

}  // namespace fresnel::test
