// SPDX-License-Identifier: Apache-2.0
// Every control on named inputs: where the judge must catch it, and where the mistake can do no harm, so that equal
// bits to the honest control are demanded. A judge that let one pass, or a control that was wrong by more than its own
// mistake, fails here.
#include "controls/controls.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "fresnel/fresnel.hpp"
#include "inputs/inputs.hpp"
#include "planner/selection.hpp"
#include "runtime/half.hpp"
#include "runtime/memory.hpp"

namespace fresnel::test {
namespace {

/// Which outputs have to be wrong.
enum class Wrong : std::uint8_t { o, lse, both };

struct Catch {
  std::string_view control, problem, inputs;
  Wrong wrong;
};

constexpr Catch catches[] = {
    {"rescale_forgotten", "b1 h2 q8 k64 d32 f32", "ascending", Wrong::both},
    {"rescale_forgotten", "b1 h2 q8 k64 d32 bf16", "normal", Wrong::both},
    {"blocks_averaged", "b1 h1 q8 k40 d32 f32", "normal", Wrong::o},
    {"boundary_unmasked", "b1 h1 q33 k33 d32 f32 causal", "normal", Wrong::both},
    {"boundary_unmasked", "b1 h1 q40 k40 d16 f64 w5,3", "normal", Wrong::both},
    {"causal_off_by_one", "b1 h1 q33 k33 d32 f32 causal", "normal", Wrong::both},
    {"causal_off_by_one", "b1 h1 q4 k9 d16 f16 causal topleft", "normal", Wrong::both},
    {"tail_counted", "b1 h1 q8 k33 d32 f32", "normal", Wrong::both},
    {"tail_counted", "b1 h1 q1 k1 d16 f32", "normal", Wrong::both},
    {"heads_in_tile_order", "b1 h4/2 q8 k32 d32 f32", "head_index", Wrong::both},
    {"base_two_lse", "b1 h1 q8 k32 d32 f32", "normal", Wrong::lse},
    {"softcap_after_mask", "b1 h1 q33 k33 d32 f32 causal cap5", "normal", Wrong::both},
    {"stale_maximum", "b1 h1 q4 k96 d32 f32", "ascending", Wrong::both},
    {"stale_maximum", "b1 h1 q4 k64 d32 f32", "ascending", Wrong::lse},
    {"short_head_dim", "b1 h1 q8 k32 d24 f32", "normal", Wrong::both},
    {"short_head_dim", "b1 h1 q8 k32 d8 f16", "normal", Wrong::both},
    {"splits_unweighted", "b1 h2 q8 k64 d32 f32", "normal", Wrong::both},
    {"emptiness_by_threshold", "b1 h1 q8 k32 d32 f32", "shift", Wrong::both},
};

struct Harmless {
  std::string_view control, problem, inputs, because;
};

constexpr Harmless harmless[] = {
    {"rescale_forgotten", "b1 h2 q8 k16 d32 f32", "ascending", "the row fits one tile"},
    {"rescale_forgotten", "b1 h2 q8 k64 d32 f32", "descending", "the maximum never rises"},
    {"blocks_averaged", "b1 h2 q8 k16 d32 f32", "normal", "the row fits one tile"},
    {"boundary_unmasked", "b1 h2 q33 k33 d32 f32", "normal", "no mask"},
    {"boundary_unmasked", "b1 h2 q1 k33 d32 f32 causal", "normal", "one query: its tiles are clipped to what it sees"},
    {"causal_off_by_one", "b1 h2 q33 k33 d32 f32 w4,4", "normal", "not causal"},
    {"causal_off_by_one", "b1 h2 q1 k33 d32 f32 causal", "normal", "there is no key after the newest query"},
    {"tail_counted", "b1 h2 q8 k48 d32 f32", "normal", "the last tile is whole"},
    {"heads_in_tile_order", "b1 h4 q8 k32 d32 f32", "normal", "no grouping"},
    {"heads_in_tile_order", "b1 h4/1 q8 k32 d32 f32", "normal", "one kv head"},
    {"base_two_lse", "b1 h2 q8 k32 d32 f32 nolse", "normal", "lse is not asked for"},
    {"softcap_after_mask", "b1 h1 q33 k33 d32 f32 causal", "normal", "no softcap"},
    {"softcap_after_mask", "b1 h1 q33 k33 d32 f32 cap5", "normal", "no mask"},
    {"stale_maximum", "b1 h1 q4 k32 d32 f32", "ascending", "the row fits one split"},
    {"stale_maximum", "b1 h1 q4 k96 d32 f32", "descending", "the maximum never rises"},
    {"short_head_dim", "b1 h1 q8 k32 d48 f32", "normal", "D is a multiple of 16"},
    {"splits_unweighted", "b1 h2 q8 k32 d32 f32", "normal", "the row fits one split"},
    {"splits_unweighted", "b1 h2 q8 k96 d32 f32 scale0", "normal", "every maximum is the same"},
    {"emptiness_by_threshold", "b1 h1 q8 k32 d32 f32", "normal", "ordinary scores"},
};

struct Answer {
  Verdict verdict;
  std::vector<std::uint64_t> bits;  ///< of o, then lse, as float64: every dtype's values keep their differences
  bool guards_intact = false;
};

template <class AnyView>
void append_bits(const AnyView& view, std::int64_t width, std::vector<std::uint64_t>& bits) {
  const bool rows = view.rank == 4;
  for (std::int64_t b = 0; b < view.sizes[0]; ++b)
    for (std::int64_t h = 0; h < view.sizes[1]; ++h)
      for (std::int64_t i = 0; i < view.sizes[2]; ++i)
        for (std::int64_t d = 0; d < width; ++d) {
          const std::int64_t at = b * view.strides[0] + h * view.strides[1] + i * view.strides[2] + (rows ? d : 0);
          bits.push_back(std::bit_cast<std::uint64_t>(load_as_double(view.data, view.dtype, at)));
        }
}

Answer run_control(std::string_view name, std::string_view line, std::string_view inputs) {
  const Kernel* const row = controls::find(std::string(controls::prefix) + std::string(name));
  if (row == nullptr) throw std::invalid_argument("no control is called " + std::string(name));
  const Problem problem = parse_problem(line).value();
  GeneratedInputs data = make_inputs(problem, inputs, 7).value();
  const Plan plan = plan_row(*row, problem, Machine::host(), {}).value();
  EXPECT_EQ(plan.kernel_name(), row->name);
  AlignedBuffer workspace = AlignedBuffer::allocate(plan.workspace_bytes(), "workspace").value();
  EXPECT_TRUE(run(plan, data.inputs(), data.outputs(), workspace.span(), default_executor()).ok());
  Answer answer;
  answer.verdict = check(problem, data.inputs(), data.outputs(), roundings_of(plan)).value();
  const Outputs outputs = data.outputs();
  append_bits(outputs.o, problem.value_dim, answer.bits);
  if (outputs.lse) append_bits(*outputs.lse, 1, answer.bits);
  answer.guards_intact = data.guards_intact();
  return answer;
}

std::string where(const auto& row) {
  return std::string(row.control) + " on '" + std::string(row.problem) + "' " + std::string(row.inputs);
}

TEST(Controls, AreCaughtWhereTheyDoHarm) {
  for (const Catch& row : catches) {
    const Answer answer = run_control(row.control, row.problem, row.inputs);
    const Verdict& verdict = answer.verdict;
    EXPECT_FALSE(verdict.ok()) << where(row);
    EXPECT_EQ(verdict.o.mismatches > 0, row.wrong != Wrong::lse) << where(row) << ": " << verdict.o.mismatches;
    ASSERT_TRUE(verdict.lse) << where(row);
    EXPECT_EQ(verdict.lse->mismatches > 0, row.wrong != Wrong::o) << where(row) << ": " << verdict.lse->mismatches;
    EXPECT_TRUE(answer.guards_intact) << where(row);
    const Answer honest = run_control("none", row.problem, row.inputs);
    EXPECT_TRUE(honest.verdict.ok()) << "control.none instead of " << where(row);
    EXPECT_TRUE(honest.guards_intact);
  }
}

TEST(Controls, HaveTheHonestBitsWhereTheyDoNoHarm) {
  for (const Harmless& row : harmless) {
    const Answer answer = run_control(row.control, row.problem, row.inputs);
    const Answer honest = run_control("none", row.problem, row.inputs);
    EXPECT_TRUE(answer.bits == honest.bits) << where(row) << ", where " << row.because;
    EXPECT_TRUE(answer.verdict.ok()) << where(row);
  }
}

TEST(Controls, NoneIsRightWhateverIsAsked) {
  double largest = 0;
  for (const char* line :
       {"b2 h4/2 q37 k70 d24/40 f32 causal w20,- cap5 alibi lens", "b2 h2 q9 k65 d8 f64 alibi:distance",
        "b1 h2 q17 k90 d64 f16 causal", "b1 h2 q17 k90 d64 bf16 topleft w3,9 bshd", "b1 h1 q3 k0 d8 f32",
        "b1 h1 q0 k5 d8 f32", "b1 h1 q5 k2 d8 f32 causal", "b2 h2 q5 k40 d16 f32 causal lens unaligned"})
    for (const InputKind& kind : input_kinds()) {
      const Problem problem = parse_problem(line).value();
      if (!kind.halves && (problem.dtype == DType::f16 || problem.dtype == DType::bf16)) continue;
      const Answer answer = run_control("none", line, kind.name);
      EXPECT_TRUE(answer.verdict.ok()) << line << ' ' << kind.name;
      EXPECT_TRUE(answer.guards_intact) << line << ' ' << kind.name;
      largest = std::max(largest, answer.verdict.o.max_share);
    }
  RecordProperty("largest_share", std::to_string(largest));
}

TEST(Controls, AreAllInBothTables) {
  std::set<std::string> named, caught{"control.none"}, spared{"control.none"};
  for (const Kernel& row : controls::rows()) {
    EXPECT_TRUE(row.name.starts_with(controls::prefix)) << row.name;
    EXPECT_TRUE(named.insert(std::string(row.name)).second) << row.name;
    EXPECT_NE(row.run, nullptr);
  }
  for (const Catch& row : catches) caught.insert("control." + std::string(row.control));
  for (const Harmless& row : harmless) spared.insert("control." + std::string(row.control));
  EXPECT_EQ(named, caught);
  EXPECT_EQ(named, spared);
  EXPECT_EQ(controls::find("control.nothing"), nullptr);
  EXPECT_EQ(controls::find("none"), nullptr);
}

}  // namespace
}  // namespace fresnel::test
