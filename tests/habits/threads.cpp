// SPDX-License-Identifier: Apache-2.0
// The same bits for any executor, any number of lanes, from run to run, inside a caller's own threads and from many
// threads that share one Plan. Executors that run tasks backwards or one after another make interleavings that luck
// would not.
#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <thread>

#include "habits/habits.hpp"

namespace fresnel::test {
namespace {

std::vector<Scenario> scenarios_for(const Runner& runner) {
  std::vector<Scenario> scenarios;
  for (const Problem& problem : problems_for(runner, {"b2 h4/2 q70 k150 d32 f32 causal", "b3 h2 q1 k300 d64 f32 lens",
                                                      "b1 h1 q33 k33 d64 f32 w9,3 cap5"})) {
    scenarios.emplace_back(problem, 16);
    if (problem.seqlens_k) scenarios.back().set_lengths({300, 0, 129});
  }
  return scenarios;
}

void same_bits_for_any_threads_and_lanes(const Runner& runner, Faults& faults) {
  std::vector<std::unique_ptr<Executor>> executors;
  for (const int threads : {1, 2, 7, 64}) executors.push_back(make_executor(threads));
  for (const int width : {1, 64})
    for (const bool backwards : {false, true}) executors.push_back(std::make_unique<SerialExecutor>(width, backwards));
  for (const Scenario& scenario : scenarios_for(runner)) {
    const Answer expected = compute_and_judge(runner, scenario);
    for (const auto& executor : executors) {
      for (const int lanes : {1, 2, 3, 4, 5, 6, 7, 8, 64}) {
        const std::string fault = difference(compute(runner, scenario, {lanes, executor.get()}), expected);
        faults.expect(fault.empty(), fmt::format("width {}, {} lanes: {}", executor->width(), lanes, fault));
      }
    }
  }
}

void same_bits_from_run_to_run(const Runner& runner, Faults& faults) {
  const auto executor = make_executor(4);
  for (const Scenario& scenario : scenarios_for(runner)) {
    const Answer expected = compute(runner, scenario, {4, executor.get()});
    for (int turn = 0; turn < 30; ++turn) {
      const std::string fault = difference(compute(runner, scenario, {4, executor.get()}), expected);
      faults.expect(fault.empty(), fmt::format("run {}: {}", turn, fault));
    }
  }
}

/// Calls `work(index)` on threads of the caller's own.
template <class Work>
void on_own_threads(int count, const Work& work) {
  std::vector<std::thread> threads;
  for (int index = 0; index < count; ++index) threads.emplace_back([&work, index] { work(index); });
  for (std::thread& thread : threads) thread.join();
}

/// Counts answers that differ; exceptions may not leave a thread, so they count too.
void count_difference(const Runner& runner, const Scenario& scenario, const How& how, const Answer& expected,
                      std::atomic<int>& wrong) {
  try {
    if (!difference(compute(runner, scenario, how), expected).empty()) ++wrong;
  } catch (const std::exception&) {
    ++wrong;
  }
}

void same_bits_inside_a_callers_threads(const Runner& runner, Faults& faults) {
  const auto shared = make_executor(3);
  for (const Scenario& scenario : scenarios_for(runner)) {
    const Answer expected = compute(runner, scenario);
    for (Executor* executor : {static_cast<Executor*>(nullptr), &default_executor(), shared.get()}) {
      std::atomic<int> wrong{0};
      on_own_threads(4, [&](int) { count_difference(runner, scenario, {4, executor}, expected, wrong); });
      faults.expect(wrong == 0,
                    fmt::format("{}: {} of 4 concurrent calls differ", print(scenario.problem), wrong.load()));
    }
  }
}

#ifdef _OPENMP
/// The same inside a parallel region of OpenMP, whose threads are not ours and keep their own ids.
void same_bits_inside_an_openmp_region(const Runner& runner, Faults& faults) {
  for (const Scenario& scenario : scenarios_for(runner)) {
    const Answer expected = compute(runner, scenario);
    for (Executor* executor : {static_cast<Executor*>(nullptr), &default_executor()}) {
      std::atomic<int> wrong{0};
#pragma omp parallel num_threads(4)
      count_difference(runner, scenario, {4, executor}, expected, wrong);
      faults.expect(wrong == 0, fmt::format("{}: {} of 4 calls differ", print(scenario.problem), wrong.load()));
    }
  }
}
#endif

/// A call from inside a task of the executor that it would use itself.
void same_bits_inside_an_executors_task(const Runner& runner, Faults& faults) {
  for (const Scenario& scenario : scenarios_for(runner)) {
    const Answer expected = compute(runner, scenario);
    std::atomic<int> wrong{0};
    const auto task = [&](int) { count_difference(runner, scenario, {4, &default_executor()}, expected, wrong); };
    default_executor().run(4, task);
    faults.expect(wrong == 0, fmt::format("{}: {} of 4 nested calls differ", print(scenario.problem), wrong.load()));
  }
}

void one_plan_serves_many_threads(const Runner& runner, Faults& faults) {
  for (const Scenario& scenario : scenarios_for(runner)) {
    const Answer expected = compute(runner, scenario, {2, nullptr});
    const Plan& plan = expected.plan;
    std::atomic<int> wrong{0};
    on_own_threads(8, [&](int) {
      Answer mine = expected;
      for (int turn = 0; turn < 3; ++turn) {
        mine.o.fill([](const Index&) { return -1.0; });
        try {
          run_guarded(runner, plan, scenario.inputs(), mine.outputs(), {2, nullptr});
          if (!difference(mine, expected).empty()) ++wrong;
        } catch (const std::exception&) {
          ++wrong;
        }
      }
    });
    faults.expect(wrong == 0, fmt::format("{}: {} of 24 runs of one plan differ", print(plan.problem), wrong.load()));
  }
}

constexpr Habit habits[] = {
    {"same_bits_for_any_threads_and_lanes", same_bits_for_any_threads_and_lanes},
    {"same_bits_from_run_to_run", same_bits_from_run_to_run},
    {"same_bits_inside_a_callers_threads", same_bits_inside_a_callers_threads},
#ifdef _OPENMP
    {"same_bits_inside_an_openmp_region", same_bits_inside_an_openmp_region},
#endif
    {"same_bits_inside_an_executors_task", same_bits_inside_an_executors_task},
    {"one_plan_serves_many_threads", one_plan_serves_many_threads},
};

}  // namespace

std::span<const Habit> thread_habits() { return habits; }

}  // namespace fresnel::test
