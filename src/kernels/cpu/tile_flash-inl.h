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
// kv heads are packed, then their queries are attended, and in both a lane stays with one head as long as it has work.
// Source: Dao et al., "FlashAttention", 2022, algorithm 1, keys innermost.
#pragma once

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/tile_products-inl.h"
#include "runtime/parallel.hpp"
#include "walk/walk.hpp"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")
namespace fresnel::cpu {

/// What a work item is, once for all of its steps.
struct TileItem {
  TileRule rule;
  Mask mask;
  std::int64_t first_query = 0, count = 0;

  /// The block's scores where a plain scale is not all there is to them.
  void finish(const TileShape& shape, const TileStage& stage, const TileScratch& scratch, float* scores) const {
    const std::int64_t group = stage.queries - scratch.queries;
    if (stage.edge || !rule.plain()) finish_block(shape, rule, first_query + group * shape.lanes, stage, scores);
  }
};

/// The scores of a block made a second time, for lanes whose base turned out to be stale, and weighed again.
template <class Products>
void settle_again(Products& products, const TileShape& shape, const TileItem& item, const TileScratch& scratch,
                  const TileStage& now, std::uint32_t fresh, TileWeights& weights) {
  NothingBeside nothing;
  products.make_scores(shape, now, scratch.s_again, nothing);
  products.put_down(shape);
  item.finish(shape, now, scratch, scratch.s_again);
  weights.s = scratch.s_again;
  constexpr int parts = Products::parts, lanes = Products::lanes;
  for (int half = 0; half < shape.halves(); ++half) {
    const __mmask16 off = parts == 1 ? off_the_table(weights, half) : 0;
    const auto stale = static_cast<__mmask16>(unsettled(weights.sum[half], fresh, half) & ~off);
    if ((stale | off) != 0) weigh_again<parts, lanes>(shape, weights, *now.queries, half, stale, off);
    add_sums(*now.queries, weights.sum[half], half);
  }
}

/// The products of a step where all three stages are there, and the weights between them.
template <Exponential how, class Products>
HWY_INLINE void full_step(Products& products, const TileShape& shape, const TileStage& next, const TileStage& before,
                          const std::uint32_t* p_before, float* s, TileWeights& weights) {
  if constexpr (Products::parts == 1) {
    constexpr TileShape known = Products::known_shape;
    if (shape.is(known)) return interleave_evenly<how, known, 0>(products, next, before, p_before, s, weights, {});
  }
  interleave<how>(products, shape, next, before, p_before, s, weights);
}

/// Calls step.operator()<how>() for the exponential of a block.
template <int parts, class Step>
HWY_INLINE void with_exponential(const TileStage& stage, Step&& step) {
  if constexpr (parts == 2) {
    step.template operator()<Exponential::polynomial>();
  } else if (stage.edge) {
    step.template operator()<Exponential::clamped_table>();
  } else {
    step.template operator()<Exponential::table>();
  }
}

/// One step of the pipeline; stages without queries are not there. `turn` says which block of weights is the middle's.
template <class Products>
void tile_step(Products& products, const TileShape& shape, const TileItem& item, const TileScratch& scratch, int turn,
               const TileStage& next, TileStage& now, const TileStage& before) {
  constexpr int parts = Products::parts, lanes = Products::lanes;
  products.tiles.fence();
  const std::uint32_t* const p_before = scratch.p[turn ^ 1];
  TileWeights weights;
  std::uint32_t fresh = 0;
  if (now.queries != nullptr) {
    item.finish(shape, now, scratch, scratch.s);
    weights = start_weights(shape, now, scratch.s, scratch.p[turn], item.rule.to_log2(!item.rule.plain()));
    if (now.queries->anchored != shape.all_lanes()) fresh = anchor(shape, weights, *now.queries);
    for (int half = 0; half < lanes / 16; ++half) start_table(weights, half);
  }
  if (now.queries != nullptr && next.queries != nullptr && before.queries != nullptr) {
    with_exponential<parts>(now, [&]<Exponential how>() HWY_ATTR {
      full_step<how>(products, shape, next, before, p_before, scratch.s, weights);
    });
  } else {  // the pipeline fills or drains
    NothingBeside nothing;
    if (before.queries != nullptr) products.add_values(shape, before, p_before, nothing);
    products.tiles.fence();
    if (now.queries != nullptr)
      with_exponential<parts>(
          now, [&]<Exponential how>() HWY_ATTR { weigh_block<how, parts, lanes>(weights, shape.block); });
    products.tiles.fence();
    if (next.queries != nullptr) products.make_scores(shape, next, scratch.s, nothing);
  }
  products.tiles.fence();
  if (now.queries == nullptr) return;
  std::uint32_t stale = 0;
  for (int half = 0; half < lanes / 16; ++half)
    stale |= unsettled(weights.sum[half], fresh, half) | (parts == 1 ? off_the_table(weights, half) : 0);
  if (stale != 0) {
    TileWeights again = weights;  // a copy, so that what the products leave to the vectors can live in registers
    settle_again(products, shape, item, scratch, now, fresh, again);
  } else {
    for (int half = 0; half < lanes / 16; ++half) add_sums(*now.queries, weights.sum[half], half);
  }
  if (now.careful) {
    products.put_down(shape);
    add_by_hand(shape, now, scratch.p[turn]);
    now.v = now.clean;
  }
}

/// A block that all of these queries see.
HWY_INLINE TileStage whole_stage(const TileShape& shape, TileQueries& queries, const PackedHead& packed,
                                 std::int64_t block) {
  return {&queries, packed.k + block * shape.k_bytes(), packed.v + block * shape.v_bytes(), nullptr,
          block * shape.block};
}

/// Keys that the queries of an item meet after this stretch of blocks. They may have left the second-level cache, so
/// that is asked for a share of them during every step: for all while 256 queries meet the stretch.
struct LaterBlocks {
  const std::byte* k = nullptr;  ///< packed; null: nothing to ask for
  const std::byte* v = nullptr;
  std::int64_t first_step = 0;  ///< the step of `block` is first_step + block
  std::int64_t steps = 0;       ///< that have a share

