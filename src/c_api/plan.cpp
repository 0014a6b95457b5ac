// SPDX-License-Identifier: Apache-2.0
// Plans for C: made once, run often, in the caller's workspace.
#include <memory>

#include "c_api/convert.hpp"

using namespace fresnel;
using c_api::guarded;

namespace {

/// What fresnel_plan_options say, and the machine that they name.
struct Wanted {
  PlanOptions options;
  Machine machine;
};

Wanted wanted_of(const fresnel_plan_options* given) {
  if (given == nullptr) return {{}, c_api::machine_of(nullptr)};
  c_api::known(given, "options");
  return {{given->kernel == nullptr ? "" : given->kernel, given->lanes}, c_api::machine_of(given->machine)};
}

}  // namespace

fresnel_status fresnel_plan_create(const fresnel_problem* problem, const fresnel_plan_options* options,
                                   fresnel_plan** plan) noexcept {
  return guarded([&]() -> Status {
    c_api::require(plan, "plan");
    *plan = nullptr;
    c_api::require(problem, "problem");
    const Wanted wanted = wanted_of(options);
    const Result<Plan> made = fresnel::plan(problem->problem, wanted.machine, wanted.options);
    if (!made) return made.refusal();
    *plan = std::make_unique<fresnel_plan>(fresnel_plan{*made, std::string(made->kernel_name())}).release();
    return Done{};
  });
}

fresnel_status fresnel_explain(const fresnel_problem* problem, const fresnel_plan_options* options, char* text,
                               size_t capacity, size_t* needed) noexcept {
  return guarded([&]() -> Status {
    c_api::require(problem, "problem");
    const Wanted wanted = wanted_of(options);
    std::string lines;
    for (const Explanation& row : explain(problem->problem, wanted.machine, wanted.options))
      lines += (row.refusal ? row.refusal->message() : row.kernel + ": chosen") + "\n";
    c_api::write_text(lines, text, capacity, needed);
    return Done{};
  });
}

const char* fresnel_plan_kernel(const fresnel_plan* plan) noexcept {
  return plan == nullptr ? "" : plan->kernel.c_str();
}

size_t fresnel_plan_workspace_bytes(const fresnel_plan* plan) noexcept {
  return plan == nullptr ? 0 : plan->plan.workspace_bytes();
}

int fresnel_plan_lanes(const fresnel_plan* plan) noexcept { return plan == nullptr ? 0 : plan->plan.lanes; }

fresnel_status fresnel_plan_print(const fresnel_plan* plan, char* text, size_t capacity, size_t* needed) noexcept {
  return guarded([&]() -> Status {
    c_api::require(plan, "plan");
    c_api::write_text(print(plan->plan), text, capacity, needed);
    return Done{};
  });
}

void fresnel_plan_destroy(fresnel_plan* plan) noexcept { delete plan; }

fresnel_status fresnel_check_indices(const fresnel_problem* problem, const fresnel_inputs* inputs) noexcept {
  return guarded([&]() -> Status {
    c_api::require(problem, "problem");
    return check_indices(problem->problem, c_api::inputs_of(inputs));
  });
}

fresnel_status fresnel_run(const fresnel_plan* plan, const fresnel_inputs* inputs, const fresnel_outputs* outputs,
                           void* workspace, size_t workspace_bytes, const fresnel_executor* executor) noexcept {
  return guarded([&]() -> Status {
    c_api::require(plan, "plan");
    if (workspace_bytes > 0) c_api::require(workspace, "workspace");
    std::optional<c_api::BorrowedExecutor> borrowed = c_api::executor_of(executor);
    return run(plan->plan, c_api::inputs_of(inputs), c_api::outputs_of(outputs),
               {static_cast<std::byte*>(workspace), workspace_bytes}, borrowed ? *borrowed : default_executor());
  });
}
