// SPDX-License-Identifier: Apache-2.0
// `fresnel machine`: what this machine is and, measured, what it can do at most. The figures are kept in the user's
// cache directory, where `attend` and `time` look for the floor that they compare themselves with.
#include <fmt/format.h>

#include <cstdio>

#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/json.hpp"
#include "cli/print.hpp"
#include "cli/text.hpp"
#include "cli/usage.hpp"
#include "fresnel/machine.hpp"
#include "runtime/ceilings.hpp"

namespace fresnel::cli {
namespace {

Result<Ceilings> measured(const Machine& machine) {
  Progress progress;
  progress.say("measuring the machine");
  auto ceilings = measure_ceilings(
      machine, [&](const Figure& figure) { progress.say("measuring the machine", std::string(figure.about)); });
  if (!ceilings) return ceilings.refusal();
  if (const Status saved = save_ceilings(*ceilings); !saved) return saved.refusal();
  return ceilings;
}

Result<Ceilings> saved_before(const Machine& machine) {
  auto ceilings = load_ceilings(machine);
  if (!ceilings) return refuse("--cached", "nothing measured for this machine", "a run of `fresnel machine` before");
  return std::move(*ceilings);
}

/// Why the figures just measured are too low; "" where nothing speaks for it. A quiet machine gives all the time that
/// is asked for but what it takes to wake its threads, and repeats that differ by a few percent.
std::string reason_for_doubt(const Ceilings& ceilings) {
  constexpr double least_share = 0.85, most_spread = 1.25;
  if (ceilings.processor_share < least_share)
    return fmt::format("the machine was busy: the measurement got {} of the processor time it asked for",
                       percent(ceilings.processor_share));
  if (ceilings.spread > most_spread)
    return fmt::format("the machine was not at rest: repeats of one figure differ by {}", percent(ceilings.spread - 1));
  return "";
}

std::string unit_of(std::string_view figure) {
  if (figure.find("tflops") != std::string_view::npos) return "TFLOP/s";
  if (figure.find("gbps") != std::string_view::npos) return "GB/s";
  return "G/s";
}

std::string where_saved() {
  const auto path = ceilings_path();
  return path ? path->string() : "";
}

void print_for_people(const Machine& machine, const Ceilings& ceilings) {
  const Paint paint = Paint::of_stdout();
  fmt::print("name     {}\n", printable(machine.name));
  fmt::print("isa      {}\n", name(machine.isa));
  fmt::print("cores    {}\nthreads  {}\n", machine.cores, machine.threads);
  fmt::print("caches   L1 {}, L2 {}, L3 {}\n\n", binary_bytes(machine.l1_bytes), binary_bytes(machine.l2_bytes),
             binary_bytes(machine.l3_bytes));
  Table table({{"peak"}, {"value", Table::Align::right}, {"unit"}, {"field"}});
  for (const Figure& figure : ceilings.figures)
    table.add({std::string(figure.about), figure.value ? fmt::format("{:.4g}", *figure.value) : "none",
               unit_of(figure.name), std::string(figure.name)});
  fmt::print("{}\n{} {}\n", table.text(paint), "kept in", printable(where_saved()));
}

Json document_of(const Machine& machine, const Ceilings& ceilings, const std::string& doubt) {
  Json peaks = Json::object();
  for (const Figure& figure : ceilings.figures) peaks[std::string(figure.name)] = number(figure.value);
  return {{"name", machine.name},
          {"device", name(machine.device)},
          {"isa", name(machine.isa)},
          {"cores", machine.cores},
          {"threads", machine.threads},
          {"l1_bytes", machine.l1_bytes},
          {"l2_bytes", machine.l2_bytes},
          {"l3_bytes", machine.l3_bytes},
          {"peaks", peaks},
          {"saved_to", where_saved()},
          {"doubt", doubt.empty() ? Json(nullptr) : Json(doubt)}};
}

}  // namespace

Result<int> machine_command(const Words& words) {
  bool measure = false, cached = false, json = false;
  Usage usage("machine", "Measures what this machine can do at most, and keeps the figures for attend and time.");
  usage.flag("--measure", measure, "Measure now (the default; some seconds on all threads)");
  usage.flag("--cached", cached, "Show what was measured last");
  usage.flag("--json", json, "One JSON document on standard output");
  const auto parsed = usage.parse(words);
  if (!parsed) return parsed.refusal();
  if (!*parsed) return exit_right;
  if (measure && cached) return refuse("--cached", "together with --measure", "one of them");

  const auto machine = Machine::detect();
  if (!machine) return machine.refusal();
  const auto ceilings = cached ? saved_before(*machine) : measured(*machine);
  if (!ceilings) return ceilings.refusal();
  const std::string doubt = reason_for_doubt(*ceilings);
  if (json)
    emit(document_of(*machine, *ceilings, doubt));
  else
    print_for_people(*machine, *ceilings);
  if (!doubt.empty())
    std::fputs(("fresnel: " + doubt + "; the figures may be too low: measure again when it is idle\n").c_str(), stderr);
  return exit_right;
}

}  // namespace fresnel::cli
