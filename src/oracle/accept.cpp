// SPDX-License-Identifier: Apache-2.0
// Which inputs the oracle takes: exactly those of the problem. The tests of single views are the law room's; here they
// are only held against the extents that the problem names.
#include <initializer_list>

#include "oracle/forward.hpp"
#include "semantics/views.hpp"

namespace fresnel {
namespace {

Objection objection_to_input(const Problem& problem, const Tensor& tensor,
                             std::initializer_list<std::int64_t> extents) {
  if (auto fault = objection_to_shape(tensor)) return fault;
  int axis = 0;
  for (const std::int64_t extent : extents)
    if (auto fault = objection_to_extent(tensor, axis++, extent, "as in the problem")) return fault;
  if (tensor.view.dtype != problem.dtype)
    return refuse(tensor.name, spell(tensor.view.dtype), spell(problem.dtype) + ", the problem's dtype",
                  spell(problem.dtype));
  return objection_to_memory(tensor);
}

Objection objection_to_device(const char* argument, const View& view) {
  if (view.device == Device::cpu) return std::nullopt;
  return refuse(argument, "memory of a device", "host memory", "cpu");
}

}  // namespace

Status accept(const Problem& problem, const Inputs& inputs) {
  if (Status valid = validate(problem); !valid) return valid;
  const auto& [batch, heads_q, heads_kv, queries, keys, head_dim, value_dim] =
      std::tie(problem.batch, problem.heads_q, problem.heads_kv, problem.queries, problem.keys, problem.head_dim,
               problem.value_dim);
  if (auto fault = objection_to_input(problem, {"q", inputs.q, 4, {"batch", "heads", "queries", "head_dim"}},
                                      {batch, heads_q, queries, head_dim}))
    return *std::move(fault);
  if (auto fault = objection_to_input(problem, {"k", inputs.k, 4, {"batch", "kv heads", "keys", "head_dim"}},
                                      {batch, heads_kv, keys, head_dim}))
    return *std::move(fault);
  if (auto fault = objection_to_input(problem, {"v", inputs.v, 4, {"batch", "kv heads", "keys", "value_dim"}},
                                      {batch, heads_kv, keys, value_dim}))
    return *std::move(fault);
  if (inputs.dout)
    if (auto fault = objection_to_input(problem, {"dout", *inputs.dout, 4, {"batch", "heads", "queries", "value_dim"}},
                                        {batch, heads_q, queries, value_dim}))
      return *std::move(fault);
  const View none;
  for (const auto& [name, view] :
       {std::pair("q", inputs.q), std::pair("k", inputs.k), std::pair("v", inputs.v),
        std::pair("dout", inputs.dout.value_or(none)), std::pair("alibi_slopes", inputs.alibi_slopes.value_or(none)),
        std::pair("seqlens_k", inputs.seqlens_k.value_or(none))})
    if (auto fault = objection_to_device(name, view)) return *std::move(fault);
  return check_indices(problem, inputs);
}

}  // namespace fresnel
