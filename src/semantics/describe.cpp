// SPDX-License-Identifier: Apache-2.0
// From views to a Problem: shapes, strides, addresses and devices are read here, data never. Words every fault of the
// views; what the shapes and options then mean together is validate's to judge, which describe calls last.
#include <array>

#include "fresnel/plan.hpp"
#include "semantics/views.hpp"

namespace fresnel {
namespace {

/// Some tensors of a call, on the stack: `run` describes its views and allocates nothing.
class Tensors {
 public:
  void add(const Tensor& tensor) { tensors_[count_++] = &tensor; }
  void add(const std::optional<Tensor>& tensor) {
    if (tensor) add(*tensor);
  }
  [[nodiscard]] const Tensor* const* begin() const { return tensors_.data(); }
  [[nodiscard]] const Tensor* const* end() const { return tensors_.data() + count_; }

 private:
  std::array<const Tensor*, 12> tensors_{};  // every tensor of a call
  std::size_t count_ = 0;
};

/// All tensors of a call, in the order in which they are tested.
struct Call {
  Tensor q, k, v, o;
  std::optional<Tensor> lse, slopes, seqlens;
  std::optional<Tensor> dout, dq, dk, dv, dslopes;

  /// Tensors of q's device and dtype, then those of the wide dtype.
  [[nodiscard]] Tensors main_tensors() const {
    Tensors all;
    for (const Tensor* tensor : {&q, &k, &v, &o}) all.add(*tensor);
    for (const auto* tensor : {&dout, &dq, &dk, &dv}) all.add(*tensor);
    return all;
  }
  [[nodiscard]] Tensors wide_tensors() const {
    Tensors all;
    for (const auto* tensor : {&lse, &dslopes}) all.add(*tensor);
    return all;
  }
  [[nodiscard]] Tensors outputs() const {
    Tensors all;
    all.add(o);
    for (const auto* tensor : {&lse, &dq, &dk, &dv, &dslopes}) all.add(*tensor);
    return all;
  }
  [[nodiscard]] bool any_gradient() const { return dq || dk || dv || dslopes; }
};

Call call_of(const Inputs& inputs, const Outputs& outputs) {
  Call call{{"q", inputs.q, 4, {"batch", "heads", "queries", "head_dim"}},
            {"k", inputs.k, 4, {"batch", "kv heads", "keys", "head_dim"}},
            {"v", inputs.v, 4, {"batch", "kv heads", "keys", "value_dim"}},
            {"o", as_input(outputs.o), 4, {"batch", "heads", "queries", "value_dim"}},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {}};
  if (outputs.lse) call.lse = Tensor{"lse", as_input(*outputs.lse), 3, {"batch", "heads", "queries"}};
  if (inputs.alibi_slopes) call.slopes = Tensor{"alibi_slopes", *inputs.alibi_slopes, inputs.alibi_slopes->rank, {}};
  if (inputs.seqlens_k) call.seqlens = Tensor{"seqlens_k", *inputs.seqlens_k, 1, {"batch"}};
  const auto gradient = [](const char* name, const MutableView& view, const Tensor& like) {
    return Tensor{name, as_input(view), like.rank, like.axes};
  };
  if (inputs.dout) call.dout = Tensor{"dout", *inputs.dout, 4, call.o.axes};
  if (outputs.dq) call.dq = gradient("dq", *outputs.dq, call.q);
  if (outputs.dk) call.dk = gradient("dk", *outputs.dk, call.k);
  if (outputs.dv) call.dv = gradient("dv", *outputs.dv, call.v);
  if (outputs.dalibi_slopes) {
    const bool by_batch = inputs.alibi_slopes && inputs.alibi_slopes->rank == 2;
    call.dslopes = Tensor{"dalibi_slopes", as_input(*outputs.dalibi_slopes), by_batch ? 2 : 1, {"heads"}};
    if (by_batch) call.dslopes->axes = {"batch", "heads"};
  }
  return call;
}

/// Gradients come from dout and lse, and dout is there for gradients.
Objection objection_to_company(const Call& call) {
  if (call.dout && !call.any_gradient())
    return refuse("dout", "dout without a gradient to compute", "dout with dq, dk, dv or dalibi_slopes");
  if (!call.any_gradient()) return std::nullopt;
  if (!call.dout) {
    const Tensors outputs = call.outputs();
    const Tensor* const last = *(outputs.end() - 1);
    return refuse("dout", fmt::format("none, beside {}", last->name), "the gradient of o, shaped like o");
  }
  if (call.dslopes && !call.slopes)
    return refuse("dalibi_slopes", "a gradient without alibi_slopes", "the gradient of a tensor that is there");
  if (!call.lse) return refuse("lse", "none, beside dout", "lse, which gradients are computed from");
  return std::nullopt;
}

Objection objection_to_shapes(const Call& call) {
  for (const auto& tensors : {call.main_tensors(), call.wide_tensors()})
    for (const Tensor* tensor : tensors)
      if (auto fault = objection_to_shape(*tensor)) return fault;
  return std::nullopt;
}

Objection objection_to_dtypes(const Call& call) {
  const DType dtype = call.q.view.dtype;
  if (!is_attention_dtype(dtype)) return refuse("q", spell(dtype), "f64, f32, f16 or bf16");
  for (const Tensor* tensor : call.main_tensors())
    if (tensor->view.dtype != dtype)
      return refuse(tensor->name, spell(tensor->view.dtype), fmt::format("{}, the dtype of q", spell(dtype)),
                    spell(dtype));
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  for (const Tensor* tensor : call.wide_tensors())
    if (tensor->view.dtype != wide)
      return refuse(tensor->name, spell(tensor->view.dtype), fmt::format("{} when q is {}", spell(wide), spell(dtype)),
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
  for (const auto& tensors : {call.main_tensors(), call.wide_tensors()})
    for (const Tensor* tensor : tensors)
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
  const std::pair<const std::optional<Tensor>&, const Tensor&> gradients[] = {
      {call.dout, call.o}, {call.dq, call.q}, {call.dk, call.k}, {call.dv, call.v}};
  for (const auto& [gradient, of] : gradients)
    for (int axis = 0; gradient && axis < 4; ++axis)
      if (auto fault = objection(of, *gradient, axis, axis)) return fault;
  return std::nullopt;
}

Objection objection_to_arrays(const Call& call) {
  const View& q = call.q.view;
  if (call.slopes)
    if (auto fault = objection_to_slopes(call.slopes->view, q.sizes[0], q.sizes[1])) return fault;
  for (int axis = 0; call.dslopes && axis < call.dslopes->rank; ++axis)
    if (auto fault = objection_to_extent(*call.dslopes, axis, call.slopes->view.sizes[axis], "as in alibi_slopes"))
      return fault;
  return call.seqlens ? objection_to_seqlens(call.seqlens->view, q.sizes[0]) : std::nullopt;
}

Objection objection_to_memories(const Call& call) {
  for (const auto& tensors : {call.main_tensors(), call.wide_tensors()})
    for (const Tensor* tensor : tensors)
      if (auto fault = objection_to_memory(*tensor)) return fault;
  return std::nullopt;
}

Objection objection_to_outputs(const Call& call) {
  Tensors others;
  for (const Tensor* input : {&call.q, &call.k, &call.v}) others.add(*input);
  for (const auto* input : {&call.slopes, &call.seqlens, &call.dout}) others.add(*input);
  for (const Tensor* output : call.outputs()) {
    if (auto fault = objection_to_self_overlap(*output)) return fault;
    for (const Tensor* other : others)
      if (auto fault = objection_to_overlap(*output, *other)) return fault;
    others.add(*output);
  }
  return std::nullopt;
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
  problem.grad = call.dout.has_value();
  return problem;
}

}  // namespace

Result<Problem> describe(const Options& options, const Inputs& inputs, const Outputs& outputs) {
  const Call call = call_of(inputs, outputs);
  // Each test relies on those before it: shapes, then what shapes must agree on, then memory, then memory in pairs.
  for (const auto objection_to :
       {objection_to_company, objection_to_shapes, objection_to_dtypes, objection_to_devices, objection_to_agreement,
        objection_to_arrays, objection_to_memories, objection_to_outputs})
    if (auto fault = objection_to(call)) return *std::move(fault);
  const Problem problem = problem_of(options, call);
  if (const Status valid = validate(problem); !valid) return valid.refusal();
  return problem;
}

}  // namespace fresnel
