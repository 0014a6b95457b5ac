// SPDX-License-Identifier: Apache-2.0
// The forward passes of the lesson, written once for every workgroup machine. Sources: Dao, Fu, Ermon, Rudra and Re,
// "FlashAttention", 2022 (algorithm 0 unfused, algorithm 1 with key tiles outermost); Dao, "FlashAttention-2", 2023,
// section 3.1 (query tiles outermost, the division by l last). Tiles that a mask cuts are computed whole and hidden
// element by element; tiles that nobody sees are skipped, except by the unfused way, which hides and skips nothing.
#pragma once

#include <limits>

#include "traffic/paged_tile.hpp"

namespace fresnel::traffic {

inline constexpr float no_maximum = -std::numeric_limits<float>::infinity();

/// Threads of the softmax kernel, one workgroup of them for each row; a power of two.
inline constexpr std::int64_t softmax_threads = 256;

/// Every thread's value combined into one that all of them get: a tree in workgroup memory.
template <class Group, class Memory, class Values, class Combine>
void reduce(Group& group, const Memory& tree, const Values& values, Combine&& combine) {
  group.threads(softmax_threads, [&](auto& thread) { thread.put(tree, thread.id, values[thread.id]); });
  group.barrier();
  for (std::int64_t half = softmax_threads / 2; half > 0; half /= 2) {
    group.threads(half, [&](auto& thread) {
      const auto mine = thread.get(tree, thread.id);
      thread.put(tree, thread.id, combine(mine, thread.get(tree, thread.id + half)));
    });
    group.barrier();
  }
  group.threads(softmax_threads, [&](auto& thread) { values[thread.id] = thread.get(tree, 0); });
}

/// S = scale Q K^T, one thread a query, K in tiles.
template <class Machine>
void scores_kernel(Machine& machine, const Shape& shape, const Tensors<typename Machine::Global>& t,
                   const typename Machine::Global& scores) {
  using Real = typename Machine::Real;
  machine.launch(shape.query_tiles(shape.tile), shape.threads, [&](auto& group, const QueryTile& rows) {
    const auto k = group.memory(shape.tile, shape.width());
    const auto q = group.registers(shape.width());
    group.threads(rows.count, [&](auto& thread) {
      thread.load(t.q, shape.query_row(rows.batch, rows.head, rows.first + thread.id), q[thread.id]);
    });
    group.tiles({0, shape.problem.keys}, shape.tile, [&](const Span& keys) {
      group.load(t.k, shape.key_row(rows.batch, rows.head, keys.first), keys.count, k);
      group.barrier();
      group.threads(rows.count, [&](auto& thread) {
        const std::int64_t query = rows.first + thread.id;
        thread.repeat(keys.count, [&](std::int64_t j) {
          const Real s = Real(shape.scale) * thread.dot(q[thread.id], k, j);
          thread.write(scores, shape.query_row(rows.batch, rows.head, query), keys.first + j,
                       shape.hidden(query, keys.first + j) ? Real(no_maximum) : s);
        });
      });
      group.barrier();
    });
  });
}

/// P = softmax(S) in place, one workgroup a row.
template <class Machine>
void softmax_kernel(Machine& machine, const Shape& shape, const Tensors<typename Machine::Global>& t,
                    const typename Machine::Global& scores) {
  using Real = typename Machine::Real;
  const std::int64_t keys = shape.problem.keys;
  machine.launch(shape.query_tiles(1), softmax_threads, [&](auto& group, const QueryTile& rows) {
    const std::int64_t row = shape.query_row(rows.batch, rows.head, rows.first);
    const bool empty = shape.mask.range(rows.first).empty();
    const auto tree = group.memory(softmax_threads, 1);
    const auto kept = group.registers(tiles_of(keys, softmax_threads));
    const auto m = group.scalars(no_maximum), l = group.scalars(0);
    group.elements(keys, [&](auto& thread, std::int64_t j) {
      const Real s = thread.read(scores, row, j);
      kept[thread.id][j / softmax_threads] = s;
      m[thread.id] = larger(m[thread.id], s);
    });
    reduce(group, tree, m, [](Real a, Real b) { return larger(a, b); });
    group.barrier();
    group.elements(keys, [&](auto& thread, std::int64_t j) {
      const Real p = thread.exp(kept[thread.id][j / softmax_threads], m[thread.id]);
      kept[thread.id][j / softmax_threads] = p;
      l[thread.id] = l[thread.id] + p;
    });
    reduce(group, tree, l, [](Real a, Real b) { return a + b; });
    group.elements(keys, [&](auto& thread, std::int64_t j) {
      const Real p = kept[thread.id][j / softmax_threads];
      thread.write(scores, row, j, empty ? Real(0) : p / l[thread.id]);
    });
    if (shape.problem.lse)
      group.threads(1, [&](auto& thread) { thread.write(t.lse, row, 0, m[0] + thread.log(l[0])); });
  });
}

/// O = P V, one thread a query, V in tiles.
template <class Machine>
void values_kernel(Machine& machine, const Shape& shape, const Tensors<typename Machine::Global>& t,
                   const typename Machine::Global& weights) {
  machine.launch(shape.query_tiles(shape.tile), shape.threads, [&](auto& group, const QueryTile& rows) {
    const auto v = group.memory(shape.tile, shape.value_width());
    const auto o = group.registers(shape.value_width());
    group.tiles({0, shape.problem.keys}, shape.tile, [&](const Span& keys) {
      group.load(t.v, shape.key_row(rows.batch, rows.head, keys.first), keys.count, v);
      group.barrier();
      group.threads(rows.count, [&](auto& thread) {
        const std::int64_t row = shape.query_row(rows.batch, rows.head, rows.first + thread.id);
        thread.repeat(keys.count, [&](std::int64_t j) {
          const auto p = thread.read(weights, row, keys.first + j);
          thread.add_scaled(o[thread.id], p, v, j);
        });
      });
      group.barrier();
    });
    group.threads(rows.count, [&](auto& thread) {
      thread.store(o[thread.id], t.o, shape.query_row(rows.batch, rows.head, rows.first + thread.id));
    });
  });
}

/// Three kernels, and a matrix of scores between them.
template <class Machine>
void unfused(Machine& machine, const Shape& shape, const Tensors<typename Machine::Global>& t) {
  const Problem& problem = shape.problem;
  const auto scores = machine.scratch(problem.batch * problem.heads_q * problem.queries, problem.keys);
  scores_kernel(machine, shape, t, scores);
  softmax_kernel(machine, shape, t, scores);
  values_kernel(machine, shape, t, scores);
}

/// One kernel. A workgroup takes a tile of queries through all key tiles that they see, one thread a query, with the
/// softmax's state in registers. `rescales_l` is what the control `broken` forgets.
template <class Machine>
void fused(Machine& machine, const Shape& shape, const Tensors<typename Machine::Global>& t, bool rescales_l = true) {
  using Real = typename Machine::Real;
  machine.launch(shape.masked_query_tiles(), shape.threads, [&](auto& group, const QueryTile& rows) {
    const auto k = group.memory(shape.tile, shape.width());
    const auto v = group.memory(shape.tile, shape.value_width());
    const auto q = group.registers(shape.width()), o = group.registers(shape.value_width());
    const auto s = group.registers(shape.tile);
    const auto entries = entries_memory(group, shape);
    const auto m = group.scalars(no_maximum), l = group.scalars(0), block = group.scalars(0);
    group.threads(rows.count, [&](auto& thread) {
      thread.load(t.q, shape.query_row(rows.batch, rows.head, rows.first + thread.id), q[thread.id]);
    });
    const KeyRange seen = shape.mask.range(rows.first, rows.count);
    const auto pass = [&](const Span& keys) {
      if (shape.paged()) {
        load_pages(group, shape, t, rows, keys, entries, block, k, v);
      } else {
        group.load(t.k, shape.key_row(rows.batch, rows.head, keys.first), keys.count, k);
        group.load(t.v, shape.key_row(rows.batch, rows.head, keys.first), keys.count, v);
      }
      group.barrier();
      group.threads(rows.count, [&](auto& thread) {
        const std::int64_t me = thread.id, query = rows.first + me;
        Real raised = m[me];
        thread.repeat(keys.count, [&](std::int64_t j) {
          const Real score = Real(shape.scale) * thread.dot(q[me], k, j);
          s[me][j] = shape.hidden(query, keys.first + j) ? Real(no_maximum) : score;
          raised = larger(raised, s[me][j]);
        });
        const Real rescale = thread.exp(m[me], raised);
        if (rescales_l) l[me] = l[me] * rescale;
        for (std::int64_t column = 0; column < shape.value_width(); ++column) o[me][column] = o[me][column] * rescale;
        thread.repeat(keys.count, [&](std::int64_t j) {
          const Real p = thread.exp(s[me][j], raised);
          l[me] = l[me] + p;
          thread.add_scaled(o[me], p, v, j);
        });
        m[me] = raised;
      });
      if (!shape.paged()) group.barrier();  // with pages, the next tile's entries bring one before its rows
    };
    group.tiles({seen.first, seen.size()}, shape.tile, pass, shape.pages_align());
    group.threads(rows.count, [&](auto& thread) {
      const std::int64_t me = thread.id, query = rows.first + me, row = shape.query_row(rows.batch, rows.head, query);
      const bool empty = shape.mask.range(query).empty();
      for (std::int64_t column = 0; column < shape.value_width(); ++column)
        o[me][column] = empty ? Real(0) : o[me][column] / l[me];
      thread.store(o[me], t.o, row);
      if (shape.problem.lse) thread.write(t.lse, row, 0, m[me] + thread.log(l[me]));
    });
  });
}

}  // namespace fresnel::traffic
