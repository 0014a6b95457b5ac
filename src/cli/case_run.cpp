// SPDX-License-Identifier: Apache-2.0
// From a file to a checked problem: see case_run.hpp.
#include "cli/case_run.hpp"

#include <utility>

namespace fresnel::cli {

Result<CaseRun> prepare_case(const std::string& path) {
  auto given = read_case(path);
  if (!given) return given.refusal();
  const std::vector<std::int64_t>& q = given->q.shape;
  auto o = OwnedTensor::zeros(given->q.dtype, {q[0], q[1], q[2], given->v.shape[3]});
  if (!o) return o.refusal();
  auto lse = OwnedTensor::zeros(given->q.dtype == DType::f64 ? DType::f64 : DType::f32, {q[0], q[1], q[2]});
  if (!lse) return lse.refusal();
  CaseRun run{std::move(given).value(), {}, std::move(o).value(), std::move(lse).value()};

  const auto problem = describe(run.given.options, run.inputs(), run.outputs());
  if (!problem) return problem.refusal();
  run.problem = *problem;
  if (const Status valid = validate(run.problem); !valid) return valid.refusal();
  if (const Status right = check_indices(run.problem, run.inputs()); !right) return right.refusal();
  return run;
}

}  // namespace fresnel::cli