  /// Groups of queries in an item of 256: each asks for its share.
  static constexpr std::int64_t groups(const TileShape& shape) { return 256 / shape.lanes; }

  [[nodiscard]] HWY_INLINE LaterLines of_step(const TileShape& shape, std::int64_t block) const {
    const std::int64_t step = std::min(first_step + block, steps - 1);
    return {k + step * (shape.k_bytes() / groups(shape)), v + step * (shape.v_bytes() / groups(shape))};
  }
  /// Asks for a step's share in one go.
  void ask(const TileShape& shape, std::int64_t block) const {
    if (k == nullptr) return;
    const LaterLines share = of_step(shape, block);
    for (std::int64_t at = 0; at < shape.k_bytes() / groups(shape); at += tile_width)
      _mm_prefetch(reinterpret_cast<const char*>(share.k + at), _MM_HINT_T1);
    for (std::int64_t at = 0; at < shape.v_bytes() / groups(shape); at += tile_width)
      _mm_prefetch(reinterpret_cast<const char*>(share.v + at), _MM_HINT_T1);
  }
};

/// Steps for `blocks` of one group that sees every key of them and of the two blocks before, which are in the pipeline:
/// products, weights and a look at their sums. What is the same for all of them stays in registers. Calls `between`
/// once per step; `asks`: for lines of `later`, too.
template <bool asks, class Products, class Between>
void steady_steps(Products& products, const TileItem& item, const TileScratch& scratch, TileQueries& queries,
                  const PackedHead& packed, const LaterBlocks& later, const KeyRange& blocks, int turn,
                  Between&& between) {
  static constexpr TileShape shape = Products::known_shape;
  constexpr int halves = Products::lanes / 16, lines = asks ? halves : 0;
  const auto stage = [&](std::int64_t block) HWY_ATTR { return whole_stage(shape, queries, packed, block); };
  const auto start = [&]() HWY_ATTR {
    TileWeights fresh = start_weights(shape, {&queries}, scratch.s, nullptr, item.rule.to_log2(false));
    for (int half = 0; half < halves; ++half) start_table(fresh, half);
    return fresh;
  };
  TileWeights weights = start();
  for (std::int64_t block = blocks.first; block < blocks.last; ++block, turn ^= 1) {
    between();
    products.tiles.fence();
    weights.p = scratch.p[turn];
    for (int half = 0; half < halves; ++half) weights.sum[half] = _mm512_setzero_ps();
    interleave_evenly<Exponential::table, shape, lines>(products, stage(block), stage(block - 2), scratch.p[turn ^ 1],
                                                        scratch.s, weights,
                                                        asks ? later.of_step(shape, block) : LaterLines{});
    products.tiles.fence();
    std::uint32_t stale = 0;
    for (int half = 0; half < halves; ++half)
      stale |= unsettled(weights.sum[half], 0, half) | off_the_table(weights, half);
    if (stale != 0) {
      TileWeights again = weights;
      settle_again(products, shape, item, scratch, stage(block - 1), 0, again);
      weights = start();
    } else {
      for (int half = 0; half < halves; ++half) add_sums(queries, weights.sum[half], half);
    }
  }
}

/// Queries of `group` enter: Q packed, an empty state, and each lane's visible keys.
template <class Element>
void start_queries(const TileShape& shape, const TileItem& item, Rows<const Element> q, std::int64_t head_dim,
                   std::int64_t group, TileQueries& to) {
  const std::int64_t first = item.first_query + group * shape.lanes;
  const std::int64_t count = std::min(shape.lanes, item.count - group * shape.lanes);
  pack_queries(shape, q, first, count, head_dim, to.q);
  std::fill_n(to.o, shape.o_floats(), 0.0f);
  std::fill_n(to.base, shape.lanes, 0.0f);
  std::fill_n(to.l, shape.lanes, 0.0f);
  to.anchored = 0;
  for (std::int64_t lane = 0; lane < shape.lanes; ++lane) {
    const KeyRange seen = item.mask.range(first + std::min(lane, count - 1));
    to.first[lane] = static_cast<std::int32_t>(seen.empty() ? 0 : seen.first);
    to.last[lane] = static_cast<std::int32_t>(seen.empty() ? 0 : seen.last);
  }
}

/// Queries leave: o = O / l, lse = (base + log2 l) ln 2.
template <class Element>
void finish_queries(const Launch& launch, const TileShape& shape, const TileItem& item, const QueryTile& tile,
                    std::int64_t group, TileScratch& scratch) {
  const std::int64_t first = item.first_query + group * shape.lanes, value_dim = launch.plan.problem.value_dim;
  const std::int64_t count = std::min(shape.lanes, item.count - group * shape.lanes);
  const TileQueries& from = scratch.queries[group];
  const auto out = rows_of<Element>(launch.outputs.o, tile.batch, tile.head);
  for (std::int64_t lane = 0; lane < shape.lanes; ++lane)
    scratch.factor[lane] = from.first[lane] < from.last[lane] ? 1 / from.l[lane] : 0;
  store_queries<Element>(shape, from.o, scratch.factor, out, first, count, value_dim);
  log_sums(shape, from, scratch.lse);
  for (std::int64_t lane = 0; lane < count; ++lane) {
    if (from.first[lane] >= from.last[lane]) {  // what it gathered from its neighbours' blocks counts for nothing
      std::fill_n(out.row(first + lane), value_dim, Element{0});
      scratch.lse[lane] = -std::numeric_limits<float>::infinity();
    }
    store_lse<float>(launch.outputs, tile.batch, tile.head, first + lane, scratch.lse[lane]);
  }
}

/// The steps of one item: its groups of queries against stretches of blocks.
template <class Products, class Element>
class TileWalk {
 public:
  TileWalk(const Launch& launch, const TileShape& shape, const PackedHead& packed, const QueryTile& tile,
           TileScratch& scratch)
      : launch_(launch), problem_(launch.plan.problem), shape_(shape), packed_(packed), tile_(tile), scratch_(scratch) {
    item_.mask = mask_of(problem_, live_keys(problem_, launch.inputs, tile.batch));
    item_.rule = {score_rule<float>(problem_, launch.inputs, tile.batch, tile.head), item_.mask.offset};
    item_.first_query = tile.first;
    item_.count = tile.count;
  }

