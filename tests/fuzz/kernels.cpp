// SPDX-License-Identifier: Apache-2.0
// Bytes as a call of every row of the catalogue that is built here and admits it, on one instruction set of this host:
// guards intact, every element within its budget; then the same numbers packed densely, split over other lanes, run
// from last to first, with junk where nobody looks and in one key that some rows do not see: no other bit may change.
// A backward row runs after the first forward row.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "fresnel/fresnel.hpp"
#include "fuzz/drawn_call.hpp"
#include "fuzz/target.hpp"
#include "support/rows.hpp"
#include "support/runner.hpp"

namespace fresnel::test {
namespace {

bool is_backward(const Kernel& row) { return row.domain.required.has(Feature::grad); }

/// Rows that run here, forward ones first.
const std::vector<const Kernel*>& rows() {
  static const std::vector<const Kernel*> all = [] {
    std::vector<const Kernel*> found;
    for (const bool backward : {false, true})
      for (const Kernel* const row : rows_here())
        if (is_backward(*row) == backward) found.push_back(row);
    return found;
  }();
  return all;
}

/// The row on `isa`, or on the best set that it has where it has no such version.
Runner runner_of(const Kernel& row, Isa isa) {
  const std::vector<Isa> here = isas_of(row);
  const bool runs = std::find(here.begin(), here.end(), isa) != here.end();
  return {row, runs ? isa : here.back(), is_listed(row)};
}

/// A key of one sequence and kv head that holds something else in the second run.
struct BadKey {
  std::int64_t batch = -1, head = 0, key = 0;
};

[[nodiscard]] bool reaches(const BadKey& bad, const Scenario& scenario, std::int64_t b, std::int64_t h,
                           std::int64_t i) {
  return b == bad.batch && scenario.kv_head(h) == bad.head && scenario.sees(b, i, bad.key);
}

BadKey spoil_one_key(Scenario& scenario, Choices& choices) {
  const Problem& problem = scenario.problem;
  const bool wanted = choices.flag();
  if (!wanted || problem.batch == 0 || problem.heads_kv == 0 || problem.keys == 0) return {};
  const BadKey bad{choices.below(problem.batch), choices.below(problem.heads_kv), choices.below(problem.keys)};
  const double junk = choices.flag() ? HUGE_VAL : std::nan("");
  for (HostTensor* tensor : {&scenario.k, &scenario.v}) {
    if (choices.byte() % 4 == 1) continue;  // the key alone or its value alone
    for (std::int64_t d = 0; d < tensor->size(3); ++d) tensor->set({bad.batch, bad.head, bad.key, d}, junk);
  }
  return bad;
}

/// Equal bits, or neither finite: of what kind a result is that cannot be finite is not promised. Says what showed.
void demand_same(const HostTensor& found, const HostTensor& expected, const Index& at, const Runner& runner,
                 const Problem& problem, const char* name) {
  if (found.bits(at) == expected.bits(at)) return;
  const double after = found.get(at), before = expected.get(at);
  if (!std::isfinite(before) && !std::isfinite(after)) return;
  demand(false, fmt::format("{}: {}: {} at {} is {} where hidden values, layout and lanes differ, and {} before",
                            runner.name(), print(problem), name, print(at), after, before));
}

void run_forward(const Runner& runner, const Scenario& scenario, const Scenario& spoilt, const BadKey& bad, int lanes) {
  const Answer answer = compute_and_judge(runner, scenario);
  const bool isolates = runner.domain().isolates_hidden_values;
  SerialExecutor backwards(lanes, true);
  const Answer other = compute(runner, spoilt, {lanes, &backwards});
  const std::string what =
      fmt::format("{}: {}: hidden values, layout or lanes show", runner.name(), print(scenario.problem));
  answer.o.for_each_index([&](const Index& at) {
    if (reaches(bad, scenario, at[0], at[1], at[2]) || (!isolates && at[0] == bad.batch)) return;
    demand_same(other.o, answer.o, at, runner, scenario.problem, "o");
    if (answer.lse && at[3] == 0) demand_same(*other.lse, *answer.lse, at, runner, scenario.problem, "lse");
  });
}

/// Everything a backward reads and writes, each output between guards.
struct Gradients {
  HostTensor dq, dk, dv;
  std::optional<HostTensor> dslopes;

  explicit Gradients(const Scenario& scenario)
      : dq(like(scenario.q, scenario.problem.q)),
        dk(like(scenario.k, scenario.problem.k)),
        dv(like(scenario.v, scenario.problem.v)) {
    const DType wide = scenario.problem.dtype == DType::f64 ? DType::f64 : DType::f32;
    const Problem& problem = scenario.problem;
    if (problem.alibi_slopes == AlibiSlopes::per_head) dslopes.emplace(wide, std::vector{problem.heads_q});
    if (problem.alibi_slopes == AlibiSlopes::per_batch_and_head)
      dslopes.emplace(wide, std::vector{problem.batch, problem.heads_q});
  }

  static HostTensor like(const HostTensor& input, const LayoutClass& layout) {
    const std::vector<std::int64_t> sizes{input.size(0), input.size(1), input.size(2), input.size(3)};
    return {input.dtype(), sizes, placement_of(layout, input.dtype(), sizes[3])};
  }

  void add_to(Outputs& outputs) {
    outputs.dq = dq.mutable_view();
    outputs.dk = dk.mutable_view();
    outputs.dv = dv.mutable_view();
    if (dslopes) outputs.dalibi_slopes = dslopes->mutable_view();
  }

  [[nodiscard]] std::vector<const HostTensor*> all() const {
    std::vector<const HostTensor*> tensors{&dq, &dk, &dv};
    if (dslopes) tensors.push_back(&*dslopes);
    return tensors;
  }
};

/// The gradients of one run, from what `forward` makes of the same inputs; judged where asked.
Gradients run_one_backward(const Runner& forward, const Runner& runner, const Scenario& scenario,
                           const HostTensor& dout, const How& how, bool judge) {
  Answer answer = compute(forward, scenario);
  Gradients gradients(scenario);
  Inputs inputs = scenario.inputs();
  inputs.dout = dout.view();
  Outputs outputs = answer.outputs();
  gradients.add_to(outputs);
  const Result<Problem> described = describe(scenario.problem.options, inputs, outputs);
  if (!described) throw BrokenRun("describe: " + described.refusal().message());
  const Result<Plan> planned = runner.plan(*described, how.lanes);
  if (!planned) throw BrokenRun(runner.name() + ": " + planned.refusal().message());
  run_guarded(runner, *planned, inputs, outputs, how);
  for (const HostTensor* tensor : gradients.all())
    if (!tensor->guards_intact()) throw BrokenRun(runner.name() + " wrote outside a gradient: " + print(*described));
  if (!judge) return gradients;
  const Result<Verdict> verdict = check(planned->problem, inputs, outputs, forward.roundings(answer.plan));
  if (!verdict) throw BrokenRun(runner.name() + ": check: " + verdict.refusal().message());
  const std::pair<const char*, const std::optional<Judgement>&> parts[] = {
      {"dq", verdict->dq}, {"dk", verdict->dk}, {"dv", verdict->dv}, {"dalibi_slopes", verdict->dalibi_slopes}};
  for (const auto& [name, part] : parts)
    if (part && part->mismatches > 0)
      throw BrokenRun(fmt::format("{}: {}: {}: {} of {} wrong, share {:.3g} at {}", runner.name(),
                                  print(planned->problem), name, part->mismatches, part->count, part->max_share,
                                  print(Index(part->at))));
  return gradients;
}

void run_backward(const Runner& forward, const Runner& runner, const Scenario& scenario, const Scenario& spoilt,
                  const HostTensor& dout, int lanes) {
  const Gradients gradients = run_one_backward(forward, runner, scenario, dout, {}, true);
  SerialExecutor backwards(lanes, true);
  const Gradients others = run_one_backward(forward, runner, spoilt, dout, {lanes, &backwards}, false);
  constexpr const char* names[] = {"dq", "dk", "dv", "dalibi_slopes"};
  const std::vector<const HostTensor*> expected = gradients.all(), found = others.all();
  for (std::size_t index = 0; index < found.size(); ++index)
    expected[index]->for_each_index([&](const Index& at) {
      demand_same(*found[index], *expected[index], at, runner, scenario.problem, names[index]);
    });
  gradients.dk.for_each_index([&](const Index& at) {
    if (gradients.dk.get(at) != 0 && scenario.dead(at[0], at[2]))
      demand(false, fmt::format("{}: dk of a dead key at {}", runner.name(), print(at)));
  });
}

}  // namespace

void one_input(std::span<const std::byte> bytes) {
  Choices choices(bytes);
  const Kernel& row = *choices.pick(rows());
  const Isa isa = choices.pick(isas_of(row));
  const Problem problem = draw_problem(row.domain, choices);
  const int lanes = 2 + choices.byte() % 3;
  const Scenario scenario = draw_scenario(problem, choices);
  Scenario spoilt = with_junk(scenario, choices);
  try {
    if (is_backward(row)) {
      const HostTensor dout = draw_dout(problem, choices);
      run_backward(runner_of(*find_kernel("cpu.flash"), isa), runner_of(row, isa), scenario, spoilt, dout, lanes);
      return;
    }
    const BadKey bad = spoil_one_key(spoilt, choices);
    for (const Kernel* each : rows())
      if (admits(each->domain, problem)) run_forward(runner_of(*each, isa), scenario, spoilt, bad, lanes);
  } catch (const BrokenRun& broken) {
    demand(false, broken.what());
  }
}

}  // namespace fresnel::test
