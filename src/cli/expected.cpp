// SPDX-License-Identifier: Apache-2.0
// Expected values judged: see expected.hpp. The budgets are the checker's; only the value compared with is another's.
#include "cli/expected.hpp"

#include "checker/expected.hpp"

namespace fresnel::cli {

Result<std::optional<Verdict>> judge_against_expected(CaseRun& run, const Roundings& roundings, Executor& executor) {
  const Case& given = run.given;
  Expected expected;
  bool any = false;
  const std::pair<const std::optional<OwnedTensor>*, std::optional<View>*> answers[] = {
      {&given.expected_o, &expected.o},   {&given.expected_lse, &expected.lse},
      {&given.expected_dq, &expected.dq}, {&given.expected_dk, &expected.dk},
      {&given.expected_dv, &expected.dv}, {&given.expected_dalibi_slopes, &expected.dalibi_slopes}};
  for (const auto& [tensor, view] : answers) {
    if (!*tensor) continue;
    *view = (*tensor)->view();
    any = true;
  }
  if (!any) return std::optional<Verdict>();
  const auto verdict = check_against(run.problem, run.inputs(), expected, run.outputs(), roundings, &executor);
  if (!verdict) return verdict.refusal();
  return std::optional<Verdict>(*verdict);
}

}  // namespace fresnel::cli
