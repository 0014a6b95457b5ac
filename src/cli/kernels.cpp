// SPDX-License-Identifier: Apache-2.0
// `fresnel kernels`: the catalogue with its contracts, for people, as a document, or whole as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/json.hpp"
#include "cli/print.hpp"
#include "cli/session.hpp"
#include "cli/words.hpp"
#include "controls/controls.hpp"
#include "kernels/kernel.hpp"

namespace fresnel::cli {
namespace {

/// What is listed, in order.
using Rows = std::vector<Kernel>;

std::string words_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string bounds_of(const Bounds& bounds) {
  if (bounds.most == INT64_MAX) return fmt::format("{} and more", bounds.least);
  return fmt::format("{} to {}", bounds.least, bounds.most);
}

std::string dims_of(const Domain& domain) {
  const std::string dims = bounds_of(domain.head_dim);
  return domain.head_dim == domain.value_dim ? dims : fmt::format("{} / {}", dims, bounds_of(domain.value_dim));
}

/// "all", "all but grad" or the list, whichever is shortest.
std::string members_of(Set<Feature> features) {
  const std::vector<std::string> have = names_of(features);
  const std::vector<std::string> all = all_features();
  if (have.size() == all.size()) return "all";
  if (have.size() * 2 < all.size()) return have.empty() ? "none" : words_of(have);
  std::vector<std::string> lacking;
  for (const std::string& feature : all)
    if (std::find(have.begin(), have.end(), feature) == have.end()) lacking.push_back(feature);
  return "all but " + words_of(lacking);
}

/// The features that a row has, and those without which it is not right.
std::string features_of(const Domain& domain) {
  const std::string have = members_of(domain.features);
  return domain.required.bits == 0 ? have : have + ", needs " + words_of(names_of(domain.required));
}

/// What `prefers` asks beyond the domain.
std::string preference_of(const Kernel& kernel) {
  const Domain &right = kernel.domain, &chosen = kernel.prefers;
  if (chosen.dtypes.bits == 0) return "only when forced";
  if (chosen == right) return "wherever it is right";
  std::string text;
  const auto add = [&](const std::string& clause) { text += (text.empty() ? "" : ", ") + clause; };
  if (!(chosen.dtypes == right.dtypes)) add(words_of(names_of(chosen.dtypes)));
  if (!(chosen.head_dim == right.head_dim)) add("head dim " + bounds_of(chosen.head_dim));
  if (!(chosen.value_dim == right.value_dim)) add("value dim " + bounds_of(chosen.value_dim));
  if (!(chosen.queries == right.queries)) add("queries " + bounds_of(chosen.queries));
  if (!(chosen.keys == right.keys)) add("keys " + bounds_of(chosen.keys));
  if (!(chosen.features == right.features)) add("features: " + members_of(chosen.features));
  if (!(chosen.required == right.required)) add("with " + words_of(names_of(chosen.required)));
  if (!(chosen.axis_orders == right.axis_orders)) add(words_of(names_of(chosen.axis_orders)));
  if (chosen.unaligned != right.unaligned) add("aligned tensors");
  return text;
}

Table table_of_rows(const Rows& rows) {
  Table table(
      {{"kernel"}, {"device"}, {"built"}, {"dtypes"}, {"head dims"}, {"features"}, {"preferred"}, {"same bits"}});
  for (const Kernel& kernel : rows)
    table.add({std::string(kernel.name), std::string(name(kernel.device)), kernel.run != nullptr ? "yes" : "no",
               words_of(names_of(kernel.domain.dtypes)), dims_of(kernel.domain), features_of(kernel.domain),
               preference_of(kernel), std::string(word(kernel.determinism))});
  return table;
}

/// What the row declares for each dtype of its domain, on a plain problem in the middle of it.
Json roundings_of_row(const Kernel& kernel, const Machine& machine) {
  Json by_dtype = Json::object();
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    if (!kernel.domain.dtypes.has(dtype)) continue;
    Problem problem;
    problem.dtype = dtype;
    problem.queries = std::clamp<std::int64_t>(1024, kernel.domain.queries.least, kernel.domain.queries.most);
    problem.keys = std::clamp<std::int64_t>(1024, kernel.domain.keys.least, kernel.domain.keys.most);
    problem.head_dim = std::clamp<std::int64_t>(64, kernel.domain.head_dim.least, kernel.domain.head_dim.most);
    problem.value_dim = std::clamp<std::int64_t>(64, kernel.domain.value_dim.least, kernel.domain.value_dim.most);
    by_dtype[std::string(name(dtype))] = to_json(kernel.roundings(problem, kernel.tile(problem, machine)));
  }
  return by_dtype;
}

Json document_of_rows(const Rows& listed, const Machine& machine) {
  Json rows = Json::array();
  for (const Kernel& kernel : listed)
    rows.push_back({{"name", kernel.name},
                    {"blurb", kernel.blurb},
                    {"device", name(kernel.device)},
                    {"built", kernel.run != nullptr},
                    {"domain", to_json(kernel.domain)},
                    {"prefers", to_json(kernel.prefers)},
                    {"roundings", roundings_of_row(kernel, machine)},
                    {"determinism", word(kernel.determinism)}});
  return {{"rows", rows}};
}

void print_for_people(const Rows& rows) {
  const Paint paint = Paint::of_stdout();
  fmt::print("{}\n", table_of_rows(rows).text(paint));
  for (const Kernel& kernel : rows) fmt::print("{}  {}\n", paint.strong(kernel.name), kernel.blurb);
  fmt::print("\nIn order of preference. `fresnel explain PROBLEM` says which is chosen and why.\n");
}

void print_markdown(const Rows& rows) {
  fmt::print("{}\n", table_of_rows(rows).markdown());
  for (const Kernel& kernel : rows) fmt::print("- `{}`: {}\n", kernel.name, kernel.blurb);
}

}  // namespace

Result<int> kernels_command(const Words& words) {
  Text format;
  bool json = false, with_controls = false;
  Usage usage("kernels", "Lists the kernels in order of preference, with what each is right for.");
  usage.option("--format", format, "json or markdown (default: a table for people)", "FORMAT");
  usage.flag("--controls", with_controls, "Also the kernels that are wrong on purpose, which run only when forced");
  usage.flag("--json", json, "The same as --format json");
  const auto parsed = usage.parse(words);
  if (!parsed) return parsed.refusal();
  if (!*parsed) return exit_right;
  if (format && *format != "json" && *format != "markdown")
    return refuse("--format", "'" + *format + "'", "json, markdown", nearest_word(*format, {"json", "markdown"}));
  if (json && format == "markdown") return refuse("--format", "markdown together with --json", "one of them");

  Rows rows(catalogue().begin(), catalogue().end());
  if (with_controls) rows.insert(rows.end(), controls::rows().begin(), controls::rows().end());
  if (json || format == "json") {
    const auto machine = Machine::detect();
    if (!machine) return machine.refusal();
    emit(document_of_rows(rows, *machine));
  } else if (format == "markdown") {
    print_markdown(rows);
  } else {
    print_for_people(rows);
  }
  return exit_right;
}

}  // namespace fresnel::cli
