// SPDX-License-Identifier: Apache-2.0
// `fresnel count --kernel NAME PROBLEM`: what a row of the catalogue asks of tiles, caches and memory, by its own walk
// and tile. Nothing is run.
#include <fmt/format.h>

#include "cli/counting.hpp"
#include "cli/errors.hpp"
#include "kernels/kernel.hpp"
#include "planner/selection.hpp"
#include "traffic/replay.hpp"

namespace fresnel::cli {
namespace {

struct Row {
  std::string problem;
  Plan plan;
  traffic::Replay replay;
};

/// A backward row serves a problem with gradients, which is said once for both.
Result<Row> row_of(const std::string& kernel, Problem problem, const Machine& machine) {
  const Kernel* const known = find_kernel(kernel);
  const std::vector<std::string> names = kernel_names();
  if (known == nullptr) return refuse("--kernel", "'" + kernel + "'", joined(names), nearest_word(kernel, names));
  const auto plan = plan_row(*known, problem, machine, {kernel, 0});
  if (!plan) return plan.refusal();
  const auto replay = traffic::replay(*known, problem, plan->tile);
  if (!replay) return replay.refusal();
  return Row{print(problem), *plan, *replay};
}

traffic::Work work_of(const traffic::Replay& replay, const traffic::Rates& rates) {
  return {2 * replay.fma, replay.visited, replay.tile.bytes(), replay.beyond(static_cast<double>(rates.cache_bytes))};
}

Json to_json(const traffic::Requests& requests) {
  return {{"read_bytes", number(requests.reads)}, {"written_bytes", number(requests.writes)}};
}

Json document_of(const Row& row, const std::optional<traffic::Rates>& rates) {
  const traffic::Replay& replay = row.replay;
  Json json{{"problem", row.problem},
            {"kernel", row.plan.kernel_name()},
            {"tile", {{"queries", row.plan.tile.queries}, {"keys", row.plan.tile.keys}}},
            {"visible_pairs", number(replay.visible)},
            {"visited_pairs", number(replay.visited)},
            {"fma", number(replay.fma)},
            {"levels",
             {{"tile", to_json(replay.tile)}, {"cache", to_json(replay.cache)}, {"memory", to_json(replay.memory)}}},
            {"working_set_bytes", number(replay.working_set)},
            {"score_matrix_bytes", number(replay.score_bytes)},
            {"arithmetic_intensity", number(2 * replay.fma / replay.memory.bytes())}};
  if (!rates) return json;
  json["machine"] = cli::to_json(*rates, traffic::roofline(work_of(replay, *rates), *rates));
  json["machine"]["memory_bytes"] = number(replay.beyond(static_cast<double>(rates->cache_bytes)));
  return json;
}

void print_for_people(const std::vector<Row>& rows, const std::optional<traffic::Rates>& rates) {
  using Align = Table::Align;
  const Paint paint = Paint::of_stdout();
  const auto amount = [](double value) { return grouped(static_cast<std::int64_t>(value)); };
  Table levels({{"kernel"}, {"tile"}, {"level"}, {"bytes read", Align::right}, {"bytes written", Align::right}});
  RooflineTable times("kernel");
  for (const Row& row : rows) {
    const traffic::Replay& replay = row.replay;
    levels.add({std::string(row.plan.kernel_name()), fmt::format("{} x {}", row.plan.tile.queries, row.plan.tile.keys),
                "tile", amount(replay.tile.reads), amount(replay.tile.writes)});
    levels.add({"", "", "cache", amount(replay.cache.reads), amount(replay.cache.writes)});
    levels.add({"", "", "memory, at least", amount(replay.memory.reads), amount(replay.memory.writes)});
    if (rates) times.add(std::string(row.plan.kernel_name()), traffic::roofline(work_of(replay, *rates), *rates));
  }
  for (std::size_t at = 0; at < rows.size(); ++at)
    if (at == 0 || rows[at].problem != rows[at - 1].problem)
      fmt::print("problem  {}\n         {} pairs visible, scores of {} never written\n", rows[at].problem,
                 amount(rows[at].replay.visible), bytes(rows[at].replay.score_bytes));
  fmt::print("\n{}", levels.text(paint));
  if (rates) fmt::print("\nat the rates of {}, {}\n\n{}", rates->name, rates->about, times.text(paint));
}

}  // namespace

Result<int> count_kernels(const std::vector<std::string>& kernels, const std::vector<Problem>& problems,
                          const std::optional<traffic::Rates>& rates, bool json) {
  const auto machine = Machine::detect();
  if (!machine) return machine.refusal();
  std::vector<Row> rows;
  for (const Problem& problem : problems)
    for (const std::string& kernel : kernels) {
      auto row = row_of(kernel, problem, *machine);
      if (!row) return row.refusal();
      rows.push_back(std::move(*row));
    }
  if (!json) {
    print_for_people(rows, rates);
    return exit_right;
  }
  Json document{{"rows", Json::array()}};
  for (const Row& row : rows) document["rows"].push_back(document_of(row, rates));
  emit(document);
  return exit_right;
}

}  // namespace fresnel::cli
