// SPDX-License-Identifier: Apache-2.0
// `fresnel overflow CASE`: what the running maximum is for. Takes every visible score from the oracle and asks what a
// softmax in float16 without a maximum would make of it: exp(s) is infinite from the score on whose exponential rounds
// to infinity, and the sum of a row may overflow before any one term does. It computes no attention.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "cli/case_run.hpp"
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/json.hpp"
#include "cli/print.hpp"
#include "cli/session.hpp"
#include "oracle/forward.hpp"
#include "runtime/half.hpp"

namespace fresnel::cli {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The least number that float16 rounds to infinity: half a step above its largest, 65504.
constexpr double least_infinite = 65520;

/// Half-precision addition: both terms and the float32 sum hold more bits than twice a half's, so the one rounding that
/// shows is the last.
float half_of(float value) { return f16_to_float(float_to_f16(value)); }

struct RowSum {
  std::array<std::int64_t, 3> at{};  ///< batch, head, query
  double largest = -infinity;        ///< score
  double naive = 0;                  ///< sum of exp(s), every term and every sum in float16, keys in order
  double safe = 0;                   ///< the same of exp(s - largest)

  /// Worse is the larger naive sum, then the larger score, then the earlier row.
  [[nodiscard]] bool worse_than(const RowSum& other) const {
    if (naive != other.naive) return naive > other.naive;
    if (largest != other.largest) return largest > other.largest;
    return at < other.at;
  }
};

/// Scores of one query head, or of all.
struct Scores {
  std::int64_t count = 0;
  std::int64_t overflowing = 0;  ///< exp(s) is infinite in float16
  std::int64_t rows = 0;
  std::int64_t rows_overflowing = 0;  ///< their naive sum is infinite
  std::int64_t rows_left_out = 0;     ///< rows with scores that are NaN or infinite
  double least = infinity;
  double largest = -infinity;
  std::array<std::int64_t, 4> largest_at{-1, -1, -1, -1};  ///< the first of equals
  std::optional<RowSum> worst;

  void add(const TrueRow<double>& row, double threshold);
  void add(const Scores& other);
  /// What scores may be multiplied by until the largest alone overflows; nothing where none is above 0.
  [[nodiscard]] std::optional<double> factor(double threshold) const {
    return largest > 0 ? std::optional(threshold / largest) : std::nullopt;
  }

