// SPDX-License-Identifier: Apache-2.0
// A fused backward for every workgroup machine. Source: Dao, Fu, Ermon, Rudra and Re, "FlashAttention", 2022, algorithm
// 4 (appendix B.4), of which it keeps the recomputation of P and the rows of D = dO . O. But dq is summed in a kernel
// of its own instead of being added to in global memory: two more products, no atomic additions, and the same bits in
// every run.
#pragma once

#include "traffic/shape.hpp"

namespace fresnel::traffic {

/// delta = dO . O of every query.
template <class Machine>
void delta_kernel(Machine& machine, const Shape& shape, const Tensors<typename Machine::Global>& t,
                  const typename Machine::Global& delta) {
  using Real = typename Machine::Real;
  machine.launch(shape.query_tiles(shape.tile), shape.threads, [&](auto& group, const QueryTile& rows) {
    const auto o = group.registers(shape.value_width()), dout = group.registers(shape.value_width());
    group.threads(rows.count, [&](auto& thread) {
      const std::int64_t me = thread.id, row = shape.query_row(rows.batch, rows.head, rows.first + me);
      thread.load(t.o, row, o[me]);
      thread.load(t.dout, row, dout[me]);
      Real sum = Real(0);
      thread.repeat(shape.value_width(),
                    [&](std::int64_t column) { sum = thread.fma(dout[me][column], o[me][column], sum); });
      thread.write(delta, row, 0, sum);
    });
  });
}

/// dk and dv: a workgroup takes a tile of keys, one thread a key, through all query tiles that see them, of all query
/// heads of the group.
template <class Machine>
void key_gradients_kernel(Machine& machine, const Shape& shape, const Tensors<typename Machine::Global>& t,
                          const typename Machine::Global& delta) {
  using Real = typename Machine::Real;
  machine.launch(shape.masked_key_tiles(), shape.threads, [&](auto& group, const QueryTile& keys) {
    const auto q = group.memory(shape.tile, shape.width()), dout = group.memory(shape.tile, shape.value_width());
    const auto lse_tile = group.memory(shape.tile, 1), delta_tile = group.memory(shape.tile, 1);
    const auto k = group.registers(shape.width()), dk = group.registers(shape.width());
    const auto v = group.registers(shape.value_width()), dv = group.registers(shape.value_width());
    const std::int64_t first_head = keys.head * shape.problem.group();
    const std::int64_t key_row = shape.key_row(keys.batch, first_head, keys.first);
    group.threads(keys.count, [&](auto& thread) {
      thread.load(t.k, key_row + thread.id, k[thread.id]);
      thread.load(t.v, key_row + thread.id, v[thread.id]);
    });
    for (std::int64_t head = first_head; head < first_head + shape.problem.group(); ++head) {
      group.tiles(queries_of(shape.mask, keys.first, keys.count), shape.tile, [&](const Span& rows) {
        const std::int64_t row = shape.query_row(keys.batch, head, rows.first);
        group.load(t.q, row, rows.count, q);
        group.load(t.dout, row, rows.count, dout);
        group.load(t.lse, row, rows.count, lse_tile);
        group.load(delta, row, rows.count, delta_tile);
        group.barrier();
        group.threads(keys.count, [&](auto& thread) {
          const std::int64_t me = thread.id;
          thread.repeat(rows.count, [&](std::int64_t i) {
            const Real score = Real(shape.scale) * thread.dot(k[me], q, i);
            const Real weight = thread.exp(score, thread.get(lse_tile, i));
            const Real p = shape.hidden(rows.first + i, keys.first + me) ? Real(0) : weight;
            const Real dp = thread.dot(v[me], dout, i);
            thread.add_scaled(dv[me], p, dout, i);
            thread.add_scaled(dk[me], p * (dp - thread.get(delta_tile, i)), q, i);
          });
        });
        group.barrier();
      });
    }
    group.threads(keys.count, [&](auto& thread) {
      const std::int64_t me = thread.id;
      for (std::int64_t column = 0; column < shape.width(); ++column)
        dk[me][column] = Real(shape.scale) * dk[me][column];
      thread.store(dk[me], t.dk, key_row + me);
      thread.store(dv[me], t.dv, key_row + me);
    });
  });
}

/// dq: a workgroup takes a tile of queries through the key tiles, as the forward does.
template <class Machine>
void query_gradients_kernel(Machine& machine, const Shape& shape, const Tensors<typename Machine::Global>& t,
                            const typename Machine::Global& delta) {
  using Real = typename Machine::Real;
  machine.launch(shape.masked_query_tiles(), shape.threads, [&](auto& group, const QueryTile& rows) {
    const auto k = group.memory(shape.tile, shape.width()), v = group.memory(shape.tile, shape.value_width());
    const auto q = group.registers(shape.width()), dq = group.registers(shape.width());
    const auto dout = group.registers(shape.value_width());
    const auto lse = group.scalars(0), mine = group.scalars(0);
    const std::int64_t first_row = shape.query_row(rows.batch, rows.head, rows.first);
    group.threads(rows.count, [&](auto& thread) {
      const std::int64_t me = thread.id;
      thread.load(t.q, first_row + me, q[me]);
      thread.load(t.dout, first_row + me, dout[me]);
      lse[me] = thread.read(t.lse, first_row + me, 0);
      mine[me] = thread.read(delta, first_row + me, 0);
    });
    const KeyRange seen = shape.mask.range(rows.first, rows.count);
    group.tiles({seen.first, seen.size()}, shape.tile, [&](const Span& keys) {
      group.load(t.k, shape.key_row(rows.batch, rows.head, keys.first), keys.count, k);
      group.load(t.v, shape.key_row(rows.batch, rows.head, keys.first), keys.count, v);
      group.barrier();
      group.threads(rows.count, [&](auto& thread) {
        const std::int64_t me = thread.id;
        thread.repeat(keys.count, [&](std::int64_t j) {
          const Real weight = thread.exp(Real(shape.scale) * thread.dot(q[me], k, j), lse[me]);
          const Real p = shape.hidden(rows.first + me, keys.first + j) ? Real(0) : weight;
          const Real dp = thread.dot(dout[me], v, j);
          thread.add_scaled(dq[me], p * (dp - mine[me]), k, j);
        });
      });
      group.barrier();
    });
    group.threads(rows.count, [&](auto& thread) {
      const std::int64_t me = thread.id;
      for (std::int64_t column = 0; column < shape.width(); ++column)
        dq[me][column] = Real(shape.scale) * dq[me][column];
      thread.store(dq[me], t.dq, first_row + me);
    });
  });
}

/// Three kernels; nothing of the size of the scores.
template <class Machine>
void backward(Machine& machine, const Shape& shape, const Tensors<typename Machine::Global>& t) {
  const Problem& problem = shape.problem;
  const auto delta = machine.scratch(problem.batch * problem.heads_q * problem.queries, 1);
  delta_kernel(machine, shape, t, delta);
  key_gradients_kernel(machine, shape, t, delta);
  query_gradients_kernel(machine, shape, t, delta);
}

}  // namespace fresnel::traffic
