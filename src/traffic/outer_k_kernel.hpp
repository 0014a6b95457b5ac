// SPDX-License-Identifier: Apache-2.0
// FlashAttention's first loop order, for every workgroup machine: key tiles outermost. Source: Dao, Fu, Ermon, Rudra
// and Re, "FlashAttention", 2022, algorithm 1.
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

}  // namespace fresnel::traffic
