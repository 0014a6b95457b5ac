// SPDX-License-Identifier: Apache-2.0
// From a file to a checked problem: see case_run.hpp.
#include "cli/case_run.hpp"

#include <utility>

#include "cli/errors.hpp"
#include "cli/text.hpp"

namespace fresnel::cli {
namespace {

/// Memory for the gradients of everything that has one.
Status add_gradients(CaseRun& run) {
  const Case& given = run.given;
  if (!given.dout) return Done{};
  const auto add = [](std::optional<OwnedTensor>& to, DType dtype, const OwnedTensor& like) -> Status {
    auto made = OwnedTensor::zeros(dtype, like.shape);
    if (!made) return made.refusal();
    to = std::move(made).value();
    return Done{};
  };
  const std::pair<std::optional<OwnedTensor>*, const OwnedTensor*> gradients[] = {
      {&run.dq, &given.q}, {&run.dk, &given.k}, {&run.dv, &given.v}};
  for (const auto& [to, like] : gradients)
    if (const Status added = add(*to, like->dtype, *like); !added) return added;
  return given.alibi_slopes ? add(run.dalibi_slopes, run.lse.dtype, *given.alibi_slopes) : Status(Done{});
}

}  // namespace

Inputs CaseRun::inputs() const {
  Inputs inputs = given.inputs();
  if (given.dout) inputs.dout = given.dout->view();
  return inputs;
}

Outputs CaseRun::outputs() {
  Outputs outputs{o.mutable_view(), lse.mutable_view()};
  const std::pair<std::optional<OwnedTensor>*, std::optional<MutableView>*> gradients[] = {
      {&dq, &outputs.dq}, {&dk, &outputs.dk}, {&dv, &outputs.dv}, {&dalibi_slopes, &outputs.dalibi_slopes}};
  for (const auto& [tensor, view] : gradients)
    if (*tensor) *view = (*tensor)->mutable_view();
  return outputs;
}

std::string unread_line(const std::vector<std::string>& keys) {
  return fitted(printable(joined(keys)), 50) + ": metadata that nothing here reads";
}

Result<CaseRun> prepare_case(const std::string& path) {
  auto given = read_case(path);
  if (!given) return given.refusal();
  const std::vector<std::int64_t>& q = given->q.shape;
  auto o = OwnedTensor::zeros(given->q.dtype, {q[0], q[1], q[2], given->v.shape[3]});
  if (!o) return o.refusal();
  auto lse = OwnedTensor::zeros(given->q.dtype == DType::f64 ? DType::f64 : DType::f32, {q[0], q[1], q[2]});
  if (!lse) return lse.refusal();
  CaseRun run{std::move(given).value(), {}, std::move(o).value(), std::move(lse).value()};
  if (const Status added = add_gradients(run); !added) return added.refusal();

  const auto problem = describe(run.given.options, run.inputs(), run.outputs());
  if (!problem) return problem.refusal();
  run.problem = *problem;
  if (const Status valid = validate(run.problem); !valid) return valid.refusal();
  if (const Status right = check_indices(run.problem, run.inputs()); !right) return right.refusal();
  return run;
}

}  // namespace fresnel::cli
