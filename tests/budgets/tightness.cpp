// SPDX-License-Identifier: Apache-2.0
// A round is one run of every problem below on normal inputs and one on another kind; kinds take turns, so that a few
// rounds show each kind to several problems. Backward rows build upon the forward that would be chosen.
#include "budgets/tightness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "fresnel/fresnel.hpp"
#include "inputs/inputs.hpp"
#include "kernels/kernel.hpp"
#include "planner/selection.hpp"
#include "runtime/memory.hpp"
#include "support/rows.hpp"

namespace fresnel::test {
namespace {

/// Shapes, and the options that go with them; a dtype stands between.
struct Line {
  const char *shape, *options;
};
constexpr Line problem_lines[] = {
    {"b1 h2 q32 k64 d64", ""},
    {"b1 h4/2 q33 k70 d40/56", "causal"},
    {"b1 h2 q20 k300 d32", "w50,3"},
    {"b2 h2 q25 k33 d33/7", "cap2 alibi"},
    {"b2 h2 q16 k40 d32", "causal alibi:distance:batch lens"},
    {"b1 h1 q4 k1024 d64", ""},
    {"b1 h1 q48 k48 d128", "scale-0.3"},
    {"b1 h2 q40 k129 d1/48", "causal topleft"},
    {"b1 h2/1 q9 k70 d16/24", "cap1e+06"},
    {"b1 h2/1 q9 k70 d16/24", "cap0.01"},
    {"b1 h2/1 q9 k70 d16/24", "cap2 scale1.5e+38"},
};

/// The problems that a row is measured on: those of its domain.
std::vector<Problem> problems_of(const Kernel& row, DType dtype) {
  std::vector<Problem> problems;
  for (const auto& [shape, options] : problem_lines) {
    Problem problem = parse_problem(fmt::format("{} {} {}", shape, name(dtype), options)).value();
    problem.grad = row.domain.required.has(Feature::grad);
    if (admits(row.domain, problem)) problems.push_back(problem);
  }
  return problems;
}

template <class T>
T demand(Result<T> result) {
  if (!result) throw std::runtime_error(result.refusal().message());
  return std::move(result).value();
}

void run_once(const Plan& plan, GeneratedInputs& data, Executor& executor) {
  AlignedBuffer workspace = demand(AlignedBuffer::allocate(plan.workspace_bytes(), "workspace"));
  if (const Status ran = run(plan, data.inputs(), data.outputs(), workspace.span(), executor); !ran)
    throw std::runtime_error(ran.refusal().message());
}

/// An output's name, what was judged of it, and how its shares are spread.
struct Judged {
  const char* output;
  const Judgement* judgement;
  const ShareCounts* shares;
};

std::vector<Judged> judged_by(const Kernel& row, const Verdict& verdict, const Shares& shares) {
  std::vector<Judged> judged;
  const auto add = [&](const char* output, const std::optional<Judgement>& judgement, const ShareCounts& counts) {
    if (judgement) judged.push_back({output, &*judgement, &counts});
  };
  if (row.domain.required.has(Feature::grad)) {
    add("dq", verdict.dq, shares.dq);
    add("dk", verdict.dk, shares.dk);
    add("dv", verdict.dv, shares.dv);
    add("dalibi_slopes", verdict.dalibi_slopes, shares.dalibi_slopes);
  } else {
    judged.push_back({"o", &verdict.o, &shares.o});
    add("lse", verdict.lse, shares.lse);
  }
  return judged;
}

std::vector<const char*> outputs_of(const Kernel& row) {
  if (!row.domain.required.has(Feature::grad)) return {"o", "lse"};
  std::vector<const char*> outputs{"dq", "dk", "dv"};
  if (row.domain.features.has(Feature::alibi)) outputs.push_back("dalibi_slopes");
  return outputs;
}

/// One row in one dtype: a line for each of its outputs.
class Measured {
 public:
  Measured(const Kernel& row, DType dtype, Executor& executor)
      : row_(row), executor_(executor), problems_(problems_of(row, dtype)) {
    for (const char* const output : outputs_of(row)) {
      Tightness line;
      line.row = row.name;
      line.dtype = name(dtype);
      line.output = output;
      lines_.push_back(std::move(line));
    }
    for (const InputKind& kind : input_kinds())
      if (kind.name != "normal" && (kind.halves || size_of(dtype) >= 4)) kinds_.emplace_back(kind.name);
  }

  [[nodiscard]] std::int64_t values() const {
    std::int64_t all = 0;
    for (const Tightness& line : lines_) all += line.values();
    return all;
  }

  void round(std::size_t number) {
    for (std::size_t at = 0; at < problems_.size(); ++at) {
      const std::uint64_t seed = number + 1;
      judge_one(problems_[at], "normal", seed);
      judge_one(problems_[at], kinds_[(number * problems_.size() + at) % kinds_.size()], seed);
    }
  }
  /// Rounds until each kind has had its turn.
  [[nodiscard]] std::size_t least_rounds() const { return (kinds_.size() - 1) / problems_.size() + 1; }

