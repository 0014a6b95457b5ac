// SPDX-License-Identifier: Apache-2.0
// FlashAttention's first loop order and a fused backward, for every workgroup machine. Sources: Dao, Fu, Ermon, Rudra
// and Re, "FlashAttention", 2022, algorithms 1 and 4 (appendix B.4). The backward keeps algorithm 4's recomputation of
// P and its rows of D = dO . O, but sums dq in a kernel of its own instead of adding to it in global memory: two more
// products, no atomic additions, and the same bits in every run.
#pragma once

#include "traffic/forward_kernels.hpp"

namespace fresnel::traffic {

/// Algorithm 1: one workgroup a head. Each K and V tile is loaded once, and for each the tiles of queries come by: o,
/// l and m are read from global memory and written back, o normalised.
template <class Machine>
void outer_k(Machine& machine, const Shape& shape, const Tensors<typename Machine::Global>& t) {
  using Real = typename Machine::Real;
  const Problem& problem = shape.problem;
  const std::int64_t all = problem.batch * problem.heads_q * problem.queries;
  const auto sums = machine.scratch(all, 1), maxima = machine.scratch(all, 1);
  machine.launch({problem.batch, problem.heads_q, 1, 1, true}, shape.threads, [&](auto& group, const QueryTile& at) {
    const auto k = group.memory(shape.tile, shape.width());
    const auto v = group.memory(shape.tile, shape.value_width());
    const auto q = group.registers(shape.width()), s = group.registers(shape.tile);
    const auto o = group.registers(shape.value_width()), o_tile = group.registers(shape.value_width());
    const auto row_of = [&](const Span& rows, const auto& thread) {
      return shape.query_row(at.batch, at.head, rows.first + thread.id);
    };
    const Span queries{0, problem.queries};
    group.tiles(queries, shape.tile, [&](const Span& rows) {
      group.threads(rows.count, [&](auto& thread) {
        const std::int64_t row = row_of(rows, thread);
        thread.store(o[thread.id], t.o, row);
        thread.write(sums, row, 0, Real(0));
        thread.write(maxima, row, 0, Real(no_maximum));
      });
    });
    const auto update = [&](auto& thread, const Span& rows, const Span& keys) {
      const std::int64_t me = thread.id, query = rows.first + me, row = row_of(rows, thread);
      const KeyRange seen = shape.mask.range(query);
      const bool nothing_yet = seen.empty() || seen.first >= keys.first + keys.count;
      thread.load(t.q, row, q[me]);
      thread.load(t.o, row, o[me]);
      const Real m = thread.read(maxima, row, 0), l = thread.read(sums, row, 0);
      Real m_tile = Real(no_maximum), l_tile = Real(0);
      thread.repeat(keys.count, [&](std::int64_t j) {
        const Real score = Real(shape.scale) * thread.dot(q[me], k, j);
        s[me][j] = shape.hidden(query, keys.first + j) ? Real(no_maximum) : score;
        m_tile = larger(m_tile, s[me][j]);
      });
      for (std::int64_t column = 0; column < shape.value_width(); ++column) o_tile[me][column] = Real(0);
      thread.repeat(keys.count, [&](std::int64_t j) {
        const Real p = thread.exp(s[me][j], m_tile);
        l_tile = l_tile + p;
        thread.add_scaled(o_tile[me], p, v, j);
      });
      const Real raised = larger(m, m_tile);
      const Real mine = thread.exp(m, raised), theirs = thread.exp(m_tile, raised);
      const Real total = l * mine + l_tile * theirs;
      thread.repeat(shape.value_width(), [&](std::int64_t column) {
        const Real sum = thread.fma(l * mine, o[me][column], theirs * o_tile[me][column]);
        o[me][column] = nothing_yet ? Real(0) : sum / total;
      });
      thread.store(o[me], t.o, row);
      thread.write(sums, row, 0, total);
      thread.write(maxima, row, 0, raised);
    };
    group.tiles(
        {0, problem.keys}, shape.tile,
        [&](const Span& keys) {
          group.load(t.k, shape.key_row(at.batch, at.head, keys.first), keys.count, k);
          group.load(t.v, shape.key_row(at.batch, at.head, keys.first), keys.count, v);
          group.barrier();
          group.tiles(queries_of(shape.mask, keys.first, keys.count), shape.tile, [&](const Span& rows) {
            group.threads(rows.count, [&](auto& thread) { update(thread, rows, keys); });
          });
          group.barrier();
        },
        !shape.masked);
    if (!problem.lse) return;
    group.tiles(queries, shape.tile, [&](const Span& rows) {
      group.threads(rows.count, [&](auto& thread) {
        const std::int64_t row = row_of(rows, thread);
        const Real m = thread.read(maxima, row, 0);
        thread.write(t.lse, row, 0, m + thread.log(thread.read(sums, row, 0)));
      });
    });
  });
}

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
