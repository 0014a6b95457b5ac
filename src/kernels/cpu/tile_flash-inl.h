// SPDX-License-Identifier: Apache-2.0
// cpu.amx: tiled attention on the tile unit, bf16. Scores are made transposed, keys in rows and queries in lanes, so
// that the softmax is lane-wise and P^T is already the right operand of the second product:
//
//     S^T [keys][queries] = K Q^T        O^T [Dv][queries] += V^T P^T
//
// The unit and the vector units work at the same time, on three blocks in a row. A step issues the products of the
// block before with its values, then those of the next block's scores, and between them, a few rows at a time, turns
// the scores of the block in the middle into weights:
//
//     tile unit    O += P(n-1) V(n-1)  . . .  S(n+1) = K(n+1) Q
//     vectors        P(n) from S(n)  . . . . . . . . . . . .
//
// There is one block of scores and one of weights, for the first-level cache's sake: P(n-1) is in registers before the
// first row of P(n) is written, and a row of S(n+1) is not stored before that row of S(n) is read. Where bases turn out
// to be stale after that, S(n) is made again. Registers: 0 and 1 sums, 2 and 3 A, 4 to 7 B, which stays for a whole
// strip: Q is loaded once per block of keys, P once. Work is done in two phases: K and V of some kv heads are packed by
// all lanes, then their queries are attended.
// Source: Dao et al., "FlashAttention", 2022, algorithm 1, keys innermost.
#pragma once

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/tile_softmax-inl.h"
#include "runtime/parallel.hpp"
#include "walk/walk.hpp"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl")
namespace fresnel::cpu {

/// Distance between rows of S, P and O in memory: 32 lanes of 4 bytes.
inline constexpr std::ptrdiff_t tile_pitch = tile_queries * 4;

/// The packed K and V of one kv head, and per block whether every value is finite.
struct PackedHead {
  std::byte* k;
  std::byte* v;
  bool* finite;
  PackedHead(Carver& carver, const Problem& problem, const TileShape& shape)
      : k(carver.take<std::byte>(tiles_of(problem.keys, shape.block) * shape.k_bytes())),
        v(carver.take<std::byte>(tiles_of(problem.keys, shape.block) * shape.v_bytes())),
        finite(carver.take<bool>(tiles_of(problem.keys, shape.block))) {}
};

/// One lane's scratch: the queries of a work item, and what a pipeline of three blocks needs.
struct TileScratch {
  static constexpr std::int64_t most_groups = 8;
  TileQueries queries[most_groups];
  float* s;             ///< [block][32]
  std::uint32_t* p;     ///< [block / 2][32] pairs of bf16
  float* s_again;       ///< scores made a second time
  std::byte* clean[2];  ///< blocks of V without the numbers that are not finite
  float* factor;        ///< [32] 1 / l
  TileScratch(Carver& carver, const TileShape& shape, std::int64_t groups) {
    s = carver.take<float>(shape.block * tile_queries);
    p = carver.take<std::uint32_t>(shape.block / 2 * tile_queries);
    for (std::int64_t group = 0; group < groups; ++group) {
      TileQueries& one = queries[group];
      one.q = carver.take<std::uint32_t>(shape.q_bytes() / 4);
      one.o = carver.take<float>(shape.o_floats());
      for (float** array : {&one.base, &one.l}) *array = carver.take<float>(tile_queries);
      for (std::int32_t** array : {&one.first, &one.last}) *array = carver.take<std::int32_t>(tile_queries);
    }
    factor = carver.take<float>(tile_queries);
    s_again = carver.take<float>(shape.block * tile_queries);
    for (std::byte*& block : clean) block = carver.take<std::byte>(shape.v_bytes());
  }
};

/// What happens beside the tile products: pairs of keys of the block in the middle, `share` chunks of two at each stop.
struct TileBeside {
  TileWeights* weights;
  std::int64_t next = 0, pairs = 0, share = 0;
  bool overwrites = false;  ///< the products are stored where the weights are made from

  HWY_INLINE void chunk() {
    for (int pair = 0; pair < 2; ++pair)
      for (int half = 0; half < 2; ++half) weigh_pair(*weights, next + pair, half);
    next += 2;
  }
  HWY_INLINE void some() {
    for (std::int64_t turn = 0; turn < share && next < pairs; ++turn) chunk();
  }
  /// Everything up to and with row `row` of score tiles.
  HWY_INLINE void reach(std::int64_t row) {
    if (!overwrites) return;
    while (next < pairs && next < (row + 1) * (tile_lines / 2)) chunk();
  }
  HWY_INLINE void rest() {
    while (next < pairs) chunk();
  }
};

/// The right operand of a strip of products, tiles (step, half): P or Q.
[[nodiscard]] HWY_INLINE const std::uint32_t* right_tile(const std::uint32_t* b, std::int64_t step, int half) {
  return b + step * 16 * tile_queries + half * 16;
}

/// A sum begins at zero or goes on with what lies in memory.
template <int tile, bool fresh, class Tiles>
HWY_INLINE void start_sum(Tiles& tiles, const float* from) {
  if constexpr (fresh) {
    tiles.template zero<tile>();
  } else {
    tiles.template load<tile>(from, tile_pitch);
  }
}

/// Sums of one row of tiles against up to two steps of both halves, which stay in registers 4 to 7.
template <int steps, bool fresh, class Tiles>
HWY_INLINE void wide_row(Tiles& tiles, const std::byte* a, const float* c) {
  tiles.template load<2>(a, tile_width);
  if constexpr (steps == 2) tiles.template load<3>(a + tile_bytes, tile_width);
  start_sum<0, fresh>(tiles, c);
  start_sum<1, fresh>(tiles, c + 16);
  tiles.template multiply_add<0, 2, 4>();
  tiles.template multiply_add<1, 2, 5>();
  if constexpr (steps == 2) tiles.template multiply_add<0, 3, 6>();
  if constexpr (steps == 2) tiles.template multiply_add<1, 3, 7>();
}

/// The sum of one row of tiles against three or four steps of one half, which stay in registers 4 to 7.
template <int steps, bool fresh, int sum, class Tiles>
HWY_INLINE void deep_row(Tiles& tiles, const std::byte* a, const float* c) {
  start_sum<sum, fresh>(tiles, c);
  tiles.template load<2>(a, tile_width);
  tiles.template multiply_add<sum, 2, 4>();
  tiles.template load<3>(a + tile_bytes, tile_width);
  tiles.template multiply_add<sum, 3, 5>();
  tiles.template load<2>(a + 2 * tile_bytes, tile_width);
  tiles.template multiply_add<sum, 2, 6>();
  if constexpr (steps == 4) {
    tiles.template load<3>(a + 3 * tile_bytes, tile_width);
    tiles.template multiply_add<sum, 3, 7>();
  }
}

/// C[rows][32] (+)= A[rows][steps] B[steps][32] for up to four steps. Two sums at a time; vectors work between their
/// last product and their being stored, so that neither waits for the other, however little the processor looks ahead
/// (half as much where two threads share a core). `rows` is even; rows of A are `a_row` bytes apart.
template <int steps, bool fresh, class Tiles>
HWY_INLINE void multiply_steps(Tiles& tiles, const std::byte* a, std::ptrdiff_t a_row, const std::uint32_t* b,
                               std::int64_t rows, float* c, TileBeside& beside) {
  constexpr std::int64_t c_row = 16 * tile_queries;
  if constexpr (steps <= 2) {
    tiles.template load<4>(right_tile(b, 0, 0), tile_pitch);
    tiles.template load<5>(right_tile(b, 0, 1), tile_pitch);
    if constexpr (steps == 2) {
      tiles.template load<6>(right_tile(b, 1, 0), tile_pitch);
      tiles.template load<7>(right_tile(b, 1, 1), tile_pitch);
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      float* const to = c + row * c_row;
      wide_row<steps, fresh>(tiles, a + row * a_row, to);
      beside.some();
      beside.reach(row);
      tiles.template store<0>(to, tile_pitch);
      tiles.template store<1>(to + 16, tile_pitch);
    }
  } else {
    for (int half = 0; half < 2; ++half) {
      tiles.template load<4>(right_tile(b, 0, half), tile_pitch);
      tiles.template load<5>(right_tile(b, 1, half), tile_pitch);
      tiles.template load<6>(right_tile(b, 2, half), tile_pitch);
      if constexpr (steps == 4) tiles.template load<7>(right_tile(b, 3, half), tile_pitch);
      for (std::int64_t row = 0; row < rows; row += 2) {
        float* const to = c + row * c_row + half * 16;
        deep_row<steps, fresh, 0>(tiles, a + row * a_row, to);
        deep_row<steps, fresh, 1>(tiles, a + (row + 1) * a_row, to + c_row);
        beside.some();
        beside.reach(row + 1);
        tiles.template store<0>(to, tile_pitch);
        tiles.template store<1>(to + c_row, tile_pitch);
      }
    }
  }
}

/// Steps of one strip: as many as registers hold.
inline constexpr std::int64_t most_steps = 4;

/// How often `multiply` stops to let vectors work.
[[nodiscard]] constexpr std::int64_t stops_of(std::int64_t steps, std::int64_t rows) {
  return (steps + most_steps - 1) / most_steps * rows;
}

template <bool fresh, class Tiles>
HWY_INLINE void multiply_few(Tiles& tiles, const std::byte* a, std::ptrdiff_t a_row, const std::uint32_t* b,
                             std::int64_t steps, std::int64_t rows, float* c, TileBeside& beside) {
  switch (steps) {
    case 1: return multiply_steps<1, fresh>(tiles, a, a_row, b, rows, c, beside);
    case 2: return multiply_steps<2, fresh>(tiles, a, a_row, b, rows, c, beside);
    case 3: return multiply_steps<3, fresh>(tiles, a, a_row, b, rows, c, beside);
    default: return multiply_steps<4, fresh>(tiles, a, a_row, b, rows, c, beside);
  }
}

/// C (+)= A B, `steps` of them, in strips; vectors work in between.
template <bool fresh, class Tiles>
HWY_INLINE void multiply(Tiles& tiles, const std::byte* a, const std::uint32_t* b, std::int64_t steps,
                         std::int64_t rows, float* c, TileBeside& beside) {
  const std::ptrdiff_t a_row = steps * tile_bytes;
  multiply_few<fresh>(tiles, a, a_row, b, std::min(steps, most_steps), rows, c, beside);
  for (std::int64_t step = most_steps; step < steps; step += most_steps)
    multiply_few<false>(tiles, a + step * tile_bytes, a_row, right_tile(b, step, 0), std::min(steps - step, most_steps),
                        rows, c, beside);
}

/// What a work item is, once for all of its steps.
struct TileItem {
  TileRule rule;
  Mask mask;
  std::int64_t first_query = 0, count = 0;

  /// The block's scores where a plain scale is not all there is to them.
  void finish(const TileShape& shape, const TileStage& stage, const TileScratch& scratch, float* scores) const {
    const std::int64_t group = stage.queries - scratch.queries;
    if (stage.edge || !rule.plain()) finish_block(rule, first_query + group * tile_queries, shape.block, stage, scores);
  }
};

/// The scores of a block made a second time, for lanes whose base turned out to be stale, and weighed again.
template <class Tiles>
void settle_again(Tiles& tiles, const TileShape& shape, const TileItem& item, const TileScratch& scratch,
                  const TileStage& now, TileWeights& weights) {
  TileBeside alone{nullptr};
  multiply<true>(tiles, now.k, now.queries->q, shape.d_steps, shape.key_tiles(), scratch.s_again, alone);
  tiles.fence();
  item.finish(shape, now, scratch, scratch.s_again);
  weights.s = scratch.s_again;
  for (int half = 0; half < 2; ++half) {
    __m512 sum = sum_of_weights(weights, half);
    if (const __mmask16 again = unsettled(*now.queries, sum, half); again != 0)
      sum = weigh_again(weights, *now.queries, shape.block, shape.value_tiles() * tile_lines, half, again);
    add_sums(*now.queries, sum, half);
  }
}

/// One step of the pipeline; stages without queries are not there.
template <class Tiles>
void tile_step(Tiles& tiles, const TileShape& shape, const TileItem& item, const TileScratch& scratch,
               const TileStage& next, TileStage& now, const TileStage& before) {
  tiles.fence();
  TileWeights weights;
  TileBeside beside{&weights};
  if (now.queries != nullptr) {
    item.finish(shape, now, scratch, scratch.s);
    weights = start_weights(now, scratch.s, scratch.p, item.rule.to_log2(!item.rule.plain()));
    beside.pairs = shape.block / 2;
    const std::int64_t stops = (next.queries != nullptr ? stops_of(shape.d_steps, shape.key_tiles()) : 0) +
                               (before.queries != nullptr ? stops_of(shape.key_steps(), shape.value_tiles()) : 0);
    beside.share = stops == 0 ? 0 : tiles_of(beside.pairs / 2, stops);
  }
  if (before.queries != nullptr)
    multiply<false>(tiles, before.v, scratch.p, shape.key_steps(), shape.value_tiles(), before.queries->o, beside);
  beside.overwrites = true;
  if (next.queries != nullptr)
    multiply<true>(tiles, next.k, next.queries->q, shape.d_steps, shape.key_tiles(), scratch.s, beside);
  beside.rest();
  tiles.fence();
  if (now.queries == nullptr) return;
  const __m512 sums[2] = {sum_of_weights(weights, 0), sum_of_weights(weights, 1)};
  if ((unsettled(*now.queries, sums[0], 0) | unsettled(*now.queries, sums[1], 1)) != 0) {
    TileWeights again = weights;  // a copy, so that what the products leave to the vectors can live in registers
    settle_again(tiles, shape, item, scratch, now, again);
  } else {
    for (int half = 0; half < 2; ++half) add_sums(*now.queries, sums[half], half);
  }
  if (now.careful) {
    add_by_hand(shape, now, scratch.p);
    now.v = now.clean;
  }
}

/// Queries of `group` enter: Q packed, an empty state, and each lane's visible keys.
inline void start_queries(const TileShape& shape, const TileItem& item, Rows<const BFloat16> q, std::int64_t head_dim,
                          std::int64_t group, TileQueries& to) {
  const std::int64_t first = item.first_query + group * tile_queries;
  const std::int64_t count = std::min(tile_queries, item.count - group * tile_queries);
  pack_queries(shape, q, first, count, head_dim, to.q);
  std::fill_n(to.o, shape.o_floats(), 0.0f);
  std::fill_n(to.base, tile_queries, 0.0f);
  std::fill_n(to.l, tile_queries, 0.0f);
  to.anchored = 0;
  for (std::int64_t lane = 0; lane < tile_queries; ++lane) {
    const KeyRange seen = item.mask.range(first + std::min(lane, count - 1));
    to.first[lane] = static_cast<std::int32_t>(seen.empty() ? 0 : seen.first);
    to.last[lane] = static_cast<std::int32_t>(seen.empty() ? 0 : seen.last);
  }
}

/// Queries leave: o = O / l, lse = (base + log2 l) ln 2.
inline void finish_queries(const Launch& launch, const TileItem& item, std::int64_t batch, std::int64_t head,
                           std::int64_t group, const TileQueries& from, float* factor) {
  const std::int64_t first = item.first_query + group * tile_queries;
  const std::int64_t count = std::min(tile_queries, item.count - group * tile_queries);
  const auto out = rows_of<BFloat16>(launch.outputs.o, batch, head);
  for (std::int64_t lane = 0; lane < tile_queries; ++lane)
    factor[lane] = from.first[lane] < from.last[lane] ? 1 / from.l[lane] : 0;
  store_queries(from.o, factor, out, first, count, launch.plan.problem.value_dim);
  for (std::int64_t lane = 0; lane < count; ++lane) {
    float lse = -std::numeric_limits<float>::infinity();
    if (from.first[lane] < from.last[lane]) {
      const double base = static_cast<double>(from.base[lane]) * std::numbers::ln2;
      lse = static_cast<float>(base + std::log(static_cast<double>(from.l[lane])));
    } else {  // whatever the lane gathered from its neighbours' blocks was multiplied by nothing
      std::fill_n(out.row(first + lane), launch.plan.problem.value_dim, BFloat16{0});
    }
    store_lse<float>(launch.outputs, batch, head, first + lane, lse);
  }
}

/// All blocks of keys for the queries of one item, through the pipeline.
template <class Tiles>
void attend_item(const Launch& launch, const TileShape& shape, const PackedHead& packed, const QueryTile& tile,
                 TileScratch& scratch) {
  const Problem& problem = launch.plan.problem;
  Tiles tiles;
  TileItem item;
  item.mask = mask_of(problem, live_keys(problem, launch.inputs, tile.batch));
  item.rule = {score_rule<float>(problem, launch.inputs, tile.batch, tile.head), item.mask.offset};
  item.first_query = tile.first;
  item.count = tile.count;
  const auto q = rows_of<BFloat16>(launch.inputs.q, tile.batch, tile.head);
  const std::int64_t groups = tiles_of(tile.count, tile_queries);
  for (std::int64_t group = 0; group < groups; ++group)
    start_queries(shape, item, q, problem.head_dim, group, scratch.queries[group]);

  TileStage before, now;
  int turn = 0;
  const auto advance = [&](const TileStage& next) {
    tile_step(tiles, shape, item, scratch, next, now, before);
    before = now;
    now = next;
    turn ^= 1;
  };
  for_each_key_span(item.mask, shape.block, tile, [&](const KeyRange& span) {
    const std::int64_t block = span.first / shape.block, first = block * shape.block;
    const std::int64_t there = std::min(shape.block, item.mask.keys - first);
    for (std::int64_t group = 0; group < groups; ++group) {
      const std::int64_t at = tile.first + group * tile_queries;
      const TileClass kind =
          classify(item.mask, at, std::min(tile_queries, tile.first + tile.count - at), first, there);
      if (kind == TileClass::skip) continue;
      TileStage next{&scratch.queries[group], packed.k + block * shape.k_bytes(), packed.v + block * shape.v_bytes(),
                     scratch.clean[turn], first};
      next.edge = kind == TileClass::edge || there < shape.block;
      next.careful = next.edge && !packed.finite[block];
      advance(next);
    }
  });
  advance({});
  advance({});
  tiles.fence();
  for (std::int64_t group = 0; group < groups; ++group)
    finish_queries(launch, item, tile.batch, tile.head, group, scratch.queries[group], scratch.factor);
}

/// Some blocks of one kv head.
inline void pack_blocks(const Launch& launch, const TileShape& shape, std::int64_t batch, std::int64_t kv_head,
                        KeyRange blocks, const PackedHead& to) {
  const Problem& problem = launch.plan.problem;
  const std::int64_t live = live_keys(problem, launch.inputs, batch);
  const auto k = rows_of<BFloat16>(launch.inputs.k, batch, kv_head);
  const auto v = rows_of<BFloat16>(launch.inputs.v, batch, kv_head);
  for (std::int64_t block = blocks.first; block < blocks.last; ++block) {
    const std::int64_t first = block * shape.block, there = std::clamp<std::int64_t>(live - first, 0, shape.block);
    pack_keys(shape, k, first, there, problem.head_dim, to.k + block * shape.k_bytes());
    to.finite[block] = pack_values(shape, v, first, there, problem.value_dim, to.v + block * shape.v_bytes());
  }
}

[[nodiscard]] inline std::int64_t packed_head_bytes(const Problem& problem, const TileShape& shape) {
  Carver carver(nullptr);
  PackedHead(carver, problem, shape);
  return static_cast<std::int64_t>(carver.used());
}

/// Packs and attends kv heads [first, first + count).
template <class Tiles>
void tile_flash_heads(const Launch& launch, const TileShape& shape, std::int64_t first, std::int64_t count) {
  const Plan& plan = launch.plan;
  const Problem& problem = plan.problem;
  std::byte* const shared = launch.workspace.data();
  const std::int64_t head_bytes = packed_head_bytes(problem, shape), blocks = tiles_of(problem.keys, shape.block);
  const auto packed = [&](std::int64_t index) {
    Carver carver(shared + index * head_bytes);
    return PackedHead(carver, problem, shape);
  };
  constexpr std::int64_t portion = 16;  // blocks packed at a time
  const std::int64_t portions = tiles_of(blocks, portion);
  parallel_for(launch.executor, plan.lanes, count * portions, [&](int, std::int64_t index) {
    const std::int64_t head = first + index / portions, from = index % portions * portion;
    pack_blocks(launch, shape, head / problem.heads_kv, head % problem.heads_kv,
                {from, std::min(from + portion, blocks)}, packed(index / portions));
  });

  const std::int64_t tiles = tiles_of(problem.queries, plan.tile.queries), group = problem.group();
  parallel_for(launch.executor, plan.lanes, count * group * tiles, [&](int lane, std::int64_t index) {
    // The longest rows of a causal problem are the last ones: they go first.
    const std::int64_t tile = tiles - 1 - index / (count * group), head = index % (count * group);
    const std::int64_t kv = first + head / group, at = tile * plan.tile.queries;
    Carver carver(shared + plan.shared_bytes + static_cast<std::size_t>(lane) * plan.lane_bytes);
    TileScratch scratch(carver, shape, plan.tile.queries / tile_queries);
    attend_item<Tiles>(launch, shape, packed(head / group),
                       {kv / problem.heads_kv, kv % problem.heads_kv * group + head % group, at,
                        std::min(plan.tile.queries, problem.queries - at)},
                       scratch);
  });
}

template <class Tiles>
void tile_flash(const Launch& launch) {
  const Problem& problem = launch.plan.problem;
  const TileShape shape(problem, launch.plan.tile.keys);
  const std::int64_t heads = problem.batch * problem.heads_kv;
  const std::int64_t bytes = std::max<std::int64_t>(packed_head_bytes(problem, shape), 64);
  const std::int64_t together = std::max<std::int64_t>(static_cast<std::int64_t>(launch.plan.shared_bytes) / bytes, 1);
  for (std::int64_t first = 0; first < heads; first += together)
    tile_flash_heads<Tiles>(launch, shape, first, std::min(together, heads - first));
}

}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES
