// SPDX-License-Identifier: Apache-2.0
// From views to a Problem: shapes, strides, addresses and devices are read here, data never. Words every fault of the
// views; what the shapes and options then mean together is validate's to judge, which describe calls last.
#include <array>

#include "fresnel/plan.hpp"
#include "semantics/views.hpp"

namespace fresnel {
namespace {

/// All tensors of a call, in the order in which they are tested.
struct Call {
  Tensor q, k, v, o;
  std::optional<Tensor> lse, slopes, seqlens;
};

Call call_of(const Inputs& inputs, const Outputs& outputs) {
  Call call{{"q", inputs.q, 4, {"batch", "heads", "queries", "head_dim"}},
            {"k", inputs.k, 4, {"batch", "kv heads", "keys", "head_dim"}},
            {"v", inputs.v, 4, {"batch", "kv heads", "keys", "value_dim"}},
            {"o", as_input(outputs.o), 4, {"batch", "heads", "queries", "value_dim"}},
            {},
            {},
            {}};
  if (outputs.lse) call.lse = Tensor{"lse", as_input(*outputs.lse), 3, {"batch", "heads", "queries"}};
  if (inputs.alibi_slopes) call.slopes = Tensor{"alibi_slopes", *inputs.alibi_slopes, inputs.alibi_slopes->rank, {}};
  if (inputs.seqlens_k) call.seqlens = Tensor{"seqlens_k", *inputs.seqlens_k, 1, {"batch"}};
  return call;
}

Objection objection_to_shapes(const Call& call) {
  for (const Tensor* tensor : {&call.q, &call.k, &call.v, &call.o})
    if (auto fault = objection_to_shape(*tensor)) return fault;
  return call.lse ? objection_to_shape(*call.lse) : std::nullopt;
}

Objection objection_to_dtypes(const Call& call) {
  const DType dtype = call.q.view.dtype;
  if (!is_attention_dtype(dtype)) return refuse("q", spell(dtype), "f64, f32, f16 or bf16");
  for (const Tensor* tensor : {&call.k, &call.v, &call.o})
    if (tensor->view.dtype != dtype)
      return refuse(tensor->name, spell(tensor->view.dtype), fmt::format("{}, the dtype of q", spell(dtype)),
                    spell(dtype));
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  if (call.lse && call.lse->view.dtype != wide)
    return refuse("lse", spell(call.lse->view.dtype), fmt::format("{} when q is {}", spell(wide), spell(dtype)),
                  spell(wide));
  return std::nullopt;
}

std::string spell(Device device) {
  const auto value = static_cast<unsigned>(device);
  return value <= static_cast<unsigned>(Device::webgpu) ? std::string(name(device)) : fmt::format("device({})", value);
}

/// q, k, v and the outputs lie on one device; index arrays and slopes there or on the host.
Objection objection_to_devices(const Call& call) {
  const Device device = call.q.view.device;
  if (static_cast<unsigned>(device) > static_cast<unsigned>(Device::webgpu))
    return refuse("q", spell(device), "cpu, cuda or webgpu");
  for (const Tensor* tensor : {&call.k, &call.v, &call.o, call.lse ? &*call.lse : &call.o})
    if (tensor->view.device != device)
      return refuse(tensor->name, fmt::format("on {}", spell(tensor->view.device)),
                    fmt::format("on {}, where q is", spell(device)), spell(device));
  for (const auto& array : {call.slopes, call.seqlens})
    if (array && array->view.device != device && array->view.device != Device::cpu)
      return refuse(array->name, fmt::format("on {}", spell(array->view.device)),
                    fmt::format("on cpu or on {}, where q is", spell(device)), "cpu");
  return std::nullopt;
}

/// Extents that two tensors share; the second one is held to the first.
Objection objection_to_agreement(const Call& call) {
  const struct {
    const Tensor& first;
    const Tensor& second;
    int first_axis, second_axis;
  } pairs[] = {{call.q, call.k, 0, 0}, {call.q, call.v, 0, 0}, {call.q, call.o, 0, 0},
               {call.q, call.o, 1, 1}, {call.q, call.o, 2, 2}, {call.q, call.k, 3, 3},
               {call.k, call.v, 1, 1}, {call.k, call.v, 2, 2}, {call.v, call.o, 3, 3}};
  const auto objection = [](const Tensor& first, const Tensor& second, int first_axis, int second_axis) -> Objection {
    if (first.view.sizes[first_axis] == second.view.sizes[second_axis]) return std::nullopt;  // the reason costs memory
    return objection_to_extent(second, second_axis, first.view.sizes[first_axis],
                               fmt::format("as on axis {} of {} {}", first_axis, first.name, print_sizes(first.view)));
  };
  for (const auto& pair : pairs)
    if (auto fault = objection(pair.first, pair.second, pair.first_axis, pair.second_axis)) return fault;
  for (int axis = 0; call.lse && axis < 3; ++axis)
    if (auto fault = objection(call.q, *call.lse, axis, axis)) return fault;
  return std::nullopt;
}

Objection objection_to_arrays(const Call& call) {
  const View& q = call.q.view;
  if (call.slopes)
    if (auto fault = objection_to_slopes(call.slopes->view, q.sizes[0], q.sizes[1])) return fault;
  return call.seqlens ? objection_to_seqlens(call.seqlens->view, q.sizes[0]) : std::nullopt;
}

Objection objection_to_memories(const Call& call) {
  for (const Tensor* tensor : {&call.q, &call.k, &call.v, &call.o, call.lse ? &*call.lse : &call.o})
    if (auto fault = objection_to_memory(*tensor)) return fault;
  return std::nullopt;
}

Objection objection_to_outputs(const Call& call) {
  const std::array<const Tensor*, 2> outputs{&call.o, call.lse ? &*call.lse : nullptr};
  const std::array<const Tensor*, 5> inputs{&call.q, &call.k, &call.v, call.slopes ? &*call.slopes : nullptr,
                                            call.seqlens ? &*call.seqlens : nullptr};
  for (const Tensor* output : outputs) {
    if (output == nullptr) continue;
    if (auto fault = objection_to_self_overlap(*output)) return fault;
    for (const Tensor* input : inputs)
      if (input != nullptr)
        if (auto fault = objection_to_overlap(*output, *input)) return fault;
  }
  return call.lse ? objection_to_overlap(*call.lse, call.o) : std::nullopt;
}

std::uint64_t magnitude(std::int64_t value) {
  return value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
}

/// Axes of length 1 say nothing; a tensor without elements has the default class, wherever it points.
LayoutClass layout_of(const View& view) {
  LayoutClass layout;
  for (const std::int64_t size : view.sizes)
    if (size == 0) return layout;
  if (view.sizes[1] > 1 && view.sizes[2] > 1 && magnitude(view.strides[2]) > magnitude(view.strides[1]))
    layout.order = AxisOrder::bshd;
  constexpr std::uint64_t alignment = 16;
  layout.aligned = reinterpret_cast<std::uintptr_t>(view.data) % alignment == 0;
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (view.sizes[axis] > 1 &&
        magnitude(view.strides[axis]) * static_cast<std::uint64_t>(size_of(view.dtype)) % alignment)
      layout.aligned = false;
  return layout;
}

Problem problem_of(const Options& options, const Call& call) {
  Problem problem;
  problem.batch = call.q.view.sizes[0];
  problem.heads_q = call.q.view.sizes[1];
  problem.heads_kv = call.k.view.sizes[1];
  problem.queries = call.q.view.sizes[2];
  problem.keys = call.k.view.sizes[2];
  problem.head_dim = call.q.view.sizes[3];
  problem.value_dim = call.v.view.sizes[3];
  problem.dtype = call.q.view.dtype;
  problem.options = options;
  if (call.slopes)
    problem.alibi_slopes = call.slopes->view.rank == 1 ? AlibiSlopes::per_head : AlibiSlopes::per_batch_and_head;
  else
    problem.options.alibi = AlibiForm::relative;  // a form without slopes says nothing; equal problems compare equal
  problem.seqlens_k = call.seqlens.has_value();
  problem.q = layout_of(call.q.view);
  problem.k = layout_of(call.k.view);
  problem.v = layout_of(call.v.view);
  problem.o = layout_of(call.o.view);
  problem.lse = call.lse.has_value();
  return problem;
}

}  // namespace

Result<Problem> describe(const Options& options, const Inputs& inputs, const Outputs& outputs) {
  const Call call = call_of(inputs, outputs);
  // Each test relies on those before it: shapes, then what shapes must agree on, then memory, then memory in pairs.
  for (const auto objection_to :
       {objection_to_shapes, objection_to_dtypes, objection_to_devices, objection_to_agreement, objection_to_arrays,
        objection_to_memories, objection_to_outputs})
    if (auto fault = objection_to(call)) return *std::move(fault);
  const Problem problem = problem_of(options, call);
  if (const Status valid = validate(problem); !valid) return valid.refusal();
  return problem;
}

}  // namespace fresnel
