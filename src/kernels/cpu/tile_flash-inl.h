// SPDX-License-Identifier: Apache-2.0
// cpu.amx: tiled attention on the tile unit, bf16 and, split in two parts, f16. Scores are made transposed, keys in
// rows and queries in lanes, so that the softmax is lane-wise and P^T is already the right operand of the second
// product:
//
//     S^T [keys][queries] = K Q^T        O^T [Dv][queries] += V^T P^T
//
// Work is done in two phases: K and V of some kv heads are packed, then their queries are attended, and in both a lane
// stays with one head as long as it has work. How tiles and vectors share a block is the order's: tile_narrow-inl.h
// and tile_wide-inl.h. Source: Dao et al., "FlashAttention", 2022, algorithm 1, keys innermost.
#pragma once

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/tile_narrow-inl.h"
#include "kernels/cpu/tile_wide-inl.h"
#include "runtime/parallel.hpp"
#include "walk/walk.hpp"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")
namespace fresnel::cpu {

/// Queries of `group` enter: Q packed, an empty state, and each lane's visible keys.
template <class Element>
void start_queries(const TileShape& shape, const TileItem& item, Rows<const Element> q, std::int64_t head_dim,
                   std::int64_t group, TileQueries& to) {
  const std::int64_t first = item.first_query + group * shape.lanes;
  const std::int64_t count = std::min(shape.lanes, item.count - group * shape.lanes);
  pack_queries(shape, q, first, count, head_dim, to.q);
  std::fill_n(to.base, shape.lanes, 0.0f);
  std::fill_n(to.l, shape.lanes, 0.0f);
  to.anchored = 0;
  to.begun = false;
  const auto see = [&](std::int64_t lane, std::int64_t lanes, const KeyRange& seen) {
    std::fill_n(to.first + lane, lanes, static_cast<std::int32_t>(seen.empty() ? 0 : seen.first));
    std::fill_n(to.last + lane, lanes, static_cast<std::int32_t>(seen.empty() ? 0 : seen.last));
  };
  const KeyRange upper = item.mask.range(first);
  if (upper == item.mask.range(first + count - 1)) return see(0, shape.lanes, upper);
  for (std::int64_t lane = 0; lane < shape.lanes; ++lane)
    see(lane, 1, item.mask.range(first + std::min(lane, count - 1)));
}

/// Queries leave: o = O / l, lse = (base + log2 l) ln 2.
template <class Element>
void finish_queries(const Launch& launch, const TileShape& shape, const TileItem& item, const QueryTile& tile,
                    std::int64_t group, TileScratch& scratch) {
  const std::int64_t first = item.first_query + group * shape.lanes, value_dim = launch.plan.problem.value_dim;
  const std::int64_t count = std::min(shape.lanes, item.count - group * shape.lanes);
  TileQueries& from = scratch.queries[group];
  from.begin(shape);
  const auto out = rows_of<Element>(launch.outputs.o, tile.batch, tile.head);
  for (int half = 0; half < shape.halves(); ++half) {
    const __m512i first_seen = _mm512_load_si512(from.first + half * 16);
    const __mmask16 sees = _mm512_cmplt_epi32_mask(first_seen, _mm512_load_si512(from.last + half * 16));
    _mm512_store_ps(scratch.factor + half * 16,
                    _mm512_maskz_div_ps(sees, _mm512_set1_ps(1), _mm512_load_ps(from.l + half * 16)));
  }
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

/// One item: its groups of queries against stretches of blocks.
template <class Order, class Element>
class TileWalk {
 public:
  TileWalk(const Launch& launch, const TileShape& shape, const PackedHead& packed, const QueryTile& tile,
           TileScratch& scratch)
      : launch_(launch),
        problem_(launch.plan.problem),
        shape_(shape),
        packed_(packed),
        tile_(tile),
        scratch_(scratch),
        order_(shape, item_, scratch) {
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
    order_.finish();
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

  /// One group's blocks. The first time, memory is asked for the rows of O that it will write and for the next Q.
  void meet_stretch(std::int64_t group, const KeyRange& blocks, bool first_time) {
    if (first_time) start(group);
    const KeyRange upper = item_.mask.range(query(group)), lower = item_.mask.range(query(group) + count(group) - 1);
    seen_ = {upper.first, lower.last};
    whole_ = upper.empty() || lower.empty() ? KeyRange{} : KeyRange{lower.first, upper.last};
    const auto out = rows_of<Element>(launch_.outputs.o, tile_.batch, tile_.head);
    RowsAhead<Element> o(out, query(group), first_time ? count(group) : 0, problem_.value_dim);
    RowsAhead<const Element> next(q(), query(group + 1), first_time ? count(group + 1) : 0, problem_.head_dim);
    const std::int64_t stops = calls(blocks), o_share = tiles_of(o.rest(), stops),
                       q_share = tiles_of(next.rest(), stops);
    const auto ask = [&] {
      o.some(o_share);
      next.some(q_share);
    };
    for (std::int64_t block = blocks.first; block < blocks.last;) {
      const KeyRange steady{block, steady_until(group, block, blocks)};
      if (steady.empty()) {
        meet(group, block++, ask);
      } else {
        meet_steadily(group, steady, ask);
        block = steady.last;
      }
    }
  }

  /// The last of `blocks` up to which the order may take many at a time from `block` on; `block` itself if it may not.
  [[nodiscard]] std::int64_t steady_until(std::int64_t group, std::int64_t block, const KeyRange& blocks) const {
    if constexpr (Order::steady) {
      const std::int64_t first_whole = std::max(blocks.first, tiles_of(whole_.first, shape_.block));
      if (order_.may_be_steady(scratch_.queries[group]) && block - 2 >= first_whole)
        return std::min(blocks.last, whole_.last / shape_.block);
    }
    return block;
  }

  template <class Between>
  void meet_steadily(std::int64_t group, const KeyRange& blocks, Between&& between) {
    if constexpr (Order::steady) {
      TileQueries& queries = scratch_.queries[group];
      const auto stage_of = [&](std::int64_t block) HWY_ATTR { return whole_stage(queries, block); };
      later_.k != nullptr ? order_.template attend_steadily<true>(queries, later_, blocks, stage_of, between)
                          : order_.template attend_steadily<false>(queries, later_, blocks, stage_of, between);
    }
  }

  /// A block that all of these queries see.
  [[nodiscard]] HWY_INLINE TileStage whole_stage(TileQueries& queries, std::int64_t block) const {
    const std::int64_t first = block * shape_.block;
    return {&queries, packed_.k + block * k_bytes_, packed_.v + block * v_bytes_, nullptr,
            first,    shape_.key_steps(),           {first, first + shape_.block}};
  }

  /// How often an order calls back while the group meets these blocks: once per block, or once per step that it sees.
  [[nodiscard]] std::int64_t calls(const KeyRange& blocks) const {
    if constexpr (Order::steady) return blocks.size();
    const KeyRange seen{std::max(seen_.first, blocks.first * shape_.block),
                        std::min(seen_.last, blocks.last * shape_.block)};
    return std::max<std::int64_t>(tiles_of(seen.size(), product_depth), 1);
  }

  template <class Between>
  void meet(std::int64_t group, std::int64_t block, Between&& between) {
    const std::int64_t start = block * shape_.block, granule = shape_.granule();
    const KeyRange seen{std::max(seen_.first, start), std::min(seen_.last, start + shape_.block)};
    if (seen.empty()) return;
    TileStage stage;
    stage.queries = &scratch_.queries[group];
    stage.first_key = seen.first / granule * granule;
    stage.steps = shape_.whole_granules(seen.last - stage.first_key) / product_depth;
    const std::int64_t steps_in = (stage.first_key - start) / product_depth;
    stage.k = packed_.k + block * k_bytes_ + steps_in * (k_bytes_ / shape_.key_steps());
    stage.v = packed_.v + block * v_bytes_ + steps_in * shape_.parts * tile_bytes;
    stage.clean = order_.clean();
    stage.whole = whole_;
    stage.careful = stage.edge() && !packed_.finite[block];
    if constexpr (Order::steady) {
      between();
      later_.ask(shape_, block);
      order_.attend(stage);
    } else {
      order_.attend(stage, later_.k != nullptr ? later_.of_block(shape_, block) : LaterLines{}, between);
    }
  }

  const Launch& launch_;
  const Problem& problem_;
  const TileShape& shape_;
  const std::int64_t k_bytes_ = shape_.k_bytes(), v_bytes_ = shape_.v_bytes();
  const PackedHead& packed_;
  const QueryTile tile_;
  TileScratch& scratch_;
  TileItem item_;
  Order order_;
  LaterBlocks later_;
  KeyRange seen_;   ///< keys that some query of the group sees
  KeyRange whole_;  ///< keys that every query of the group sees
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
    RowsAhead<const Element> k_ahead(k, first + there, more, problem.head_dim);
    RowsAhead<const Element> v_ahead(v, first + there, more, problem.value_dim);
    pack_keys<Element>(shape, k, first, there, problem.head_dim, to.k + block * shape.k_bytes(), k_ahead);
    to.finite[block] =
        pack_values<Element>(shape, v, first, there, problem.value_dim, to.v + block * shape.v_bytes(), v_ahead);
  }
}

/// Packs and attends kv heads [first, first + count).
template <class Order, class Element>
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
        TileWalk<Order, Element>(launch, shape, packed(index), rows, scratch).run();
      });
}

