// SPDX-License-Identifier: Apache-2.0
// Repeats, medians and floors: see execution.hpp.
#include "cli/execution.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "controls/controls.hpp"
#include "planner/selection.hpp"
#include "runtime/ceilings.hpp"
#include "semantics/mask.hpp"

namespace fresnel::cli {

Result<Runner> Runner::make(const Problem& problem, const Session& session, const std::string& kernel) {
  const PlanOptions options = session.plan_options(kernel);
  const Kernel* const control = controls::find(kernel);
  auto planned = control != nullptr ? plan_row(*control, problem, session.machine, options)
                                    : plan_among(problem, session.machine, options, true);
  if (!planned) return planned.refusal();
  return of(std::move(*planned));
}

Result<Runner> Runner::of(Plan plan) {
  auto scratch = AlignedBuffer::allocate(plan.workspace_bytes(), "workspace");
  if (!scratch) return scratch.refusal();
  return Runner(std::move(plan), std::move(scratch).value());
}

Result<PassRunners> PassRunners::make(const Problem& problem, const Session& session, const std::string& kernel) {
  const bool controlled =
      controls::find(kernel) != nullptr;  // the planner does not know controls; they run forward only
  auto passes = plan_passes(problem, session.machine, session.plan_options(controlled ? "" : kernel), true);
  if (!passes) return passes.refusal();
  auto forward =
      controlled ? Runner::make(passes->forward.problem, session, kernel) : Runner::of(std::move(passes->forward));
  if (!forward) return forward.refusal();
  PassRunners runners{std::move(forward).value(), std::nullopt};
  if (!passes->backward) return runners;
  auto backward = Runner::of(std::move(*passes->backward));
  if (!backward) return backward.refusal();
  runners.backward = std::move(backward).value();
  return runners;
}

Result<double> Runner::run(const Inputs& inputs, const Outputs& outputs, Executor& executor) {
  const auto start = std::chrono::steady_clock::now();
  const Status status = fresnel::run(plan_, inputs, outputs, scratch_.span(), executor);
  const auto stop = std::chrono::steady_clock::now();
  if (!status) return status.refusal();
  return std::chrono::duration<double>(stop - start).count();
}

double Timing::median() const {
  if (samples.empty()) return 0;
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

Result<Timing> run_repeatedly(Runner& runner, const Inputs& inputs, const Outputs& outputs, Executor& executor,
                              double budget) {
  constexpr double long_run = 1;
  constexpr std::size_t most_runs = 10'001;
  const auto first = runner.run(inputs, outputs, executor);
  if (!first) return first.refusal();
  if (*first >= long_run) return Timing{{*first}, false};
  Timing timing;
  timing.warmed = true;
  double spent = 0;
  while (timing.samples.empty() || (spent < budget && timing.samples.size() < most_runs)) {
    const auto taken = runner.run(inputs, outputs, executor);
    if (!taken) return taken.refusal();
    timing.samples.push_back(*taken);
    spent += *taken;
  }
  return timing;
}

double visible_operations(const Problem& problem, const Inputs& inputs) {
  const auto* lengths = inputs.seqlens_k ? static_cast<const std::int32_t*>(inputs.seqlens_k->data) : nullptr;
  const std::int64_t stride = inputs.seqlens_k ? inputs.seqlens_k->strides[0] : 0;
  double pairs = 0;
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    const Mask mask = mask_of(problem, lengths != nullptr ? lengths[batch * stride] : problem.keys);
    for (std::int64_t query = 0; query < problem.queries; ++query)
      pairs += static_cast<double>(mask.range(query).size());
    if (lengths == nullptr) {
      pairs *= static_cast<double>(problem.batch);  // all sequences are alike
      break;
    }
  }
  const double per_pair = 2.0 * static_cast<double>(problem.head_dim + problem.value_dim);
  return pairs * static_cast<double>(problem.heads_q) * per_pair;
}

double backward_operations(const Problem& problem, double forward) {
  const auto wide = static_cast<double>(problem.head_dim), deep = static_cast<double>(problem.value_dim);
  return forward * (3 * wide + 2 * deep) / (wide + deep);
}

std::optional<double> ceiling_of(const Ceilings& ceilings, const std::string& figure, int threads) {
  const std::optional<double> all = ceilings.of(figure);
  const std::optional<double> one = ceilings.of(figure + "_one_thread");
  if (!all || !one || threads >= ceilings.threads) return all;
  return std::min(*all, *one * threads);
}

std::optional<Floor> floor_of(const Plan& plan, double operations, const Session& session) {
  const std::optional<Ceilings> ceilings = load_ceilings(session.machine);
  if (!ceilings) return std::nullopt;
  const bool wide = plan.problem.dtype == DType::f64;
  const auto tflops = ceiling_of(*ceilings, wide ? "f64_fma_tflops" : "f32_fma_tflops", session.threads);
  const auto gbps = ceiling_of(*ceilings, "dram_read_gbps", session.threads);
  if (!tflops || !gbps || !(*tflops > 0) || !(*gbps > 0)) return std::nullopt;
  const double arithmetic = operations / (*tflops * 1e12);
  const double memory = plan.cost.bytes / (*gbps * 1e9);
  return Floor{std::max(arithmetic, memory), arithmetic >= memory};
}

}  // namespace fresnel::cli
