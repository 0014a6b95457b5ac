// SPDX-License-Identifier: Apache-2.0
// `fresnel kernels`: the catalogue with its contracts, for people, as a document, or whole as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/print.hpp"
#include "cli/session.hpp"
#include "contracts/contract.hpp"
#include "contracts/words.hpp"
#include "controls/controls.hpp"
#include "kernels/kernel.hpp"

namespace fresnel::cli {
namespace {

/// What is listed, in order.
using Rows = std::vector<Kernel>;

Table table_of_rows(const Rows& rows) {
  Table table(
      {{"kernel"}, {"device"}, {"built"}, {"dtypes"}, {"head dims"}, {"features"}, {"preferred"}, {"same bits"}});
  for (const Kernel& kernel : rows)
    table.add({std::string(kernel.name), std::string(name(kernel.device)), kernel.run != nullptr ? "yes" : "no",
               fresnel::joined(names_of(kernel.domain.dtypes), " "), dims_of(kernel.domain), features_of(kernel.domain),
               preference_of(kernel), std::string(word(kernel.determinism))});
  return table;
}

void print_for_people(const Rows& rows) {
  const Paint paint = Paint::of_stdout();
  fmt::print("{}\n", table_of_rows(rows).text(paint));
  for (const Kernel& kernel : rows) fmt::print("{}  {}\n", paint.strong(kernel.name), kernel.blurb);
  fmt::print("\nIn order of preference. `fresnel explain PROBLEM` says which is chosen and why.\n");
}

}  // namespace

Result<int> kernels_command(const Words& words) {
  Text format;
  bool json = false, with_controls = false;
  Usage usage("kernels", "Lists the kernels in order of preference, with what each is right for.");
  usage.option("--format", format, "json, markdown (the page docs/kernels.md) or fkc (default: a table for people)",
               "FORMAT");
  usage.flag("--controls", with_controls, "Also the kernels that are wrong on purpose, which run only when forced");
  usage.flag("--json", json, "The same as --format json");
  const auto parsed = usage.parse(words);
  if (!parsed) return parsed.refusal();
  if (!*parsed) return exit_right;
  const std::vector<std::string> formats{"json", "markdown", "fkc"};
  if (format && std::find(formats.begin(), formats.end(), *format) == formats.end())
    return refuse("--format", "'" + *format + "'", joined(formats), nearest_word(*format, formats));
  if (json && format && *format != "json") return refuse("--format", *format + " together with --json", "one of them");

  Rows rows(catalogue().begin(), catalogue().end());
  if (with_controls) rows.insert(rows.end(), controls::rows().begin(), controls::rows().end());
  if (!json && !format) {
    print_for_people(rows);
    return exit_right;
  }
  std::vector<Contract> contracts;
  for (const Kernel& row : rows) contracts.push_back(contract_of(row));
  fmt::print("{}", format == "markdown" ? contracts_page(contracts)
                   : format == "fkc"    ? contracts_fkc(contracts)
                                        : contracts_document(contracts) + "\n");
  return exit_right;
}

}  // namespace fresnel::cli