 private:
  void add_largest(double score, const std::array<std::int64_t, 4>& at) {
    if (score < largest || (score == largest && at > largest_at)) return;
    largest = score;
    largest_at = at;
  }
};

void Scores::add(const TrueRow<double>& row, double threshold) {
  if (row.keys.empty()) return;
  bool finite = std::isfinite(row.facts.max);
  for (const double x : row.facts.x) finite = finite && std::isfinite(x);
  if (!finite) {
    ++rows_left_out;
    return;
  }
  RowSum sums{{row.batch, row.head, row.query}, row.facts.max, 0, 0};
  float naive = 0, safe = 0;
  for (std::size_t key = 0; key < row.facts.x.size(); ++key) {
    const double s = row.facts.max + row.facts.x[key];  // the largest comes back exactly, the others rounded once
    ++count;
    overflowing += s >= threshold ? 1 : 0;
    least = std::min(least, s);
    naive = half_of(naive + half_of(static_cast<float>(std::exp(s))));
    safe = half_of(safe + half_of(static_cast<float>(std::exp(row.facts.x[key]))));
    if (row.facts.x[key] == 0)
      add_largest(s, {row.batch, row.head, row.query, row.keys.first + static_cast<std::int64_t>(key)});
  }
  sums.naive = naive;
  sums.safe = safe;
  ++rows;
  rows_overflowing += std::isfinite(sums.naive) ? 0 : 1;
  if (!worst || sums.worse_than(*worst)) worst = sums;
}

void Scores::add(const Scores& other) {
  count += other.count;
  overflowing += other.overflowing;
  rows += other.rows;
  rows_overflowing += other.rows_overflowing;
  rows_left_out += other.rows_left_out;
  least = std::min(least, other.least);
  if (other.count > 0) add_largest(other.largest, other.largest_at);
  if (other.worst && (!worst || other.worst->worse_than(*worst))) worst = other.worst;
}

/// By query head, all sequences together. Which lane saw which row changes nothing: every figure is a count, an extreme
/// or a row.
std::vector<Scores> scores_by_head(const CaseRun& run, Executor& executor, double threshold) {
  const auto heads = static_cast<std::size_t>(run.problem.heads_q);
  std::vector<std::vector<Scores>> lanes(static_cast<std::size_t>(executor.width()), std::vector<Scores>(heads));
  for_each_true_row<double>(run.problem, run.inputs(), executor, [&](int lane, const TrueRow<double>& row) {
    lanes[static_cast<std::size_t>(lane)][static_cast<std::size_t>(row.head)].add(row, threshold);
  });
  std::vector<Scores> all(heads);
  for (const std::vector<Scores>& lane : lanes)
    for (std::size_t head = 0; head < heads; ++head) all[head].add(lane[head]);
  return all;
}

Json document_of(const Scores& scores, double threshold) {
  const bool any = scores.count > 0;
  Json worst = nullptr;
  if (const auto& row = scores.worst)
    worst = {{"at", row->at},
             {"largest", number(row->largest)},
             {"naive_sum", number(row->naive)},
             {"naive_finite", std::isfinite(row->naive)},
             {"safe_sum", number(row->safe)}};
  return {{"scores", scores.count},
          {"overflowing", scores.overflowing},
          {"least", any ? number(scores.least) : Json(nullptr)},
          {"largest", any ? number(scores.largest) : Json(nullptr)},
          {"largest_at", any ? Json(scores.largest_at) : Json(nullptr)},
          {"rows", scores.rows},
          {"rows_overflowing", scores.rows_overflowing},
          {"rows_left_out", scores.rows_left_out},
          {"worst_row", worst},
          {"overflow_factor", number(scores.factor(threshold))}};
}

std::vector<std::string> cells_of(const std::string& label, const Scores& scores, double threshold) {
  if (scores.count == 0) return {label, "0", "0"};
  const auto factor = scores.factor(threshold);
  return {label,
          grouped(scores.count),
          grouped(scores.overflowing),
          fmt::format("{:.4f}", scores.least),
          fmt::format("{:.4f}", scores.largest),
          fmt::format("{:.5g}", scores.worst->naive),
          fmt::format("{} of {}", grouped(scores.rows_overflowing), grouped(scores.rows)),
          factor ? fmt::format("{:.4f}", *factor) : "any"};
}

void print_for_people(const CaseRun& run, const std::vector<Scores>& heads, const Scores& all, double threshold) {
  using Align = Table::Align;
  const Paint paint = Paint::of_stdout();
  fmt::print("problem    {}\nthreshold  {:.4f}: in float16, exp of a score from here on is infinite\n",
             print(run.problem), threshold);
  if (!run.given.unread.empty()) fmt::print("unread     {}\n", unread_line(run.given.unread));
  fmt::print("\n");
  Table table({{"head"},
               {"scores", Align::right},
               {"overflow", Align::right},
               {"least", Align::right},
               {"largest", Align::right},
               {"largest sum", Align::right},
               {"rows that overflow", Align::right},
               {"factor to overflow", Align::right}});
  for (std::size_t head = 0; head < heads.size(); ++head)
    table.add(cells_of(fmt::format("{}", head), heads[head], threshold));
  table.add(cells_of("all", all, threshold));
  fmt::print("{}\n", table.text(paint));
  if (all.rows_left_out > 0)
    fmt::print("{} row{} with scores that are not finite left out\n", grouped(all.rows_left_out),
               all.rows_left_out == 1 ? "" : "s");
  if (!all.worst) return;
  const RowSum& row = *all.worst;
  fmt::print(
      "worst row: batch {}, head {}, query {}: float16 sums to {:.5g} without a maximum, {}; to {:.5g} with it\n",
      row.at[0], row.at[1], row.at[2], row.naive,
      std::isfinite(row.naive) ? paint.good("finite") : paint.bad("not finite"), row.safe);
}

}  // namespace

Result<int> overflow_command(const Words& words) {
  Text case_path;
  Placement placement;
  bool json = false;
  Usage usage("overflow", "Counts the scores whose exponential would overflow float16 without the running maximum.");
  usage.positional("CASE", case_path, "A case file (.safetensors)");
  placement.add_to(usage);
  usage.flag("--json", json, "One JSON document on standard output");
  const auto parsed = usage.parse(words);
  if (!parsed) return parsed.refusal();
  if (!*parsed) return exit_right;

  const auto path = required_text("CASE", case_path, "a case file (.safetensors)");
  if (!path) return path.refusal();
  const auto session = open_session(placement);
  if (!session) return session.refusal();
  const auto run = prepare_case(*path);
  if (!run) return run.refusal();
  if (const Status accepted = accept(run->problem, run->inputs()); !accepted) return accepted.refusal();

  const double threshold = std::log(least_infinite);
  const std::vector<Scores> heads = scores_by_head(*run, *session->executor, threshold);
  Scores all;
  for (const Scores& head : heads) all.add(head);
  if (!json) {
    print_for_people(*run, heads, all, threshold);
    return exit_right;
  }
  Json document{{"problem", print(run->problem)}, {"threshold", number(threshold)}};
  document["metadata_unread"] = run->given.unread;
  document.update(document_of(all, threshold));
  document["heads"] = Json::array();
  for (std::size_t head = 0; head < heads.size(); ++head) {
    Json one{{"head", head}};
    one.update(document_of(heads[head], threshold));
    document["heads"].push_back(one);
  }
  emit(document);
  return exit_right;
}

}  // namespace fresnel::cli
