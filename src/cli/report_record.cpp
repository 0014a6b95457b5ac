// SPDX-License-Identifier: Apache-2.0
// Recorded and foreign figures for a report: see report_record.hpp. Files come from strangers: whatever is not there or
// of another kind is refused by name.
#include "cli/report_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "cli/errors.hpp"
#include "evidence/folder.hpp"
#include "io/json.hpp"

namespace fresnel::cli {
namespace {

using Document = fresnel::Json;  // as read, not as printed
using Kind = Document::value_t;

constexpr std::size_t most_bytes = std::size_t{64} << 20;

/// {name: {length: (seconds, samples)}}.
struct Point {
  std::vector<double> seconds;
  std::int64_t runs = 0;
};
using Series = std::map<std::string, std::map<std::int64_t, Point>>;

Json series_json(const std::string& problem, const Series& series) {
  Json document{{"problem", problem}, {"series", Json::array()}};
  for (const auto& [name, lengths] : series) {
    Json points = Json::array();
    for (auto [length, point] : lengths) {
      std::sort(point.seconds.begin(), point.seconds.end());
      const double median = point.seconds[point.seconds.size() / 2];
      points.push_back({{"s", length}, {"seconds", number(median)}, {"runs", point.runs}});
    }
    document["series"].push_back({{"kernel", name}, {"points", std::move(points)}});
  }
  return document;
}

Result<Document> document_of(const std::filesystem::path& path, const char* argument) {
  const auto text = evidence::text_of(path, most_bytes);
  if (!text) return text.refusal();
  return parse_json(*text, argument);
}

/// A member of the wanted kind; null where there is none.
const Document* member(const Document& from, const char* name, Kind kind) {
  const auto found = from.is_object() ? from.find(name) : from.end();
  if (!from.is_object() || found == from.end()) return nullptr;
  const bool numbers = kind == Kind::number_float && found->is_number();
  return numbers || found->type() == kind ? &*found : nullptr;
}

Refusal no_record(const std::string& folder) {
  return refuse("CASE", "'" + folder + "'", "a case file (.safetensors) or a folder that `fresnel record` wrote");
}

/// The kernels of one group that were timed, at that group's length.
bool add_group(const Document& group, std::int64_t length, Series& series) {
  const Document* const kernels = member(group, "kernels", Kind::array);
  if (kernels == nullptr) return false;
  for (const Document& kernel : *kernels) {
    const Document* const name = member(kernel, "name", Kind::string);
    const Document* const samples = member(kernel, "samples", Kind::array);
    const Document* const median = member(kernel, "median_seconds", Kind::number_float);
    if (name == nullptr) return false;
    if (samples == nullptr || samples->empty() || median == nullptr) continue;  // wrong results have no time
    Point& point = series[name->get<std::string>()][length];
    point.seconds.push_back(median->get<double>());
    point.runs += static_cast<std::int64_t>(samples->size());
  }
  return true;
}

}  // namespace

Result<Recorded> recorded(const std::string& folder) {
  const auto document = document_of(std::filesystem::path(folder) / "results.json", "results.json");
  if (!document) return document.refusal();
  const Document* const groups = member(*document, "groups", Kind::array);
  if (groups == nullptr || groups->empty()) return no_record(folder);
  Recorded result;
  Series series;
  std::string run;
  std::int64_t longest = -1;
  for (const Document& group : *groups) {
    const Document* const name = member(group, "run", Kind::string);
    const Document* const line = member(group, "problem", Kind::string);
    const Document* const inputs = member(group, "inputs", Kind::string);
    const Document* const seed = member(group, "seed", Kind::number_unsigned);
    if (name == nullptr || line == nullptr || inputs == nullptr || seed == nullptr) return no_record(folder);
    if (run.empty()) run = name->get<std::string>();
    if (name->get<std::string>() != run) continue;
    const auto problem = parse_problem(line->get<std::string>());
    if (!problem) return problem.refusal();
    if (!add_group(group, problem->keys, series)) return no_record(folder);
    if (problem->keys <= longest) continue;
    longest = problem->keys;
    result.problem = line->get<std::string>();
    result.inputs = inputs->get<std::string>();
    result.seed = seed->get<std::uint64_t>();
  }
  result.source = fmt::format("record {}, run {}, inputs {}, seed {}", folder, run, result.inputs, result.seed);
  const bool several = std::any_of(series.begin(), series.end(), [](const auto& one) { return one.second.size() > 1; });
  if (several) {
    result.times = series_json(result.problem, series);
    result.times["recorded"] = true;
  }
  return result;
}

Status add_peers(Json& times, const Problem& problem, const std::string& path) {
  const auto document = document_of(path, "--peers");
  if (!document) return document.refusal();
  const Document* const rows = member(*document, "rows", Kind::array);
  Series series;
  for (const Document& row : rows == nullptr ? Document::array() : *rows) {
    const Document* const line = member(row, "problem", Kind::string);
    const Document* const who = member(row, "who", Kind::string);
    const Document* const seconds = member(row, "median_seconds", Kind::number_float);
    const auto like = line == nullptr ? std::nullopt : std::optional(parse_problem(line->get<std::string>()));
    if (!like || !*like || who == nullptr || seconds == nullptr) continue;
    Problem same = **like;
    const std::int64_t length = same.keys;
    same.queries = problem.queries;
    same.keys = problem.keys;
    same.lse = problem.lse;
    if (!(same == problem)) continue;
    const Document* const runs = member(row, "runs", Kind::number_unsigned);
    Point& point = series[who->get<std::string>()][length];
    point.seconds.push_back(seconds->get<double>());
    point.runs += runs == nullptr ? 1 : runs->get<std::int64_t>();
  }
  if (series.empty())
    return refuse("--peers", "'" + path + "'",
                  "a document of bench/peers.py --json with rows of '" + print(problem) + "' at any length");
  Json added = series_json(print(problem), series);
  if (times.is_null()) times = {{"problem", print(problem)}, {"series", Json::array()}};
  for (Json& one : added["series"]) times["series"].push_back(std::move(one));
  return Done{};
}

}  // namespace fresnel::cli
