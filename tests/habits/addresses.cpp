// SPDX-License-Identifier: Apache-2.0
// Addresses: strides of 2^31 elements and more over memory that is mostly not there, and tensors that end or begin
// exactly where a forbidden page does. A 32-bit offset or a vector read past a row faults; each run has a process of
// its own, so that a crash is a fault of one habit and not the end of the test.
#include <fmt/format.h>

#include <cstdlib>

#include "habits/habits.hpp"
#include "support/spread.hpp"

namespace fresnel::test {
namespace {

/// Runs on spread views and compares with the answer on ordinary memory.
void same_bits_on(const Runner& runner, const Scenario& scenario, const Inputs& inputs, const Outputs& outputs,
                  const Answer& expected) {
  const Plan plan = runner.plan(describe(scenario.problem.options, inputs, outputs).value()).value();
  run_guarded(runner, plan, inputs, outputs, {});
  Answer answer = expected;
  gather(outputs.o, answer.o);
  if (outputs.lse) gather(*outputs.lse, *answer.lse);
  const std::string fault = difference(answer, expected);
  if (!fault.empty()) throw BrokenRun(fault);
}

void huge_strides_reach_the_right_rows(const Runner& runner, Faults& faults) {
  // 2^31 wraps to a negative offset in 32 bits and 2 x 2^31 to a small one that is open memory with other data.
  const std::vector<std::int64_t> huge_strides{(std::int64_t{1} << 31) + 512, (std::int64_t{1} << 32) + 512,
                                               -(std::int64_t{1} << 31) - 512};
  for (const Problem& problem : problems_for(runner, {"b3 h3 q3 k3 d8 f32 causal topleft"})) {
    const Scenario scenario(problem, 9);
    Answer expected = compute(runner, scenario);
    for (const std::int64_t huge : huge_strides) {
      for (std::size_t axis = 0; axis < 3; ++axis) {
        const bool held = survives([&] {
          const std::int64_t reach = 3 * std::abs(huge) * size_of(DType::f64);
          const SparseRegion region(static_cast<std::size_t>(6 * reach));
          const std::int64_t start = huge < 0 ? reach - (1 << 20) : 1 << 20;
          const auto in = [&](const HostTensor& tensor, std::int64_t slot) {
            return spread<View>(region, tensor, stretched(tensor, axis, huge), slot * reach + start);
          };
          const auto out = [&](const HostTensor& tensor, std::int64_t slot) {
            const bool inner = tensor.view().rank == 3 && axis == 2;  // the last axis of lse stays contiguous
            const Strides strides = inner ? dense(tensor) : stretched(tensor, axis, std::abs(huge));
            return spread<MutableView>(region, tensor, strides, slot * reach + (1 << 20));
          };
          const Inputs inputs{in(scenario.q, 0), in(scenario.k, 1), in(scenario.v, 2), {}, {}};
          same_bits_on(runner, scenario, inputs, {out(unwritten(expected.o), 3), out(unwritten(*expected.lse), 4)},
                       expected);
        });
        faults.expect(held, fmt::format("{}: stride {} on axis {}", print(problem), huge, axis));
      }
    }
  }
}

/// Strides that 32 bits hold, and 32 bits hold the offset of no tile but the first: what counts rows by tiles
/// multiplies a tile's first row by its stride.
void rows_beyond_32_bits_are_reached_by_small_strides(const Runner& runner, Faults& faults) {
  constexpr std::int64_t rows = 200, stride = (std::int64_t{1} << 31) / 130;
  for (const Problem& problem : problems_for(runner, {"b1 h1 q200 k200 d8 f32 w70,70", "b1 h2/1 q9 k200 d8 f32"})) {
    const Scenario scenario(problem, 11);
    Answer expected = compute(runner, scenario);
    const bool held = survives([&] {
      const std::int64_t reach = rows * stride * size_of(problem.dtype);
      const SparseRegion region(static_cast<std::size_t>(4 * reach + (1 << 20)));
      // Heads lie close together, rows far apart.
      const auto apart = [&](const HostTensor& tensor) { return Strides{0, tensor.size(3), stride, 1}; };
      const Inputs inputs{spread<View>(region, scenario.q, apart(scenario.q), 0),
                          spread<View>(region, scenario.k, apart(scenario.k), reach),
                          spread<View>(region, scenario.v, apart(scenario.v), 2 * reach),
                          {},
                          {}};
      Answer answer = expected;
      const MutableView o = spread<MutableView>(region, unwritten(expected.o), apart(expected.o), 3 * reach);
      const Outputs outputs{o, answer.lse->mutable_view()};
      const Plan plan = runner.plan(describe(problem.options, inputs, outputs).value()).value();
      run_guarded(runner, plan, inputs, outputs, {});
      gather(o, answer.o);
      const std::string fault = difference(answer, expected);
      if (!fault.empty()) throw BrokenRun(fault);
    });
    faults.expect(held, fmt::format("{}: rows {} elements apart", print(problem), stride));
  }
}

/// Every input and output ends at the last byte of a page, or begins at the first, and the neighbours are forbidden.
void nothing_outside_the_tensors_is_touched(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(
           runner, {"b1 h1 q3 k5 d7 f32", "b1 h2/1 q2 k19 d33/20 f32 causal", "b2 h1 q1 k70 d1 f32",
                    "b1 h1 q5 k3 d80/96 f32 cap5", "b1 h1 q17 k66 d64 f32", "b1 h3 q1 k17 d17/9 f32 alibi lens"})) {
    const Scenario scenario(problem, 10);
    Answer expected = compute(runner, scenario);
    for (const bool at_end : {true, false}) {
      const bool held = survives([&] {
        const std::int64_t page = SparseRegion::page_bytes(), reach = 64 * page;
        const SparseRegion region(static_cast<std::size_t>(8 * reach));
        std::int64_t slot = 0;
        const auto place = [&]<class AnyView>(AnyView, const HostTensor& tensor) {
          const std::int64_t bytes = tensor.elements() * size_of(tensor.dtype());
          const std::int64_t first = slot++ * reach + (at_end ? 32 * page - bytes : page);
          return spread<AnyView>(region, tensor, dense(tensor), first);
        };
        Inputs inputs{place(View{}, scenario.q), place(View{}, scenario.k), place(View{}, scenario.v), {}, {}};
        if (scenario.slopes) inputs.alibi_slopes = place(View{}, *scenario.slopes);
        if (scenario.lengths) inputs.seqlens_k = place(View{}, *scenario.lengths);
        const MutableView o = place(MutableView{}, unwritten(expected.o));
        same_bits_on(runner, scenario, inputs, {o, place(MutableView{}, unwritten(*expected.lse))}, expected);
      });
      faults.expect(held,
                    fmt::format("{}: tensors {} of a page", print(problem), at_end ? "at the end" : "at the start"));
    }
  }
}

constexpr Habit habits[] = {
    {"huge_strides_reach_the_right_rows", huge_strides_reach_the_right_rows},
    {"rows_beyond_32_bits_are_reached_by_small_strides", rows_beyond_32_bits_are_reached_by_small_strides},
    {"nothing_outside_the_tensors_is_touched", nothing_outside_the_tensors_is_touched},
};

}  // namespace

std::span<const Habit> address_habits() { return habits; }

}  // namespace fresnel::test
