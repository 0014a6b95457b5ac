// SPDX-License-Identifier: Apache-2.0
// cpu.amx: tiled attention on the tile unit, bf16 and, split in two parts, f16. Scores are made transposed, keys in
// rows and queries in lanes, so that the softmax is lane-wise and P^T is already the right operand of the second
// product:
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
// There is one block of scores, for the first-level cache's sake: a row of S(n+1) is not stored before that row of S(n)
// is read. Where bases turn out to be stale after that, S(n) is made again. Work is done in two phases: K and V of some
// kv heads are packed by all lanes, then their queries are attended.
// Source: Dao et al., "FlashAttention", 2022, algorithm 1, keys innermost.
#pragma once

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/tile_products-inl.h"
#include "runtime/parallel.hpp"
#include "walk/walk.hpp"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace fresnel::cpu {

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
  std::uint32_t* p[2];  ///< [block / 2][32] pairs of bf16, of the block in the middle and of the one before, in turn;
                        ///< one and the same where P(n-1) is in registers before P(n) is written
  float* s_again;       ///< scores made a second time
  std::byte* clean[2];  ///< blocks of V without the numbers that are not finite
  float* factor;        ///< [32] 1 / l
  TileScratch(Carver& carver, const TileShape& shape, std::int64_t groups) {
    s = carver.take<float>(shape.block * tile_queries);
    p[0] = p[1] = carver.take<std::uint32_t>(shape.parts * shape.p_part());
    if (!shape.is(wide_shape)) p[1] = carver.take<std::uint32_t>(shape.parts * shape.p_part());
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
template <int parts, class Tiles>
void settle_again(Tiles& tiles, const TileShape& shape, const TileItem& item, const TileScratch& scratch,
                  const TileStage& now, std::uint32_t fresh, TileWeights& weights) {
  NothingBeside nothing;
  multiply<parts, true>(tiles, now.k, now.queries->q, shape.q_part(), shape.d_steps, shape.key_tiles(), scratch.s_again,
                        nothing);
  tiles.fence();
  item.finish(shape, now, scratch, scratch.s_again);
  weights.s = scratch.s_again;
  for (int half = 0; half < 2; ++half) {
    __m512 sum = weights.sum[half];
    if (const __mmask16 again = unsettled(sum, fresh, half); again != 0)
      sum = weigh_again<parts>(weights, *now.queries, shape.block, shape.value_tiles() * tile_lines, half, again);
    add_sums(*now.queries, sum, half);
  }
}

/// The products of a step where all three stages are there, and the weights between them.
template <int parts, class Tiles>
HWY_INLINE void full_step(Tiles& tiles, const TileShape& shape, const TileStage& next, const TileStage& before,
                          const std::uint32_t* p_before, float* s, TileWeights& weights) {
  const auto paired = [&](const TileShape& constant) HWY_ATTR {
    paired_step<parts>(tiles, constant, next.k, next.queries->q, before.v, p_before, before.queries->o, s, weights);
  };
  if constexpr (parts == 2) {
    if (shape.is(split_shape)) return paired(split_shape);
    if (shape.is(deep_split_shape)) return paired(deep_split_shape);
  } else {
    if (shape.is(wide_shape))
      return wide_step(tiles, next.k, next.queries->q, before.v, p_before, before.queries->o, s, weights);
    if (shape.is(deep_shape)) return paired(deep_shape);
  }
  paired(shape);
}

/// One step of the pipeline; stages without queries are not there. `turn` says which block of weights is the middle's.
template <int parts, class Tiles>
void tile_step(Tiles& tiles, const TileShape& shape, const TileItem& item, const TileScratch& scratch, int turn,
               const TileStage& next, TileStage& now, const TileStage& before) {
  tiles.fence();
  const std::uint32_t* const p_before = scratch.p[turn ^ 1];
  TileWeights weights;
  std::uint32_t fresh = 0;
  if (now.queries != nullptr) {
    item.finish(shape, now, scratch, scratch.s);
    weights = start_weights(shape, now, scratch.s, scratch.p[turn], item.rule.to_log2(!item.rule.plain()));
    if (now.queries->anchored != all_lanes) fresh = anchor(weights, *now.queries, shape.block);
  }
  if (now.queries != nullptr && next.queries != nullptr && before.queries != nullptr) {
    full_step<parts>(tiles, shape, next, before, p_before, scratch.s, weights);
  } else {  // the pipeline fills or drains
    NothingBeside nothing;
    if (before.queries != nullptr)
      multiply<parts, false>(tiles, before.v, p_before, shape.p_part(), shape.key_steps(), shape.value_tiles(),
                             before.queries->o, nothing);
    tiles.fence();
    if (now.queries != nullptr) weigh_block<parts>(weights, shape.block);
    tiles.fence();
    if (next.queries != nullptr)
      multiply<parts, true>(tiles, next.k, next.queries->q, shape.q_part(), shape.d_steps, shape.key_tiles(), scratch.s,
                            nothing);
  }
  tiles.fence();
  if (now.queries == nullptr) return;
  if ((unsettled(weights.sum[0], fresh, 0) | unsettled(weights.sum[1], fresh, 1)) != 0) {
    TileWeights again = weights;  // a copy, so that what the products leave to the vectors can live in registers
    settle_again<parts>(tiles, shape, item, scratch, now, fresh, again);
  } else {
    for (int half = 0; half < 2; ++half) add_sums(*now.queries, weights.sum[half], half);
  }
  if (now.careful) {
    add_by_hand(shape, now, scratch.p[turn]);
    now.v = now.clean;
  }
}

/// Queries of `group` enter: Q packed, an empty state, and each lane's visible keys.
template <class Element>
void start_queries(const TileShape& shape, const TileItem& item, Rows<const Element> q, std::int64_t head_dim,
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
template <class Element>
void finish_queries(const Launch& launch, const TileItem& item, std::int64_t batch, std::int64_t head,
                    std::int64_t group, const TileQueries& from, float* factor) {
  const std::int64_t first = item.first_query + group * tile_queries;
  const std::int64_t count = std::min(tile_queries, item.count - group * tile_queries);
  const auto out = rows_of<Element>(launch.outputs.o, batch, head);
  for (std::int64_t lane = 0; lane < tile_queries; ++lane)
    factor[lane] = from.first[lane] < from.last[lane] ? 1 / from.l[lane] : 0;
  store_queries<Element>(from.o, factor, out, first, count, launch.plan.problem.value_dim);
  for (std::int64_t lane = 0; lane < count; ++lane) {
    float lse = -std::numeric_limits<float>::infinity();
    if (from.first[lane] < from.last[lane]) {
      const double base = static_cast<double>(from.base[lane]) * std::numbers::ln2;
      lse = static_cast<float>(base + std::log(static_cast<double>(from.l[lane])));
    } else {  // whatever the lane gathered from its neighbours' blocks was multiplied by nothing
      std::fill_n(out.row(first + lane), launch.plan.problem.value_dim, Element{0});
    }
    store_lse<float>(launch.outputs, batch, head, first + lane, lse);
  }
}

/// All blocks of keys for the queries of one item, through the pipeline.
template <class Tiles, class Element>
void attend_item(const Launch& launch, const TileShape& shape, const PackedHead& packed, const QueryTile& tile,
                 TileScratch& scratch) {
  const Problem& problem = launch.plan.problem;
  Tiles tiles;
  TileItem item;
  item.mask = mask_of(problem, live_keys(problem, launch.inputs, tile.batch));
  item.rule = {score_rule<float>(problem, launch.inputs, tile.batch, tile.head), item.mask.offset};
  item.first_query = tile.first;
  item.count = tile.count;
  const auto q = rows_of<Element>(launch.inputs.q, tile.batch, tile.head);
  const std::int64_t groups = tiles_of(tile.count, tile_queries);
  for (std::int64_t group = 0; group < groups; ++group)
    start_queries(shape, item, q, problem.head_dim, group, scratch.queries[group]);

  TileStage before, now;
  int turn = 0;
  const auto advance = [&](const TileStage& next) {
    tile_step<parts_in<Element>>(tiles, shape, item, scratch, turn, next, now, before);
    before = now;
    now = next;
    turn ^= 1;
  };
  const auto meet = [&](std::int64_t group, std::int64_t block) {
    const std::int64_t first = block * shape.block, there = std::min(shape.block, item.mask.keys - first);
    const std::int64_t at = tile.first + group * tile_queries;
    const TileClass kind = classify(item.mask, at, std::min(tile_queries, tile.first + tile.count - at), first, there);
    if (kind == TileClass::skip) return;
    TileStage next{&scratch.queries[group], packed.k + block * shape.k_bytes(), packed.v + block * shape.v_bytes(),
                   scratch.clean[turn], first};
    next.edge = kind == TileClass::edge || there < shape.block;
    next.careful = next.edge && !packed.finite[block];
    advance(next);
  };
  const KeyRange seen = item.mask.range(tile.first, tile.count);
  const std::int64_t end = seen.empty() ? 0 : tiles_of(seen.last, shape.block), stretch = shape.stretch();
  for (std::int64_t from = seen.empty() ? 0 : seen.first / shape.block; from < end; from += stretch)
    for (std::int64_t group = 0; group < groups; ++group)
      for (std::int64_t block = from; block < std::min(from + stretch, end); ++block) meet(group, block);
  advance({});
  advance({});
  tiles.fence();
  for (std::int64_t group = 0; group < groups; ++group)
    finish_queries<Element>(launch, item, tile.batch, tile.head, group, scratch.queries[group], scratch.factor);
}

/// Some blocks of one kv head.
template <class Element>
void pack_blocks(const Launch& launch, const TileShape& shape, std::int64_t batch, std::int64_t kv_head,
                 KeyRange blocks, const PackedHead& to) {
  const Problem& problem = launch.plan.problem;
  const std::int64_t live = live_keys(problem, launch.inputs, batch);
  const auto k = rows_of<Element>(launch.inputs.k, batch, kv_head);
  const auto v = rows_of<Element>(launch.inputs.v, batch, kv_head);
  for (std::int64_t block = blocks.first; block < blocks.last; ++block) {
    const std::int64_t first = block * shape.block, there = std::clamp<std::int64_t>(live - first, 0, shape.block);
    pack_keys<Element>(shape, k, first, there, problem.head_dim, to.k + block * shape.k_bytes());
    to.finite[block] = pack_values<Element>(shape, v, first, there, problem.value_dim, to.v + block * shape.v_bytes());
  }
}

[[nodiscard]] inline std::int64_t packed_head_bytes(const Problem& problem, const TileShape& shape) {
  Carver carver(nullptr);
  PackedHead(carver, problem, shape);
  return static_cast<std::int64_t>(carver.used());
}

/// Packs and attends kv heads [first, first + count).
template <class Tiles, class Element>
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
    pack_blocks<Element>(launch, shape, head / problem.heads_kv, head % problem.heads_kv,
                         {from, std::min(from + portion, blocks)}, packed(index / portions));
  });

  const std::int64_t tiles = tiles_of(problem.queries, plan.tile.queries), group = problem.group();
  parallel_for(launch.executor, plan.lanes, count * group * tiles, [&](int lane, std::int64_t index) {
    // The longest rows of a causal problem are the last ones: they go first.
    const std::int64_t tile = tiles - 1 - index / (count * group), head = index % (count * group);
    const std::int64_t kv = first + head / group, at = tile * plan.tile.queries;
    Carver carver(shared + plan.shared_bytes + static_cast<std::size_t>(lane) * plan.lane_bytes);
    TileScratch scratch(carver, shape, plan.tile.queries / tile_queries);
    attend_item<Tiles, Element>(launch, shape, packed(head / group),
                                {kv / problem.heads_kv, kv % problem.heads_kv * group + head % group, at,
                                 std::min(plan.tile.queries, problem.queries - at)},
                                scratch);
  });
}

template <class Tiles, class Element>
void tile_flash_of(const Launch& launch) {
  const Problem& problem = launch.plan.problem;
  const TileShape shape(problem, launch.plan.tile.keys);
  const std::int64_t heads = problem.batch * problem.heads_kv;
  const std::int64_t bytes = std::max<std::int64_t>(packed_head_bytes(problem, shape), 64);
  // What one thread packs for itself stays in its second-level cache; several take heads enough to even out.
  const std::int64_t wanted = launch.plan.lanes == 1 ? 1 : 2 * launch.plan.lanes;
  const std::int64_t fit = std::max<std::int64_t>(static_cast<std::int64_t>(launch.plan.shared_bytes) / bytes, 1);
  const std::int64_t together = std::min(fit, wanted);
  for (std::int64_t first = 0; first < heads; first += together)
    tile_flash_heads<Tiles, Element>(launch, shape, first, std::min(together, heads - first));
}

template <class Tiles>
void tile_flash(const Launch& launch) {
  if (launch.plan.problem.dtype == DType::f16) return tile_flash_of<Tiles, Float16>(launch);
  tile_flash_of<Tiles, BFloat16>(launch);
}

}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES
