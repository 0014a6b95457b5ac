// SPDX-License-Identifier: Apache-2.0
// Short timings for `fresnel report`: see report_timing.hpp.
#include "cli/report_timing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "fresnel/fresnel.hpp"
#include "inputs/inputs.hpp"
#include "kernels/kernel.hpp"
#include "planner/selection.hpp"

namespace fresnel::cli {
namespace {

struct Timed {
  Plan plan;
  std::optional<Timing> timing;  ///< nothing where the result was wrong
};

/// Every built row that serves the problem, judged and then timed for about `seconds` each.
Result<std::vector<Timed>> timed_rows(const Bench& bench, double seconds, const Session& session, Progress& progress) {
  std::vector<Timed> all;
  for (const Kernel& kernel : catalogue()) {
    if (kernel.run == nullptr || !serves(kernel, bench.problem, session.machine)) continue;
    progress.say(fmt::format("checking and timing {} on {}", kernel.name, print(bench.problem)));
    auto runner = Runner::make(bench.problem, session, std::string(kernel.name));
    if (!runner) return runner.refusal();
    bench.spoil();
    if (const auto ran = runner->run(bench.inputs, bench.outputs, *session.executor); !ran) return ran.refusal();
    const auto verdict =
        check(bench.problem, bench.inputs, bench.outputs, roundings_of(runner->plan()), session.executor.get());
    if (!verdict) return verdict.refusal();
    Timed row{runner->plan(), std::nullopt};
    if (verdict->ok()) {
      auto timing = run_repeatedly(*runner, bench.inputs, bench.outputs, *session.executor, seconds);
      if (!timing) return timing.refusal();
      row.timing = std::move(*timing);
    }
    all.push_back(std::move(row));
  }
  return all;
}

/// As long as judging every kernel at this length takes a moment.
bool short_enough(const Problem& problem) {
  constexpr double most_pairs = 0x1p22;
  constexpr std::int64_t most_keys = 65536;
  return problem.keys <= most_keys &&
         static_cast<double>(problem.heads_q * problem.queries) * static_cast<double>(problem.keys) <= most_pairs;
}

}  // namespace

Problem of_length(const Problem& problem, std::int64_t length) {
  Problem one = problem;
  one.batch = one.heads_kv = 1;
  one.heads_q = problem.group();
  one.keys = length;
  if (problem.queries != 1) one.queries = length;
  one.seqlens_k = false;
  return one;
}

Result<Json> roofline_json(const Bench& bench, const Session& session, Progress& progress) {
  constexpr double seconds = 0.2;
  auto ceilings = load_ceilings(session.machine);
  const char* const measured = ceilings ? "by the last `fresnel machine`" : "for this page";
  if (!ceilings) {
    progress.say("measuring the machine");
    auto found = measure_ceilings(session.machine);
    if (!found) return found.refusal();
    ceilings = std::move(*found);
  }
  const auto figure = [&](const char* name, double unit) {
    const auto value = ceiling_of(*ceilings, name, session.threads);
    return value ? number(*value * unit) : Json(nullptr);
  };
  const bool wide = bench.problem.dtype == DType::f64;
  const bool half = bench.problem.dtype == DType::bf16 || bench.problem.dtype == DType::f16;
  Json document{{"measured", measured},
                {"flops", figure(wide ? "f64_fma_tflops" : "f32_fma_tflops", 1e12)},
                {"tile_flops", half ? figure("bf16_tile_tflops", 1e12) : Json(nullptr)},
                {"memory_bytes", figure("dram_read_gbps", 1e9)},
                {"cache_bytes", figure("l2_read_gbps", 1e9)},
                {"points", Json::array()}};
  const auto rows = timed_rows(bench, seconds, session, progress);
  if (!rows) return rows.refusal();
  const double operations = visible_operations(bench.problem, bench.inputs);
  for (const Timed& row : *rows) {
    Json point{{"kernel", row.plan.kernel_name()}, {"ok", row.timing.has_value()}};
    point["intensity"] = number(operations / row.plan.cost.bytes);
    if (row.timing) {
      point["median_seconds"] = number(row.timing->median());
      point["runs"] = row.timing->samples.size();
      point["flops"] = number(operations / row.timing->median());
    }
    document["points"].push_back(std::move(point));
  }
  return document;
}

Result<Json> times_json(const Problem& problem, const Session& session, Progress& progress) {
  constexpr double seconds = 0.05;
  constexpr std::int64_t shortest = 64;
  constexpr std::uint64_t seed = 1;
  std::map<std::string, Json> series;
  for (std::int64_t length = shortest; short_enough(of_length(problem, length)); length *= 2) {
    const Problem one = of_length(problem, length);
    auto data = make_inputs(one, "normal", seed);
    if (!data) return data.refusal();
    const Bench bench{one, data->inputs(), data->outputs(), [&] { data->reset_outputs(); }};
    const auto rows = timed_rows(bench, seconds, session, progress);
    if (!rows) return rows.refusal();
    for (const Timed& row : *rows)
      if (row.timing)
        series[std::string(row.plan.kernel_name())].push_back(
            {{"s", length}, {"seconds", number(row.timing->median())}, {"runs", row.timing->samples.size()}});
  }
  Json document{{"problem", print(of_length(problem, shortest))}, {"series", Json::array()}};
  for (auto& [kernel, points] : series) document["series"].push_back({{"kernel", kernel}, {"points", points}});
  return document;
}

}  // namespace fresnel::cli
