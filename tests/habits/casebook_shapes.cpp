// SPDX-License-Identifier: Apache-2.0
// Casebook, shapes and memory: empty axes, odd widths, unusual head ratios, interleaved and expanded tensors, threads
// that share scratch. Right values, or a refusal that names the argument.
#include "habits/casebook.hpp"
#include "support/sampling.hpp"
#include "support/sparse.hpp"

namespace fresnel::test {
namespace {

/// The argument that describe refuses, or "" when it does not.
std::string refused_by_describe(const Inputs& inputs, const Outputs& outputs) {
  const Result<Problem> described = describe({}, inputs, outputs);
  return described ? std::string() : described.refusal().argument;
}

void row62(const Runner& runner, Faults& faults) {
  for (const char* line : {"b7 h7 q0 k7 d7 f32", "b7 h7 q7 k0 d7 f32", "b0 h9 q9 k7 d7 f32", "b7 h0 q9 k7 d7 f32"})
    for (const Problem& problem : problems_for(runner, {line})) (void)compute_and_judge(runner, Scenario(problem, 1));
  const auto shape = [](std::initializer_list<std::int64_t> sizes) { return View(nullptr, DType::f32, sizes); };
  const auto out = [](std::initializer_list<std::int64_t> sizes) { return MutableView(nullptr, DType::f32, sizes); };
  const std::string heads = refused_by_describe({shape({7, 9, 0, 7}), shape({7, 7, 0, 7}), shape({7, 7, 0, 7}), {}, {}},
                                                {out({7, 9, 0, 7}), {}});
  faults.expect(heads == "heads_kv" || heads == "k" || heads == "heads_q",
                "9 heads over 7 are refused by '" + heads + "'");
  const std::string width = refused_by_describe(
      {shape({0, 0, 2, 0}), shape({0, 0, 13, 0}), shape({0, 0, 13, 0}), {}, {}}, {out({0, 0, 2, 0}), {}});
  faults.expect(!width.empty(), "a head dim of 0 is not refused");
}

/// The signal lies only in the upper half of the components.
void row64(const Runner& runner, Faults& faults) {
  for (const std::int64_t width : {33, 80, 96, 128, 192, 256, 512})
    for (const Problem& problem : problems_for(runner, {fmt::format("b1 h1 q2 k20 d{}/4 f32 scale1", width)})) {
      Scenario scenario(problem, 2);
      const auto upper = [&](const Index& at) { return at[3] >= width / 2; };
      scenario.q.fill([&](const Index& at) { return upper(at) ? 2.0 : 0.0; });
      scenario.k.fill([&](const Index& at) { return upper(at) && at[2] == 11 ? 1.0 : 0.0; });
      scenario.v.fill([](const Index& at) { return static_cast<double>(at[2]); });
      expect_rows(runner, scenario, {11, 11}, {}, faults);
    }
}

void row65(const Runner& runner, Faults& faults) {
  for (const std::int64_t width : head_dims)
    for (const Problem& problem : problems_for(runner, {fmt::format("b1 h2/1 q3 k19 d{} f32 causal", width)}))
      (void)compute_and_judge(runner, Scenario(problem, 3));
  for (const DType dtype : dtypes_of(runner)) {
    Problem empty = problem_of("b1 h1 q1 k1 d1 f32");
    empty.dtype = dtype;
    empty.head_dim = 0;
    const Result<Plan> refused = runner.plan(empty);
    faults.expect(!refused && refused.refusal().argument == "head_dim", "a head dim of 0 is not refused by its name");
  }
}

void row67(const Runner& runner, Faults&) {
  for (const char* line :
       {"b1 h2 q3 k11 d64 f32", "b1 h2 q11 k3 d64 f32", "b1 h2 q50 k200 d64 f32", "b1 h2 q200 k50 d64 f32",
        "b1 h2 q3 k11 d64 f32 causal", "b1 h2 q11 k3 d64 f32 causal topleft"})
    for (const Problem& problem : problems_for(runner, {line})) (void)compute_and_judge(runner, Scenario(problem, 4));
}

/// o is as wide as v and the default scale is 1 / sqrt of the width of q and k: scores 1 and 0 for two keys.
void row68(const Runner& runner, Faults& faults) {
  for (const auto& [dk, dv] : {std::pair{128, 64}, {8, 16}, {32, 24}, {192, 128}, {576, 512}, {64, 1}, {1, 64}})
    for (const Problem& problem : problems_for(runner, {fmt::format("b1 h1 q2 k2 d{}/{} f32", dk, dv)})) {
      Scenario scenario(problem, 5);
      const double root = std::sqrt(static_cast<double>(dk));
      scenario.q.fill([&](const Index& at) { return at[3] == 0 ? root : 0.0; });
      scenario.k.fill([](const Index& at) { return at[3] == 0 && at[2] == 0 ? 1.0 : 0.0; });
      scenario.v.fill([](const Index& at) { return at[2] == 0 ? 1.0 : 0.0; });
      const Answer answer = expect_rows(runner, scenario, {0.7310586, 0.7310586}, {1.3132617, 1.3132617}, faults);
      for (std::int64_t d = 0; d < dv; ++d)
        expect_near(answer.o.get({0, 0, 1, d}), 0.7310586, problem.dtype, print(problem), faults);
    }
}

void row70(const Runner& runner, Faults& faults) {
  for (const char* line : {"b65536 h1 q1 k1 d8 bf16", "b1 h65536 q1 k1 d8 bf16"}) {
    const Problem problem = problem_of(line);
    if (!admits(runner.domain(), problem)) continue;
    const Scenario scenario(problem, 6);
    const Answer answer = compute(runner, scenario);
    answer.o.for_each_index([&](const Index& at) {
      faults.expect(answer.o.bits(at) == scenario.v.bits(at),
                    fmt::format("{}: o{} is not its only v", line, print(at)));
    });
  }
}

/// Offsets through strides: v is a slice of a buffer whose rows are 21,504 elements apart, and only its last rows
/// count.
void row73(const Runner& runner, Faults& faults) {
  constexpr std::int64_t keys = 99968, stride = 21504;
  for (const Problem& problem : problems_for(runner, {fmt::format("b1 h1 q1 k{} d8 f32 w3,0", keys)})) {
    const Scenario scenario(problem, 7);
    const Answer expected = compute(runner, scenario);
    const std::int64_t width = size_of(problem.dtype);
    const bool held = survives([&] {
      const SparseRegion region(static_cast<std::size_t>(keys * stride * width));
      region.open(0, static_cast<std::size_t>(keys * stride * width));
      const View v(region.at(0), problem.dtype, {1, 1, keys, 8}, {0, 0, stride, 1});
      for (std::int64_t j = keys - 4; j < keys; ++j)
        for (std::int64_t d = 0; d < 8; ++d)
          store_element(region.at((j * stride + d) * width), problem.dtype, scenario.v.get({0, 0, j, d}));
      Inputs inputs = scenario.inputs();
      inputs.v = v;
      Answer answer = expected;
      answer.o.fill([](const Index&) { return -7.0; });
      const Outputs outputs = answer.outputs();
      const Plan plan = runner.plan(describe(problem.options, inputs, outputs).value()).value();
      run_guarded(runner, plan, inputs, outputs, {});
      const std::string fault = difference(answer, expected);
      if (!fault.empty()) throw BrokenRun(fault);
    });
    faults.expect(held, print(problem) + ": rows 21,504 elements apart");
  }
}

/// q, k and v interleaved in one buffer [B, S, 3, H, D], as a fused projection leaves them.
void row76(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b84 h3 q3 k3 d64 f32", "b2 h3 q9 k9 d65 f32 causal"})) {
    const Scenario copies(problem, 8);
    const Answer expected = compute_and_judge(runner, copies);
    const std::int64_t b = problem.batch, h = problem.heads_q, s = problem.queries, d = problem.head_dim;
    HostTensor fused(problem.dtype, {b, s, 3 * h, d});
    fused.fill([&](const Index& at) {
      const auto [batch, row, slot, column] = at;
      const HostTensor& source = slot < h ? copies.q : slot < 2 * h ? copies.k : copies.v;
      return source.get({batch, slot % h, row, column});
    });
    const auto slice = [&](std::int64_t which) {
      View view = fused.view().transposed(1, 2);
      view.sizes[1] = h;
      view.data = static_cast<const std::byte*>(view.data) + which * h * d * size_of(problem.dtype);
      return view;
    };
    const Inputs inputs{slice(0), slice(1), slice(2), {}, {}};
    Answer answer = expected;
    answer.o = HostTensor(problem.dtype, {b, h, s, d}, {.order = AxisOrder::bshd});
    const Outputs outputs = answer.outputs();
    const Result<Problem> described = describe(problem.options, inputs, outputs);
    if (!described) throw BrokenRun(described.refusal().message());
    if (!admits(runner.domain(), *described)) continue;
    run_guarded(runner, runner.plan(*described).value(), inputs, outputs, {});
    const std::string fault = difference(answer, expected);
    faults.expect(fault.empty(), "interleaved q, k and v: " + fault);
  }
}

/// A last axis that is not contiguous is refused by the name of its tensor.
void row77(const Runner&, Faults& faults) {
  const HostTensor q(DType::f32, {1, 2, 3, 8}), transposed(DType::f32, {1, 2, 8, 5}), v(DType::f32, {1, 2, 5, 8});
  HostTensor o(DType::f32, {1, 2, 3, 8});
  const std::string argument =
      refused_by_describe({q.view(), transposed.view().transposed(2, 3), v.view(), {}, {}}, {o.mutable_view(), {}});
  faults.expect(argument == "k", "k stored [B, H, D, S] is refused by '" + argument + "'");
}

void row79(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b2 h4 q1 k33 d512 f32", "b1 h4 q1 k33 d512/64 f32 causal"})) {
    Placement once;
    once.expanded[1] = true;
    Scenario copies(problem, 9);
    for (const auto tensor : {&Scenario::k, &Scenario::v})
      (copies.*tensor).fill([&, old = copies.*tensor](const Index& at) { return old.get({at[0], 0, at[2], at[3]}); });
    Scenario expanded = copies;
    expanded.place(&Scenario::k, once);
    expanded.place(&Scenario::v, once);
    const std::string fault = difference(compute_and_judge(runner, expanded), compute_and_judge(runner, copies));
    faults.expect(fault.empty(), "expanded kv: " + fault);
  }
}

void row85(const Runner& runner, Faults& faults) {
  for (const char* heads : {"6/1", "12/1", "3/1", "7/1", "40/5", "6/2", "9/3"})
    for (const Problem& problem : problems_for(runner, {fmt::format("b2 h{} q3 k9 d16 f32", heads)}))
      (void)compute_and_judge(runner, Scenario(problem, 10));
  for (Problem problem : problems_for(runner, {"b1 h6/3 q3 k9 d16 f32"})) {
    problem.heads_q = 7;
    const Result<Plan> refused = runner.plan(problem);
    faults.expect(!refused && refused.refusal().argument == "heads_kv", "7 heads over 3 are not refused by heads_kv");
  }
}

/// Scratch that belongs to a thread id and not to a task: 32 rows fit one, 33 do not.
void row106(const Runner& runner, Faults& faults) {
  for (const Problem& problem :
       problems_for(runner, {"b1 h1 q32 k32 d64 f32", "b1 h1 q33 k33 d64 f32", "b1 h2 q129 k33 d64 f32 causal"})) {
    const Scenario scenario(problem, 11);
    const Answer expected = compute_and_judge(runner, scenario);
    const auto four = make_executor(4);
    for (Executor* executor : {four.get(), &default_executor()}) {
      const std::string fault = difference(compute(runner, scenario, {4, executor}), expected);
      faults.expect(fault.empty(), fault);
    }
  }
}

constexpr Habit rows[] = {
    {"Row62_empty_axes", row62},
    {"Row64_upper_half_of_the_components", row64},
    {"Row65_every_head_dim", row65},
    {"Row67_unequal_lengths", row67},
    {"Row68_values_of_another_width", row68},
    {"Row70_more_than_65535_heads", row70},
    {"Row73_offsets_through_strides", row73},
    {"Row76_interleaved_tensors", row76},
    {"Row77_last_axis_not_contiguous", row77},
    {"Row79_expanded_keys_and_values", row79},
    {"Row85_any_whole_ratio_of_heads", row85},
    {"Row106_scratch_belongs_to_the_task", row106},
};

}  // namespace

std::span<const Habit> casebook_shape_rows() { return rows; }

}  // namespace fresnel::test
