// SPDX-License-Identifier: Apache-2.0
// Runs and judges emulated kernels: see emulated.hpp.
#include "traffic/emulated.hpp"

#include <limits>

#include "inputs/inputs.hpp"

namespace fresnel::test {
namespace {

using traffic::Kind;

/// A tensor of rank 4 as one block, in the order of its axes.
std::vector<float> packed(const View& view) {
  std::vector<float> values;
  const auto* const data = static_cast<const float*>(view.data);
  for (std::int64_t b = 0; b < view.sizes[0]; ++b)
    for (std::int64_t h = 0; h < view.sizes[1]; ++h)
      for (std::int64_t s = 0; s < view.sizes[2]; ++s)
        for (std::int64_t d = 0; d < view.sizes[3]; ++d)
          values.push_back(data[b * view.strides[0] + h * view.strides[1] + s * view.strides[2] + d * view.strides[3]]);
  return values;
}

std::vector<float> nothing(std::int64_t rows, std::int64_t width) {
  return std::vector<float>(static_cast<std::size_t>(rows * width), std::numeric_limits<float>::quiet_NaN());
}

}  // namespace

Problem square(std::int64_t n, std::int64_t d, bool lse) {
  Problem problem;
  problem.queries = problem.keys = n;
  problem.head_dim = problem.value_dim = d;
  problem.lse = lse;
  return problem;
}

Emulated::Emulated(Kind kind, const traffic::Shape& shape, std::uint64_t seed, traffic::Count idle_barrier)
    : kind_(kind), shape_(shape) {
  Problem& problem = shape_.problem;
  problem.grad = kind == Kind::backward;
  problem.lse = problem.lse || problem.grad;
  const GeneratedInputs generated = make_inputs(problem, "normal", seed).value();
  const Inputs given = generated.inputs();
  q = packed(given.q), k = packed(given.k), v = packed(given.v);
  if (given.dout) dout = packed(*given.dout);
  const std::int64_t queries = problem.batch * problem.heads_q * problem.queries;
  const std::int64_t keys = problem.batch * problem.heads_kv * problem.keys;
  o = nothing(queries, problem.value_dim), lse = nothing(queries, 1);
  dq = nothing(queries, problem.head_dim), dk = nothing(keys, problem.head_dim), dv = nothing(keys, problem.value_dim);
  const std::int64_t wide = problem.head_dim, deep = problem.value_dim;
  const traffic::Tensors<traffic::RunningMachine::Global> tensors{
      {q.data(), wide},    {k.data(), wide},  {v.data(), deep},  {o.data(), deep}, {lse.data(), 1},
      {dout.data(), deep}, {dq.data(), wide}, {dk.data(), wide}, {dv.data(), deep}};
  if (kind == Kind::backward) static_cast<void>(traffic::run(Kind::fused, shape_, tensors));
  emulation = traffic::run(kind, shape_, tensors, idle_barrier);
}

Verdict Emulated::judged() const {
  const Problem& p = shape_.problem;
  const auto of_queries = [&](const std::vector<float>& values, std::int64_t width) {
    return View(values.data(), DType::f32, {p.batch, p.heads_q, p.queries, width});
  };
  const auto of_keys = [&](const std::vector<float>& values, std::int64_t width) {
    return View(values.data(), DType::f32, {p.batch, p.heads_kv, p.keys, width});
  };
  const auto result = [](const View& view) {
    MutableView out;
    out.data = const_cast<void*>(view.data);  // the judge only reads it
    out.dtype = view.dtype;
    out.rank = view.rank;
    out.sizes = view.sizes;
    out.strides = view.strides;
    return out;
  };
  Inputs inputs{of_queries(q, p.head_dim), of_keys(k, p.head_dim), of_keys(v, p.value_dim), {}, {}};
  Outputs outputs{result(of_queries(o, p.value_dim)), {}};
  if (p.lse) outputs.lse = result(View(lse.data(), DType::f32, {p.batch, p.heads_q, p.queries}));
  const Roundings own = traffic::roundings_of(kind_, shape_);
  if (!p.grad) return check(p, inputs, outputs, own).value();
  inputs.dout = of_queries(dout, p.value_dim);
  outputs.dq = result(of_queries(dq, p.head_dim));
  outputs.dk = result(of_keys(dk, p.head_dim));
  outputs.dv = result(of_keys(dv, p.value_dim));
  return check(p, inputs, outputs, traffic::roundings_of(Kind::fused, shape_), own).value();
}

}  // namespace fresnel::test
