// SPDX-License-Identifier: Apache-2.0
// cpu.amx: tiled attention on the tile unit, bf16. Scores are made transposed, keys in rows and queries in lanes, so
// that the softmax is lane-wise and P^T is already the right operand of the second product:
//
//     S^T [keys][queries] = K Q^T        O^T [Dv][queries] += V^T P^T
//
// The unit and the vector units work at the same time, on three blocks in a row. A step issues the products of the next
// block's scores, then those of the block before with its values, and between them, a few rows at a time, turns the
// scores of the block in the middle into weights:
//
//     tile unit    S(n+1)  . . . . . . .  O += P(n-1) V(n-1)
//     vectors        P(n) from S(n) . . . . . . . . . . . .
//
// Two scores and two weights blocks take turns. Registers: 0 to 3 sums, 4 and 5 A, 6 and 7 B: four products for four
// loads. Work is done in two phases: K and V of some kv heads are packed by all lanes, then their queries are attended.
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
  float* s[2];
  std::uint32_t* p[2];
  std::byte* clean[2];  ///< blocks of V without the numbers that are not finite
  float* factor;        ///< [32] 1 / l
  TileScratch(Carver& carver, const TileShape& shape, std::int64_t groups) {
    for (int turn = 0; turn < 2; ++turn) {
      s[turn] = carver.take<float>(shape.block * tile_queries);
      p[turn] = carver.take<std::uint32_t>(shape.block / 2 * tile_queries);
    }
    for (std::int64_t group = 0; group < groups; ++group) {
      TileQueries& one = queries[group];
      one.q = carver.take<std::uint32_t>(shape.q_bytes() / 4);
      one.o = carver.take<float>(shape.o_floats());
      for (float** array : {&one.base, &one.l}) *array = carver.take<float>(tile_queries);
      for (std::int32_t** array : {&one.first, &one.last}) *array = carver.take<std::int32_t>(tile_queries);
    }
    factor = carver.take<float>(tile_queries);
    for (std::byte*& block : clean) block = carver.take<std::byte>(shape.v_bytes());
  }
};

/// What happens beside the tile products: pairs of keys of the block in the middle, `share` chunks of two after each
/// quartet of products.
struct TileBeside {
  TileWeights* weights;
  std::int64_t next = 0, pairs = 0, share = 0;

  HWY_INLINE void chunk() {
    for (int pair = 0; pair < 2; ++pair)
      for (int half = 0; half < 2; ++half) weigh_pair(*weights, next + pair, half);
    next += 2;
  }
  HWY_INLINE void some() {
    for (std::int64_t turn = 0; turn < share && next < pairs; ++turn) chunk();
  }
  HWY_INLINE void rest() {
    while (next < pairs) chunk();
  }
};

/// Four products: tiles (0, 1) of A against both halves of B.
template <class Tiles>
HWY_INLINE void quartet(Tiles& tiles, const std::byte* a, std::ptrdiff_t a_next, const void* b) {
  const auto* const columns = static_cast<const std::byte*>(b);
  tiles.template load<6>(columns, tile_pitch);
  tiles.template load<4>(a, tile_width);
  tiles.template multiply_add<0, 4, 6>();
  tiles.template load<7>(columns + 64, tile_pitch);
  tiles.template multiply_add<1, 4, 7>();
  tiles.template load<5>(a + a_next, tile_width);
  tiles.template multiply_add<2, 5, 6>();
  tiles.template multiply_add<3, 5, 7>();
}

/// The four sums are 32 rows of `to`.
template <class Tiles>
HWY_INLINE void store_quartet(Tiles& tiles, float* to) {
  tiles.template store<0>(to, tile_pitch);
  tiles.template store<1>(to + 16, tile_pitch);
  tiles.template store<2>(to + 16 * tile_queries, tile_pitch);
  tiles.template store<3>(to + 16 * tile_queries + 16, tile_pitch);
}

