// SPDX-License-Identifier: Apache-2.0
// `fresnel time PROBLEM...`: verified, then timed. Every kernel that fits is judged first; runs of different kernels
// are interleaved, so that a change of clock speed or a noisy neighbour meets all of them alike; every sample is kept.
// A wrong result has no time.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <utility>

#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/execution.hpp"
#include "cli/json.hpp"
#include "cli/print.hpp"
#include "cli/session.hpp"
#include "cli/text.hpp"
#include "fresnel/fresnel.hpp"
#include "inputs/inputs.hpp"
#include "kernels/kernel.hpp"
#include "planner/selection.hpp"

namespace fresnel::cli {
namespace {

struct Request {
  std::vector<std::string> problems;
  std::vector<std::string> kernels;
  std::string inputs = "normal";
  double seconds = 1;
  bool json = false;
};

/// One kernel on one problem, or on the pass of it that the kernel serves.
struct Entry {
  Runner runner;
  Verdict verdict;
  double operations = 0;
  bool guards_intact = true;
  std::vector<double> samples;
  [[nodiscard]] bool right() const { return verdict.ok() && guards_intact; }
};

struct Timed {
  std::string problem;
  std::deque<Entry> entries;
};

/// Does a kernel asked for by name belong to the other pass of a problem with gradients?
bool serves_other_pass(const std::string& name, bool backward) {
  const Kernel* const row = find_kernel(name);  // null: a control, which runs forward
  return backward != (row != nullptr && row->domain.required.has(Feature::grad));
}

/// The kernels asked for, or every built row whose domain holds the problem; a named kernel that refuses is a refusal.
/// Of the names, those that serve this pass where there are two.
Result<std::vector<std::string>> candidates(const Problem& problem, bool two_passes, const Request& request,
                                            const Session& session) {
  std::vector<std::string> names;
  for (const std::string& name : request.kernels)
    if (!two_passes || !serves_other_pass(name, problem.grad)) names.push_back(name);
  if (!request.kernels.empty()) return names;
  for (const Kernel& kernel : catalogue())
    if (kernel.run != nullptr && serves(kernel, problem, session.machine)) names.emplace_back(kernel.name);
  if (!names.empty()) return names;
  const auto planned = plan_among(problem, session.machine, session.plan_options(""), true);
  if (!planned) return planned.refusal();
  return std::vector<std::string>{std::string(planned->kernel_name())};
}

/// Runs one kernel on outputs full of NaN, so that it is not judged by what the one before it wrote, and judges what it
/// wrote. `before`: the forward that a backward builds upon.
Result<Entry> verified(const Problem& problem, const std::string& kernel, Runner* before, GeneratedInputs& data,
                       const Session& session) {
  auto runner = Runner::make(problem, session, kernel);
  if (!runner) return runner.refusal();
  data.reset_outputs();
  Outputs outputs = data.outputs();
  if (!problem.grad)
    for (auto* gradient : {&outputs.dq, &outputs.dk, &outputs.dv, &outputs.dalibi_slopes}) gradient->reset();
  for (Runner* pass : {before, &*runner}) {
    if (pass == nullptr) continue;
    const auto ran = pass->run(data.inputs(), outputs, *session.executor);
    if (!ran) return ran.refusal();
  }
  const Roundings own = roundings_of(runner->plan());
  const Roundings forward = before != nullptr ? roundings_of(before->plan()) : own;
  // Judged by all threads: it is the runs that --threads is about.
  const auto verdict = check(problem, data.inputs(), outputs, forward, own);
  if (!verdict) return verdict.refusal();
  const double operations = visible_operations(problem, data.inputs());
  return Entry{std::move(*runner),
               *verdict,
               problem.grad ? backward_operations(problem, operations) : operations,
               data.guards_intact(),
               {}};
}

/// Every kernel of one pass.
Result<Done> verify(Timed& timed, const Problem& problem, Runner* before, const Request& request, GeneratedInputs& data,
                    const Session& session, Progress& progress) {
  const auto kernels = candidates(problem, data.problem().grad, request, session);
  if (!kernels) return kernels.refusal();
  for (const std::string& kernel : *kernels) {
    progress.say(fmt::format("checking {} on {}", kernel, timed.problem));
    auto entry = verified(problem, kernel, before, data, session);
    if (!entry) return entry.refusal();
    timed.entries.push_back(std::move(*entry));
  }
  return Done{};
}

/// Round after round, each kernel once, until each has had its share of `budget` seconds or a thousand runs.
Result<Done> sample(Timed& timed, GeneratedInputs& data, const Session& session, double budget, Progress& progress) {
  constexpr std::size_t most_rounds = 1001;
  double spent = 0;
  for (std::size_t round = 0; round < most_rounds && (round == 0 || spent < budget); ++round) {
    for (Entry& entry : timed.entries) {
      progress.say("timing " + timed.problem, fmt::format("{}, run {}", entry.runner.plan().kernel_name(), round + 1));
      const auto taken = entry.runner.run(data.inputs(), data.outputs(), *session.executor);
      if (!taken) return taken.refusal();
      entry.samples.push_back(*taken);
      spent += *taken / static_cast<double>(timed.entries.size());
    }
  }
  return Done{};
}

Result<Timed> time_problem(const Problem& problem, const Request& request, const Session& session, Progress& progress) {
  constexpr std::uint64_t seed = 1;
  auto data = make_inputs(problem, request.inputs, seed);
  if (!data) return data.refusal();
  Timed timed;
  timed.problem = print(problem);
  Problem forward = problem;
  forward.grad = false;
  if (const auto done = verify(timed, forward, nullptr, request, *data, session, progress); !done)
    return done.refusal();
  if (problem.grad) {
    // Backward rows are timed on the o and lse of whichever forward would be chosen, itself timed or not.
    auto chosen = PassRunners::make(problem, session, "");
    if (!chosen) return chosen.refusal();
    if (const auto done = verify(timed, problem, &chosen->forward, request, *data, session, progress); !done)
      return done.refusal();
  }
  bool right = true;
  for (const Entry& entry : timed.entries) right = right && entry.right();
  if (!right) return timed;
  if (const auto done = sample(timed, *data, session, request.seconds, progress); !done) return done.refusal();
  return timed;
}

bool is_backward(const Entry& entry) { return entry.runner.plan().problem.grad; }

/// Of everything that the kernel itself wrote.
double largest_share(const Entry& entry) {
  const Verdict& verdict = entry.verdict;
  if (!is_backward(entry)) return verdict.o.max_share;
  double largest = 0;
  for (const auto& gradient : {verdict.dq, verdict.dk, verdict.dv, verdict.dalibi_slopes})
    if (gradient) largest = std::max(largest, gradient->max_share);
  return largest;
}

Json row_of(const Timed& timed, const Entry& entry, const Session& session) {
  const Plan& plan = entry.runner.plan();
  Json row{{"problem", timed.problem}, {"kernel", plan.kernel_name()}, {"threads", session.threads}};
  row["pass"] = is_backward(entry) ? "backward" : "forward";
  row["ok"] = entry.right();
  row["check"] = to_json(entry.verdict);
  const char* const fields[] = {"median_seconds", "tflops", "gbps", "share_of_floor"};
  if (entry.samples.empty()) {
    for (const char* field : fields) row[field] = nullptr;
    return row;
  }
  const double median = Timing{entry.samples, true}.median();
  const auto floor = floor_of(plan, entry.operations, session);
  row["median_seconds"] = median;
  row["tflops"] = number(entry.operations / median * 1e-12);
  row["gbps"] = number(plan.cost.bytes / median * 1e-9);
  row["share_of_floor"] = floor ? number(floor->share(median)) : Json(nullptr);
  row["samples"] = entry.samples;
  return row;
}

void print_for_people(const std::deque<Timed>& all, const Session& session) {
  using Align = Table::Align;
  const Paint paint = Paint::of_stdout();
  for (const Timed& timed : all) {
    fmt::print("{}  ({} thread{})\n", paint.strong(timed.problem), session.threads, session.threads == 1 ? "" : "s");
    Table table({{"kernel"},
                 {"check"},
                 {"of budget", Align::right},
                 {"median", Align::right},
                 {"runs", Align::right},
                 {"rate", Align::right},
                 {"memory", Align::right},
                 {"of the floor", Align::right}});
    for (const Entry& entry : timed.entries) {
      const Plan& plan = entry.runner.plan();
      std::vector<std::string> cells{std::string(plan.kernel_name()), paint.verdict(entry.right()),
                                     percent(largest_share(entry))};
      if (!entry.samples.empty()) {
        const double median = Timing{entry.samples, true}.median();
        const auto floor = floor_of(plan, entry.operations, session);
        cells.insert(cells.end(), {seconds(median), grouped(static_cast<std::int64_t>(entry.samples.size())),
                                   rate(entry.operations / median), bytes(plan.cost.bytes / median) + "/s",
                                   floor ? percent(floor->share(median)) : "not measured"});
      }
      table.add(std::move(cells));
    }
    fmt::print("{}\n", table.text(paint));
  }
}

}  // namespace

Result<int> time_command(const Words& words) {
  Request request;
  Text inputs, budget;
  Placement placement;
  Usage usage("time", "Verifies each kernel on each problem, then times the right ones.");
  usage.positionals("PROBLEM", request.problems, "Problem lines, for example \"b1 h8/2 q1024 k1024 d64 f32 causal\"");
  usage.repeated("--kernel", request.kernels, "Only this kernel; may be repeated (default: all that fit)", "NAME");
  usage.option("--seconds", budget, "Time each kernel for about this long on each problem (default 1)", "S");
  add_inputs_option(usage, inputs);
  placement.add_to(usage);
  usage.flag("--json", request.json, "One JSON document on standard output");
  const auto parsed = usage.parse(words);
  if (!parsed) return parsed.refusal();
  if (!*parsed) return exit_right;

  request.inputs = inputs.value_or(request.inputs);
  if (budget) {
    const auto given = decimal_number("--seconds", *budget, 0.001, 3600);
    if (!given) return given.refusal();
    request.seconds = *given;
  }
  if (request.problems.empty()) return refuse("PROBLEM", "nothing", "one or more problem lines");
  std::vector<Problem> problems;
  for (const std::string& line : request.problems) {
    const auto problem = parse_problem(line);
    if (!problem) return problem.refusal();
    if (const Status valid = validate(*problem); !valid) return valid.refusal();
    problems.push_back(*problem);
  }
  for (const std::string& kernel : request.kernels)
    if (const Status known = known_kernel_or_control(kernel); !known) return known.refusal();
  const auto session = open_session(placement);
  if (!session) return session.refusal();

  std::deque<Timed> all;
  bool right = true;
  {
    Progress progress;
    for (const Problem& problem : problems) {
      auto timed = time_problem(problem, request, *session, progress);
      if (!timed) return timed.refusal();
      for (const Entry& entry : timed->entries) right = right && entry.right();
      all.push_back(std::move(timed).value());
    }
  }
  if (request.json) {
    Json document{{"rows", Json::array()}};
    for (const Timed& timed : all)
      for (const Entry& entry : timed.entries) document["rows"].push_back(row_of(timed, entry, *session));
    emit(document);
  } else {
    print_for_people(all, *session);
  }
  return right ? exit_right : exit_wrong;
}

}  // namespace fresnel::cli
