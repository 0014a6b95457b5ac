// SPDX-License-Identifier: Apache-2.0
// `fresnel audit DIR`: is a record still what it was, and does what it says still come out?
#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/json.hpp"
#include "cli/print.hpp"
#include "cli/text.hpp"
#include "cli/usage.hpp"
#include "evidence/audit.hpp"

namespace fresnel::cli {
namespace {

void print_for_people(const evidence::Audit& audit, const std::string& against) {
  const Paint paint = Paint::of_stdout();
  fmt::print("files      {} with the hashes of the manifest ({})\n", audit.files, audit.manifest_sha256);
  fmt::print("results    {} judged again by the oracle, {} samples\n", audit.judged, audit.samples);
  fmt::print("commit     {}\n", audit.commit.empty() ? "none" : printable(audit.commit));
  fmt::print("sources    {} differ from those of {}\n", audit.changed_sources.size(), against);
  for (const std::string& path : audit.changed_sources) fmt::print("           {}\n", printable(path));
  for (const std::string& fault : audit.faults) fmt::print("{}      {}\n", paint.bad("fault"), printable(fault));
  fmt::print("record     {}\n", audit.faults.empty() ? paint.good("HOLDS") : paint.bad("DOES NOT HOLD"));
}

}  // namespace

Result<int> audit_command(const Words& words) {
  Text folder, tree;
  bool json = false;
  Usage usage("audit", "Computes again what a record says: hashes, judgements, distances and medians.");
  usage.positional("DIR", folder, "A folder that `fresnel record` has written");
  usage.option("--sources", tree, "Demand that the sources below DIR are those that made the record", "DIR");
  usage.flag("--json", json, "One JSON document on standard output");
  const auto parsed = usage.parse(words);
  if (!parsed) return parsed.refusal();
  if (!*parsed) return exit_right;
  const auto target = required_text("DIR", folder, "the folder of a record");
  if (!target) return target.refusal();

  evidence::Sources sources = evidence::own_sources();
  if (tree) {
    const auto recorded = evidence::sources_of_record(*target);
    if (!recorded) return recorded.refusal();
    auto found = evidence::sources_below(*tree, *recorded);
    if (!found) return found.refusal();
    sources = std::move(*found);
  }
  const auto audit = evidence::audit(*target, sources);
  if (!audit) return audit.refusal();
  const bool ok = audit->faults.empty() && (!tree || audit->changed_sources.empty());
  if (json)
    emit({{"ok", ok},
          {"faults", audit->faults},
          {"changed_sources", audit->changed_sources},
          {"commit", audit->commit},
          {"manifest_sha256", audit->manifest_sha256},
          {"files", audit->files},
          {"judged", audit->judged},
          {"samples", audit->samples}});
  else
    print_for_people(*audit, tree ? "'" + printable(*tree) + "'" : "this program");
  return ok ? exit_right : exit_wrong;
}

}  // namespace fresnel::cli
