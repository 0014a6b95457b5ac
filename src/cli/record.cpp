// SPDX-License-Identifier: Apache-2.0
// `fresnel record DIR`: runs a protocol, from a file or as typed, and keeps it as a folder that `fresnel audit` can
// compute again.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/json.hpp"
#include "cli/print.hpp"
#include "cli/session.hpp"
#include "cli/text.hpp"
#include "controls/controls.hpp"
#include "evidence/folder.hpp"
#include "evidence/judge.hpp"
#include "evidence/record.hpp"

namespace fresnel::cli {
namespace {

/// What is typed instead of a protocol.
struct Typed {
  std::vector<std::string> problems, kernels, seeds;
  Text inputs, repeats, warm_ups, threads;
  [[nodiscard]] bool any() const {
    return !problems.empty() || !kernels.empty() || !seeds.empty() || inputs || repeats || warm_ups || threads;
  }
};

/// Names in protocols have no dots.
std::string plain_name(std::string kernel) {
  for (char& letter : kernel)
    if (letter == '.') letter = '_';
  return kernel;
}

/// The protocol that was typed, through the reader of protocols, which words what is wrong with it.
Result<evidence::Protocol> protocol_of(const Typed& typed) {
  evidence::Json run{{"name", "typed"}, {"problems", typed.problems}, {"inputs", typed.inputs.value_or("normal")}};
  for (const std::string& kernel : typed.kernels)
    run["kernels"].push_back({{"name", plain_name(kernel)},
                              {"kernel", kernel},
                              {"wrong", kernel.starts_with(controls::prefix) && kernel != "control.none"}});
  for (const std::string& text : typed.seeds) {
    const auto seed = seed_number("--seed", text);
    if (!seed) return seed.refusal();
    run["seeds"].push_back(*seed);
  }
  if (typed.seeds.empty()) run["seeds"] = {1};
  evidence::Json document{{"name", "typed"}, {"runs", evidence::Json::array()}};
  const std::pair<const char*, const Text*> counts[] = {{"repeats", &typed.repeats}, {"warm_ups", &typed.warm_ups}};
  for (const auto& [key, text] : counts) {
    if (!*text) continue;
    const auto count = whole_number(key == std::string("repeats") ? "--repeats" : "--warm-ups", **text, 0, 10'000);
    if (!count) return count.refusal();
    run[key] = static_cast<std::uint64_t>(*count);
  }
  if (typed.threads) {
    const auto count = whole_number("--threads", *typed.threads, 1, 1024);
    if (!count) return count.refusal();
    document["threads"] = static_cast<std::uint64_t>(*count);
  }
  document["runs"].push_back(run);
  return evidence::read_protocol(document);
}

Result<evidence::Protocol> protocol_from(const Text& file, const Typed& typed) {
  if (file && typed.any())
    return refuse("--protocol", "a file beside problems or options", "a protocol, which says it all, or those");
  if (!file && (typed.problems.empty() || typed.kernels.empty()))
    return refuse("--protocol", "nothing", "a protocol, or problems and at least one --kernel");
  if (!file) return protocol_of(typed);
  constexpr std::size_t most = 1 << 20;
  const auto text = evidence::text_of(*file, most);
  if (!text) return text.refusal();
  return evidence::parse_protocol(*text);
}

const Kernel* find_any(std::string_view name) {
  return name.starts_with(controls::prefix) ? controls::find(name) : find_kernel(name);
}

std::int64_t most_tile_keys(const Kernel& kernel) {
  return kernel.name.starts_with(controls::prefix) ? controls::most_tile_keys : 0;
}

/// A kernel on one problem of a run, over all seeds.
struct Row {
  std::vector<std::string> cells;  ///< run, problem, kernel
  bool ok = true;
  double share = 0, distance = -1;  ///< the largest; no distance: compared with nothing
  std::vector<double> medians;
  std::int64_t samples = 0;
};

/// Numbers that are not finite are words in the results.
double largest_of(double before, const evidence::Json& value) {
  return value.is_number() ? std::max(before, value.get<double>()) : std::numeric_limits<double>::infinity();
}

std::vector<Row> rows_of(const evidence::Json& groups) {
  std::vector<Row> rows;
  for (const auto& group : groups)
    for (const auto& kernel : group["kernels"]) {
      std::vector<std::string> cells{group["run"], group["problem"], kernel["name"]};
      auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& each) { return each.cells == cells; });
      if (row == rows.end()) {
        row = rows.insert(row, Row());
        row->cells = std::move(cells);
      }
      row->ok = row->ok && kernel["ok"];
      row->share = largest_of(row->share, kernel["o"]["max_share"]);
      row->samples += static_cast<std::int64_t>(kernel["samples"].size());
      if (kernel["median_seconds"].is_number()) row->medians.push_back(kernel["median_seconds"]);
      for (const auto& each : group["comparisons"])
        if (each["result"] == kernel["name"]) row->distance = largest_of(row->distance, each["largest"]);
    }
  return rows;
}

void print_for_people(const evidence::Recorded& recorded, const std::string& folder) {
  const Paint paint = Paint::of_stdout();
  using Align = Table::Align;
  Table table({{"run"},
               {"problem"},
               {"kernel"},
               {"check"},
               {"of budget", Align::right},
               {"distance / sum p|v|", Align::right},
               {"samples", Align::right},
               {"median", Align::right}});
  for (Row& row : rows_of(recorded.results["groups"])) {
    row.cells.insert(row.cells.end(),
                     {paint.verdict(row.ok), percent(row.share), row.distance < 0 ? std::string() : small(row.distance),
                      grouped(row.samples), row.medians.empty() ? "" : seconds(evidence::median_of(row.medians))});
    table.add(std::move(row.cells));
  }
  fmt::print("{}\n{}  manifest {}\n", table.text(paint), printable(folder), recorded.manifest_sha256);
  if (!recorded.ok) fmt::print("{}\n", paint.bad("NOT as the protocol expects"));
}

}  // namespace

Result<int> record_command(const Words& words) {
  Text folder, protocol_file;
  Typed typed;
  bool json = false;
  Usage usage("record", "Runs kernels as a protocol says and keeps samples, arrays and hashes in a new folder.");
  usage.positional("DIR", folder, "The folder to make; it must not exist");
  usage.positionals("PROBLEM", typed.problems, "Problem lines, without --protocol");
  usage.option("--protocol", protocol_file, "What to run, as JSON (docs/evidence.md)", "FILE");
  usage.repeated("--kernel", typed.kernels, "A kernel or control; may be repeated", "NAME");
  usage.repeated("--seed", typed.seeds, "A seed of the inputs; may be repeated (default 1)", "N");
  add_inputs_option(usage, typed.inputs);
  usage.option("--repeats", typed.repeats, "Timed rounds (default 0)", "N");
  usage.option("--warm-ups", typed.warm_ups, "Rounds before them (default 0)", "N");
  usage.option("--threads", typed.threads, "Threads (default 1)", "N");
  usage.flag("--json", json, "One JSON document on standard output");
  const auto parsed = usage.parse(words);
  if (!parsed) return parsed.refusal();
  if (!*parsed) return exit_right;
  const auto target = required_text("DIR", folder, "the name of a new folder");
  if (!target) return target.refusal();
  const auto protocol = protocol_from(protocol_file, typed);
  if (!protocol) return protocol.refusal();

  evidence::RecordOptions options{{find_any, most_tile_keys}, {"fresnel", "record"}, {}};
  options.command.insert(options.command.end(), words.begin(), words.end());
  Result<evidence::Recorded> recorded = [&] {
    Progress progress;
    options.say = [&](const std::string& what) { progress.say("recording " + what); };
    return evidence::record(*target, *protocol, options);
  }();
  if (!recorded) return recorded.refusal();
  if (json)
    emit({{"ok", recorded->ok},
          {"folder", *target},
          {"manifest_sha256", recorded->manifest_sha256},
          {"groups", recorded->results["groups"]}});
  else
    print_for_people(*recorded, *target);
  return recorded->ok ? exit_right : exit_wrong;
}

}  // namespace fresnel::cli
