// SPDX-License-Identifier: Apache-2.0
// Casebook, masks and windows: who sees whom where others got it wrong, with the answers worked out by hand. The
// numbers of the rows are those of the casebook, a list of faults that users of attention kernels met.
#include "habits/casebook.hpp"

namespace fresnel::test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
const double ln2 = std::log(2.0);

double own_index(std::int64_t key, std::int64_t) { return static_cast<double>(key); }

/// A band of ten keys: late rows meet many tiles that hold nothing for them.
void row5(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b1 h1 q600 k600 d2 f32 causal w9,-"})) {
    Scenario scenario(problem, 1);
    for (const auto tensor : {&Scenario::q, &Scenario::k, &Scenario::v})
      (scenario.*tensor).fill([](const Index&) { return 1.0; });
    std::vector<double> lse;
    for (int i = 0; i < 600; ++i) lse.push_back(std::sqrt(2.0) + std::log(std::min(i + 1, 10)));
    expect_rows(runner, scenario, std::vector(600, 1.0), lse, faults);
  }
}

void row11(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b1 h1 q1 k8 d4 f32 scale1 lens"})) {
    Scenario scenario(problem, 2);
    scenario.q.fill([](const Index&) { return 0.5; });
    scenario.k.fill([](const Index&) { return 0.25; });
    scenario.set_lengths({1});
    const Answer answer = expect_rows(runner, scenario, {}, {0.5}, faults);
    for (std::int64_t d = 0; d < 4; ++d)
      faults.expect(answer.o.get({0, 0, 0, d}) == scenario.v.get({0, 0, 0, d}), "o is not v[0] exactly");
  }
}

void row13(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b2 h2 q1 k3 d64 f32 lens"})) {
    Scenario clean(problem, 3);
    clean.set_lengths({1, 3});
    const auto with = [&](HostTensor Scenario::*tensor, double junk) {
      Scenario scenario = clean;
      (scenario.*tensor).for_each_index([&](const Index& at) {
        if (at[0] == 0 && at[2] >= 1) (scenario.*tensor).set(at, junk);
      });
      return compute(runner, scenario);
    };
    for (const auto tensor : {&Scenario::k, &Scenario::v})
      for (const double junk : {nan, -minus_infinity}) {
        const std::string fault = difference(with(tensor, junk), with(tensor, 0.0));
        faults.expect(fault.empty(), fault);
      }
  }
}

void row14(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b2 h4 q16 k16 d8 f32"})) {
    Scenario scenario(problem, 4);
    scenario.q.fill([](const Index&) { return nan; });
    const Answer answer = compute(runner, scenario);
    answer.o.for_each_index([&](const Index& at) {
      faults.expect(std::isnan(answer.o.get(at)), fmt::format("{}: o{} hides the NaN of q", print(problem), print(at)));
    });
    answer.lse->for_each_index([&](const Index& at) {
      faults.expect(std::isnan(answer.lse->get(at)),
                    fmt::format("{}: lse{} hides the NaN of q", print(problem), print(at)));
    });
  }
}

/// Softcap comes before the mask: 269.672 if a hidden key scores -cap.
void row16(const Runner& runner, Faults& faults) {
  const auto value = [](std::int64_t key, std::int64_t) { return key == 0 ? 1.0 : 1000.0; };
  for (const Problem& problem :
       problems_for(runner, {"b1 h1 q1 k2 d4 f32 causal topleft cap1", "b1 h1 q1 k2 d4 f32 cap1 lens",
                             "b1 h1 q1 k2 d4 f32 topleft w-,0 cap1"})) {
    Scenario scenario = with_zero_scores(problem, value);
    if (problem.seqlens_k) scenario.set_lengths({1});
    expect_rows(runner, scenario, {1.0}, {0.0}, faults);
  }
}

