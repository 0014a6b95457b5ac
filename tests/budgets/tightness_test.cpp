// SPDX-License-Identifier: Apache-2.0
// What docs/numerics.md says about how tight budgets are: no output beyond its budget on any kind of inputs, a table
// that has a line for every row that is built, and budgets that are of use to those rows.
#include "budgets/tightness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "fresnel/fresnel.hpp"
#include "inputs/inputs.hpp"
#include "kernels/kernel.hpp"
#include "planner/selection.hpp"
#include "runtime/memory.hpp"
#include "semantics/views.hpp"
#include "support/rows.hpp"

namespace fresnel::test {
namespace {

TEST(Tightness, NoOutputOfAnyRowIsBeyondItsBudgetOnAnyKindOfInputs) {
  const std::vector<Tightness> measured = measure_tightness(0, default_executor());
  EXPECT_EQ(lines_of(table_of(measured)), lines_for(rows_here()));
  for (const Tightness& line : measured) {
    SCOPED_TRACE(line.row + " " + line.dtype + " " + line.output);
    EXPECT_EQ(line.mismatches, 0) << line.worst_command;
    EXPECT_LE(line.largest_normal, 1) << line.worst_command;
    EXPECT_LE(line.largest_adversarial, 1) << line.worst_command;
    EXPECT_GT(line.normal.count(), 0);
    EXPECT_GT(line.adversarial.count(), 0);
    EXPECT_GT(line.largest_normal, 0) << "every row rounds";
    EXPECT_LE(line.normal.median(), line.largest_normal * 1.05) << "buckets are 4% wide";
  }
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t from = text.find(begin), to = text.find(end);
  return from == std::string::npos || to == std::string::npos ? "" : text.substr(from, to - from);
}

TEST(Tightness, TheTableInTheDocumentsHasTheRowsOfTheCatalogue) {
  std::ifstream file(FRESNEL_SOURCE_DIR "/docs/numerics.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string table = between(text.str(), "<!-- tightness begins", "<!-- tightness ends -->");
  ASSERT_FALSE(table.empty()) << "no markers";
  std::vector<const Kernel*> rows;  // those that this host cannot run, too
  for (const Kernel& row : catalogue())
    if (row.device == Device::cpu) rows.push_back(&row);
  EXPECT_EQ(lines_of(table), lines_for(rows)) << "scripts/tightness writes the table again";
}

TEST(ShareCounts, MedianIsKnownToAFewPercent) {
  ShareCounts counts;
  EXPECT_EQ(counts.median(), 0);
  for (int each = 1; each <= 1001; ++each) counts.add(each * 1e-4);
  EXPECT_NEAR(counts.median(), 0.0501, 0.0501 * 0.04);
  for (int each = 0; each < 1001; ++each) counts.add(0.0);
  EXPECT_EQ(counts.median(), 0);
  ShareCounts other;
  other.add(INFINITY);
  other.add(1e-300);
  counts.add(other);
  EXPECT_EQ(counts.count(), 2004);
}

/// A run of one forward row, ready to be tampered with.
struct Trial {
  Plan plan;
  GeneratedInputs data;

  Trial(const Kernel& row, const Problem& problem)
      : plan(plan_row(row, problem, Machine::host(), {"", 1}).value()),
        data(make_inputs(problem, "normal", 5).value()) {
    AlignedBuffer workspace = AlignedBuffer::allocate(plan.workspace_bytes(), "workspace").value();
    EXPECT_TRUE(run(plan, data.inputs(), data.outputs(), workspace.span(), default_executor()).ok());
  }
  [[nodiscard]] Verdict verdict() {
    return check(plan.problem, data.inputs(), data.outputs(), roundings_of(plan)).value();
  }
  [[nodiscard]] Judgement judged() { return verdict().o; }
};

template <class Visit>
void for_each_forward_row(Visit visit) {
  for (const Kernel* const row : rows_here())
    if (!row->domain.required.has(Feature::grad)) visit(*row);
}

TEST(UsefulBudgets, ZerosAreCaughtUpTo131072KeysByTheRoundingsOfEveryRow) {
  for_each_forward_row([](const Kernel& row) {
    for (const char* const line : {"b1 h1 q2 k1024 d64 f32", "b1 h1 q1 k131072 d8 f32", "b1 h1 q1 k131072 d8 bf16"}) {
      const Problem problem = parse_problem(line).value();
      if (!admits(row.domain, problem)) continue;
      Trial trial(row, problem);
      EXPECT_EQ(trial.judged().mismatches, 0) << row.name << " " << line;
      for (const MutableView& output : {trial.data.outputs().o, *trial.data.outputs().lse})
        std::fill_n(static_cast<std::byte*>(output.data), as_input(output).elements() * size_of(output.dtype),
                    std::byte{0});
      const Verdict zeros = trial.verdict();
      EXPECT_FALSE(zeros.ok()) << row.name << " " << line;
      EXPECT_GT(zeros.o.mismatches_probable, 0) << row.name << " " << line;
      // Where P is rounded to bf16 all of its roundings may point one way, and an o of 1 / sqrt(K) is lost in that.
      if (roundings_of(trial.plan).unit_p == 0) {
        EXPECT_GT(zeros.o.mismatches, 0) << row.name << " " << line;
      }
    }
  });
}

// Not with a single column: its only output may lie as near to 0 as it likes, and its budget does not.
TEST(UsefulBudgets, OneOutputMovedByAThousandthOfItsRowIsTheOnlyMismatch) {
  for_each_forward_row([](const Kernel& row) {
    for (const char* const line : {"b1 h1 q3 k1 d64 f32", "b1 h2 q3 k64 d64 f32", "b1 h1 q3 k1024 d64 f32",
                                   "b1 h1 q3 k1024 d1/64 f32", "b1 h1 q3 k1000 d33/5 f32"}) {
      const Problem problem = parse_problem(line).value();
      if (!admits(row.domain, problem)) continue;
      Trial trial(row, problem);
      auto* const o = static_cast<float*>(trial.data.outputs().o.data);
      float largest = 0;
      for (std::int64_t d = 0; d < problem.value_dim; ++d) largest = std::max(largest, std::abs(o[d]));
      o[problem.value_dim / 2] += 1e-3f * largest;
      EXPECT_EQ(trial.judged().mismatches, 1) << row.name << " " << line;
    }
  });
}

TEST(UsefulBudgets, ZeroToleranceWouldRejectEveryRow) {
  for_each_forward_row([](const Kernel& row) {
    const Problem problem = parse_problem("b1 h1 q8 k100 d64 f32").value();
    if (!admits(row.domain, problem)) return;
    Trial trial(row, problem);
    const Judgement judgement = trial.judged();
    EXPECT_EQ(judgement.mismatches, 0) << row.name;
    EXPECT_GT(judgement.max_error, 0) << row.name;
  });
}

}  // namespace
}  // namespace fresnel::test
