// SPDX-License-Identifier: Apache-2.0
// A row's bits do not depend on who else is in the call: other sequences, other heads, the longest length of a batch,
// the room left for longer ones.
#include <fmt/format.h>

#include "habits/habits.hpp"

namespace fresnel::test {
namespace {

const std::vector<std::string> lines{
    "b4 h4/2 q9 k37 d64 f32 causal", "b4 h2 q70 k70 d33 f32",      "b4 h6/3 q3 k150 d16/24 f32 w9,40 cap5",
    "b4 h2/1 q1 k300 d64 f32 alibi", "b4 h2/1 q5 k19 d8 f32 bshd",
};

/// Copies one sequence, or one kv group of heads, of `all` into the only place of `one`.
void copy_part(const HostTensor& all, HostTensor& one, std::int64_t b, std::int64_t first_head) {
  one.fill([&](const Index& at) { return all.get({b, first_head + at[1], at[2], at[3]}); });
}

/// The scenario of sequence b, kv heads [first_kv, first_kv + count) alone.
Scenario part_of(const Scenario& company, std::int64_t b, std::int64_t first_kv, std::int64_t count) {
  Problem problem = company.problem;
  problem.batch = 1;
  problem.heads_kv = count;
  problem.heads_q = count * company.problem.group();
  Scenario alone(problem, 1);
  const std::int64_t first_head = first_kv * company.problem.group();
  copy_part(company.q, alone.q, b, first_head);
  copy_part(company.k, alone.k, b, first_kv);
  copy_part(company.v, alone.v, b, first_kv);
  if (company.slopes)
    alone.slopes->fill([&](const Index& at) {
      const bool per_head = problem.alibi_slopes == AlibiSlopes::per_head;
      return company.slopes->get(per_head ? Index{first_head + at[0]} : Index{b, first_head + at[1]});
    });
  if (company.lengths) alone.set_lengths({company.live_keys(b)});
  return alone;
}

void compare_parts(const Runner& runner, const Scenario& company, std::int64_t kv_heads_at_once, Faults& faults) {
  const Answer together = compute_and_judge(runner, company);
  for (std::int64_t b = 0; b < company.problem.batch; ++b) {
    for (std::int64_t kv = 0; kv + kv_heads_at_once <= company.problem.heads_kv; kv += kv_heads_at_once) {
      const Scenario alone = part_of(company, b, kv, kv_heads_at_once);
      const Answer answer = compute(runner, alone);
      for (std::int64_t h = 0; h < alone.problem.heads_q; ++h)
        for (std::int64_t i = 0; i < alone.problem.queries; ++i)
          faults.expect(same_row(answer, 0, h, i, together, b, kv * company.problem.group() + h, i),
                        fmt::format("{}: sequence {} head {} row {} differs from itself in company",
                                    print(alone.problem), b, h, i));
    }
  }
}

void sequence_alone_has_the_bits_of_company(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, lines))
    compare_parts(runner, Scenario(problem, 11), problem.heads_kv, faults);
}

void heads_alone_have_the_bits_of_company(const Runner& runner, Faults& faults) {
  for (const Problem& problem : problems_for(runner, lines)) compare_parts(runner, Scenario(problem, 12), 1, faults);
}

void lengths_of_others_change_no_bit(const Runner& runner, Faults& faults) {
  if (!runner.has(Feature::seqlens_k)) return;
  for (const Problem& problem : problems_for(runner, lines)) {
    Scenario company(problem, 13);
    company.set_lengths({0, 5, problem.keys, problem.keys / 2});
    compare_parts(runner, company, problem.heads_kv, faults);
    // The same third sequence beside shorter and longer ones.
    const Answer beside = compute(runner, company);
    company.set_lengths({problem.keys, 1, problem.keys, 0});
    const Answer others = compute(runner, company);
    for (std::int64_t h = 0; h < problem.heads_q; ++h)
      for (std::int64_t i = 0; i < problem.queries; ++i)
        faults.expect(same_row(beside, 2, h, i, others, 2, h, i),
                      fmt::format("{}: row {} follows the lengths of others", print(problem), i));
  }
}

/// A sequence of n live keys is the same sequence whether the tensor has room for n keys or for more: the room is a
/// maximum over the batch.
void room_for_longer_sequences_changes_no_bit(const Runner& runner, Faults& faults) {
  if (!runner.has(Feature::seqlens_k)) return;
  for (const Problem& problem : problems_for(runner, lines)) {
    Scenario exact(problem, 14);
    const std::int64_t live = problem.keys;
    exact.set_lengths(std::vector(static_cast<std::size_t>(problem.batch), live));
    const Answer expected = compute_and_judge(runner, exact);
    for (const std::int64_t room : {live + 1, 2 * live + 3, 8 * live + 100}) {
      Problem wider = exact.problem;
      wider.keys = room;
      Scenario roomy(wider, 15);
      roomy.q = exact.q;
      const auto keep = [live](const HostTensor& source, HostTensor& target) {
        target.fill([&](const Index& at) { return at[2] < live ? source.get(at) : -3.0; });
      };
      keep(exact.k, roomy.k);
      keep(exact.v, roomy.v);
      if (exact.slopes) roomy.slopes = exact.slopes;
      roomy.set_lengths(std::vector(static_cast<std::size_t>(problem.batch), live));
      const std::string fault = difference(compute(runner, roomy), expected);
      faults.expect(fault.empty(), fmt::format("room for {} keys, {} live: {}", room, live, fault));
    }
  }
}

constexpr Habit habits[] = {
    {"sequence_alone_has_the_bits_of_company", sequence_alone_has_the_bits_of_company},
    {"heads_alone_have_the_bits_of_company", heads_alone_have_the_bits_of_company},
    {"lengths_of_others_change_no_bit", lengths_of_others_change_no_bit},
    {"room_for_longer_sequences_changes_no_bit", room_for_longer_sequences_changes_no_bit},
};

}  // namespace

std::span<const Habit> company_habits() { return habits; }

}  // namespace fresnel::test
