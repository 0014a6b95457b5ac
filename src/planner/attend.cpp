// SPDX-License-Identifier: Apache-2.0
// The end of the corridor: run a plan, or walk the whole corridor at once.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/kernel.hpp"
#include "planner/selection.hpp"
#include "runtime/amx.hpp"
#include "runtime/memory.hpp"

namespace fresnel {
namespace {

/// True where two problems compute the same thing on tensors of the same shape; memory layout may differ, since a CPU
/// row gives the same bits for every layout class.
bool same_work(Problem first, const Problem& second) {
  first.q = second.q;
  first.k = second.k;
  first.v = second.v;
  first.o = second.o;
  return first == second;
}

/// The views have to describe the problem that was planned.
Status views_fit(const Problem& problem, const Inputs& inputs, const Outputs& outputs) {
  const Result<Problem> described = describe(problem.options, inputs, outputs);
  if (!described) return described.refusal();
  if (!same_work(*described, problem))
    return Refusal{Fault::bad_input,
                   "",
                   "problem",
                   "views of '" + print(*described) + "'",
                   "views of '" + print(problem) + "'",
                   ""};
  return Done{};
}

/// A forward plan reads no dout and writes no gradients, whoever else uses the views.
Inputs inputs_of(const Plan& plan, Inputs inputs) {
  if (!plan.problem.grad) inputs.dout.reset();
  return inputs;
}
Outputs outputs_of(const Plan& plan, Outputs outputs) {
  if (!plan.problem.grad)
    for (auto* gradient : {&outputs.dq, &outputs.dk, &outputs.dv, &outputs.dalibi_slopes}) gradient->reset();
  return outputs;
}

/// Plans for this host, among the rows that are built.
Result<Passes> plan_here(const Problem& problem, const PlanOptions& options) {
  try {
    return plan_passes(problem, Machine::host(), options, true);
  } catch (const Error& error) {  // FRESNEL_ISA or FRESNEL_THREADS is wrong
    return error.refusal();
  }
}

}  // namespace

Status run(const Plan& plan, const Inputs& all_inputs, const Outputs& all_outputs, std::span<std::byte> workspace,
           Executor& executor) {
  const Inputs inputs = inputs_of(plan, all_inputs);
  const Outputs outputs = outputs_of(plan, all_outputs);
  if (plan.kernel == nullptr)
    return Refusal{Fault::bad_input, "", "plan", "an empty plan", "a plan made by plan()", ""};
  if (plan.kernel->run == nullptr)
    return Refusal{Fault::device,
                   std::string(plan.kernel_name()),
                   "build",
                   "not part of this build",
                   "a build with this kernel",
                   ""};
  if (!runs_here(plan.isa))
    return Refusal{Fault::device,
                   std::string(plan.kernel_name()),
                   "isa",
                   std::string(name(plan.isa)),
                   "an instruction set of this host",
                   ""};
  if (plan.kernel->needs_tile_unit && tile_unit_here() != TileUnit::amx_bf16)
    return Refusal{Fault::device, std::string(plan.kernel_name()), "tile_unit", std::string(name(tile_unit_here())),
                   "amx_bf16",    ""};
  if (const Status fit = views_fit(plan.problem, inputs, outputs); !fit) return fit;
  if (workspace.size() < plan.workspace_bytes())
    return Refusal{Fault::bad_input,
                   "",
                   "workspace",
                   fmt::format("{} bytes", workspace.size()),
                   fmt::format("at least {} bytes", plan.workspace_bytes()),
                   ""};
  if (reinterpret_cast<std::uintptr_t>(workspace.data()) % 64 != 0)
    return Refusal{Fault::bad_input,    "", "workspace", "an address that is not a multiple of 64",
                   "64-byte alignment", ""};
  plan.kernel->run({plan, inputs, outputs, workspace, executor});
  return Done{};
}

Result<Report> attend(const Problem& problem, const Inputs& inputs, const Outputs& outputs, const Context& context) {
  if (const Status valid = validate(problem); !valid) return valid.refusal();
  if (const Status fit = views_fit(problem, inputs, outputs); !fit) return fit.refusal();
  if (const Status right = check_indices(problem, inputs); !right) return right.refusal();
  PlanOptions options = context.options;
  if (options.lanes == 0 && context.executor != nullptr) options.lanes = context.executor->width();
  const Result<Passes> made = plan_here(problem, options);
  if (!made) return made.refusal();
  const Plan& forward = made->forward;
  const std::optional<Plan>& backward = made->backward;

  std::span<std::byte> workspace = context.workspace;
  AlignedBuffer owned;
  if (workspace.empty()) {
    const std::size_t bytes = std::max(forward.workspace_bytes(), backward ? backward->workspace_bytes() : 0);
    Result<AlignedBuffer> buffer = AlignedBuffer::allocate(bytes, "workspace");
    if (!buffer) return buffer.refusal();
    owned = std::move(*buffer);
    workspace = owned.span();
  }
  Executor& executor = context.executor != nullptr ? *context.executor : default_executor();
  if (const Status done = run(forward, inputs, outputs, workspace, executor); !done) return done.refusal();
  if (!backward) return Report{std::string(forward.kernel_name()), forward};
  if (const Status done = run(*backward, inputs, outputs, workspace, executor); !done) return done.refusal();
  return Report{std::string(forward.kernel_name()), forward, std::string(backward->kernel_name()), backward};
}

Result<Report> attend(const Options& options, const Inputs& inputs, const Outputs& outputs, const Context& context) {
  const Result<Problem> problem = describe(options, inputs, outputs);
  if (!problem) return problem.refusal();
  return attend(*problem, inputs, outputs, context);
}

}  // namespace fresnel