  void run() {
    const std::int64_t groups = tiles_of(tile_.count, shape_.lanes), stretch = shape_.stretch();
    const KeyRange seen = item_.mask.range(tile_.first, tile_.count);
    const KeyRange blocks =
        seen.empty() ? KeyRange{} : KeyRange{seen.first / shape_.block, tiles_of(seen.last, shape_.block)};
    if (blocks.empty()) {
      for (std::int64_t group = 0; group < groups; ++group) start(group);
    }
    for (std::int64_t from = blocks.first; from < blocks.last; from += stretch) {
      const KeyRange these{from, std::min(from + stretch, blocks.last)};
      for (std::int64_t group = 0; group < groups; ++group) {
        later_ = later_blocks(blocks, these, group);
        meet_stretch(group, these, from == blocks.first);
      }
    }
    for (int drain = 0; drain < 2; ++drain) {
      stages_[next_] = {};
      advance();
    }
    products_.put_down(shape_);
    products_.tiles.fence();
    for (std::int64_t group = 0; group < groups; ++group)
      finish_queries<Element>(launch_, shape_, item_, tile_, group, scratch_);
  }

 private:
  [[nodiscard]] std::int64_t query(std::int64_t group) const { return tile_.first + group * shape_.lanes; }
  [[nodiscard]] std::int64_t count(std::int64_t group) const {
    return std::clamp<std::int64_t>(tile_.first + tile_.count - query(group), 0, shape_.lanes);
  }
  [[nodiscard]] Rows<const Element> q() const { return rows_of<Element>(launch_.inputs.q, tile_.batch, tile_.head); }