/// S^T of a block.
template <class Tiles>
HWY_INLINE void score_block(Tiles& tiles, const TileShape& shape, const TileStage& stage, TileBeside& beside) {
  const std::ptrdiff_t a_next = shape.d_steps * tile_bytes;
  for (std::int64_t pair = 0; pair < shape.key_pairs(); ++pair) {
    tiles.template zero<0>();
    tiles.template zero<1>();
    tiles.template zero<2>();
    tiles.template zero<3>();
    for (std::int64_t step = 0; step < shape.d_steps; ++step) {
      quartet(tiles, stage.k + (pair * 2 * shape.d_steps + step) * tile_bytes, a_next,
              stage.queries->q + step * 16 * tile_queries);
      beside.some();
    }
    store_quartet(tiles, stage.s + pair * 32 * tile_queries);
  }
}

/// O^T += V^T P^T of a block.
template <class Tiles>
HWY_INLINE void value_block(Tiles& tiles, const TileShape& shape, const TileStage& stage, TileBeside& beside) {
  for (std::int64_t pair = 0; pair < shape.value_pairs; ++pair) {
    float* const o = stage.queries->o + pair * 32 * tile_queries;
    tiles.template load<0>(o, tile_pitch);
    tiles.template load<1>(o + 16, tile_pitch);
    tiles.template load<2>(o + 16 * tile_queries, tile_pitch);
    tiles.template load<3>(o + 16 * tile_queries + 16, tile_pitch);
    for (std::int64_t step = 0; step < shape.key_pairs(); ++step) {
      quartet(tiles, stage.v + (pair * shape.key_pairs() + step) * 2 * tile_bytes, tile_bytes,
              stage.p + step * 16 * tile_queries);
      beside.some();
    }
    store_quartet(tiles, o);
  }
}

/// What a work item is, once for all of its steps.
struct TileItem {
  TileRule rule;
  Mask mask;
  std::int64_t first_query = 0, count = 0;
};

/// One step of the pipeline; stages without queries are not there.
template <class Tiles>
void tile_step(Tiles& tiles, const TileShape& shape, const TileItem& item, const TileScratch& scratch,
               const TileStage& next, TileStage& now, const TileStage& before) {
  tiles.fence();
  TileWeights weights;
  TileBeside beside{&weights};
  if (now.queries != nullptr) {
    const std::int64_t group = now.queries - scratch.queries;
    const bool finished = now.edge || !item.rule.plain();
    if (finished) finish_block(item.rule, item.first_query + group * tile_queries, shape.block, now);
    weights = start_weights(now, item.rule.to_log2(!item.rule.plain()));
    beside.pairs = shape.block / 2;
    const std::int64_t quartets = (next.queries != nullptr ? shape.key_pairs() * shape.d_steps : 0) +
                                  (before.queries != nullptr ? shape.value_pairs * shape.key_pairs() : 0);
    beside.share = quartets == 0 ? 0 : tiles_of(beside.pairs / 2, quartets);
  }
  if (next.queries != nullptr) score_block(tiles, shape, next, beside);
  if (before.queries != nullptr) value_block(tiles, shape, before, beside);
  beside.rest();
  tiles.fence();
  if (now.queries == nullptr) return;
  settle(weights, *now.queries, shape.block, shape.value_pairs * 32);
  if (now.careful) {
    std::byte* const clean = scratch.clean[now.p == scratch.p[0] ? 0 : 1];
    add_by_hand(shape, now, now.v, clean);
    now.v = clean;
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
                     scratch.s[turn], scratch.p[turn], first};
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
  const std::int64_t together =
      std::max<std::int64_t>(static_cast<std::int64_t>(launch.plan.shared_bytes) / bytes, 1);
  for (std::int64_t first = 0; first < heads; first += together)
    tile_flash_heads<Tiles>(launch, shape, first, std::min(together, heads - first));
}

}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES
