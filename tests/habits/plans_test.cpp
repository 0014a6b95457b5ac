// SPDX-License-Identifier: Apache-2.0
// Plans: a pure function of what they may read and of nothing else; rows forced by name or by the environment; the name
// of the row that ran. What a choice may never follow: batch, heads, threads, cores, measured rates.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>

#include "habits/habits.hpp"
#include "planner/selection.hpp"

namespace fresnel::test {
namespace {

/// Sets an environment variable for a scope.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

const std::vector<std::string> lines{
    "b2 h8/2 q128 k1024 d64 f32 causal", "b1 h4 q1 k4096 d128 f32",      "b2 h4/2 q33 k70 d80 f32 w16,- cap5 alibi",
    "b1 h2 q500 k3 d256/64 f32 lens",    "b1 h2/1 q64 k64 d576/512 f32", "b3 h4 q1000 k1000 d8 f32 topleft bshd",
};

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const std::string& line : lines)
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      all.push_back(problem_of(line));
      all.back().dtype = dtype;
    }
  return all;
}

void expect_same_choice(const Result<Plan>& plan, const Result<Plan>& other, const std::string& what) {
  ASSERT_EQ(plan.ok(), other.ok()) << what;
  if (!plan) return;
  EXPECT_EQ(plan->kernel_name(), other->kernel_name()) << what;
  EXPECT_EQ(plan->tile, other->tile) << what;
  EXPECT_EQ(plan->splits, other->splits) << what;
}

TEST(Plans, EqualInputsGiveEqualPlans) {
  for (const Problem& problem : problems()) {
    const Result<Plan> first = plan(problem, Machine::host()), second = plan(problem, Machine::host());
    expect_same_choice(first, second, print(problem));
    if (!first) continue;
    EXPECT_EQ(first->problem, problem);
    EXPECT_EQ(first->isa, second->isa);
    EXPECT_EQ(first->lanes, second->lanes);
    EXPECT_EQ(first->lane_bytes, second->lane_bytes);
    EXPECT_EQ(first->cost.operations, second->cost.operations);
    EXPECT_EQ(print(*first), print(*second));
  }
}

TEST(Plans, ChoiceReadsNoBatchAndNoHeads) {
  for (const Problem& problem : problems())
    for (const auto& [batch, more] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {64, 1}, {3, 16}, {100000, 3}}) {
      Problem other = problem;
      other.batch = batch;
      other.heads_q *= more;
      other.heads_kv *= more;
      expect_same_choice(plan(problem, Machine::host()), plan(other, Machine::host()), print(other));
      for (const Runner& runner : catalogue_runners())
        expect_same_choice(runner.plan(problem), runner.plan(other), runner.name() + ": " + print(other));
    }
}

TEST(Plans, ChoiceReadsNoThreadsCoresOrRates) {
  for (const Problem& problem : problems())
    for (const int count : {1, 2, 7, 64, 256}) {
      Machine other = Machine::host();
      other.cores = count;
      other.threads = 2 * count;
      other.name = "another";
      other.f32_tflops = 0.1 * count;
      other.f64_tflops = 0.05 * count;
      other.dram_gbps = 10.0 * count;
      expect_same_choice(plan(problem, Machine::host()), plan(problem, other),
                         fmt::format("{}, {} cores", print(problem), count));
      for (const std::string& row : kernel_names())
        expect_same_choice(plan(problem, Machine::host(), {.kernel = row}),
                           plan(problem, other, {.kernel = row, .lanes = count}),
                           fmt::format("{}, {} cores", print(problem), count));
    }
}

/// This host, and the same with a tile unit: a plan is made without it.
std::vector<Machine> machines() {
  Machine with_tiles = Machine::host();
  with_tiles.isa = Isa::avx3;
  with_tiles.tile_unit = TileUnit::amx_bf16;
  return {Machine::host(), with_tiles};
}

