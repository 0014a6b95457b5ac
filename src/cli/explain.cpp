// SPDX-License-Identifier: Apache-2.0
// `fresnel explain PROBLEM`: every row of the catalogue with "chosen" or its refusal, and the plan that follows.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/json.hpp"
#include "cli/print.hpp"
#include "cli/session.hpp"
#include "cli/text.hpp"
#include "fresnel/fresnel.hpp"

namespace fresnel::cli {
namespace {

/// The table names the row already.
Refusal without_kernel(Refusal refusal) {
  refusal.kernel.clear();
  return refusal;
}

void print_for_people(const Problem& problem, const std::vector<Explanation>& rows, const Result<Plan>& planned) {
  const Paint paint = Paint::of_stdout();
  Table table({{"kernel"}, {"answer"}});
  for (const Explanation& row : rows) {
    std::string answer = paint.good("chosen");
    if (!row.chosen) answer = row.refusal ? printable(without_kernel(*row.refusal).message()) : "";
    table.add({row.kernel, answer});
  }
  const std::string last = planned ? "plan     " + print(*planned) : paint.bad("every row refuses");
  fmt::print("problem  {}\n\n{}\n{}\n", print(problem), table.text(paint), last);
}

}  // namespace

Result<int> explain_command(const Words& words) {
  Text line, kernel;
  Placement placement;
  bool json = false;
  Usage usage("explain", "Says which kernel is chosen for a problem, and why the others are not.");
  usage.positional("PROBLEM", line, "One line, for example \"b1 h8/2 q1024 k1024 d64 f32 causal\"");
  usage.option("--kernel", kernel, "Force this row (its domain still applies)", "NAME");
  placement.add_to(usage);
  usage.flag("--json", json, "One JSON document on standard output");
  const auto parsed = usage.parse(words);
  if (!parsed) return parsed.refusal();
  if (!*parsed) return exit_right;

  const auto text = required_text("PROBLEM", line, "one problem line");
  if (!text) return text.refusal();
  const auto problem = parse_problem(*text);
  if (!problem) return problem.refusal();
  if (const Status valid = validate(*problem); !valid) return valid.refusal();
  if (const Status known = known_kernel(kernel); !known) return known.refusal();
  const auto session = open_session(placement);
  if (!session) return session.refusal();

  const PlanOptions options = session->plan_options(kernel.value_or(""));
  const std::vector<Explanation> rows = explain(*problem, session->machine, options);
  const Result<Plan> planned = plan(*problem, session->machine, options);
  if (!json) {
    print_for_people(*problem, rows, planned);
    return planned ? Result<int>(exit_right) : Result<int>(planned.refusal());
  }
  Json document{{"problem", print(*problem)}, {"rows", Json::array()}};
  for (const Explanation& row : rows)
    document["rows"].push_back({{"kernel", row.kernel},
                                {"chosen", row.chosen},
                                {"refusal", row.refusal ? Json(row.refusal->message()) : Json(nullptr)}});
  document["plan"] = planned ? Json(print(*planned)) : Json(nullptr);
  if (!planned) document["error"] = to_json(planned.refusal());
  emit(document);
  return planned ? exit_right : exit_code(planned.refusal());
}

}  // namespace fresnel::cli
