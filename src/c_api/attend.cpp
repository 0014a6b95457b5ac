// SPDX-License-Identifier: Apache-2.0
// The whole calls for C: attend, merge, check.
#include <algorithm>
#include <vector>

#include "c_api/convert.hpp"

using namespace fresnel;
using c_api::guarded;

namespace {

/// Owns what a Context only points to.
struct OwnedContext {
  std::optional<c_api::BorrowedExecutor> executor;
  Context context;
};

void read_context(const fresnel_context* given, OwnedContext& owned) {
  if (given == nullptr) return;
  c_api::known(given, "context");
  owned.executor = c_api::executor_of(given->executor);
  if (owned.executor) owned.context.executor = &*owned.executor;
  if (given->workspace_bytes > 0) c_api::require(given->workspace, "workspace");
  if (given->workspace != nullptr && given->workspace_bytes == 0)
    c_api::refuse("workspace_bytes", "0", "the size of the workspace, or a null workspace");
  owned.context.workspace = {static_cast<std::byte*>(given->workspace), given->workspace_bytes};
  if (given->kernel != nullptr) owned.context.options.kernel = given->kernel;
  owned.context.options.lanes = given->lanes;
}

void write_report(const Report& made, fresnel_report* report) {
  if (report == nullptr) return;
  report->lanes = made.plan.lanes;
  report->operations = made.plan.cost.operations;
  report->bytes = made.plan.cost.bytes;
  report->bytes_unfused = made.plan.cost.bytes_unfused;
  c_api::fill(report->kernel, made.kernel);
  c_api::fill(report->backward_kernel, made.backward_kernel);
}

void write_judgement(const std::optional<Judgement>& made, fresnel_judgement* judgement) {
  if (judgement == nullptr) return;
  const Judgement none;
  const Judgement& fared = made ? *made : none;
  judgement->judged = made ? 1 : 0;
  judgement->count = fared.count;
  judgement->mismatches = fared.mismatches;
  judgement->max_error = fared.max_error;
  judgement->max_share = fared.max_share;
  std::copy(fared.at.begin(), fared.at.end(), judgement->at);
}

}  // namespace

fresnel_status fresnel_attend(const fresnel_options* options, const fresnel_inputs* inputs,
                              const fresnel_outputs* outputs, const fresnel_context* context,
                              fresnel_report* report) noexcept {
  return guarded([&]() -> Status {
    if (report != nullptr) c_api::known(report, "report");
    OwnedContext owned;
    read_context(context, owned);
    const Result<Report> made =
        attend(c_api::options_of(options), c_api::inputs_of(inputs), c_api::outputs_of(outputs), owned.context);
    if (!made) return made.refusal();
    write_report(*made, report);
    return Done{};
  });
}

fresnel_status fresnel_merge(size_t count, const fresnel_view* const* o, const fresnel_view* const* lse,
                             const fresnel_mutable_view* merged_o, const fresnel_mutable_view* merged_lse,
                             const fresnel_executor* executor) noexcept {
  return guarded([&]() -> Status {
    if (count > 0) {
      c_api::require(o, "o");
      c_api::require(lse, "lse");
    }
    std::vector<Partial> parts;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string place = "[" + std::to_string(i) + "]";
      parts.push_back({c_api::view_of(o[i], "o" + place), c_api::view_of(lse[i], "lse" + place)});
    }
    std::optional<c_api::BorrowedExecutor> borrowed = c_api::executor_of(executor);
    return merge(parts, {c_api::view_of(merged_o, "merged_o"), c_api::view_of(merged_lse, "merged_lse")},
                 borrowed ? &*borrowed : nullptr);
  });
}

fresnel_status fresnel_check(const fresnel_options* options, const fresnel_inputs* inputs,
                             const fresnel_outputs* result, const fresnel_plan* made_by,
                             const fresnel_executor* executor, fresnel_verdict* verdict) noexcept {
  return guarded([&]() -> Status {
    c_api::known(verdict, "verdict");
    const struct {
      const char* name;
      fresnel_judgement* place;
    } places[] = {{"verdict.o", verdict->o},   {"verdict.lse", verdict->lse},
                  {"verdict.dq", verdict->dq}, {"verdict.dk", verdict->dk},
                  {"verdict.dv", verdict->dv}, {"verdict.dalibi_slopes", verdict->dalibi_slopes}};
    for (const auto& [name, place] : places)
      if (place != nullptr) c_api::known(place, name);
    const Inputs given = c_api::inputs_of(inputs);
    const Outputs judged = c_api::outputs_of(result);
    std::optional<c_api::BorrowedExecutor> borrowed = c_api::executor_of(executor);
    const Result<Problem> problem = describe(c_api::options_of(options), given, judged);
    if (!problem) return problem.refusal();
    const Roundings roundings = made_by != nullptr ? roundings_of(made_by->plan) : default_roundings(*problem);
    const Result<Verdict> made = check(*problem, given, judged, roundings, borrowed ? &*borrowed : nullptr);
    if (!made) return made.refusal();
    verdict->ok = made->ok() ? 1 : 0;
    write_judgement(made->o, verdict->o);
    write_judgement(made->lse, verdict->lse);
    write_judgement(made->dq, verdict->dq);
    write_judgement(made->dk, verdict->dk);
    write_judgement(made->dv, verdict->dv);
    write_judgement(made->dalibi_slopes, verdict->dalibi_slopes);
    return Done{};
  });
}