/// Where lengths are given, Sk is the longest sequence's: neither the row nor its tile may follow it.
TEST(Plans, ChoiceReadsNoLongestLength) {
  for (const Machine& machine : machines())
    for (Problem problem : problems()) {
      problem.seqlens_k = true;
      for (const std::int64_t keys : {std::int64_t{1}, std::int64_t{100}, std::int64_t{100000}}) {
        Problem other = problem;
        other.keys = keys;
        expect_same_choice(plan(problem, machine), plan(other, machine), print(other));
      }
    }
}

TEST(Plans, LanesAreAtMostWhatWasAsked) {
  for (const Problem& problem : problems())
    for (const std::string& row : kernel_names())
      for (const int lanes : {1, 2, 7, 64}) {
        const Result<Plan> made = plan(problem, Machine::host(), {.kernel = row, .lanes = lanes});
        if (!made) continue;
        EXPECT_GE(made->lanes, 1) << print(problem);
        EXPECT_LE(made->lanes, lanes) << print(problem);
        EXPECT_EQ(made->workspace_bytes(),
                  made->shared_bytes + made->lane_bytes * static_cast<std::size_t>(made->lanes));
      }
  const Result<Plan> refused = plan(problems().front(), Machine::host(), {.kernel = {}, .lanes = -1});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.refusal().argument, "lanes");
}

TEST(Plans, EveryInstructionSetOfTheHostIsPlannedAndRuns) {
  const std::vector<Isa> isas = isas_here();
  ASSERT_FALSE(isas.empty());
  EXPECT_TRUE(runs_here(Machine::host().isa));
  const Scenario scenario("b1 h2 q9 k33 d64 f32 causal");
  for (const Runner& runner : catalogue_runners()) {
    if (!admits(runner.domain(), scenario.problem)) continue;
    const Answer answer = compute_and_judge(runner, scenario);
    EXPECT_EQ(answer.plan.kernel_name(), runner.row().name);
    EXPECT_EQ(answer.plan.isa, runner.machine().isa);
  }
}

TEST(Plans, AnInstructionSetTheHostLacksIsPlannedButNotRun) {
  const Scenario scenario("b1 h2 q9 k33 d64 f32 causal");
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx3, Isa::neon}) {
    if (runs_here(isa)) continue;
    Machine machine = Machine::host();
    machine.isa = isa;
    const Result<Plan> made = plan(scenario.problem, machine);
    if (!made) continue;
    HostTensor o(DType::f32, {1, 2, 9, 64}), lse(DType::f32, {1, 2, 9});
    AlignedBytes workspace(made->workspace_bytes());
    SerialExecutor executor;
    const Status status = run(*made, scenario.inputs(), {o.mutable_view(), lse.mutable_view()}, workspace, executor);
    ASSERT_FALSE(status.ok()) << name(isa);
    EXPECT_EQ(status.refusal().argument, "isa");
  }
}

TEST(Forcing, TheEnvironmentForcesARow) {
  const Scenario scenario("b1 h2 q9 k33 d64 f32 causal");
  HostTensor o(DType::f32, {1, 2, 9, 64}), lse(DType::f32, {1, 2, 9});
  for (const std::string& row : kernel_names()) {
    const Environment forced("FRESNEL_KERNEL", row);
    const Result<Plan> made = plan(scenario.problem, Machine::host());
    if (!made) continue;
    EXPECT_EQ(made->kernel_name(), row);
    if (find_kernel(row)->run == nullptr) continue;
    const Result<Report> report = attend(scenario.problem, scenario.inputs(), {o.mutable_view(), lse.mutable_view()});
    ASSERT_TRUE(report.ok()) << report.refusal().message();
    EXPECT_EQ(report->kernel, row);
    EXPECT_EQ(report->plan.kernel_name(), row);
  }
}

TEST(Forcing, AnOptionOutranksTheEnvironment) {
  const Environment forced("FRESNEL_KERNEL", "cpu.flash");
  const Result<Plan> made =
      plan(problem_of("b1 h2 q9 k33 d64 f32"), Machine::host(), {.kernel = "cpu.decode", .lanes = 1});
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->kernel_name(), "cpu.decode");
}

void expect_refused_with_all_names(const Result<Plan>& made, const std::string& argument) {
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.refusal().argument, argument);
  EXPECT_NE(made.refusal().given.find("cpu.flahs"), std::string::npos) << made.refusal().message();
  for (const std::string& row : kernel_names())
    EXPECT_NE(made.refusal().accepted.find(row), std::string::npos) << made.refusal().message();
}

TEST(Forcing, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const Problem problem = problem_of("b1 h2 q9 k33 d64 f32");
  expect_refused_with_all_names(plan(problem, Machine::host(), {.kernel = "cpu.flahs", .lanes = 0}), "kernel");
  const Environment forced("FRESNEL_KERNEL", "cpu.flahs");
  expect_refused_with_all_names(plan(problem, Machine::host()), "FRESNEL_KERNEL");
  const auto passes = plan_passes(problem, Machine::host(), {}, true);
  ASSERT_FALSE(passes.ok());
  EXPECT_EQ(passes.refusal().argument, "FRESNEL_KERNEL");
}

TEST(Forcing, ARowIsNeverForcedOutOfItsDomain) {
  for (const Kernel& row : catalogue()) {
    if (row.domain.head_dim.most == INT64_MAX || row.device != Device::cpu) continue;
    Problem problem = problem_of("b1 h2 q9 k33 d64 f32");
    if (!row.domain.dtypes.has(problem.dtype)) problem.dtype = DType::bf16;
    problem.head_dim = row.domain.head_dim.most + 1;
    Machine machine = Machine::host();
    machine.tile_unit = TileUnit::amx_bf16;
    const Environment forced("FRESNEL_KERNEL", std::string(row.name));
    const Result<Plan> refused = plan(problem, machine);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.refusal().kernel, row.name);
    EXPECT_EQ(refused.refusal().argument, "head_dim");
    EXPECT_EQ(refused.refusal().nearest, fmt::format("{}", row.domain.head_dim.most));
  }
}

TEST(Forcing, ATileUnitIsAskedForByName) {
  const Problem problem = problem_of("b1 h2 q99 k333 d64 bf16");
  Machine machine = Machine::host();
  for (const auto& [unit, given] : {std::pair{TileUnit::absent, "none"}, {TileUnit::denied, "denied"}}) {
    machine.tile_unit = unit;
    for (const Explanation& row : explain(problem, machine)) {
      const bool needs = find_kernel(row.kernel)->needs_tile_unit;
      EXPECT_EQ(needs, row.refusal && row.refusal->argument == "tile_unit") << row.kernel;
      if (needs) {
        EXPECT_EQ(row.refusal->given.substr(0, std::string_view(given).size()), given);
      }
    }
    EXPECT_NE(plan(problem, machine)->kernel_name(), "cpu.amx");
  }
}

TEST(Explaining, EveryRowHasOneLineAndOneIsChosen) {
  for (const Problem& problem : problems()) {
    const Result<Plan> made = plan(problem, Machine::host());
    const std::vector<Explanation> rows = explain(problem, Machine::host());
    ASSERT_EQ(rows.size(), catalogue().size());
    int chosen = 0;
    for (std::size_t index = 0; index < rows.size(); ++index) {
      EXPECT_EQ(rows[index].kernel, catalogue()[index].name);
      EXPECT_NE(rows[index].chosen, rows[index].refusal.has_value()) << "chosen, or why not";
      chosen += rows[index].chosen;
      if (rows[index].chosen) {
        EXPECT_EQ(rows[index].kernel, made->kernel_name());
      }
    }
    EXPECT_EQ(chosen, made.ok() ? 1 : 0);
  }
}

/// Which row ran, what it costs in memory, and why the others did not: nobody falls to a slow path in silence.
TEST(CasebookPlans, Row124_the_row_that_ran_is_reported_and_the_others_explained) {
  for (const char* line : {"b1 h2 q64 k300 d64 f32 causal", "b1 h2 q64 k300 d64 bf16 cap5", "b1 h1 q1 k300 d576 f16"}) {
    const Scenario scenario(line);
    const Problem& problem = scenario.problem;
    HostTensor o(problem.dtype, {1, problem.heads_q, problem.queries, problem.value_dim});
    HostTensor lse(DType::f32, {1, problem.heads_q, problem.queries});
    const Result<Report> report = attend(problem, scenario.inputs(), {o.mutable_view(), lse.mutable_view()});
    ASSERT_TRUE(report.ok()) << report.refusal().message();
    EXPECT_EQ(report->kernel, report->plan.kernel_name());
    EXPECT_NE(print(report->plan).find(report->kernel), std::string::npos) << print(report->plan);
    EXPECT_GT(report->plan.cost.score_bytes, 0) << line;
    for (const Explanation& row : explain(problem, Machine::host())) {
      EXPECT_EQ(row.chosen, row.kernel == report->kernel) << row.kernel;
      if (row.chosen) continue;
      ASSERT_TRUE(row.refusal.has_value()) << row.kernel;
      EXPECT_FALSE(row.refusal->argument.empty() || row.refusal->message().empty()) << row.kernel;
    }
    // The memory of the row that is chosen by itself does not follow the keys.
    Problem longer = problem;
    longer.keys *= 100;
    const Result<Plan> more = plan(longer, Machine::host(), {.kernel = "cpu.flash", .lanes = 1});
    const Result<Plan> less = plan(problem, Machine::host(), {.kernel = "cpu.flash", .lanes = 1});
    ASSERT_TRUE(more.ok() && less.ok());
    EXPECT_LE(more->workspace_bytes(), 2 * less->workspace_bytes()) << line;
  }
  // Outside of every row: no answer, and each row names what it misses.
  const Problem outside = problem_of("b1 h2 q4 k300 d600 f16");
  EXPECT_FALSE(plan(outside, Machine::host()).ok());
  for (const Explanation& row : explain(outside, Machine::host())) {
    EXPECT_FALSE(row.chosen) << row.kernel;
    ASSERT_TRUE(row.refusal.has_value()) << row.kernel;
    EXPECT_FALSE(row.refusal->accepted.empty()) << row.kernel;
  }
}

TEST(Attending, TheSameBitsWithAndWithoutAWorkspaceOfTheCallersOwn) {
  for (const Runner& runner : catalogue_runners()) {
    if (runner.machine().isa != Machine::host().isa || !runner.listed()) continue;
    const std::string row(runner.row().name);
    Problem problem = problem_of("b2 h4/2 q33 k70 d64 f32 causal");
    problem.dtype = dtypes_of(runner).back();
    problem.queries = std::min(problem.queries, runner.domain().queries.most);
    const Scenario scenario(problem);
    const Answer expected = compute(runner, scenario, {3, nullptr});
    AlignedBytes workspace(expected.plan.workspace_bytes());
    for (const std::span<std::byte> given : {std::span<std::byte>(), std::span<std::byte>(workspace)}) {
      Answer answer = expected;
      answer.o.fill([](const Index&) { return 5.0; });
      SerialExecutor executor(3);
      const Result<Report> report = attend(scenario.problem, scenario.inputs(), answer.outputs(),
                                           {&executor, given, {.kernel = row, .lanes = 3}});
      ASSERT_TRUE(report.ok()) << report.refusal().message();
      EXPECT_EQ(report->kernel, row);
      EXPECT_EQ(difference(answer, expected), "");
    }
  }
}

TEST(Attending, BadIndicesAreRefusedBeforeAnythingIsWritten) {
  for (const std::int64_t length : {std::int64_t{-1}, std::int64_t{8}}) {
    Scenario scenario("b2 h2 q3 k7 d8 f32 lens");
    scenario.set_lengths({7, length});
    HostTensor o(DType::f32, {2, 2, 3, 8}), lse(DType::f32, {2, 2, 3});
    const Result<Report> report = attend(scenario.problem, scenario.inputs(), {o.mutable_view(), lse.mutable_view()});
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.refusal().argument, "seqlens_k[1]");
    o.for_each_index([&](const Index& at) { EXPECT_EQ(o.bits(at), 0xffffffffu); });
  }
}

}  // namespace
}  // namespace fresnel::test
