// SPDX-License-Identifier: Apache-2.0
// Long rows: a million keys that all count, thirty thousand of which a hundred do, and working memory that a row's
// length makes longer and nothing makes square. Expected values are exact or the oracle's.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <utility>

#include "habits/habits.hpp"

namespace fresnel::test {
namespace {

constexpr std::int64_t million = std::int64_t{1} << 20;

/// Column 0: 0, 1, 2, 3 and again; column 1: 1,024 at the last of every 1,024 keys. Means 1.5 and 1. Made once for a
/// dtype: filling takes longer than any run.
const HostTensor& values_of_a_million(DType dtype) {
  static std::map<DType, HostTensor> made;
  const auto found = made.find(dtype);
  if (found != made.end()) return found->second;
  HostTensor values(dtype, {1, 1, million, 2});
  values.fill([](const Index& at) -> double {
    if (at[3] == 0) return static_cast<double>(at[2] % 4);
    return at[2] % 1024 == 1023 ? 1024 : 0;
  });
  return made.emplace(dtype, std::move(values)).first->second;
}

/// Equal weights of integers: every partial sum is exact in float32, and so is the mean, in any order. One row of K
/// serves all keys (stride 0), so that a million of them take no memory.
void a_million_equal_scores_give_the_mean(const Runner& runner, Faults& faults) {
  for (const Problem& problem :
       problems_for(runner, {"b1 h2/1 q1 k1048576 d16/2 f32", "b1 h1 q2 k1048576 d16/2 f32"})) {
    HostTensor q(problem.dtype, {1, problem.heads_q, problem.queries, 16}), k(problem.dtype, {1, 1, 1, 16});
    const HostTensor& v = values_of_a_million(problem.dtype);
    q.fill([](const Index&) { return 0; });
    k.fill([](const Index&) { return 1; });
    View keys = k.view();
    keys.sizes[2] = million;
    keys.strides[2] = 0;
    const Inputs inputs{q.view(), keys, v.view(), {}, {}};
    Answer answer{
        {},
        HostTensor(problem.dtype, {1, problem.heads_q, problem.queries, 2}),
        HostTensor(problem.dtype == DType::f64 ? DType::f64 : DType::f32, {1, problem.heads_q, problem.queries})};
    const Outputs outputs = answer.outputs();
    answer.plan = runner.plan(describe(problem.options, inputs, outputs).value(), 2).value();
    run_guarded(runner, answer.plan, inputs, outputs, {2, nullptr});
    answer.o.for_each_index([&](const Index& at) {
      const double right = at[3] == 0 ? 1.5 : 1, lse = answer.lse->get(at);
      faults.expect(answer.o.get(at) == right,
                    fmt::format("{}: o{} is {}, the mean is {}", print(problem), print(at), answer.o.get(at), right));
      faults.expect(std::abs(lse - std::log(1048576.0)) < 4e-6, fmt::format("{}: lse is {}", print(problem), lse));
    });
  }
}

/// All but the last hundred keys hold NaN that nobody sees.
void only_the_last_hundred_of_33000_keys_count(const Runner& runner, Faults& faults) {
  for (const Problem& problem :
       problems_for(runner, {"b1 h2/1 q1 k33000 d16 f32 w99,-", "b1 h1 q3 k33000 d24/8 f32 causal w97,-",
                             "b1 h1 q1 k33000 d5 f32 w99,0"})) {
    Scenario scenario(problem, 12);
    constexpr std::int64_t first = 33000 - 100;
    for (HostTensor* tensor : {&scenario.k, &scenario.v})
      for (std::int64_t j = 0; j < first; ++j)
        for (std::int64_t d = 0; d < tensor->size(3); ++d) tensor->set({0, 0, j, d}, std::nan(""));
    faults.expect(scenario.dead(0, first - 1) && !scenario.dead(0, first), "not the last hundred");
    const Answer answer = compute_and_judge(runner, scenario);
    answer.o.for_each_index([&](const Index& at) {
      faults.expect(std::isfinite(answer.o.get(at)), fmt::format("{}: o{} is not finite", print(problem), print(at)));
    });
  }
}

/// Linear in both lengths together: twice as long takes at most twice as much, and what lanes share is no more than a
/// copy of K and V in float32 with some for every row.
void workspaces_grow_with_the_length_of_a_row(const Runner& runner, Faults& faults) {
  constexpr std::size_t fixed = 8u << 20;  // whatever does not depend on lengths, of all lanes
  for (const int width : {8, 64, 128, 200})
    for (const char* options : {"", " causal alibi", " w100,0"}) {
      const auto bytes = [&](const Problem& problem) { return runner.plan(problem, 4).value().workspace_bytes(); };
      for (const std::int64_t queries : {1, 1000000})
        for (Problem problem :
             problems_for(runner, {fmt::format("b1 h2/1 q{} k1000000 d{} f32{}", queries, width, options)})) {
          const std::size_t once = bytes(problem);
          const auto padded = static_cast<std::size_t>((width + 63) / 64 * 64);
          const std::size_t rows = static_cast<std::size_t>(problem.keys + problem.queries) * 8 * 4;
          const std::size_t copies = 2 * sizeof(double) * padded * static_cast<std::size_t>(problem.keys);
          faults.expect(once <= copies + 4 * rows + fixed, fmt::format("{}: {} bytes", print(problem), once));
          problem.keys *= 2;
          if (queries > 1) problem.queries *= 2;
          const std::size_t twice = bytes(problem);
          faults.expect(twice <= 2 * once + fixed,
                        fmt::format("{}: {} bytes, for half {}", print(problem), twice, once));
        }
    }
}

constexpr Habit habits[] = {
    {"a_million_equal_scores_give_the_mean", a_million_equal_scores_give_the_mean},
    {"only_the_last_hundred_of_33000_keys_count", only_the_last_hundred_of_33000_keys_count},
    {"workspaces_grow_with_the_length_of_a_row", workspaces_grow_with_the_length_of_a_row},
};

}  // namespace

std::span<const Habit> long_row_habits() { return habits; }

}  // namespace fresnel::test
