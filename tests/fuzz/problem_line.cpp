// SPDX-License-Identifier: Apache-2.0
// Text as a problem line: refused with a reason, or a problem that prints, reads back as itself and prints the same
// again; which means something, and which planning and explaining survive, however large its extents.
#include "fresnel/fresnel.hpp"
#include "fuzz/target.hpp"

namespace fresnel::test {

void one_input(std::span<const std::byte> bytes) {
  const Result<Problem> read = parse_problem(text_of(bytes));
  if (!read) return demand_reason(read.refusal());
  const std::string line = print(*read);
  const Result<Problem> again = parse_problem(line);
  demand(again.ok(), "printed, but not read back: " + line);
  demand(*again == *read, "read back as another problem: " + line);
  demand(std::hash<Problem>()(*again) == std::hash<Problem>()(*read), "equal problems, two hashes: " + line);
  demand(print(*again) == line, "printed in two ways: " + line);
  demand(validate(*read).ok(), "read, but without meaning: " + line);

  const Result<Plan> planned = plan(*read, Machine::host());
  if (!planned) demand_reason(planned.refusal());
  if (planned) demand(!print(*planned).empty(), "a plan that says nothing: " + line);
  bool chosen = false;
  for (const Explanation& row : explain(*read, Machine::host())) {
    chosen = chosen || row.chosen;
    if (row.refusal) demand_reason(*row.refusal);
  }
  demand(chosen == planned.ok(), "plan and explain disagree: " + line);
}

}  // namespace fresnel::test
