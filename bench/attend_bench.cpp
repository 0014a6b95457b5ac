// SPDX-License-Identifier: Apache-2.0
// Times every row of the catalogue on the problems below: attend_bench --benchmark_filter=cpu.flash/.*d128. A row that
// refuses a problem or gives a wrong result is skipped with the reason, so that no time is printed for either. What is
// published comes from `fresnel time`, which keeps every sample; this is for the minutes between two edits of a kernel.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>

#include "fresnel/fresnel.hpp"
#include "inputs/inputs.hpp"
#include "kernels/kernel.hpp"
#include "runtime/memory.hpp"

namespace {

using namespace fresnel;

/// Each line is here for what it stresses.
constexpr std::array<std::string_view, 9> problems{
    "b1 h1 q1 k64 d64 f32",                // one small call: the fixed cost
    "b1 h8 q1 k4096 d128 f32",             // decoding: bandwidth
    "b1 h8/2 q1 k4096 d128 bf16",          // the same with half the bytes and shared heads
    "b1 h4 q512 k512 d64 f32",             // prefill that fits the caches
    "b1 h4 q2048 k2048 d64 f32",           // long prefill: arithmetic
    "b1 h4 q2048 k2048 d128 bf16 causal",  // half the tiles skipped, half inputs
    "b1 h4 q1024 k1024 d64 f16 w128,0",    // a band of edge tiles
    "b1 h4 q1000 k1000 d80 f32",           // nothing divides anything
    "b1 h2 q512 k512 d64 f64",
};

struct Case {
  const Kernel* kernel;
  std::string_view problem;
};

Result<Plan> planned(const Case& chosen) {
  const auto problem = parse_problem(chosen.problem);
  if (!problem) return problem.refusal();
  return plan(*problem, Machine::host(), {.kernel = std::string(chosen.kernel->name), .lanes = 0});
}

/// Runs once and has the result judged; the reason to skip, or nothing.
std::string fault_of(const Plan& plan, GeneratedInputs& tensors, AlignedBuffer& workspace) {
  const Status ran = run(plan, tensors.inputs(), tensors.outputs(), workspace.span(), default_executor());
  if (!ran) return ran.refusal().message();
  const auto verdict = check(plan.problem, tensors.inputs(), tensors.outputs(), roundings_of(plan));
  if (!verdict) return verdict.refusal().message();
  return verdict->ok() ? std::string() : "wrong result: see fresnel check --problem '" + print(plan.problem) + "'";
}

void time_case(benchmark::State& state, const Case& chosen) {
  const auto plan = planned(chosen);
  if (!plan) return state.SkipWithError(plan.refusal().message().c_str());
  auto tensors = make_inputs(plan->problem, input_kinds().front().name, 1);
  if (!tensors) return state.SkipWithError(tensors.refusal().message().c_str());
  auto workspace = AlignedBuffer::allocate(plan->workspace_bytes(), "workspace", Pages::huge);
  if (!workspace) return state.SkipWithError(workspace.refusal().message().c_str());
  if (const std::string fault = fault_of(*plan, *tensors, *workspace); !fault.empty()) {
    return state.SkipWithError(fault.c_str());
  }
  const Inputs inputs = tensors->inputs();
  const Outputs outputs = tensors->outputs();
  for (auto _ : state) {
    static_cast<void>(run(*plan, inputs, outputs, workspace->span(), default_executor()));
    benchmark::ClobberMemory();
  }
  state.counters["flop/s"] = benchmark::Counter(plan->cost.operations, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["byte/s"] = benchmark::Counter(plan->cost.bytes, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

int main(int count, char** arguments) {
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 2;
  if (const auto machine = Machine::detect(); !machine) {
    std::fprintf(stderr, "%s\n", machine.refusal().message().c_str());
    return 2;
  }
  for (const Kernel& kernel : catalogue()) {
    for (const std::string_view problem : problems) {
      const Case chosen{&kernel, problem};
      benchmark::RegisterBenchmark((std::string(kernel.name) + "/" + std::string(problem)).c_str(),
                                   [chosen](benchmark::State& state) { time_case(state, chosen); })
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
