// SPDX-License-Identifier: Apache-2.0
// Casebook, serving: lengths and slots of a cache, one new token against many keys, output layouts, windows that cross
// the edge of a shared prefix. Right values, the same bits, and nothing written outside.
#include "fresnel/merge.hpp"
#include "habits/casebook.hpp"

namespace fresnel::test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// Sequence `b` saw no key: o is 0 and lse -inf in a buffer that held NaN.
void expect_empty(const Answer& answer, const Problem& problem, std::int64_t b, Faults& faults) {
  for (std::int64_t h = 0; h < problem.heads_q; ++h)
    for (std::int64_t i = 0; i < problem.queries; ++i) {
      const std::string where = fmt::format("{}: row [{}, {}, {}]", print(problem), b, h, i);
      faults.expect(answer.lse->get({b, h, i}) == minus_infinity, "lse is not -inf in " + where);
      for (std::int64_t d = 0; d < problem.value_dim; ++d)
        faults.expect(answer.o.get({b, h, i, d}) == 0.0, "o is not 0 in " + where);
    }
}

/// Sets every slot at or past the length of its sequence.
void set_unused_slots(Scenario& scenario, double junk) {
  for (const auto tensor : {&Scenario::k, &Scenario::v})
    (scenario.*tensor).for_each_index([&](const Index& at) {
      if (at[2] >= scenario.live_keys(at[0])) (scenario.*tensor).set(at, junk);
    });
}

/// Whether lse is asked for changes no bit of o, rows without a key included.
void row8(const Runner& runner, Faults& faults) {
  for (const Problem& problem :
       problems_for(runner, {"b2 h2 q5 k40 d16 f32 causal lens", "b1 h2 q70 k70 d64 f32 causal"})) {
    Scenario scenario(problem, 1);
    if (problem.seqlens_k) scenario.set_lengths({3, 40});
    const Answer with = compute_and_judge(runner, scenario);
    scenario.problem.lse = false;
    if (!admits(runner.domain(), scenario.problem)) continue;
    const Answer without = compute_and_judge(runner, scenario);
    with.o.for_each_index([&](const Index& at) {
      faults.expect(with.o.bits(at) == without.o.bits(at),
                    fmt::format("{}: o{} depends on lse being asked for", print(problem), print(at)));
    });
  }
}

void row61(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b3 h2 q4 k5 d16 f32 lens", "b3 h2 q4 k5 d16 f32 causal lens"})) {
    Scenario scenario(problem, 2);
    scenario.set_lengths({0, 5, 0});
    set_unused_slots(scenario, nan);
    const Answer answer = compute_and_judge(runner, scenario);
    for (const std::int64_t b : {0, 2}) expect_empty(answer, problem, b, faults);
  }
}

/// Values that say where they stand, so that a row in the wrong place shows; long enough for any split.
void row82(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b1 h8 q4 k600 d64 f32", "b2 h3/1 q4 k1500 d8/5 f32"})) {
    const Answer expected = compute_and_judge(runner, Scenario(problem, 3));
    Problem other = problem;
    other.o.order = AxisOrder::bshd;
    if (!admits(runner.domain(), other)) continue;
    const std::string fault = difference(compute_and_judge(runner, Scenario(other, 3)), expected);
    faults.expect(fault.empty(), "o as [B, S, H, D]: " + fault);
  }
}

void row91(const Runner& runner, Faults& faults) {
  for (const Problem& problem :
       problems_for(runner, {"b4 h4/2 q1 k9 d64 f32 lens", "b4 h2 q1 k9 d64 f32 causal alibi lens"})) {
    Scenario scenario(problem, 4);
    scenario.set_lengths({7, 3, 9, 0});
    set_unused_slots(scenario, nan);
    expect_empty(compute_and_judge(runner, scenario), problem, 3, faults);
  }
}

/// 17 slots of 32 in use: a whole tile is loaded, and the rest of it counts for nothing.
void row92(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b1 h2 q1 k32 d64 f32 lens", "b1 h2 q60 k80 d64 f32 lens"})) {
    Scenario scenario(problem, 5);
    scenario.set_lengths({17});
    set_unused_slots(scenario, 0);
    const Answer expected = compute_and_judge(runner, scenario);
    for (const double junk : {nan, 1e4}) {
      set_unused_slots(scenario, junk);
      const std::string fault = difference(compute(runner, scenario), expected);
      faults.expect(fault.empty(), fmt::format("unused slots hold {}: {}", junk, fault));
    }
  }
}

void row98(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b2 h4/2 q4 k128 d16 f32 causal lens"})) {
    Scenario clean(problem, 6);
    clean.set_lengths({4, 4});
    Scenario poisoned = clean;
    set_unused_slots(poisoned, nan);
    const Answer expected = compute_and_judge(runner, clean);
    for (int turn = 0; turn < 100; ++turn) {
      const Scenario& scenario = turn % 2 == 0 ? clean : poisoned;
      const std::string fault = difference(compute(runner, scenario, {4, &default_executor()}), expected);
      faults.expect(fault.empty(), fmt::format("run {}: {}", turn, fault));
    }
  }
}

/// Both sides of the length from which others take two passes, with many heads on few.
void row100(const Runner& runner, Faults&) {
  for (const int heads_kv : {2, 8})
    for (const int keys : {1023, 1024, 1025})
      for (const Problem& problem : problems_for(runner, {fmt::format("b1 h32/{} q1 k{} d128 f32", heads_kv, keys)}))
        (void)compute_and_judge(runner, Scenario(problem, 7));
}

/// A prefix of 8 keys and 4 more, each query seeing the 6 keys up to its own: the windowed parts merge to the windowed
/// whole. Query i of the prefix's part stands at i + 4, four short of its place, and so does its window.
void row101(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b2 h4/2 q4 k12 d16 f32 causal w5,-"})) {
    if (problem.dtype != DType::f32 && problem.dtype != DType::f64) continue;  // as partial results are kept
    const Scenario whole(problem, 8);
    const Answer expected = compute_and_judge(runner, whole);
    const auto part = [&](const char* line, std::int64_t first, std::int64_t keys) {
      Problem cut = problem_of(line);
      cut.dtype = problem.dtype;
      Scenario scenario(cut, 8);
      scenario.q = whole.q;
      for (const auto tensor : {&Scenario::k, &Scenario::v})
        (scenario.*tensor).fill([&](const Index& at) {
          return (whole.*tensor).get({at[0], at[1], at[2] + first, at[3]});
        });
      faults.expect(cut.keys == keys, "the parts are not those of the whole");
      return compute_and_judge(runner, scenario);
    };
    const Answer prefix = part("b2 h4/2 q4 k8 d16 f32 w1,-", 0, 8);
    const Answer suffix = part("b2 h4/2 q4 k4 d16 f32 causal w5,-", 8, 4);
    Answer merged = expected;
    merged.o.fill([](const Index&) { return nan; });
    const std::vector<Partial> parts{{prefix.o.view(), prefix.lse->view()}, {suffix.o.view(), suffix.lse->view()}};
    const Status status = merge(parts, {merged.o.mutable_view(), merged.lse->mutable_view()});
    if (!status) throw BrokenRun(status.refusal().message());
    merged.o.for_each_index([&](const Index& at) {
      expect_near(merged.o.get(at), expected.o.get(at), problem.dtype, fmt::format("merged o{}", print(at)), faults);
    });
    merged.lse->for_each_index([&](const Index& at) {
      expect_near(merged.lse->get(at), expected.lse->get(at), problem.dtype, fmt::format("merged lse{}", print(at)),
                  faults);
    });
  }
}

/// Prefill, one new token, and a few speculated ones against what is cached.
void row121(const Runner& runner, Faults&) {
  for (const auto& [queries, past] : {std::pair{16, 0}, {1, 16}, {1, 64}, {4, 20}})
    for (const char* options : {"", " causal"})
      for (const Problem& problem : problems_for(
               runner, {fmt::format("b2 h2 q{} k{} d4 f32{}", queries, queries + past, options),
                        fmt::format("b2 h4/2 q{} k{} d16 f32{} cap5 alibi", queries, queries + past, options)}))
        (void)compute_and_judge(runner, Scenario(problem, 9));
}

constexpr Habit rows[] = {
    {"Row8_lse_asked_for_or_not", row8},
    {"Row61_sequences_without_keys", row61},
    {"Row82_outputs_in_either_order_of_axes", row82},
    {"Row91_a_length_of_zero_is_written_as_zero", row91},
    {"Row92_slots_past_the_length_change_no_bit", row92},
    {"Row98_a_cache_with_room_gives_the_same_bits", row98},
    {"Row100_many_heads_on_few_around_1024_keys", row100},
    {"Row101_windows_across_the_edge_of_a_prefix", row101},
    {"Row121_prefill_decode_and_speculation", row121},
};

}  // namespace

std::span<const Habit> casebook_serving_rows() { return rows; }

}  // namespace fresnel::test