  /// What `group` asks for while it meets `these` of `all` blocks, where they do not fit the second-level cache. After
  /// the last stretch comes the first one, for the next item of the head.
  [[nodiscard]] LaterBlocks later_blocks(const KeyRange& all, const KeyRange& these, std::int64_t group) const {
    const std::int64_t stretch = shape_.stretch();
    if (all.size() <= 2 * stretch) return {};
    const std::int64_t first = these.last < all.last ? these.last : all.first;
    const std::int64_t count = std::min(stretch, all.last - first);
    return {packed_.k + first * k_bytes_, packed_.v + first * v_bytes_, group * these.size() - these.first,
            count * LaterBlocks::groups(shape_)};
  }

  void start(std::int64_t group) {
    start_queries(shape_, item_, q(), problem_.head_dim, group, scratch_.queries[group]);
  }

  /// One group's steps. The first time, memory is asked for the rows of O that it will write and for the next Q.
  void meet_stretch(std::int64_t group, const KeyRange& blocks, bool first_time) {
    if (first_time) start(group);
    const KeyRange upper = item_.mask.range(query(group)), lower = item_.mask.range(query(group) + count(group) - 1);
    whole_ = upper.empty() || lower.empty() ? KeyRange{} : KeyRange{lower.first, upper.last};
    const auto out = rows_of<Element>(launch_.outputs.o, tile_.batch, tile_.head);
    RowsAhead<Element, true> o(out, query(group), first_time ? count(group) : 0, problem_.value_dim);
    RowsAhead<const Element, false> next(q(), query(group + 1), first_time ? count(group + 1) : 0, problem_.head_dim);
    const std::int64_t o_share = tiles_of(o.rest(), blocks.size()), q_share = tiles_of(next.rest(), blocks.size());
    const auto ask = [&] {
      o.some(o_share);
      next.some(q_share);
    };
    for (std::int64_t block = blocks.first; block < blocks.last;) {
      const KeyRange steady{block, steady_until(group, block, blocks)};
      if (steady.empty()) {
        ask();
        later_.ask(shape_, block);
        meet(group, block++);
      } else {
        meet_steadily(group, steady, ask);
        block = steady.last;
      }
    }
  }

