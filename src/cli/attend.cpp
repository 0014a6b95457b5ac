// SPDX-License-Identifier: Apache-2.0
// `fresnel attend CASE`, the main job: computes, says which kernel ran and how fast against what the machine allows,
// judges when asked, writes the result, and shows what one query row attends to. All of it fits one screen.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "checker/expected.hpp"
#include "cli/attended.hpp"
#include "cli/case_run.hpp"
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/execution.hpp"
#include "cli/json.hpp"
#include "cli/print.hpp"
#include "cli/session.hpp"
#include "cli/text.hpp"
#include "cli/verdict.hpp"
#include "fresnel/fresnel.hpp"
#include "io/results_file.hpp"

namespace fresnel::cli {
namespace {

struct Request {
  Text case_path, out, kernel;
  Placement placement;
  RowChoice row;
  bool check = false;
  bool json = false;
};

/// The backward's part of a run.
struct Gradients {
  Plan plan;
  Timing timing;
  double operations = 0;
};

struct Outcome {
  Plan plan;
  Timing timing;
  double operations = 0;
  std::optional<Floor> floor;
  std::optional<Verdict> verdict, expected;
  std::optional<Attended> attended;
  std::optional<Gradients> gradients;
  [[nodiscard]] bool ok() const { return (!verdict || verdict->ok()) && (!expected || expected->ok()); }
};

/// Faults of OUT that can be found before anything is computed.
Status acceptable_out(const Text& out, const std::string& case_path) {
  if (!out) return Done{};
  if (!out->ends_with(".safetensors")) return refuse("--output", "'" + *out + "'", "a name ending in .safetensors");
  std::error_code ignored;
  if (std::filesystem::equivalent(*out, case_path, ignored))
    return refuse("--output", "the case itself", "another file, or the case would be lost");
  return Done{};
}

/// The answers from elsewhere that a case holds.
Expected expected_of(const Case& given) {
  const auto view = [](const std::optional<OwnedTensor>& tensor) {
    return tensor ? std::optional<View>(tensor->view()) : std::nullopt;
  };
  Expected expected;
  expected.o = view(given.expected_o);
  expected.lse = view(given.expected_lse);
  expected.dq = view(given.expected_dq);
  expected.dk = view(given.expected_dk);
  expected.dv = view(given.expected_dv);
  expected.dalibi_slopes = view(given.expected_dalibi_slopes);
  return expected;
}

/// By the oracle, and by the case's expected values if there are any.
Status judge(CaseRun& run, const Session& session, Outcome& outcome) {
  Progress progress;
  progress.say("judging");
  const Roundings forward = roundings_of(outcome.plan);
  const Roundings backward = outcome.gradients ? roundings_of(outcome.gradients->plan) : forward;
  Executor* const team = session.executor.get();
  const auto verdict = check(run.problem, run.inputs(), run.outputs(), forward, backward, team);
  if (!verdict) return verdict.refusal();
  outcome.verdict = *verdict;
  const Expected expected = expected_of(run.given);
  if (!expected.o && !expected.lse && !expected.dq && !expected.dk && !expected.dv && !expected.dalibi_slopes)
    return Done{};
  const auto compared = check_against(run.problem, run.inputs(), expected, run.outputs(), forward, backward, team);
  if (!compared) return compared.refusal();
  outcome.expected = *compared;
  return Done{};
}

Result<Outcome> compute(const Request& request, CaseRun& run, const Session& session) {
  constexpr double timing_seconds = 0.2;
  auto row = chosen_row(request.row, run);
  if (!row) return row.refusal();
  auto passes = PassRunners::make(run.problem, session, request.kernel.value_or(""));
  if (!passes) return passes.refusal();
  auto timing = run_repeatedly(passes->forward, run.inputs(), run.outputs(), *session.executor, timing_seconds);
  if (!timing) return timing.refusal();

  const Plan& plan = passes->forward.plan();
  Outcome outcome{plan, std::move(*timing), visible_operations(run.problem, run.inputs()), {}, {}, {}, {}, {}};
  if (passes->backward) {
    auto taken = run_repeatedly(*passes->backward, run.inputs(), run.outputs(), *session.executor, timing_seconds);
    if (!taken) return taken.refusal();
    outcome.gradients = {passes->backward->plan(), std::move(*taken),
                         backward_operations(run.problem, outcome.operations)};
  }
  outcome.floor = floor_of(outcome.plan, outcome.operations, session);
  if (request.check)
    if (const Status judged = judge(run, session, outcome); !judged) return judged.refusal();
  if (*row) {
    auto shown = attended(run, **row);
    if (!shown) return shown.refusal();
    outcome.attended = std::move(*shown);
  }
  return outcome;
}

Status write(const std::string& out, CaseRun& run, const Outcome& outcome) {
  Metadata metadata{{"problem", print(run.problem)}, {"kernel", std::string(outcome.plan.kernel_name())}};
  if (outcome.gradients) metadata["backward_kernel"] = std::string(outcome.gradients->plan.kernel_name());
  return write_results(out, run.outputs(), metadata);
}

/// Names of what was computed, "dq, dk, dv".
std::vector<std::string> gradient_names(const CaseRun& run) {
  std::vector<std::string> names{"dq", "dk", "dv"};
  if (run.dalibi_slopes) names.emplace_back("dalibi_slopes");
  return names;
}

std::string time_line(const Timing& timing) {
  const std::size_t runs = timing.samples.size();
  const std::string median = seconds(timing.median());
  if (!timing.warmed) return median + " (one run)";
  return fmt::format("{} (median of {} run{} after a warm-up)", median, grouped(static_cast<std::int64_t>(runs)),
                     runs == 1 ? "" : "s");
}

std::string rate_line(const Outcome& outcome) {
  const double median = outcome.timing.median();
  const std::string reached = rate(outcome.operations / median);
  if (!outcome.floor) return reached + "; share of the floor not measured (run `fresnel machine`)";
  return fmt::format("{}, {} of the floor ({}, set by {})", reached, percent(outcome.floor->share(median)),
                     seconds(outcome.floor->seconds), outcome.floor->arithmetic ? "arithmetic" : "memory bandwidth");
}

void print_for_people(const Request& request, const CaseRun& run, const Outcome& outcome) {
  const Paint paint = Paint::of_stdout();
  const auto line = [&](const char* label, const std::string& text) {
    fmt::print("{} {}\n", paint.faint(fmt::format("{:<10}", label)), text);
  };
  const Plan& plan = outcome.plan;
  const Cost& cost = plan.cost;
  line("problem", print(run.problem));
  line("kernel", fmt::format("{} ({}, tile {} x {}, {} lane{})", paint.strong(plan.kernel_name()), name(plan.isa),
                             plan.tile.queries, plan.tile.keys, plan.lanes, plan.lanes == 1 ? "" : "s"));
  line("time", time_line(outcome.timing));
  line("rate", rate_line(outcome));
  line("memory", fmt::format("{} moved, unfused {}; {} of scores never written", bytes(cost.bytes),
                             bytes(cost.bytes_unfused), bytes(cost.score_bytes)));
  if (outcome.verdict)
    line("check", fmt::format("{}: {}", paint.verdict(outcome.verdict->ok()), verdict_line(*outcome.verdict)));
  if (outcome.expected)
    line("expected", fmt::format("{}: {}", paint.verdict(outcome.expected->ok()), verdict_line(*outcome.expected)));
  const std::string gradients = outcome.gradients ? joined(gradient_names(run)) : "";
  if (outcome.gradients) {
    line("gradients", fmt::format("{} by {}, {}", gradients, paint.strong(outcome.gradients->plan.kernel_name()),
                                  rate(outcome.gradients->operations / outcome.gradients->timing.median())));
    line("", time_line(outcome.gradients->timing));
  }
  if (!run.given.unread.empty()) line("unread", unread_line(run.given.unread));
  if (request.out)
    line("wrote", fitted(printable(*request.out), 70) + " (o, lse" + (gradients.empty() ? "" : ", " + gradients) + ")");
  if (outcome.attended) fmt::print("\n{}", bars_of(*outcome.attended, run.given, paint));
}

Json gradients_json(const CaseRun& run, const Outcome& outcome) {
  if (!outcome.gradients) return nullptr;
  const Gradients& gradients = *outcome.gradients;
  const double median = gradients.timing.median();
  return {{"kernel", gradients.plan.kernel_name()},
          {"outputs", gradient_names(run)},
          {"seconds", number(median)},
          {"runs", gradients.timing.samples.size()},
          {"tflops", number(gradients.operations / median * 1e-12)},
          {"bytes_moved", std::llround(gradients.plan.cost.bytes)},
          {"bytes_unfused", std::llround(gradients.plan.cost.bytes_unfused)}};
}

void print_json(const Request& request, const CaseRun& run, const Outcome& outcome) {
  const double median = outcome.timing.median();
  Json document{{"problem", print(run.problem)},
                {"kernel", outcome.plan.kernel_name()},
                {"isa", name(outcome.plan.isa)},
                {"tile", {{"queries", outcome.plan.tile.queries}, {"keys", outcome.plan.tile.keys}}},
                {"lanes", outcome.plan.lanes},
                {"seconds", number(median)},
                {"runs", outcome.timing.samples.size()},
                {"tflops", number(outcome.operations / median * 1e-12)},
                {"share_of_floor", outcome.floor ? number(outcome.floor->share(median)) : Json(nullptr)},
                {"floor_seconds", outcome.floor ? number(outcome.floor->seconds) : Json(nullptr)},
                {"bytes_moved", std::llround(outcome.plan.cost.bytes)},
                {"bytes_unfused", std::llround(outcome.plan.cost.bytes_unfused)},
                {"score_bytes", std::llround(outcome.plan.cost.score_bytes)},
                {"gradients", gradients_json(run, outcome)},
                {"metadata_unread", run.given.unread}};
  if (outcome.verdict) document["check"] = to_json(*outcome.verdict);
  if (outcome.expected) document["expected"] = to_json(*outcome.expected);
  if (request.out) document["output"] = *request.out;
  if (outcome.attended) document["attended"] = to_json(*outcome.attended, run.given);
  emit(document);
}

}  // namespace

Result<int> attend_command(const Words& words) {
  Request request;
  Usage usage("attend", "Computes attention for a case file and says how it went.");
  usage.positional("CASE", request.case_path, "A case file (.safetensors)");
  usage.option("-o,--output", request.out, "Write o, lse and gradients here (.safetensors)", "OUT");
  usage.flag("--check", request.check, "Judge the result by the oracle, and by the case's expected values");
  usage.option("--kernel", request.kernel, "Force this kernel", "NAME");
  request.placement.add_to(usage);
  request.row.add_to(usage);
  usage.flag("--json", request.json, "One JSON document on standard output");
  const auto parsed = usage.parse(words);
  if (!parsed) return parsed.refusal();
  if (!*parsed) return exit_right;

  const auto path = required_text("CASE", request.case_path, "a case file (.safetensors)");
  if (!path) return path.refusal();
  if (const Status known = known_kernel_or_control(request.kernel); !known) return known.refusal();
  if (const Status fine = acceptable_out(request.out, *path); !fine) return fine.refusal();
  const auto session = open_session(request.placement);
  if (!session) return session.refusal();
  auto run = prepare_case(*path);
  if (!run) return run.refusal();
  const auto outcome = compute(request, *run, *session);
  if (!outcome) return outcome.refusal();
  if (request.out)
    if (const Status written = write(*request.out, *run, *outcome); !written) return written.refusal();
  if (request.json)
    print_json(request, *run, *outcome);
  else
    print_for_people(request, *run, *outcome);
  return outcome->ok() ? exit_right : exit_wrong;
}

}  // namespace fresnel::cli