/// Padded lanes of a tile under a softcap: 0.737 if they score -cap.
void row17(const Runner& runner, Faults& faults) {
  for (const int keys : {1, 7, 63, 65, 127, 129, 257})
    for (const char* cap : {"1", "5", "50"})
      for (const Problem& problem : problems_for(runner, {fmt::format("b1 h1 q2 k{} d4 f32 cap{}", keys, cap)})) {
        const Scenario scenario = with_zero_scores(problem, [](std::int64_t, std::int64_t) { return 1.0; });
        const double lse = std::log(static_cast<double>(keys));
        expect_rows(runner, scenario, {1.0, 1.0}, {lse, lse}, faults);
      }
}

void row22(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b2 h2 q5 k2 d4 f32 causal"}))
    expect_rows(runner, with_zero_scores(problem, own_index), {0, 0, 0, 0, 0.5},
                {minus_infinity, minus_infinity, minus_infinity, 0, ln2}, faults);
}

/// Later keys score higher, so a row that looks past the diagonal shows it at once: o is the row's own number.
void row23(const Runner& runner, Faults& faults) {
  for (const Problem& shape : problems_for(runner, {"b1 h1 q1 k700 d4 f32 causal topleft scale1"})) {
    const std::int64_t tile = runner.plan(shape).value().tile.queries;
    for (const std::int64_t queries : {tile - 1, tile, tile + 1, 2 * tile + 1}) {
      if (queries < 1 || queries > 690) continue;
      Problem problem = shape;
      problem.queries = queries;
      if (!admits(runner.domain(), problem)) continue;
      Scenario scenario(problem, 5);
      scenario.q.fill([](const Index& at) { return at[3] == 0 ? 16.0 : 0.0; });
      scenario.k.fill([](const Index& at) { return static_cast<double>(2 * at[2]); });
      scenario.v.fill([](const Index& at) { return static_cast<double>(at[2]); });
      std::vector<double> own;
      for (std::int64_t i = 0; i < queries; ++i) own.push_back(static_cast<double>(i));
      const bool holds_the_keys = problem.dtype != DType::bf16;  // 8 bits do not tell key 600 from 601
      expect_rows(runner, scenario, holds_the_keys ? own : std::vector<double>{}, {}, faults);
    }
  }
}

/// 0 is a bound: (0, 0) leaves a row its own key, and no cost is planned for the others.
void row25(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b1 h2 q70 k70 d8 f32 w0,0"})) {
    const Scenario scenario(problem, 6);
    const Answer answer = compute_and_judge(runner, scenario);
    answer.o.for_each_index([&](const Index& at) {
      faults.expect(answer.o.get(at) == scenario.v.get(at), fmt::format("{}: o{} is not v", print(problem), print(at)));
    });
    const double pairs = 2 * 70;
    if (runner.listed())
      faults.expect(answer.plan.cost.operations == 2.0 * (8 + 8) * pairs,
                    fmt::format("{}: {} operations planned", print(problem), answer.plan.cost.operations));
  }
  for (const char* line : {"b1 h1 q4 k4 d4 f32 w-,0", "b1 h1 q4 k4 d4 f32 causal"})
    for (const Problem& problem : problems_for(runner, {line}))
      expect_rows(runner, with_zero_scores(problem, own_index), {0, 0.5, 1, 1.5}, {0, ln2, std::log(3.0), 2 * ln2},
                  faults);
  for (const Problem& problem : problems_for(runner, {"b1 h1 q4 k4 d4 f32 w0,-"}))
    expect_rows(runner, with_zero_scores(problem, own_index), {1.5, 2, 2.5, 3}, {2 * ln2, std::log(3.0), ln2, 0},
                faults);
}

void row26(const Runner& runner, Faults& faults) {
  for (const char* window : {"w-,2147483647", "w2147483647,2147483647", "w-,9223372036854775807",
                             "w9223372036854775807,9223372036854775806", "w9223372036854775807,-"})
    for (const Problem& problem : problems_for(runner, {fmt::format("b1 h1 q5 k2 d4 f32 {}", window)}))
      expect_rows(runner, with_zero_scores(problem, own_index), std::vector(5, 0.5), std::vector(5, ln2), faults);
}

void row28(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b1 h1 q5 k2 d4 f32 w1,1"}))
    expect_rows(runner, with_zero_scores(problem, own_index), {0, 0, 0, 0.5, 0.5},
                {minus_infinity, minus_infinity, 0, ln2, ln2}, faults);
  for (const Problem& problem : problems_for(runner, {"b1 h1 q129 k20 d8 f32 w32,64"}))
    (void)compute_and_judge(runner, Scenario(problem, 7));
}

/// (S - 1, 0) and (S, 0) are causal by other words.
void row29(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b1 h1 q130 k130 d16 f32 causal"})) {
    const Answer causal = compute_and_judge(runner, Scenario(problem, 8));
    for (const std::int64_t left : {129, 130}) {
      Problem window = problem;
      window.options.causal = false;
      window.options.window_size_left = left;
      window.options.window_size_right = 0;
      if (!admits(runner.domain(), window)) continue;
      const Answer answer = compute_and_judge(runner, Scenario(window, 8));
      answer.o.for_each_index([&](const Index& at) {
        expect_near(answer.o.get(at), causal.o.get(at), problem.dtype, fmt::format("{}: o{}", print(window), print(at)),
                    faults);
      });
    }
  }
}

/// The first rows past the edge of a long window, in three wordings of the same mask.
void row31(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b1 h2 q300 k300 d64 f32 w150,0"})) {
    const Scenario scenario(problem, 9);
    const Answer answer = compute_and_judge(runner, scenario);
    Problem causal = problem;
    causal.options.causal = true;
    causal.options.window_size_right.reset();
    if (!admits(runner.domain(), causal)) continue;
    Scenario reworded = scenario;
    reworded.problem = causal;
    const Answer other = compute_and_judge(runner, reworded);
    for (std::int64_t i = 148; i < 154; ++i)
      for (std::int64_t d = 0; d < 64; ++d)
        expect_near(other.o.get({0, 1, i, d}), answer.o.get({0, 1, i, d}), problem.dtype,
                    fmt::format("{}: row {}", print(causal), i), faults);
  }
}

/// Masked equals sliced.
void row40(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, {"b1 h2 q1 k1000 d64 f32 lens"})) {
    Scenario masked(problem, 10);
    masked.set_lengths({500});
    Problem sliced = problem;
    sliced.keys = 500;
    sliced.seqlens_k = false;
    Scenario short_one(sliced, 11);
    short_one.q = masked.q;
    short_one.k.fill([&](const Index& at) { return masked.k.get(at); });
    short_one.v.fill([&](const Index& at) { return masked.v.get(at); });
    const Answer first = compute_and_judge(runner, masked), second = compute_and_judge(runner, short_one);
    first.o.for_each_index([&](const Index& at) {
      expect_near(first.o.get(at), second.o.get(at), problem.dtype, fmt::format("{}: o{}", print(problem), print(at)),
                  faults);
    });
  }
}

constexpr Habit rows[] = {
    {"Row5_band_of_ten_keys", row5},
    {"Row11_one_open_key_gives_its_value", row11},
    {"Row13_nan_in_unused_cache_slots", row13},
    {"Row14_nan_queries_are_not_hidden", row14},
    {"Row16_softcap_before_mask", row16},
    {"Row17_softcap_and_the_tail_of_a_tile", row17},
    {"Row22_causal_with_more_queries_than_keys", row22},
    {"Row23_ragged_last_query_tile_under_causal", row23},
    {"Row25_a_window_bound_of_zero_is_a_bound", row25},
    {"Row26_huge_window_bounds_are_not_clamped", row26},
    {"Row28_window_with_more_queries_than_keys", row28},
    {"Row29_window_of_everything_before_is_causal", row29},
    {"Row31_first_rows_past_a_long_window", row31},
    {"Row40_masked_equals_sliced", row40},
};

}  // namespace

std::span<const Habit> casebook_mask_rows() { return rows; }

}  // namespace fresnel::test
