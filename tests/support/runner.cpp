// SPDX-License-Identifier: Apache-2.0
// Plans that are forced. A row of the catalogue goes through the planner by name; a row that exists only in tests gets
// the same steps here: the Problem must mean something, the domain must hold it, and the row's own functions do the
// rest.
#include "support/runner.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "support/rows.hpp"

namespace fresnel::test {

std::string Faults::message() const {
  if (none()) return {};
  std::string text = fmt::format("{} fault(s)", count_);
  for (const std::string& one : texts_) text += "\n  " + one;
  return text;
}

std::string Runner::name() const { return fmt::format("{} on {}", row_->name, fresnel::name(isa_)); }

Machine Runner::machine() const {
  Machine machine = Machine::host();
  machine.isa = isa_;
  return machine;
}

Result<Plan> Runner::plan(const Problem& problem, int lanes) const {
  if (listed_) {
    Result<Plan> planned = fresnel::plan(problem, machine(), {.kernel = std::string(row_->name), .lanes = lanes});
    if (planned && (planned->kernel != row_ || planned->kernel_name() != row_->name || planned->isa != isa_))
      return Refusal{Fault::bad_input, std::string(row_->name), "plan", print(*planned), name(), {}};
    return planned;
  }
  if (Status meaning = validate(problem); !meaning) return meaning.refusal();
  if (auto refusal = refusal_of(row_->domain, problem)) {
    refusal->kernel = row_->name;
    return *refusal;
  }
  Plan plan;
  plan.problem = problem;
  plan.kernel = row_;
  plan.isa = isa_;
  plan.tile = row_->tile(problem, machine());
  plan.lanes = std::max(lanes, 1);
  plan.lane_bytes = (row_->lane_bytes(problem, plan.tile) + 63) / 64 * 64;
  if (row_->shared_bytes != nullptr) plan.shared_bytes = (row_->shared_bytes(problem, plan.tile) + 63) / 64 * 64;
  return plan;
}

Roundings Runner::roundings(const Plan& plan) const {
  return listed_ ? roundings_of(plan) : row_->roundings(plan.problem, plan.tile);
}

std::vector<Isa> isas_here() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx3, Isa::neon})
    if (runs_here(isa)) isas.push_back(isa);
  return isas;
}

std::vector<Runner> catalogue_runners() {
  std::vector<Runner> runners;
  for (const Kernel* const row : rows_here()) {
    if (row->domain.required.has(Feature::grad)) continue;
    for (const Isa isa : isas_of(*row)) runners.emplace_back(*row, isa, is_listed(*row));
  }
  return runners;
}

std::vector<DType> dtypes_of(const Runner& runner) {
  std::vector<DType> dtypes;
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    if (runner.has(dtype)) dtypes.push_back(dtype);
  return dtypes;
}

}  // namespace fresnel::test
