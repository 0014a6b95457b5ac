// SPDX-License-Identifier: Apache-2.0
// Where a tensor lies is nobody's business: axis order, alignment, padding, reversed and expanded axes change no bit of
// a CPU row's answer, padding is never written, and the last axis is contiguous or refused.
#include <fmt/format.h>

#include "habits/habits.hpp"

namespace fresnel::test {
namespace {

const std::vector<std::string> lines{
    "b2 h4/2 q9 k37 d64 f32 causal",
    "b2 h2 q5 k70 d33/20 f32 w9,4 cap5",
    "b2 h6/3 q3 k19 d8 f32 alibi:batch lens",
    "b1 h2/1 q66 k66 d16 f32 causal nolse",
};

Scenario with_lengths(const Problem& problem) {
  Scenario scenario(problem, 7);
  if (problem.seqlens_k) scenario.set_lengths({problem.keys - 3, problem.keys / 2});
  return scenario;
}

bool can(const Runner& runner, const LayoutClass& layout) {
  return runner.domain().axis_orders.has(layout.order) && (runner.domain().unaligned || layout.aligned);
}

void every_layout_class_gives_the_same_bits(const Runner& runner, Faults& faults) {
  const std::vector<LayoutClass> classes{{AxisOrder::bshd, true}, {AxisOrder::bhsd, false}, {AxisOrder::bshd, false}};
  for (const Problem& problem : problems_for(runner, lines)) {
    const Answer expected = compute_and_judge(runner, with_lengths(problem));
    for (const LayoutClass& layout : classes) {
      if (!can(runner, layout)) continue;
      for (int mask = 1; mask < 16; ++mask) {  // every set of tensors that may differ
        Problem other = problem;
        const std::array tensors{&other.q, &other.k, &other.v, &other.o};
        for (std::size_t index = 0; index < tensors.size(); ++index)
          if ((mask >> index) & 1) *tensors[index] = layout;
        const std::string fault = difference(compute(runner, with_lengths(other)), expected);
        faults.expect(fault.empty(), fmt::format("{}: {}", print(other), fault));
      }
    }
  }
}

/// Values that do not change along the axes stored once.
Index folded(Index at, const std::array<bool, 4>& expanded) {
  for (std::size_t axis = 0; axis < 4; ++axis)
    if (expanded[axis]) at[axis] = 0;
  return at;
}

void expanded_axes_give_the_bits_of_copies(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, lines)) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      for (const auto tensor : {&Scenario::q, &Scenario::k, &Scenario::v}) {
        Placement placement;
        placement.expanded[axis] = true;
        Scenario copies = with_lengths(problem);
        const HostTensor before = copies.*tensor;
        (copies.*tensor).fill([&](const Index& at) { return before.get(folded(at, placement.expanded)); });
        Scenario expanded = copies;
        expanded.place(tensor, placement);
        const std::string fault = difference(compute(runner, expanded), compute(runner, copies));
        faults.expect(fault.empty(), fmt::format("stride 0 on axis {}: {}", axis, fault));
      }
    }
  }
}

void reversed_axes_give_the_bits_of_copies(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, lines)) {
    const Answer expected = compute(runner, with_lengths(problem));
    for (int mask = 1; mask < 8; ++mask) {
      Placement placement;
      for (std::size_t axis = 0; axis < 3; ++axis) placement.reversed[axis] = (mask >> axis) & 1;
      Scenario scenario = with_lengths(problem);
      for (const auto tensor : {&Scenario::q, &Scenario::k, &Scenario::v}) scenario.place(tensor, placement);
      const std::string fault = difference(compute(runner, scenario), expected);
      faults.expect(fault.empty(), fmt::format("negative strides: {}", fault));
    }
  }
}

void strides_of_single_axes_are_ignored(const Runner& runner, Faults& faults) {
  for (const Problem& problem :
       problems_for(runner, {"b1 h1 q1 k9 d1 f32", "b1 h1 q4 k1 d5 f32", "b1 h2/1 q1 k3 d8/1 f32"})) {
    const Scenario scenario(problem, 8);
    Answer expected = compute(runner, scenario);
    const std::vector<std::int64_t> odd_strides{0, -1, 3, INT64_MAX, INT64_MIN};
    for (const std::int64_t odd : odd_strides) {
      Inputs inputs = scenario.inputs();
      Answer answer = expected;
      answer.o.fill([](const Index&) { return 77.0; });
      Outputs outputs = answer.outputs();
      const auto spoil = [odd](auto& view) {
        for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis)
          if (view.sizes[axis] == 1) view.strides[axis] = odd;
      };
      spoil(inputs.q), spoil(inputs.k), spoil(inputs.v), spoil(outputs.o);
      if (outputs.lse) spoil(*outputs.lse);
      const Result<Problem> described = describe(problem.options, inputs, outputs);
      if (!described) throw BrokenRun(fmt::format("stride {}: {}", odd, described.refusal().message()));
      const Plan plan = runner.plan(*described).value();
      run_guarded(runner, plan, inputs, outputs, {});
      const std::string fault = difference(answer, expected);
      faults.expect(fault.empty(), fmt::format("stride {} on axes of length 1: {}", odd, fault));
    }
  }
}

/// The output may have gaps and any axis order of its own; what lies between its rows is not ours to write.
void outputs_keep_what_lies_between_rows(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, lines)) {
    const Scenario scenario = with_lengths(problem);
    const Answer expected = compute(runner, scenario);
    for (const AxisOrder order : {AxisOrder::bhsd, AxisOrder::bshd}) {
      for (const std::int64_t padding : {1, 2, 5, 16}) {
        Answer answer = expected;
        answer.o = HostTensor(problem.dtype, {problem.batch, problem.heads_q, problem.queries, problem.value_dim},
                              {.order = order, .row_padding = padding});
        const Outputs outputs = answer.outputs();
        const Plan plan = runner.plan(describe(problem.options, scenario.inputs(), outputs).value()).value();
        run_guarded(runner, plan, scenario.inputs(), outputs, {});
        faults.expect(answer.o.guards_intact(), fmt::format("{}: wrote between rows of o", print(plan.problem)));
        const std::string fault = difference(answer, expected);
        faults.expect(fault.empty(), fault);
      }
    }
  }
}

constexpr Habit habits[] = {
    {"every_layout_class_gives_the_same_bits", every_layout_class_gives_the_same_bits},
    {"expanded_axes_give_the_bits_of_copies", expanded_axes_give_the_bits_of_copies},
    {"reversed_axes_give_the_bits_of_copies", reversed_axes_give_the_bits_of_copies},
    {"strides_of_single_axes_are_ignored", strides_of_single_axes_are_ignored},
    {"outputs_keep_what_lies_between_rows", outputs_keep_what_lies_between_rows},
};

}  // namespace

std::span<const Habit> layout_habits() { return habits; }

}  // namespace fresnel::test