  /// The last of `blocks` up to which steady_steps may go from `block` on; `block` itself if it may not.
  [[nodiscard]] std::int64_t steady_until(std::int64_t group, std::int64_t block, const KeyRange& blocks) const {
    if constexpr (Products::parts == 1) {
      const bool plain = shape_.is(Products::known_shape) && item_.rule.plain();
      const bool anchored = scratch_.queries[group].anchored == shape_.all_lanes();
      const std::int64_t first_whole = std::max(blocks.first, tiles_of(whole_.first, shape_.block));
      if (plain && anchored && block - 2 >= first_whole) return std::min(blocks.last, whole_.last / shape_.block);
    }
    return block;
  }

  template <class Between>
  void meet_steadily(std::int64_t group, const KeyRange& blocks, Between&& between) {
    if constexpr (Products::parts == 1) {
      TileQueries& queries = scratch_.queries[group];
      const auto steps = [&]<bool asks>() HWY_ATTR {
        steady_steps<asks>(products_, item_, scratch_, queries, packed_, later_, blocks, turn_, between);
      };
      later_.k != nullptr ? steps.template operator()<true>() : steps.template operator()<false>();
      turn_ = (turn_ + blocks.size()) % 2;
      stages_[now()] = whole_stage(shape_, queries, packed_, blocks.last - 1);
      stages_[before()] = whole_stage(shape_, queries, packed_, blocks.last - 2);
    }
  }

  void meet(std::int64_t group, std::int64_t block) {
    const std::int64_t first = block * shape_.block, there = std::min(shape_.block, item_.mask.keys - first);
    const bool whole = first >= whole_.first && first + shape_.block <= whole_.last;
    const TileClass kind = whole ? TileClass::full : classify(item_.mask, query(group), count(group), first, there);
    if (kind == TileClass::skip) return;
    TileStage& next = stages_[next_];
    next = {&scratch_.queries[group], packed_.k + block * k_bytes_, packed_.v + block * v_bytes_, scratch_.clean[turn_],
            first};
    next.edge = kind == TileClass::edge || there < shape_.block;
    next.careful = next.edge && !packed_.finite[block];
    advance();
  }

  /// The block in stages_[next_] enters the pipeline.
  void advance() {
    tile_step(products_, shape_, item_, scratch_, turn_, stages_[next_], stages_[now()], stages_[before()]);
    next_ = before();
    turn_ ^= 1;
  }

  [[nodiscard]] int now() const { return next_ == 0 ? 2 : next_ - 1; }
  [[nodiscard]] int before() const { return next_ == 2 ? 0 : next_ + 1; }

  const Launch& launch_;
  const Problem& problem_;
  const TileShape& shape_;
  const std::int64_t k_bytes_ = shape_.k_bytes(), v_bytes_ = shape_.v_bytes();
  const PackedHead& packed_;
  const QueryTile tile_;
  TileScratch& scratch_;
  TileItem item_;
  Products products_;
  TileStage stages_[3];  ///< next, now and before, in turn
  int next_ = 0;
  int turn_ = 0;
  LaterBlocks later_;
  KeyRange whole_;  ///< keys that every query of the group sees, as classify() has it
};

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
    const std::int64_t more = std::clamp<std::int64_t>(live - first - there, 0, shape.block);
    RowsAhead<const Element, false> k_ahead(k, first + there, more, problem.head_dim);
    RowsAhead<const Element, false> v_ahead(v, first + there, more, problem.value_dim);
    pack_keys<Element>(shape, k, first, there, problem.head_dim, to.k + block * shape.k_bytes(), k_ahead);
    to.finite[block] =
        pack_values<Element>(shape, v, first, there, problem.value_dim, to.v + block * shape.v_bytes(), v_ahead);
  }
}