template <class Order, class Element>
void tile_flash_of(const Launch& launch, const TileShape& shape) {
  const Problem& problem = launch.plan.problem;
  const std::int64_t heads = problem.batch * problem.heads_kv;
  const std::int64_t bytes = std::max<std::int64_t>(packed_head_bytes(problem, shape), 64);
  // What one thread packs for itself stays in its second-level cache; several take heads enough to even out.
  const std::int64_t wanted = launch.plan.lanes == 1 ? 1 : 2 * launch.plan.lanes;
  const std::int64_t fit = std::max<std::int64_t>(static_cast<std::int64_t>(launch.plan.shared_bytes) / bytes, 1);
  const std::int64_t together = std::min(fit, wanted);
  for (std::int64_t first = 0; first < heads; first += together)
    tile_flash_heads<Order, Element>(launch, shape, first, std::min(together, heads - first));
}

template <class Tiles>
void tile_flash(const Launch& launch) {
  const TileShape shape(launch.plan.problem, launch.plan.tile.keys);
  if (shape.parts == 2) return tile_flash_of<WideOrder<Tiles, 2>, Float16>(launch, shape);
  if (shape.narrow()) return tile_flash_of<NarrowOrder<Tiles>, BFloat16>(launch, shape);
  tile_flash_of<WideOrder<Tiles, 1>, BFloat16>(launch, shape);
}

}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES
