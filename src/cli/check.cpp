// SPDX-License-Identifier: Apache-2.0
// `fresnel check`: judges a result file for a case, whoever made it; or makes inputs from a seed, runs a kernel on them
// and judges that, so that any failing test is one command that can be pasted.
#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "cli/case_run.hpp"
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/execution.hpp"
#include "cli/json.hpp"
#include "cli/print.hpp"
#include "cli/session.hpp"
#include "cli/text.hpp"
#include "cli/verdict.hpp"
#include "contracts/document.hpp"
#include "fresnel/fresnel.hpp"
#include "inputs/inputs.hpp"
#include "io/results_file.hpp"
#include "kernels/kernel.hpp"
#include "planner/selection.hpp"

namespace fresnel::cli {
namespace {

struct Request {
  Text case_path, result_path, roundings;
  Text problem, inputs, seed, kernel;
  Placement placement;
  bool json = false;
};

/// What was judged and how it went.
struct Outcome {
  Problem problem;
  Roundings forward, backward;  ///< of what made o and lse, and of what made the gradients
  Verdict verdict;
  std::string kernel;           ///< that ran; empty for a result file
  std::string backward_kernel;  ///< the same for the gradients; empty where there are none
  std::string command;          ///< that does the same again; empty for a result file
  bool guards_intact = true;
  std::vector<std::string> unread = {};  ///< metadata of the case that nothing here reads
  [[nodiscard]] bool ok() const { return verdict.ok() && guards_intact; }
};

/// "default", or what a row of the catalogue declares for this problem.
Result<Roundings> named_roundings(const std::string& name, const Problem& problem, const Machine& machine) {
  if (name == "default") return default_roundings(problem);
  if (const Kernel* kernel = find_kernel(name)) return kernel->roundings(problem, kernel->tile(problem, machine));
  std::vector<std::string> names = kernel_names();
  names.insert(names.begin(), "default");
  return refuse("--roundings", "'" + name + "'", joined(names), nearest_word(name, names));
}

Result<Outcome> judge_file(const Request& request, const Session& session) {
  const auto case_path = required_text("CASE", request.case_path, "a case file (.safetensors), or --problem LINE");
  if (!case_path) return case_path.refusal();
  const auto result_path = required_text("RESULT", request.result_path, "a result file (.safetensors) with o and lse");
  if (!result_path) return result_path.refusal();
  const auto run = prepare_case(*case_path);
  if (!run) return run.refusal();
  const Problem& problem = run->problem;
  auto result = read_results(*result_path, problem);
  if (!result) return result.refusal();
  const auto roundings = named_roundings(request.roundings.value_or("default"), problem, session.machine);
  if (!roundings) return roundings.refusal();
  Progress progress;
  progress.say("judging");
  const auto verdict = check(problem, run->inputs(), result->outputs(), *roundings, session.executor.get());
  if (!verdict) return verdict.refusal();
  return Outcome{problem, *roundings, *roundings, *verdict, {}, {}, {}, true, run->given.unread};
}

Result<Outcome> run_and_judge(const Request& request, const Session& session) {
  const auto problem = parse_problem(*request.problem);
  if (!problem) return problem.refusal();
  if (const Status valid = validate(*problem); !valid) return valid.refusal();
  const auto seed = seed_number("--seed", request.seed.value_or("1"));
  if (!seed) return seed.refusal();
  const std::string kind = request.inputs.value_or("normal"), asked = request.kernel.value_or("");
  auto passes = PassRunners::make(*problem, session, asked);
  if (!passes) return passes.refusal();
  auto data = make_inputs(*problem, kind, *seed);
  if (!data) return data.refusal();
  const Plan& plan = passes->forward.plan();
  if (const auto ran = passes->forward.run(data->inputs(), data->outputs(), *session.executor); !ran)
    return ran.refusal();
  Roundings forward = roundings_of(plan), backward = forward;
  std::string backward_kernel;
  if (passes->backward) {
    if (const auto ran = passes->backward->run(data->inputs(), data->outputs(), *session.executor); !ran)
      return ran.refusal();
    backward = roundings_of(passes->backward->plan());
    backward_kernel = passes->backward->plan().kernel_name();
  }
  if (request.roundings) {
    const auto named = named_roundings(*request.roundings, *problem, session.machine);
    if (!named) return named.refusal();
    forward = backward = *named;
  }
  const auto verdict = check(*problem, data->inputs(), data->outputs(), forward, backward, session.executor.get());
  if (!verdict) return verdict.refusal();
  const std::string kernel(plan.kernel_name());
  const std::string forced = requested_kernel(session.plan_options(asked));
  const std::string command = fmt::format("fresnel check --problem {} --inputs {} --seed {} --kernel {} --threads {}",
                                          shell_word(print(*problem)), shell_word(kind), *seed,
                                          shell_word(forced.empty() ? kernel : forced), session.threads);
  return Outcome{*problem, forward, backward, *verdict, kernel, backward_kernel, command, data->guards_intact()};
}

void print_for_people(const Outcome& outcome) {
  const Paint paint = Paint::of_stdout();
  fmt::print("problem    {}\n", print(outcome.problem));
  if (!outcome.kernel.empty()) fmt::print("kernel     {}\n", outcome.kernel);
  if (!outcome.backward_kernel.empty()) fmt::print("backward   {}\n", outcome.backward_kernel);
  if (!outcome.unread.empty()) fmt::print("unread     {}\n", unread_line(outcome.unread));
  const std::string both = outcome.backward == outcome.forward ? "" : ", gradients " + outcome.backward.name;
  fmt::print("roundings  {}{}\n\n{}\n", outcome.forward.name, both, verdict_table(outcome.verdict, paint));
  if (!outcome.guards_intact) fmt::print("the kernel wrote outside its outputs\n");
  const char* meaning =
      outcome.ok() ? "every value lies within its error budget" : "some values cannot be explained by rounding";
  fmt::print("{}: {}\n", paint.verdict(outcome.ok()), meaning);
  if (!outcome.ok() && !outcome.command.empty()) fmt::print("\n{}\n", outcome.command);
}

void print_json(const Outcome& outcome) {
  Json document = to_json(outcome.verdict);
  document["ok"] = outcome.ok();
  document["problem"] = print(outcome.problem);
  document["roundings"] = to_json(outcome.forward);
  if (outcome.problem.grad) document["roundings_backward"] = to_json(outcome.backward);
  if (outcome.kernel.empty()) document["metadata_unread"] = outcome.unread;
  if (!outcome.kernel.empty()) {
    document["kernel"] = outcome.kernel;
    if (!outcome.backward_kernel.empty()) document["backward_kernel"] = outcome.backward_kernel;
    document["guards_intact"] = outcome.guards_intact;
    document["command"] = outcome.command;
  }
  emit(document);
}

/// Options of one form of the command given to the other.
std::optional<Refusal> misplaced(const Request& request) {
  if (request.problem) {
    if (request.case_path) return refuse("CASE", "also --problem", "either CASE RESULT or --problem LINE");
    return std::nullopt;
  }
  const std::pair<const char*, const Text*> options[] = {
      {"--inputs", &request.inputs}, {"--seed", &request.seed}, {"--kernel", &request.kernel}};
  for (const auto& [name, value] : options)
    if (*value) return refuse(name, "without --problem", "together with --problem LINE");
  return std::nullopt;
}

}  // namespace

Result<int> check_command(const Words& words) {
  Request request;
  Usage usage("check", "Judges a result against float64 truth and a proven error budget for every value.");
  usage.positional("CASE", request.case_path, "A case file (.safetensors)");
  usage.positional("RESULT", request.result_path, "A result for it (.safetensors with o and, if wanted, lse)");
  usage.option("--roundings", request.roundings,
               "How the result was made: default, or a kernel's name (default: default; with --problem the kernel's)",
               "NAME");
  usage.option("--problem", request.problem, "Instead of files: make inputs for this problem line, run and judge",
               "LINE");
  add_inputs_option(usage, request.inputs);
  usage.option("--seed", request.seed, "Seed of the inputs (default 1)", "N");
  usage.option("--kernel", request.kernel, "Force this kernel", "NAME");
  request.placement.add_to(usage);
  usage.flag("--json", request.json, "One JSON document on standard output");
  const auto parsed = usage.parse(words);
  if (!parsed) return parsed.refusal();
  if (!*parsed) return exit_right;

  if (const auto refusal = misplaced(request)) return *refusal;
  if (const Status known = known_kernel_or_control(request.kernel); !known) return known.refusal();
  const auto session = open_session(request.placement);
  if (!session) return session.refusal();
  const auto outcome = request.problem ? run_and_judge(request, *session) : judge_file(request, *session);
  if (!outcome) return outcome.refusal();
  if (request.json)
    print_json(*outcome);
  else
    print_for_people(*outcome);
  return outcome->ok() ? exit_right : exit_wrong;
}

}  // namespace fresnel::cli
