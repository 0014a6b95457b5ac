// SPDX-License-Identifier: Apache-2.0
// The public merge: every fault of its views is worded here, then rows are handed out to the executor. Rows are
// independent, so no thread count changes a bit.
#include <algorithm>

#include "kernels/cache/merge.hpp"

#include "runtime/parallel.hpp"
#include "semantics/views.hpp"

namespace fresnel {
namespace {

constexpr std::int64_t rows_per_item = 64;  // a few microseconds of work, so that handing it out costs nothing

Tensor o_tensor(const char* name, const View& view) {
  return {name, view, 4, {"batch", "heads", "queries", "value_dim"}};
}
Tensor lse_tensor(const char* name, const View& view) { return {name, view, 3, {"batch", "heads", "queries"}}; }

/// Shape, dtype and memory of one tensor, against the result's o.
Objection objection_to(const Tensor& tensor, const View& o) {
  if (tensor.view.device != Device::cpu)
    return refuse(tensor.name, std::string(name(tensor.view.device)), "cpu", "cpu");
  if (auto fault = objection_to_shape(tensor)) return fault;
  if (tensor.view.dtype != o.dtype)
    return refuse(tensor.name, spell(tensor.view.dtype), "the dtype of result.o, " + spell(o.dtype), spell(o.dtype));
  for (int axis = 0; axis < tensor.rank; ++axis)
    if (auto fault = objection_to_extent(tensor, axis, o.sizes[axis], "as in result.o " + print_sizes(o))) return fault;
  // Rows of lse may lie anywhere; only the elements of o have to be contiguous.
  Tensor spread = tensor;
  if (tensor.rank == 3) {
    spread.view.rank = 4;
    spread.view.sizes[3] = spread.view.strides[3] = 1;
  }
  return objection_to_memory(spread);
}

Objection objection_to_result(const Merged& result) {
  const View o = as_input(result.o);
  if (auto fault = objection_to_shape(o_tensor("result.o", o))) return fault;
  if (o.dtype != DType::f32 && o.dtype != DType::f64)
    return refuse("result.o", spell(o.dtype), "f32 or f64: partial results are not kept in 16 bits", "f32");
  const Tensor tensors[] = {o_tensor("result.o", o), lse_tensor("result.lse", as_input(result.lse))};
  for (const Tensor& tensor : tensors) {
    if (auto fault = objection_to(tensor, o)) return fault;
    if (auto fault = objection_to_self_overlap(tensor)) return fault;
  }
  return objection_to_overlap(tensors[1], tensors[0]);
}

Objection objection_to_part(const Partial& part, std::size_t index, const Merged& result) {
  const View o = as_input(result.o);
  const std::string place = fmt::format("parts[{}].", index), o_name = place + "o", lse_name = place + "lse";
  for (const Tensor& tensor : {o_tensor(o_name.c_str(), part.o), lse_tensor(lse_name.c_str(), part.lse)}) {
    if (auto fault = objection_to(tensor, o)) return fault;
    if (auto fault = objection_to_overlap(o_tensor("result.o", o), tensor)) return fault;
    if (auto fault = objection_to_overlap(lse_tensor("result.lse", as_input(result.lse)), tensor)) return fault;
  }
  return std::nullopt;
}

template <class Real>
void merge_rows(std::span<const Partial> parts, const Merged& result, Executor& executor) {
  const std::int64_t rows = result.lse.elements();
  parallel_for(executor, executor.width(), (rows + rows_per_item - 1) / rows_per_item, [&](int, std::int64_t item) {
    const std::int64_t end = std::min(rows, (item + 1) * rows_per_item);
    for (std::int64_t row = item * rows_per_item; row < end; ++row) cache::merge_row<Real>(parts, result, row);
  });
}

}  // namespace

Status merge(std::span<const Partial> parts, const Merged& result, Executor* executor) {
  if (auto fault = objection_to_result(result)) return *std::move(fault);
  for (std::size_t index = 0; index < parts.size(); ++index)
    if (auto fault = objection_to_part(parts[index], index, result)) return *std::move(fault);
  if (result.lse.elements() == 0) return Done{};
  try {
    Executor& chosen = executor != nullptr ? *executor : default_executor();
    if (result.o.dtype == DType::f64)
      merge_rows<double>(parts, result, chosen);
    else
      merge_rows<float>(parts, result, chosen);
  } catch (const Error& error) {  // the default pool, where FRESNEL_THREADS is wrong
    return error.refusal();
  }
  return Done{};
}

}  // namespace fresnel
