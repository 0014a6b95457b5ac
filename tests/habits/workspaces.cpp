// SPDX-License-Identifier: Apache-2.0
// What a plan asks for and what run refuses: working memory that stays within the caches and grows no faster than a row
// of scores, no workspace that is too small, no views of another problem. A refused run leaves its outputs as they
// were.
#include <fmt/format.h>

#include <algorithm>

#include "habits/habits.hpp"

namespace fresnel::test {
namespace {

/// 320 KB for head dims up to 128 and 1 MB up to 576, and a few numbers for every key or query of the longest row.
std::size_t most_lane_bytes(const Problem& problem) {
  const bool narrow = std::max(problem.head_dim, problem.value_dim) <= 128;
  const auto longest = static_cast<std::size_t>(std::max(problem.queries, problem.keys));
  return (narrow ? 320u << 10 : 1u << 20) + 4 * sizeof(float) * longest;
}

void workspaces_stay_small(const Runner& runner, Faults& faults) {
  for (const int width : {1, 16, 64, 96, 128, 192, 256, 576})
    for (const std::int64_t queries : {1, 100, 5000, 1000000})
      for (const std::int64_t keys : {1, 100, 5000, 1000000})
        for (const char* options : {"", " causal alibi", " w100,0 cap5 lens"}) {
          const std::string line = fmt::format("b2 h8/2 q{} k{} d{} f32{}", queries, keys, width, options);
          for (const Problem& problem : problems_for(runner, {line})) {
            const Plan plan = runner.plan(problem, 4).value();
            faults.expect(plan.lane_bytes <= most_lane_bytes(problem),
                          fmt::format("{}: {} bytes for a lane", print(problem), plan.lane_bytes));
            faults.expect(plan.lane_bytes % 64 == 0,
                          fmt::format("{}: {} is no multiple of 64", print(problem), plan.lane_bytes));
            faults.expect(plan.lanes >= 1 && plan.lanes <= 4, fmt::format("{}: {} lanes", print(problem), plan.lanes));
          }
        }
}

/// Run must refuse, name an argument (this one, unless it is empty) and leave the outputs alone.
void expect_refused(const Plan& plan, const Inputs& inputs, const Answer& answer, const Outputs& outputs,
                    std::size_t workspace_bytes, const std::string& argument, const std::string& what, Faults& faults) {
  SerialExecutor executor;
  AlignedBytes workspace(workspace_bytes);
  const Answer before = answer;  // NOLINT(performance-unnecessary-copy-initialization): outputs may be its own
  const Status status = run(plan, inputs, outputs, workspace, executor);
  if (status) return faults.add(fmt::format("{}: not refused: {}", print(plan.problem), what));
  const std::string& named = status.refusal().argument;
  faults.expect(argument.empty() ? !named.empty() : named == argument,
                fmt::format("{}: {}: refused by '{}'", print(plan.problem), what, named));
  const std::string fault = difference(answer, before);
  faults.expect(fault.empty(), "a refused run wrote: " + fault);
}

void small_workspaces_are_refused(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b1 h2 q9 k33 d64 f32 causal"})) {
    const Scenario scenario(problem, 28);
    Answer answer = compute(runner, scenario, {2, nullptr});
    if (answer.plan.workspace_bytes() == 0) continue;
    for (const std::size_t bytes : {std::size_t{0}, answer.plan.lane_bytes, answer.plan.workspace_bytes() - 1})
      expect_refused(answer.plan, scenario.inputs(), answer, answer.outputs(), bytes, "workspace",
                     fmt::format("{} bytes", bytes), faults);
  }
}

void views_of_another_problem_are_refused(const Runner& runner, Faults& faults) {
  for (const Problem& problem :
       problems_for(runner, {"b1 h2 q9 k33 d16 f32 causal alibi lens", "b1 h2 q9 k33 d16 f32"})) {
    const Scenario scenario(problem, 29);
    Answer answer = compute(runner, scenario);
    const std::size_t bytes = answer.plan.workspace_bytes();
    const Inputs right = scenario.inputs();
    const Outputs outputs = answer.outputs();
    const auto refused = [&](const Inputs& inputs, const Outputs& given, const std::string& what) {
      expect_refused(answer.plan, inputs, answer, given, bytes, "", what, faults);
    };
    for (const auto member : {&Inputs::q, &Inputs::k, &Inputs::v}) {
      for (std::size_t axis = 0; axis < 4; ++axis) {
        Inputs wrong = right;
        (wrong.*member).sizes[axis] += 1;
        refused(wrong, outputs, fmt::format("axis {} of an input one longer", axis));
      }
      Inputs wrong = right;
      (wrong.*member).dtype = problem.dtype == DType::f32 ? DType::f64 : DType::f32;
      refused(wrong, outputs, "another dtype of an input");
    }
    Outputs no_lse = outputs;
    no_lse.lse.reset();
    refused(right, no_lse, "no lse");
    Inputs other = right;
    const HostTensor slopes(DType::f32, {2});
    other.alibi_slopes.reset();
    if (problem.alibi_slopes == AlibiSlopes::none) other.alibi_slopes = slopes.view();
    refused(other, outputs, "slopes that the plan knows nothing of, or none");
    other = right;
    const HostTensor lengths(DType::i32, {1});
    other.seqlens_k.reset();
    if (!problem.seqlens_k) other.seqlens_k = lengths.view();
    refused(other, outputs, "lengths that the plan knows nothing of, or none");
  }
}

/// A plan made for one layout, run on another, is refused or gives the same bits: never a guess about alignment.
void plans_of_another_layout_are_right_or_refused(const Runner& runner, Faults& faults) {
  for (const Problem& problem :
       problems_for(runner, {"b2 h4/2 q9 k33 d64 f32 causal", "b2 h4/2 q9 k33 d33/20 f32 bshd"})) {
    const Scenario scenario(problem, 30);
    const Answer expected = compute(runner, scenario);
    for (const LayoutClass& layout : {LayoutClass{AxisOrder::bshd, false}, LayoutClass{AxisOrder::bhsd, false}}) {
      Scenario other = scenario;
      for (const auto tensor : {&Scenario::q, &Scenario::k, &Scenario::v})
        other.place(tensor, placement_of(layout, problem.dtype, (other.*tensor).size(3)));
      Answer answer = expected;
      answer.o = HostTensor(problem.dtype, {problem.batch, problem.heads_q, problem.queries, problem.value_dim},
                            placement_of(layout, problem.dtype, problem.value_dim));
      SerialExecutor executor;
      AlignedBytes workspace(expected.plan.workspace_bytes());
      if (!run(expected.plan, other.inputs(), answer.outputs(), workspace, executor)) continue;
      const std::string fault = difference(answer, expected);
      faults.expect(fault.empty(), "run on another layout: " + fault);
    }
  }
}

constexpr Habit habits[] = {
    {"workspaces_stay_small", workspaces_stay_small},
    {"small_workspaces_are_refused", small_workspaces_are_refused},
    {"views_of_another_problem_are_refused", views_of_another_problem_are_refused},
    {"plans_of_another_layout_are_right_or_refused", plans_of_another_layout_are_right_or_refused},
};

}  // namespace

std::span<const Habit> workspace_habits() { return habits; }

}  // namespace fresnel::test