  [[nodiscard]] std::vector<Tightness>& lines() { return lines_; }

 private:
  void judge_one(const Problem& problem, const std::string& kind, std::uint64_t seed);

  const Kernel& row_;
  Executor& executor_;
  std::vector<Problem> problems_;
  std::vector<std::string> kinds_;
  std::vector<Tightness> lines_;
};

void Measured::judge_one(const Problem& problem, const std::string& kind, std::uint64_t seed) {
  const PlanOptions any{"", executor_.width()};
  Problem forward = problem;
  forward.grad = false;
  const Plan own = demand(plan_row(row_, problem, Machine::host(), any));
  const Plan first = problem.grad ? demand(plan_among(forward, Machine::host(), any, true)) : own;
  GeneratedInputs data = demand(make_inputs(problem, kind, seed));
  run_once(first, data, executor_);
  if (problem.grad) run_once(own, data, executor_);
  Shares shares;
  const Verdict verdict = demand(check_with_shares(problem, data.inputs(), data.outputs(), roundings_of(first),
                                                   roundings_of(own), &executor_, shares));
  for (const Judged& judged : judged_by(row_, verdict, shares)) {
    const auto line =
        std::find_if(lines_.begin(), lines_.end(), [&](const Tightness& each) { return each.output == judged.output; });
    const bool normal = kind == "normal";
    double& largest = normal ? line->largest_normal : line->largest_adversarial;
    const double share = judged.judgement->max_share;
    (normal ? line->normal : line->adversarial).add(*judged.shares);
    line->mismatches += judged.judgement->mismatches;
    if (share > std::max(line->largest_normal, line->largest_adversarial))
      line->worst_command = fmt::format("fresnel check --problem '{}' --inputs {} --seed {} --kernel {}",
                                        print(problem), kind, seed, row_.name);
    if (!normal && share > largest) line->worst_kind = kind;
    largest = std::max(largest, share);
  }
}

/// Never rounded up, so that a share below 1 does not read as 1.
std::string digits(double share) {
  if (share < 0.1) return share == 0 ? "0" : fmt::format("{:.2g}", share);
  return fmt::format("{:.3f}", std::floor(share * 1000) / 1000);
}

std::string thousands(std::int64_t value) {
  std::string text = std::to_string(value);
  for (auto at = static_cast<std::int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

constexpr std::array dtypes{DType::f64, DType::f32, DType::f16, DType::bf16};

}  // namespace

std::vector<Tightness> measure_tightness(std::int64_t values, Executor& executor) {
  std::vector<Tightness> all;
  for (const Kernel* const here : rows_here()) {
    const Kernel& row = *here;
    for (const DType dtype : dtypes) {
      if (!row.domain.dtypes.has(dtype)) continue;
      Measured measured(row, dtype, executor);
      for (std::size_t number = 0; number < measured.least_rounds() || measured.values() < values; ++number)
        measured.round(number);
      for (Tightness& line : measured.lines()) all.push_back(std::move(line));
    }
  }
  return all;
}

std::string table_of(const std::vector<Tightness>& measured) {
  std::string text =
      "| row | dtype | output | values | median, normal | largest, normal | largest, all other kinds | on |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const Tightness& line : measured)
    text += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} | {} |\n", line.row, line.dtype, line.output,
                        thousands(line.values()), digits(line.normal.median()), digits(line.largest_normal),
                        digits(line.largest_adversarial), line.worst_kind);
  return text;
}

std::vector<std::string> lines_of(const std::string& table) {
  std::vector<std::string> lines;
  std::istringstream stream(table);
  for (std::string text; std::getline(stream, text);) {
    if (!text.starts_with("| `")) continue;
    std::array<std::string, 3> cells;
    std::size_t from = 2;
    for (std::string& cell : cells) {
      const std::size_t to = text.find(" |", from);
      if (to == std::string::npos) throw std::runtime_error("not a line of the table: " + text);
      cell = text.substr(from, to - from);
      from = to + 3;
    }
    std::erase(cells[0], '`');
    lines.push_back(fmt::format("{}, {}, {}", cells[0], cells[1], cells[2]));
  }
  return lines;
}

std::vector<std::string> lines_for(const std::vector<const Kernel*>& rows) {
  std::vector<std::string> lines;
  for (const Kernel* const row : rows)
    for (const DType dtype : dtypes)
      if (row->domain.dtypes.has(dtype))
        for (const char* const output : outputs_of(*row))
          lines.push_back(fmt::format("{}, {}, {}", row->name, name(dtype), output));
  return lines;
}

}  // namespace fresnel::test
