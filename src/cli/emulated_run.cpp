// SPDX-License-Identifier: Apache-2.0
// Runs and judges emulated kernels: see emulated_run.hpp.
#include "cli/emulated_run.hpp"

#include <bit>
#include <limits>

#include "inputs/inputs.hpp"

namespace fresnel::cli {
namespace {

using traffic::Kind;

/// A tensor of rank 4 as one block, in the order of its axes.
std::vector<float> packed(const View& view) {
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(view.elements()));
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

/// A result's tensor, which the judge only reads.
MutableView result(const View& view) {
  MutableView out;
  out.data = const_cast<void*>(view.data);
  out.dtype = view.dtype;
  out.rank = view.rank;
  out.sizes = view.sizes;
  out.strides = view.strides;
  return out;
}

}  // namespace

Result<EmulatedRun> EmulatedRun::make(Kind kind, const traffic::Shape& shape, std::uint64_t seed,
                                      traffic::Count idle_barrier) {
  EmulatedRun made(kind, shape);
  Problem& problem = made.shape_.problem;
  problem.grad = kind == Kind::backward;
  problem.lse = problem.lse || problem.grad;
  const auto generated = make_inputs(problem, input_kinds().front().name, seed);
  if (!generated) return generated.refusal();
  const Inputs given = generated->inputs();
  made.q = packed(given.q), made.k = packed(given.k), made.v = packed(given.v);
  if (given.dout) made.dout = packed(*given.dout);
  if (shape.paged()) made.fill_pools();
  made.run(idle_barrier);
  return made;
}

void EmulatedRun::fill_pools() {
  const Problem& p = shape_.problem;
  const std::int64_t size = shape_.page_size, pages = shape_.pages(), used = p.batch * pages;
  const std::int64_t slots = (used + 1) * size * p.heads_kv;
  k_pool = nothing(slots, p.head_dim), v_pool = nothing(slots, p.value_dim);
  // Taken from the end and from the beginning in turn, so that no block follows the one before.
  const auto block_of = [&](std::int64_t page) { return page % 2 == 0 ? used - page / 2 : 1 + page / 2; };
  for (std::int64_t page = 0; page < used; ++page)
    block_table.push_back(std::bit_cast<float>(static_cast<std::int32_t>(block_of(page))));
  const auto copy_row = [](const std::vector<float>& from, std::int64_t row, std::vector<float>& to, std::int64_t at,
                           std::int64_t width) {
    std::copy_n(from.begin() + row * width, width, to.begin() + at * width);
  };
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads_kv; ++h)
      for (std::int64_t key = 0; key < p.keys; ++key) {
        const std::int64_t row = (b * p.heads_kv + h) * p.keys + key, block = block_of(b * pages + key / size);
        const std::int64_t at = (block * size + key % size) * p.heads_kv + h;
        copy_row(k, row, k_pool, at, p.head_dim);
        copy_row(v, row, v_pool, at, p.value_dim);
      }
}

void EmulatedRun::run(traffic::Count idle_barrier) {
  const Problem& p = shape_.problem;
  const std::int64_t queries = p.batch * p.heads_q * p.queries, keys = p.batch * p.heads_kv * p.keys;
  const std::int64_t wide = p.head_dim, deep = p.value_dim;
  o = nothing(queries, deep), lse = nothing(queries, 1);
  dq = nothing(queries, wide), dk = nothing(keys, wide), dv = nothing(keys, deep);
  traffic::Tensors<traffic::RunningMachine::Global> tensors{{q.data(), wide},  {k.data(), wide},  {v.data(), deep},
                                                            {o.data(), deep},  {lse.data(), 1},   {dout.data(), deep},
                                                            {dq.data(), wide}, {dk.data(), wide}, {dv.data(), deep}};
  if (shape_.paged()) {
    tensors.k.data = k_pool.data(), tensors.v.data = v_pool.data();
    tensors.block_table = {block_table.data(), shape_.pages()};
  }
  if (kind_ == Kind::backward) static_cast<void>(traffic::run(Kind::fused, shape_, tensors));
  emulation = traffic::run(kind_, shape_, tensors, idle_barrier);
}

Result<Verdict> EmulatedRun::judged() const {
  const Problem& p = shape_.problem;
  const auto of_queries = [&](const std::vector<float>& values, std::int64_t width) {
    return View(values.data(), DType::f32, {p.batch, p.heads_q, p.queries, width});
  };
  const auto of_keys = [&](const std::vector<float>& values, std::int64_t width) {
    return View(values.data(), DType::f32, {p.batch, p.heads_kv, p.keys, width});
  };
  Inputs inputs{of_queries(q, p.head_dim), of_keys(k, p.head_dim), of_keys(v, p.value_dim), {}, {}};
  Outputs outputs{result(of_queries(o, p.value_dim)), {}};
  if (p.lse) outputs.lse = result(View(lse.data(), DType::f32, {p.batch, p.heads_q, p.queries}));
  const Roundings own = traffic::roundings_of(kind_, shape_);
  if (!p.grad) return check(p, inputs, outputs, own);
  inputs.dout = of_queries(dout, p.value_dim);
  outputs.dq = result(of_queries(dq, p.head_dim));
  outputs.dk = result(of_keys(dk, p.head_dim));
  outputs.dv = result(of_keys(dv, p.value_dim));
  return check(p, inputs, outputs, traffic::roundings_of(Kind::fused, shape_), own);
}

}  // namespace fresnel::cli
