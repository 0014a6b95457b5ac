// SPDX-License-Identifier: Apache-2.0
// `fresnel report`: runs a case, inputs made from a seed or those of a record, judges the result and writes one page of
// HTML that people look at. The page holds what the other commands say, drawn; src/report makes it, this file asks and
// times.
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <utility>

#include "checker/shares.hpp"
#include "cli/attended.hpp"
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/report_record.hpp"
#include "cli/report_timing.hpp"
#include "cli/text.hpp"
#include "fresnel/fresnel.hpp"
#include "inputs/inputs.hpp"
#include "io/atomic_file.hpp"
#include "report/figures.hpp"

namespace fresnel::cli {
namespace {

struct Request {
  Text case_path, out, problem, inputs, seed, kernel, peers;
  std::optional<Recorded> record;
  Placement placement;
  RowChoice row;
  bool no_times = false, json = false;
};

/// What is reported on: a case file's data or made-up data. The forward alone, whatever the case asks for.
struct Subject {
  std::optional<CaseRun> file;
  std::optional<GeneratedInputs> made;
  Problem problem;
  std::string source;

  [[nodiscard]] Inputs inputs() const { return file ? file->given.inputs() : made->inputs(); }
  [[nodiscard]] Outputs outputs() {
    if (!file) return made->outputs();
    return {file->o.mutable_view(), file->lse.mutable_view()};
  }
  void spoil() {
    if (!file) return made->reset_outputs();
    for (const MutableView& view : {file->o.mutable_view(), file->lse.mutable_view()})
      std::memset(view.data, 0xff, static_cast<std::size_t>(view.elements() * size_of(view.dtype)));
  }
};

Result<Subject> subject_of(const Request& request) {
  Subject subject;
  if (!request.problem) {
    const auto path = required_text("CASE", request.case_path, "a case file (.safetensors), or --problem LINE");
    if (!path) return path.refusal();
    auto run = prepare_case(*path);
    if (!run) return run.refusal();
    subject.problem = run->problem;
    subject.source = *path;
    subject.file = std::move(*run);
  } else {
    const auto problem = parse_problem(*request.problem);
    if (!problem) return problem.refusal();
    if (const Status valid = validate(*problem); !valid) return valid.refusal();
    subject.problem = *problem;
  }
  Problem& problem = subject.problem;
  problem.grad = false;
  for (const std::int64_t extent : {problem.batch, problem.heads_q, problem.queries, problem.keys})
    if (extent == 0) return refuse("problem", "'" + print(problem) + "'", "at least one query row and one key to draw");
  if (subject.file) return subject;
  const auto seed = seed_number("--seed", request.seed.value_or("1"));
  if (!seed) return seed.refusal();
  const std::string kind = request.inputs.value_or("normal");
  auto data = make_inputs(problem, kind, *seed);
  if (!data) return data.refusal();
  subject.made = std::move(*data);
  subject.source = request.record ? request.record->source : fmt::format("inputs {}, seed {}", kind, *seed);
  return subject;
}

Result<report::Row> first_row(const Request& request, const Subject& subject) {
  QueryRow row{0, 0, subject.problem.queries - 1};
  if (subject.file)
    if (const auto& show = subject.file->given.show) row = {show->batch, show->head, show->query};
  const auto typed = typed_row(request.row, subject.problem, row);
  if (!typed) return typed.refusal();
  return report::Row{typed->batch, typed->head, typed->query};
}

/// Everything that needs no clock.
Result<Json> still_figures(const Request& request, Subject& subject, const Session& session, Progress& progress) {
  const Problem& problem = subject.problem;
  const auto row = first_row(request, subject);
  if (!row) return row.refusal();
  auto runner = Runner::make(problem, session, request.kernel.value_or(""));
  if (!runner) return runner.refusal();
  const Plan& plan = runner->plan();
  progress.say("running and judging");
  subject.spoil();
  if (const auto ran = runner->run(subject.inputs(), subject.outputs(), *session.executor); !ran) return ran.refusal();
  Shares shares;
  const Roundings roundings = roundings_of(plan);
  const auto verdict = check_with_shares(problem, subject.inputs(), subject.outputs(), roundings, roundings,
                                         session.executor.get(), shares);
  if (!verdict) return verdict.refusal();

  progress.say("drawing");
  const std::vector<std::string> none;
  const std::vector<std::string>& tokens = subject.file ? subject.file->given.tokens : none;
  const auto rows = report::rows_beside(problem, *row);
  auto walks = report::walks(problem, subject.inputs(), plan.tile, rows);
  if (!walks) return walks.refusal();
  auto attention = report::attention(problem, subject.inputs(), rows, tokens);
  if (!attention) return attention.refusal();
  auto traffic = report::traffic_by_length(problem.head_dim);
  if (!traffic) return traffic.refusal();
  return Json{{"version", FRESNEL_VERSION},
              {"problem", print(problem)},
              {"source", subject.source},
              {"machine", session.machine.name},
              {"threads", session.threads},
              {"kernel", plan.kernel_name()},
              {"isa", name(plan.isa)},
              {"tile", {{"queries", plan.tile.queries}, {"keys", plan.tile.keys}}},
              {"lanes", plan.lanes},
              {"check", report::budgets(*verdict, shares)},
              {"walk", std::move(*walks)},
              {"attention", std::move(*attention)},
              {"traffic", std::move(*traffic)},
              {"roofline", nullptr},
              {"times", nullptr}};
}

Status add_times(const Request& request, Json& document, Subject& subject, const Session& session, Progress& progress) {
  const Bench bench{subject.problem, subject.inputs(), subject.outputs(), [&] { subject.spoil(); }};
  auto roofline = roofline_json(bench, session, progress);
  if (!roofline) return roofline.refusal();
  document["roofline"] = std::move(*roofline);
  if (request.record) return Done{};
  auto times = times_json(subject.problem, session, progress);
  if (!times) return times.refusal();
  document["times"] = std::move(*times);
  return Done{};
}

Status write(const std::string& out, const std::string& text) {
  auto file = AtomicFile::create(out);
  if (!file) return file.refusal();
  if (const Status written = file->write(text); !written) return written.refusal();
  return file->commit();
}

/// A folder is a record: what it was made of takes the place of --problem and its options.
Status open_record(Request& request) {
  std::error_code unknown;
  if (!request.case_path || !std::filesystem::is_directory(*request.case_path, unknown)) return Done{};
  auto record = recorded(*request.case_path);
  if (!record) return record.refusal();
  request.problem = record->problem;
  request.inputs = record->inputs;
  request.seed = std::to_string(record->seed);
  request.record = std::move(*record);
  return Done{};
}

/// Options of one form given to the other, and an OUT that is no page.
Status acceptable(const Request& request) {
  if (request.problem && request.case_path) return refuse("CASE", "also --problem", "either CASE or --problem LINE");
  for (const auto& [option, value] : {std::pair{"--inputs", &request.inputs}, std::pair{"--seed", &request.seed}})
    if (*value && !request.problem) return refuse(option, "without --problem", "together with --problem LINE");
  if (!request.out) return refuse("--output", "nothing", "a name ending in .html");
  if (!request.out->ends_with(".html")) return refuse("--output", "'" + *request.out + "'", "a name ending in .html");
  return known_kernel_or_control(request.kernel);
}

void add_options(Usage& usage, Request& request) {
  usage.positional("CASE", request.case_path, "A case file (.safetensors), or a folder of `fresnel record`");
  usage.option("-o,--output", request.out, "Write the page here (.html)", "OUT");
  usage.option("--problem", request.problem, "Instead of a case: make inputs for this problem line", "LINE");
  add_inputs_option(usage, request.inputs);
  usage.option("--seed", request.seed, "Seed of the inputs (default 1)", "N");
  usage.option("--peers", request.peers, "Other libraries' times by length: a file of bench/peers.py --json", "FILE");
  usage.option("--kernel", request.kernel, "Judge this kernel instead of the one that would be chosen", "NAME");
  request.row.add_to(usage);
  usage.flag("--no-times", request.no_times, "Leave out what has to be timed");
  request.placement.add_to(usage);
  usage.flag("--json", request.json, "The figures as one JSON document on standard output");
}

}  // namespace

Result<int> report_command(const Words& words) {
  Request request;
  Usage usage("report", "Runs and judges, and writes one page of HTML to look at.");
  add_options(usage, request);
  const auto parsed = usage.parse(words);
  if (!parsed) return parsed.refusal();
  if (!*parsed) return exit_right;
  if (const Status fine = acceptable(request); !fine) return fine.refusal();
  if (const Status opened = open_record(request); !opened) return opened.refusal();
  const auto library = report::chart_library();
  if (!library) return library.refusal();
  const auto session = open_session(request.placement);
  if (!session) return session.refusal();
  auto subject = subject_of(request);
  if (!subject) return subject.refusal();
  Progress progress;
  auto document = still_figures(request, *subject, *session, progress);
  if (!document) return document.refusal();
  const bool right = (*document)["check"]["ok"].get<bool>();
  if (right && !request.no_times)
    if (const Status timed = add_times(request, *document, *subject, *session, progress); !timed)
      return timed.refusal();
  if (request.record) (*document)["times"] = request.record->times;
  if (request.peers)
    if (const Status added = add_peers(
            (*document)["times"], request.record ? subject->problem : of_length(subject->problem, 64), *request.peers);
        !added)
      return added.refusal();
  if (const Status written = write(*request.out, report::page(*document, *library)); !written) return written.refusal();
  if (request.json)
    emit(*document);
  else
    fmt::print("{}  {} by {}\n{}\n", Paint::of_stdout().verdict(right), print(subject->problem),
               (*document)["kernel"].get<std::string>(), printable(*request.out));
  return right ? exit_right : exit_wrong;
}

}  // namespace fresnel::cli
