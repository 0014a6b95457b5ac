// SPDX-License-Identifier: Apache-2.0
// Why this row and not another: every row of the catalogue with "chosen" or its refusal.
#include "planner/selection.hpp"

namespace fresnel {

std::vector<Explanation> explain(const Problem& problem, const Machine& machine, const PlanOptions& options) {
  const Result<Plan> chosen = plan(problem, machine, options);
  const std::string forced = requested_kernel(options);
  std::vector<Explanation> rows;
  for (const Kernel& row : catalogue()) {
    Explanation line{std::string(row.name), chosen.ok() && chosen->kernel == &row, std::nullopt};
    if (!line.chosen) {
      line.refusal = refusal_of(row, problem, machine);
      if (!line.refusal) {
        const bool outvoted = !forced.empty();
        line.refusal = Refusal{Fault::unsupported,
                               std::string(row.name),
                               outvoted ? "kernel" : "preference",
                               outvoted ? "'" + forced + "' is forced" : "right here, but another row is faster",
                               "forcing this row by name",
                               ""};
      }
    }
    rows.push_back(std::move(line));
  }
  return rows;
}

}  // namespace fresnel
