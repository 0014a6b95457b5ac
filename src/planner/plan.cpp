// SPDX-License-Identifier: Apache-2.0
// Planning: a pure function of Problem, Machine and options. It reads no pointers and no data; text is built only when
// every row says no.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "planner/selection.hpp"
#include "walk/walk.hpp"

namespace fresnel {
namespace {

constexpr const char* kernel_variable = "FRESNEL_KERNEL";

/// Named as the caller knows it: the option, or the variable that stands in for it.
Refusal unknown_kernel(const std::string& name, const PlanOptions& options) {
  std::string known;
  for (const Kernel& row : catalogue()) known += (known.empty() ? "" : ", ") + std::string(row.name);
  return {Fault::bad_input, "", options.kernel.empty() ? kernel_variable : "kernel", "'" + name + "'", known, ""};
}

/// What every plan asks first.
Status plannable(const Problem& problem, const PlanOptions& options) {
  if (Status valid = validate(problem); !valid) return valid;
  if (options.lanes < 0)
    return Refusal{
        Fault::bad_input, "", "lanes", fmt::format("{}", options.lanes), "at least 1, or 0 for all threads", ""};
  return Done{};
}

/// Lanes never exceed the work there is, so that small problems do not wake threads for nothing.
int lanes_for(const Kernel& row, const Problem& problem, const Tile& tile, const Machine& machine, int asked) {
  const int lanes = asked > 0 ? asked : std::max(machine.threads, 1);
  const std::int64_t items = row.items != nullptr ? row.items(problem, tile) : item_count(problem, tile);
  return static_cast<int>(std::clamp<std::int64_t>(items, 1, lanes));
}

Plan plan_for(const Kernel& row, const Problem& problem, const Machine& machine, const PlanOptions& options) {
  Plan plan;
  plan.problem = problem;
  plan.kernel = &row;
  plan.isa = machine.isa;
  plan.tile = row.tile(problem, machine);
  plan.lanes = lanes_for(row, problem, plan.tile, machine, options.lanes);
  const auto whole_lines = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  plan.lane_bytes = whole_lines(row.lane_bytes(problem, plan.tile));
  if (row.shared_bytes != nullptr) plan.shared_bytes = whole_lines(row.shared_bytes(problem, plan.tile));
  plan.cost = row.cost(problem, plan.tile);
  return plan;
}

/// The reason of the row for everything, the first that is preferred wherever it is right; `explain` gives every row's.
Refusal nobody_serves(const Problem& problem, const Machine& machine) {
  for (const Kernel& row : catalogue()) {
    if (row.domain.required.has(Feature::grad) != problem.grad) continue;  // a row of the other pass
    if (row.domain != row.prefers) continue;                               // a row for some problems
    if (auto refusal = refusal_of(row, problem, machine)) return *refusal;
  }
  return {
      Fault::unsupported, "", "device", std::string(name(machine.device)), "a device with a kernel in this build", ""};
}

}  // namespace

std::string requested_kernel(const PlanOptions& options) {
  if (!options.kernel.empty()) return options.kernel;
  const char* const forced = std::getenv(kernel_variable);
  return forced == nullptr ? "" : forced;
}

std::optional<Refusal> refusal_of(const Kernel& row, const Problem& problem, const Machine& machine) {
  const auto refuse = [&](std::string argument, std::string given, std::string accepted) {
    return Refusal{Fault::unsupported, std::string(row.name), std::move(argument),
                   std::move(given),   std::move(accepted),   ""};
  };
  if (row.device != machine.device)
    return refuse("device", std::string(name(machine.device)), std::string(name(row.device)));
  if (row.needs_tile_unit && machine.tile_unit == TileUnit::absent) return refuse("tile_unit", "none", "amx_bf16");
  if (row.needs_tile_unit && machine.tile_unit == TileUnit::denied)
    return refuse("tile_unit", std::string(name(machine.tile_unit)), "amx_bf16, granted to this process");
  if (auto refusal = refusal_of(row.domain, problem)) {
    refusal->kernel = row.name;
    return refusal;
  }
  return std::nullopt;
}

bool serves(const Kernel& row, const Problem& problem, const Machine& machine) {
  return row.device == machine.device && (!row.needs_tile_unit || machine.tile_unit == TileUnit::amx_bf16) &&
         admits(row.domain, problem);
}

Result<Plan> plan(const Problem& problem, const Machine& machine, const PlanOptions& options) {
  return plan_among(problem, machine, options, false);
}

Result<Plan> plan_row(const Kernel& row, const Problem& problem, const Machine& machine, const PlanOptions& options) {
  if (const Status right = plannable(problem, options); !right) return right.refusal();
  if (auto refusal = refusal_of(row, problem, machine)) return *refusal;
  return plan_for(row, problem, machine, options);
}

namespace {

/// Where lengths are given, the extent of keys is that of the longest sequence, which choice may not follow: a row that
/// wants some keys takes them all.
bool prefers(const Kernel& row, const Problem& problem) {
  const auto chosen = [&](Domain domain) {
    if (problem.seqlens_k) domain.keys = row.domain.keys;
    return admits(domain, problem);
  };
  return chosen(row.prefers) || chosen(row.prefers_also);
}

/// plan_among with the forced row's name as an argument; empty: none is forced.
Result<Plan> plan_with(const Problem& problem, const Machine& machine, const PlanOptions& options, bool built_only,
                       const std::string& forced) {
  if (const Status right = plannable(problem, options); !right) return right.refusal();
  if (!forced.empty()) {
    const Kernel* const row = find_kernel(forced);
    if (row == nullptr) return unknown_kernel(forced, options);
    return plan_row(*row, problem, machine, options);
  }
  const Kernel* fallback = nullptr;
  for (const Kernel& row : catalogue()) {
    if (!serves(row, problem, machine) || (built_only && row.run == nullptr)) continue;
    if (prefers(row, problem)) return plan_for(row, problem, machine, options);
    if (fallback == nullptr) fallback = &row;
  }
  if (fallback != nullptr) return plan_for(*fallback, problem, machine, options);
  return nobody_serves(problem, machine);
}

}  // namespace

Result<Plan> plan_among(const Problem& problem, const Machine& machine, const PlanOptions& options, bool built_only) {
  return plan_with(problem, machine, options, built_only, requested_kernel(options));
}

Result<Passes> plan_passes(const Problem& problem, const Machine& machine, const PlanOptions& options,
                           bool built_only) {
  const std::string forced = requested_kernel(options);
  const Kernel* const row = find_kernel(forced);
  const bool forces_backward = problem.grad && row != nullptr && row->domain.required.has(Feature::grad);
  Problem forward = problem;
  forward.grad = false;
  Result<Plan> first = plan_with(forward, machine, options, built_only, forces_backward ? "" : forced);
  if (!first) return first.refusal();
  Passes passes{std::move(*first), std::nullopt};
  if (!problem.grad) return passes;
  Result<Plan> second = plan_with(problem, machine, options, built_only, forces_backward ? forced : "");
  if (!second) return second.refusal();
  passes.backward = std::move(*second);
  return passes;
}

std::string_view Plan::kernel_name() const { return kernel == nullptr ? std::string_view() : kernel->name; }

std::string print(const Plan& plan) {
  return fmt::format("{} on {}: tile {} x {}, {} split{}, {} lane{} of {} bytes, {:.3g} operations, {:.3g} bytes",
                     plan.kernel_name(), name(plan.isa), plan.tile.queries, plan.tile.keys, plan.splits,
                     plan.splits == 1 ? "" : "s", plan.lanes, plan.lanes == 1 ? "" : "s", plan.lane_bytes,
                     plan.cost.operations, plan.cost.bytes);
}

Roundings roundings_of(const Plan& plan) { return plan.kernel->roundings(plan.problem, plan.tile); }

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const Kernel& row : catalogue()) names.emplace_back(row.name);
  return names;
}

}  // namespace fresnel