/// Packs and attends kv heads [first, first + count).
template <class Products, class Element>
void tile_flash_heads(const Launch& launch, const TileShape& shape, std::int64_t first, std::int64_t count) {
  const Plan& plan = launch.plan;
  const Problem& problem = plan.problem;
  std::byte* const shared = launch.workspace.data();
  const std::int64_t head_bytes = packed_head_bytes(problem, shape), blocks = tiles_of(problem.keys, shape.block);
  const auto packed = [&](std::int64_t index) {
    Carver carver(shared + index * head_bytes);
    return PackedHead(carver, problem, shape);
  };
  const auto taken = [&](std::int64_t index) -> std::int64_t& { return *packed(index).taken; };
  constexpr std::int64_t portion = 16;  // blocks packed at a time
  parallel_for_groups(launch.executor, plan.lanes, count, tiles_of(blocks, portion), taken,
                      [&](int, std::int64_t index, std::int64_t part) {
                        const std::int64_t head = first + index, from = part * portion;
                        pack_blocks<Element>(launch, shape, head / problem.heads_kv, head % problem.heads_kv,
                                             {from, std::min(from + portion, blocks)}, packed(index));
                      });

  const std::int64_t tiles = tiles_of(problem.queries, plan.tile.queries), group = problem.group();
  parallel_for_groups(
      launch.executor, plan.lanes, count, group * tiles, taken, [&](int lane, std::int64_t index, std::int64_t item) {
        // The longest rows of a causal problem are the last ones: they go first.
        const std::int64_t tile = tiles - 1 - item / group, kv = first + index, at = tile * plan.tile.queries;
        Carver carver(shared + plan.shared_bytes + static_cast<std::size_t>(lane) * plan.lane_bytes);
        TileScratch scratch(carver, shape, tiles_of(plan.tile.queries, shape.lanes));
        const QueryTile rows{kv / problem.heads_kv, kv % problem.heads_kv * group + item % group, at,
                             std::min(plan.tile.queries, problem.queries - at)};
        TileWalk<Products, Element>(launch, shape, packed(index), rows, scratch).run();
      });
}

template <class Products, class Element>
void tile_flash_of(const Launch& launch, const TileShape& shape) {
  const Problem& problem = launch.plan.problem;
  const std::int64_t heads = problem.batch * problem.heads_kv;
  const std::int64_t bytes = std::max<std::int64_t>(packed_head_bytes(problem, shape), 64);
  // What one thread packs for itself stays in its second-level cache; several take heads enough to even out.
  const std::int64_t wanted = launch.plan.lanes == 1 ? 1 : 2 * launch.plan.lanes;
  const std::int64_t fit = std::max<std::int64_t>(static_cast<std::int64_t>(launch.plan.shared_bytes) / bytes, 1);
  const std::int64_t together = std::min(fit, wanted);
  for (std::int64_t first = 0; first < heads; first += together)
    tile_flash_heads<Products, Element>(launch, shape, first, std::min(together, heads - first));
}

template <class Tiles>
void tile_flash(const Launch& launch) {
  const TileShape shape(launch.plan.problem, launch.plan.tile.keys);
  if (shape.parts == 2) return tile_flash_of<PairedProducts<Tiles, 2>, Float16>(launch, shape);
  if (shape.narrow()) return tile_flash_of<NarrowProducts<Tiles>, BFloat16>(launch, shape);
  if (shape.deep()) return tile_flash_of<DeepProducts<Tiles>, BFloat16>(launch, shape);
  tile_flash_of<PairedProducts<Tiles, 1>, BFloat16>(launch, shape);
}

}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES
