// SPDX-License-Identifier: Apache-2.0
// Making inputs, running on guarded memory, comparing bits, and the textbook: two passes in double over the visible
// keys.
#include "support/scenario.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace fresnel::test {
namespace {

constexpr std::size_t workspace_guard = 256;

HostTensor input(const Problem& problem, const LayoutClass& layout, std::int64_t heads, std::int64_t rows,
                 std::int64_t width) {
  return {problem.dtype, {problem.batch, heads, rows, width}, placement_of(layout, problem.dtype, width)};
}

}  // namespace

std::uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t word = state_;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

std::int64_t Random::between(std::int64_t least, std::int64_t most) {
  return least + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(most - least + 1));
}

double Random::real() { return static_cast<double>(next() >> 11) * 0x1p-52 - 1.0; }

Problem problem_of(const std::string& line) { return parse_problem(line).value(); }

Scenario::Scenario(const Problem& problem_, std::uint64_t seed)
    : problem(problem_),
      q(input(problem, problem.q, problem.heads_q, problem.queries, problem.head_dim)),
      k(input(problem, problem.k, problem.heads_kv, problem.keys, problem.head_dim)),
      v(input(problem, problem.v, problem.heads_kv, problem.keys, problem.value_dim)) {
  Random random(seed);
  q.fill([&](const Index&) { return 4 * random.real(); });
  k.fill([&](const Index&) { return random.real(); });
  v.fill([&](const Index&) { return random.real(); });
  if (problem.alibi_slopes == AlibiSlopes::per_head) slopes.emplace(DType::f32, std::vector{problem.heads_q});
  if (problem.alibi_slopes == AlibiSlopes::per_batch_and_head)
    slopes.emplace(DType::f32, std::vector{problem.batch, problem.heads_q});
  if (slopes) slopes->fill([&](const Index&) { return 0.25 * std::exp2(random.real() * 2 - 2); });
  if (problem.seqlens_k) set_lengths(std::vector<std::int64_t>(static_cast<std::size_t>(problem.batch), problem.keys));
}

Inputs Scenario::inputs() const {
  Inputs inputs{q.view(), k.view(), v.view(), {}, {}};
  if (slopes) inputs.alibi_slopes = slopes->view();
  if (lengths) inputs.seqlens_k = lengths->view();
  return inputs;
}

void Scenario::set_lengths(const std::vector<std::int64_t>& values) {
  problem.seqlens_k = true;
  lengths.emplace(DType::i32, std::vector{problem.batch});
  lengths->fill([&](const Index& at) { return static_cast<double>(values[static_cast<std::size_t>(at[0])]); });
}

void Scenario::place(HostTensor Scenario::*which, const Placement& placement) {
  HostTensor& old = this->*which;
  HostTensor fresh(old.dtype(), {old.size(0), old.size(1), old.size(2), old.size(3)}, placement);
  fresh.fill([&](const Index& at) { return old.get(at); });
  old = std::move(fresh);
}

std::int64_t Scenario::live_keys(std::int64_t b) const {
  return lengths ? static_cast<std::int64_t>(lengths->get({b, 0, 0, 0})) : problem.keys;
}

bool Scenario::sees(std::int64_t b, std::int64_t i, std::int64_t j) const {
  const Options& options = problem.options;
  const std::int64_t length = live_keys(b);
  const std::int64_t p = options.alignment == Alignment::top_left ? i : i + length - problem.queries;
  if (j >= length) return false;
  if (options.causal && j > p) return false;
  if (options.window_size_left && p - j > *options.window_size_left) return false;
  return !(options.window_size_right && j - p > *options.window_size_right);
}

bool Scenario::dead(std::int64_t b, std::int64_t j) const {
  for (std::int64_t i = 0; i < problem.queries; ++i)
    if (sees(b, i, j)) return false;
  return true;
}

Outputs Answer::outputs() {
  Outputs outputs{o.mutable_view(), {}};
  if (lse) outputs.lse = lse->mutable_view();
  return outputs;
}

void run_guarded(const Runner& runner, const Plan& plan, const Inputs& inputs, const Outputs& outputs, const How& how) {
  SerialExecutor inline_executor;
  Executor& executor = how.executor != nullptr ? *how.executor : inline_executor;
  const std::size_t wanted = plan.workspace_bytes();
  constexpr std::byte filling{0xff};
  AlignedBytes workspace(wanted + 2 * workspace_guard, filling);
  const std::span<std::byte> usable(workspace.data() + workspace_guard, wanted);
  if (Status status = run(plan, inputs, outputs, usable, executor); !status)
    throw BrokenRun(fmt::format("{}: {}: {}", runner.name(), print(plan.problem), status.refusal().message()));
  const std::span<const std::byte> all(workspace);
  if (!all_filled(all.first(workspace_guard), filling) || !all_filled(all.last(workspace_guard), filling))
    throw BrokenRun(fmt::format("{}: {}: wrote outside the workspace", runner.name(), print(plan.problem)));
}

Answer compute(const Runner& runner, const Scenario& scenario, const How& how) {
  const Problem& asked = scenario.problem;
  HostTensor o(asked.dtype, {asked.batch, asked.heads_q, asked.queries, asked.value_dim},
               placement_of(asked.o, asked.dtype, asked.value_dim));
  std::optional<HostTensor> lse;
  if (asked.lse)
    lse.emplace(asked.dtype == DType::f64 ? DType::f64 : DType::f32,
                std::vector{asked.batch, asked.heads_q, asked.queries});
  Answer answer{{}, std::move(o), std::move(lse)};
  const Inputs inputs = scenario.inputs();
  const Outputs outputs = answer.outputs();
  const Result<Problem> described = describe(asked.options, inputs, outputs);
  if (!described) throw BrokenRun(fmt::format("describe: {}: {}", print(asked), described.refusal().message()));
  const Result<Plan> planned = runner.plan(*described, how.lanes);
  if (!planned) throw BrokenRun(fmt::format("{}: {}: {}", runner.name(), print(asked), planned.refusal().message()));
  answer.plan = *planned;
  run_guarded(runner, answer.plan, inputs, outputs, how);
  if (!answer.o.guards_intact()) throw BrokenRun(fmt::format("{}: {}: wrote outside o", runner.name(), print(asked)));
  if (answer.lse && !answer.lse->guards_intact())
    throw BrokenRun(fmt::format("{}: {}: wrote outside lse", runner.name(), print(asked)));
  return answer;
}

std::string judged(const Runner& runner, const Plan& plan, const Inputs& inputs, const Outputs& outputs,
                   Budgets budgets) {
  const Result<Verdict> verdict = check(plan.problem, inputs, outputs, runner.roundings(plan));
  if (!verdict) return fmt::format("{}: {}: {}", runner.name(), print(plan.problem), verdict.refusal().message());
  const bool probable = budgets == Budgets::proven_and_probable;
  std::string text;
  const auto add = [&](const char* name, const Judgement& one) {
    if (one.mismatches == 0 && (!probable || one.mismatches_probable == 0)) return;
    text += fmt::format("; {}: {} of {} wrong ({} improbable), share {:.3g} ({:.3g}) at {}", name, one.mismatches,
                        one.count, one.mismatches_probable, one.max_share, one.max_share_probable, print(one.at));
  };
  add("o", verdict->o);
  if (verdict->lse) add("lse", *verdict->lse);
  return text.empty() ? text : fmt::format("{}: {}{}", runner.name(), print(plan.problem), text);
}

Answer compute_and_judge(const Runner& runner, const Scenario& scenario, const How& how) {
  Answer answer = compute(runner, scenario, how);
  const std::string fault = judged(runner, answer.plan, scenario.inputs(), answer.outputs());
  if (!fault.empty()) throw BrokenRun(fault);
  return answer;
}

bool same_row(const Answer& answer, std::int64_t b, std::int64_t h, std::int64_t i, const Answer& other,
              std::int64_t b2, std::int64_t h2, std::int64_t i2) {
  for (std::int64_t d = 0; d < answer.o.size(3); ++d)
    if (answer.o.bits({b, h, i, d}) != other.o.bits({b2, h2, i2, d})) return false;
  return !answer.lse || !other.lse || answer.lse->bits({b, h, i, 0}) == other.lse->bits({b2, h2, i2, 0});
}

std::string difference(const Answer& answer, const Answer& other) {
  for (std::int64_t b = 0; b < answer.o.size(0); ++b)
    for (std::int64_t h = 0; h < answer.o.size(1); ++h)
      for (std::int64_t i = 0; i < answer.o.size(2); ++i)
        if (!same_row(answer, b, h, i, other, b, h, i))
          return fmt::format("{}: row [{}, {}, {}] has other bits ({} and {} in its first element)",
                             print(answer.plan.problem), b, h, i, answer.o.get({b, h, i, 0}),
                             other.o.get({b, h, i, 0}));
  return {};
}

namespace {

/// Final scores of one row: scale, softcap, ALiBi; hidden keys get nothing here, they are skipped by the caller.
double score(const Scenario& scenario, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const Problem& problem = scenario.problem;
  double dot = 0;
  for (std::int64_t d = 0; d < problem.head_dim; ++d)
    dot += scenario.q.get({b, h, i, d}) * scenario.k.get({b, scenario.kv_head(h), j, d});
  double s = problem.options.softmax_scale.value_or(1 / std::sqrt(static_cast<double>(problem.head_dim))) * dot;
  if (problem.options.softcap) s = *problem.options.softcap * std::tanh(s / *problem.options.softcap);
  if (scenario.slopes) {
    const bool per_batch = problem.alibi_slopes == AlibiSlopes::per_batch_and_head;
    const double slope = scenario.slopes->get(per_batch ? Index{b, h, 0, 0} : Index{h, 0, 0, 0});
    const std::int64_t offset =
        problem.options.alignment == Alignment::top_left ? 0 : scenario.live_keys(b) - problem.queries;
    const auto ahead = static_cast<double>(j - (i + offset));
    s += problem.options.alibi == AlibiForm::distance ? -slope * std::abs(ahead) : slope * ahead;
  }
  return s;
}

}  // namespace

Textbook textbook(const Scenario& scenario) {
  const Problem& problem = scenario.problem;
  Textbook truth;
  std::vector<double> scores(static_cast<std::size_t>(problem.keys));
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    for (std::int64_t h = 0; h < problem.heads_q; ++h) {
      for (std::int64_t i = 0; i < problem.queries; ++i) {
        double m = -std::numeric_limits<double>::infinity(), l = 0;
        for (std::int64_t j = 0; j < problem.keys; ++j) {
          if (!scenario.sees(b, i, j)) continue;
          scores[static_cast<std::size_t>(j)] = score(scenario, b, h, i, j);
          m = std::max(m, scores[static_cast<std::size_t>(j)]);
        }
        std::vector<double> o(static_cast<std::size_t>(problem.value_dim), 0.0);
        for (std::int64_t j = 0; j < problem.keys; ++j) {
          if (!scenario.sees(b, i, j)) continue;
          const double weight = std::exp(scores[static_cast<std::size_t>(j)] - m);
          l += weight;
          for (std::int64_t d = 0; d < problem.value_dim; ++d)
            o[static_cast<std::size_t>(d)] += weight * scenario.v.get({b, scenario.kv_head(h), j, d});
        }
        for (const double sum : o) truth.o.push_back(l > 0 ? sum / l : 0);
        truth.lse.push_back(m + std::log(l));
      }
    }
  }
  return truth;
}

}  // namespace fresnel::test
