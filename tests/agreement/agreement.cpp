// SPDX-License-Identifier: Apache-2.0
// Domains sampled as data: random problems from inside, every edge of every bound, lengths around the row's own tile,
// both sides of every place where the tile changes, every kind of inputs, and one step outside.
#include "agreement/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "inputs/inputs.hpp"
#include "support/sampling.hpp"

namespace fresnel::test {
namespace {

std::string command_line(const Runner& runner, const Problem& problem, std::string_view kind, std::uint64_t seed) {
  return fmt::format("FRESNEL_ISA={} fresnel check --problem \"{}\" --inputs {} --seed {} --kernel {}",
                     name(runner.machine().isa), print(problem), kind, seed, runner.row().name);
}

std::string run_and_judge(const Runner& runner, const Problem& problem, GeneratedInputs& generated, Budgets budgets) {
  const Inputs inputs = generated.inputs();
  const Outputs outputs = generated.outputs();
  const Result<Problem> described = describe(problem.options, inputs, outputs);
  if (!described) return described.refusal().message();
  const Result<Plan> plan = runner.plan(*described, 2);
  if (!plan) return plan.refusal().message();
  if (plan->kernel_name() != runner.row().name || plan->isa != runner.machine().isa) return "another row was planned";
  run_guarded(runner, *plan, inputs, outputs, {2, nullptr});
  if (!generated.guards_intact()) return "wrote outside the outputs";
  return judged(runner, *plan, inputs, outputs, budgets);
}

/// The ordinary problem of a dtype that the domain admits, in its middle.
Problem ordinary(const Domain& domain, DType dtype) {
  Problem problem = problem_of("b1 h2 q5 k19 d64 f32");
  problem.dtype = dtype;
  problem.head_dim = std::clamp(problem.head_dim, domain.head_dim.least, domain.head_dim.most);
  problem.value_dim = std::clamp(problem.value_dim, domain.value_dim.least, domain.value_dim.most);
  problem.queries = std::clamp(problem.queries, domain.queries.least, domain.queries.most);
  problem.keys = std::clamp(problem.keys, domain.keys.least, domain.keys.most);
  for (LayoutClass* layout : {&problem.q, &problem.k, &problem.v, &problem.o})
    if (!domain.axis_orders.has(layout->order)) layout->order = AxisOrder::bshd;
  return problem;
}

/// The thread sanitizer slows the one thread that makes inputs, runs and judges, and looks only at the oracle's and the
/// kernels' threads, which do the same for every problem: under it each row, dtype and test keeps every seventh
/// problem.
#if defined(__SANITIZE_THREAD__)
constexpr std::size_t one_of = 7;
#else
constexpr std::size_t one_of = 1;
#endif

/// Adds what is wrong with one problem after another, until enough is known.
class Judge {
 public:
  Judge(const Runner& runner, Faults& faults) : runner_(runner), faults_(faults) {}
  void operator()(const Problem& problem, std::string_view kind, std::uint64_t seed) {
    if (faults_.enough() || (runner_.listed() && turn_++ % one_of != 0)) return;
    const std::string fault = disagreement(runner_, problem, kind, seed);
    faults_.expect(fault.empty(), fault);
  }

 private:
  const Runner& runner_;
  Faults& faults_;
  std::size_t turn_ = 0;
};

constexpr std::uint64_t random_problems = 320;

void random_problems_agree(const Runner& runner, Faults& faults) {
  Judge judge(runner, faults);
  const auto kinds = input_kinds();
  for (std::uint64_t seed = 0; seed < random_problems; ++seed) {
    Random random(seed);
    const Problem problem = random_problem(runner.domain(), random);
    const std::string_view kind = seed % 2 == 0 ? kinds.front().name : random.pick(kinds).name;
    judge(problem, kind, seed);
  }
}

void every_kind_of_inputs_agrees(const Runner& runner, Faults& faults) {
  Judge judge(runner, faults);
  constexpr Feature sets[][3] = {{Feature::causal, Feature::causal, Feature::grouped_heads},
                                 {Feature::softcap, Feature::window, Feature::window},
                                 {Feature::alibi, Feature::seqlens_k, Feature::top_left}};
  for (const DType dtype : dtypes_of(runner)) {
    std::vector<Problem> problems;
    for (const auto& [queries, keys, width] : {std::tuple{9, 70, 64}, {33, 33, 33}, {1, 300, 16}}) {
      Problem problem = ordinary(runner.domain(), dtype);
      problem.queries = queries;
      problem.keys = keys;
      problem.head_dim = problem.value_dim = width;
      if (admits(runner.domain(), problem)) problems.push_back(problem);
    }
    const std::vector<Problem> plain = problems;
    for (const Problem& base : plain)
      for (const auto& set : sets) {
        Problem problem = base;
        for (const Feature feature : set)
          if (runner.has(feature)) problem = with_feature(problem, feature);
        problems.push_back(problem);
      }
    for (const Problem& problem : problems)
      for (const InputKind& kind : input_kinds()) judge(problem, kind.name, 5);
  }
}

/// Every head dim of the list and both bounds, as D = Dv, as D alone and as Dv alone.
void every_width_agrees(const Runner& runner, Faults& faults) {
  Judge judge(runner, faults);
  const std::vector<std::int64_t> list(head_dims.begin(), head_dims.end());
  const auto widths = [&](const Bounds& bounds) { return values_inside(bounds, list, 2048); };
  for (const DType dtype : dtypes_of(runner)) {
    const Problem base = ordinary(runner.domain(), dtype);
    std::vector<Problem> problems;
    const auto with = [&](std::int64_t head_dim, std::int64_t value_dim) {
      Problem problem = base;
      problem.head_dim = head_dim;
      problem.value_dim = value_dim;
      if (admits(runner.domain(), problem)) problems.push_back(problem);
      if (!runner.has(Feature::causal)) return;
      problem.queries = 3;
      problems.push_back(with_feature(problem, Feature::causal));
    };
    for (const std::int64_t width : widths(runner.domain().head_dim)) {
      with(width, width);
      with(width, base.value_dim);
    }
    for (const std::int64_t width : widths(runner.domain().value_dim)) with(base.head_dim, width);
    for (const Problem& problem : problems)
      if (admits(runner.domain(), problem)) judge(problem, "normal", 6);
  }
}

/// 1, t - 1, t, t + 1 and 2 t + 1, and the bounds themselves where they are near.
std::vector<std::int64_t> around(std::int64_t tile, const Bounds& bounds) {
  std::vector<std::int64_t> lengths = values_inside(bounds, {1, tile - 1, tile, tile + 1, 2 * tile + 1}, 4096);
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  lengths.erase(lengths.begin(), std::find_if(lengths.begin(), lengths.end(), [](auto length) { return length >= 1; }));
  return lengths;
}

void lengths_around_the_tile_agree(const Runner& runner, Faults& faults) {
  Judge judge(runner, faults);
  for (const DType dtype : dtypes_of(runner)) {
    for (const std::int64_t width : {8, 64, 200}) {
      Problem base = ordinary(runner.domain(), dtype);
      base.heads_q = base.heads_kv = 1;
      base.head_dim = base.value_dim = width;
      base.queries = base.keys = 2000;
      if (!admits(runner.domain(), base)) continue;
      const Tile tile = runner.plan(base).value().tile;
      const bool every_pair = dtype == DType::f32 && width == 64;
      int turn = 0;
      for (const std::int64_t queries : around(std::min<std::int64_t>(tile.queries, 400), runner.domain().queries))
        for (const std::int64_t keys : around(std::min<std::int64_t>(tile.keys, 1000), runner.domain().keys)) {
          Problem problem = base;
          problem.queries = queries;
          problem.keys = keys;
          if (runner.has(Feature::causal) && ++turn % 2 == 0) problem = with_feature(problem, Feature::causal);
          const bool chosen = every_pair || turn % 3 == 0 || queries == tile.queries + 1 || keys == tile.keys + 1;
          if (chosen && admits(runner.domain(), problem)) judge(problem, "normal", 7);
        }
    }
  }
}

/// The values of an extent, up to `most`, at which the plan's tile or splits are not those of the value before.
std::vector<std::int64_t> switches(const Runner& runner, Problem problem, std::int64_t Problem::*extent,
                                   std::int64_t most) {
  std::vector<std::int64_t> found;
  std::optional<Plan> before;
  for (std::int64_t value = 1; value <= most; ++value) {
    problem.*extent = value;
    if (!admits(runner.domain(), problem)) continue;
    Plan plan = runner.plan(problem).value();
    if (before && (before->tile != plan.tile || before->splits != plan.splits)) found.push_back(value);
    before = std::move(plan);
  }
  return found;
}

void both_sides_of_every_switch_agree(const Runner& runner, Faults& faults) {
  Judge judge(runner, faults);
  constexpr std::size_t most_switches = 12;  // of one extent; a row that changes more often is sampled
  for (const DType dtype : dtypes_of(runner)) {
    const Problem base = ordinary(runner.domain(), dtype);
    for (const auto& [extent, most] : {std::pair{&Problem::queries, std::int64_t{300}},
                                       {&Problem::keys, 2100},
                                       {&Problem::head_dim, 577},
                                       {&Problem::value_dim, 577}}) {
      const std::vector<std::int64_t> all = switches(runner, base, extent, most);
      const std::size_t step = 1 + all.size() / most_switches;
      for (std::size_t index = 0; index < all.size(); index += step)
        for (const std::int64_t value : {all[index] - 1, all[index]}) {
          Problem problem = base;
          problem.*extent = value;
          if (admits(runner.domain(), problem)) judge(problem, "normal", 8);
        }
    }
  }
}

void one_step_outside_is_refused_by_name(const Runner& runner, Faults& faults) {
  const Problem inside = ordinary(runner.domain(), dtypes_of(runner).front());
  faults.expect(runner.plan(inside).ok(), "the middle of the domain is refused: " + print(inside));
  for (const Outsider& outsider : outsiders(runner.domain(), inside)) {
    const Result<Plan> plan = runner.plan(outsider.problem);
    if (plan) {
      faults.add(fmt::format("{}: admitted, and '{}' is outside the domain", print(outsider.problem),
                             outsider.fields.front()));
      continue;
    }
    const std::string& named = plan.refusal().argument;
    faults.expect(
        std::find(outsider.fields.begin(), outsider.fields.end(), named) != outsider.fields.end(),
        fmt::format("{}: refused by '{}' and not by '{}'", print(outsider.problem), named, outsider.fields.front()));
    const bool says_why = !plan.refusal().given.empty() && !plan.refusal().accepted.empty();
    faults.expect(says_why, fmt::format("{}: {}", print(outsider.problem), plan.refusal().message()));
  }
}

constexpr Habit habits[] = {
    {"random_problems_agree", random_problems_agree},
    {"every_kind_of_inputs_agrees", every_kind_of_inputs_agrees},
    {"every_width_agrees", every_width_agrees},
    {"lengths_around_the_tile_agree", lengths_around_the_tile_agree},
    {"both_sides_of_every_switch_agree", both_sides_of_every_switch_agree},
    {"one_step_outside_is_refused_by_name", one_step_outside_is_refused_by_name},
};

}  // namespace

std::string disagreement(const Runner& runner, const Problem& problem, std::string_view kind, std::uint64_t seed) {
  Result<GeneratedInputs> generated = make_inputs(problem, kind, seed);
  if (!generated) {
    const bool expected = size_of(problem.dtype) < 4 && generated.refusal().argument == "inputs";
    return expected ? std::string() : generated.refusal().message();
  }
  std::string fault;
  try {
    const bool independent = kind == "normal" || kind == "uniform";
    fault = run_and_judge(runner, problem, *generated, independent ? Budgets::proven_and_probable : Budgets::proven);
  } catch (const BrokenRun& broken) {
    fault = broken.what();
  }
  return fault.empty() ? fault : command_line(runner, problem, kind, seed) + "\n    " + fault;
}

std::span<const Habit> agreement_habits() { return habits; }

}  // namespace fresnel::test
