// SPDX-License-Identifier: Apache-2.0
// Structs to values, field by field. Values that their `has_` flag declares absent must be 0, so that a forgotten flag
// is an error and not a default.
#include "c_api/convert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

namespace fresnel::c_api {
namespace {

/// A member of an enumeration with `count` of them.
template <class Enum>
Enum member(int number, int count, const std::string& name, const char* accepted) {
  if (number < 0 || number >= count) refuse(name, fmt::format("unknown value {}", number), accepted);
  return static_cast<Enum>(number);
}

template <class CppView, class CView>
CppView converted(const CView& given, const std::string& name) {
  CppView view;
  view.data = given.data;
  view.dtype = member<DType>(given.dtype, 6, name + ".dtype", "FRESNEL_F64 (0) to FRESNEL_BOOL (5)");
  view.rank = given.rank;
  view.device = member<Device>(given.device, 3, name + ".device", "FRESNEL_CPU (0) to FRESNEL_WEBGPU (2)");
  std::copy(std::begin(given.sizes), std::end(given.sizes), view.sizes.begin());
  std::copy(std::begin(given.strides), std::end(given.strides), view.strides.begin());
  return view;
}

template <class Value>
std::optional<Value> optional_of(int has, Value value, const char* name) {
  if (has != 0) return value;
  if (value != 0)
    refuse(name, fmt::format("{} with has_{} = 0", value, name), fmt::format("has_{0} = 1, or {0} = 0", name));
  return std::nullopt;
}

std::optional<View> optional_view(const fresnel_view* given, const char* name) {
  if (given == nullptr) return std::nullopt;
  return view_of(given, name);
}
std::optional<MutableView> optional_view(const fresnel_mutable_view* given, const char* name) {
  if (given == nullptr) return std::nullopt;
  return view_of(given, name);
}

/// One call of a caller's `run`, as its tasks see it.
struct Job {
  TaskRef task;
  int tasks;
  std::atomic<int> ran{0};
  std::atomic<bool> strayed{false};  ///< an index that is no task
  std::mutex mutex;
  std::exception_ptr first;
};

void run_task(void* context, int index) noexcept {
  Job& job = *static_cast<Job*>(context);
  if (index < 0 || index >= job.tasks) {
    job.strayed = true;
    return;
  }
  try {
    job.task(index);
  } catch (...) {
    const std::lock_guard lock(job.mutex);
    if (!job.first) job.first = std::current_exception();
  }
  job.ran += 1;
}

}  // namespace

View view_of(const fresnel_view* given, const std::string& name) { return converted<View>(known(given, name), name); }
MutableView view_of(const fresnel_mutable_view* given, const std::string& name) {
  return converted<MutableView>(known(given, name), name);
}

Options options_of(const fresnel_options* given) {
  Options options;
  if (given == nullptr) return options;
  known(given, "options");
  options.causal = given->causal != 0;
  options.alignment = member<Alignment>(given->alignment, 2, "alignment", "FRESNEL_BOTTOM_RIGHT or FRESNEL_TOP_LEFT");
  options.alibi = member<AlibiForm>(given->alibi, 2, "alibi", "FRESNEL_RELATIVE or FRESNEL_DISTANCE");
  options.softmax_scale = optional_of(given->has_softmax_scale, given->softmax_scale, "softmax_scale");
  options.softcap = optional_of(given->has_softcap, given->softcap, "softcap");
  options.window_size_left = optional_of(given->has_window_size_left, given->window_size_left, "window_size_left");
  options.window_size_right = optional_of(given->has_window_size_right, given->window_size_right, "window_size_right");
  return options;
}

Inputs inputs_of(const fresnel_inputs* given) {
  known(given, "inputs");
  return {view_of(given->q, "q"),
          view_of(given->k, "k"),
          view_of(given->v, "v"),
          optional_view(given->alibi_slopes, "alibi_slopes"),
          optional_view(given->seqlens_k, "seqlens_k"),
          optional_view(given->dout, "dout")};
}

Outputs outputs_of(const fresnel_outputs* given) {
  known(given, "outputs");
  return {view_of(given->o, "o"),         optional_view(given->lse, "lse"),
          optional_view(given->dq, "dq"), optional_view(given->dk, "dk"),
          optional_view(given->dv, "dv"), optional_view(given->dalibi_slopes, "dalibi_slopes")};
}

Machine machine_of(const fresnel_machine* given) {
  if (given == nullptr) return Machine::detect().value();
  known(given, "machine");
  Machine machine;
  machine.name.assign(given->name, std::find(std::begin(given->name), std::end(given->name), '\0'));
  machine.device = member<Device>(given->device, 3, "machine.device", "FRESNEL_CPU (0) to FRESNEL_WEBGPU (2)");
  machine.isa = member<Isa>(given->isa, 4, "machine.isa", "FRESNEL_ISA_BASELINE (0) to FRESNEL_ISA_NEON (3)");
  machine.tile_unit = member<TileUnit>(given->tile_unit, 3, "machine.tile_unit",
                                       "FRESNEL_TILE_UNIT_ABSENT (0) to FRESNEL_TILE_UNIT_AMX_BF16 (2)");
  const std::pair<const char*, int> counts[] = {{"machine.cores", given->cores}, {"machine.threads", given->threads}};
  for (const auto& [name, count] : counts)
    if (count < 1) refuse(name, std::to_string(count), "at least 1");
  machine.cores = given->cores;
  machine.threads = given->threads;
  machine.l1_bytes = given->l1_bytes;
  machine.l2_bytes = given->l2_bytes;
  machine.l3_bytes = given->l3_bytes;
  return machine;
}

std::optional<BorrowedExecutor> executor_of(const fresnel_executor* given) {
  if (given == nullptr) return std::nullopt;
  known(given, "executor");
  if (given->width < 1) refuse("executor.width", std::to_string(given->width), "at least 1");
  if (given->run == nullptr) refuse("executor.run", "a null pointer", "a function");
  return BorrowedExecutor(*given);
}

void BorrowedExecutor::run(int tasks, TaskRef task) {
  Job job{.task = task, .tasks = tasks, .mutex = {}, .first = {}};
  given_.run(given_.user, tasks, run_task, &job);
  if (job.first) std::rethrow_exception(job.first);
  if (job.strayed || job.ran != tasks)
    refuse("executor.run", fmt::format("{} calls{} for {} tasks", job.ran, job.strayed ? " and others" : "", tasks),
           "one call for each index from 0 to tasks - 1");
}

}  // namespace fresnel::c_api
