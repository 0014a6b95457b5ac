// SPDX-License-Identifier: Apache-2.0
// The order of tiles of cpu.amx for D and Dv up to 64 (bf16): 16 queries, whose O and Q stay in tile registers from
// block to block.
//
//     O 0 1 2 3   S or P 4   Q 5 6   A 7        a store for 4 products, 1.1 loads each
//
// A store takes as long as a product and nothing else begins meanwhile, so it is what an order saves first. A is met
// once per group of queries and streams past the first-level cache, which keeps S, P, Q and O.
//
// The unit and the vector units work at the same time, on three blocks in a row. A step issues the products of the
// block before with its values, then those of the next block's scores, and between them, a few rows at a time, turns
// the scores of the block in the middle into weights:
//
//     tile unit    O += P(n-1) V(n-1)  . . .  S(n+1) = K(n+1) Q
//     vectors        P(n) from S(n)  . . . . . . . . . . . .
//
// There is one block of scores, for the first-level cache's sake: a row of S(n+1) is not stored before that row of S(n)
// is read. Where bases turn out to be stale after that, S(n) is made again.
//
// Vectors work between a load and its product, so that neither waits for the other, however little the processor looks
// ahead (half as much where two threads share a core): while another thread of the core uses tiles, a load and the
// product right behind it wait for each other.
#pragma once

#include "kernels/cpu/tile_item-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")
namespace fresnel::cpu {

/// The numbers of 16 rows of 16 queries: a tile.
inline constexpr std::int64_t narrow_sums = tile_lines * 16;

/// Weights of a block, `share` pairs of keys at each stop.
template <Exponential how>
struct WeightsBeside {
  TileWeights weights;
  std::int64_t pairs, share, next = 0;

  HWY_INLINE void some() {
    for (std::int64_t turn = 0; turn < share && next < pairs; ++turn, ++next)
      weigh_pair<how, 1, 16>(weights, next, next, 0);
  }
};

/// The same where a constant share comes out even, and `lines` of what comes later.
template <Exponential how, int share, int lines>
struct EvenWeightsBeside {
  TileWeights weights;
  LinesBeside<lines> later = {};
  std::int64_t next = 0;

  HWY_INLINE void some() {
    later.some();
    for (int turn = 0; turn < share; ++turn, ++next) weigh_pair<how, 1, 16>(weights, next, next, 0);
  }
};

/// A product with a tile of A that no other one uses.
template <int c, int a, int b, class Tiles, class Beside>
HWY_INLINE void add_product(Tiles& tiles, const std::byte* from, Beside& beside) {
  tiles.template stream<a>(from, tile_width);
  beside.some();
  tiles.template multiply_add<c, a, b>();
}

/// The products of a block as a step needs them: a block's values are added to O, its scores made; put_down() brings
/// what registers still hold to memory, where it may be read and rescaled.
template <class Unit>
struct NarrowProducts {
  /// The usual sizes are constants for the compiler, so that a block is one run of instructions.
  static constexpr TileShape known_shape{DType::bf16, 64, 64, 64};
  Unit tiles;
  TileQueries* summing = nullptr;        ///< whose O is in registers and stale in memory
  const TileQueries* scoring = nullptr;  ///< whose Q is in registers

  static constexpr std::int64_t value_stops(const TileShape& shape) { return shape.key_steps() * shape.value_tiles(); }
  static constexpr std::int64_t score_stops(const TileShape& shape) { return shape.d_steps * shape.key_tiles(); }

  template <class Beside>
  HWY_INLINE void add_values(const TileShape& shape, const TileStage& stage, const std::uint32_t* p, Beside& beside) {
    if (summing != stage.queries) take_up(shape, *stage.queries);
    const std::byte* v = stage.v;
    const std::int64_t next_tile = shape.key_steps() * tile_bytes;
    for (std::int64_t step = 0; step < shape.key_steps(); ++step, v += tile_bytes) {
      tiles.template load<4>(p + step * narrow_sums, tile_width);
      add_product<0, 7, 4>(tiles, v, beside);
      add_product<1, 7, 4>(tiles, v + next_tile, beside);
      if (shape.value_pairs < 2) continue;
      add_product<2, 7, 4>(tiles, v + 2 * next_tile, beside);
      add_product<3, 7, 4>(tiles, v + 3 * next_tile, beside);
    }
  }
  template <class Beside>
  HWY_INLINE void make_scores(const TileShape& shape, const TileStage& stage, float* s, Beside& beside) {
    if (scoring != stage.queries) {
      scoring = stage.queries;
      tiles.template load<5>(scoring->q, tile_width);
      if (shape.d_steps == 2) tiles.template load<6>(scoring->q + narrow_sums, tile_width);
    }
    const std::byte* k = stage.k;
    for (std::int64_t row = 0; row < shape.key_tiles(); ++row, k += shape.d_steps * tile_bytes) {
      tiles.template zero<4>();
      add_product<4, 7, 5>(tiles, k, beside);
      if (shape.d_steps == 2) add_product<4, 7, 6>(tiles, k + tile_bytes, beside);
      tiles.fence();  // scores that are read in the row's place have been read
      tiles.template store<4>(s + row * narrow_sums, tile_width);
    }
  }
  void put_down(const TileShape& shape) {
    if (summing == nullptr) return;
    float* const o = summing->o;
    tiles.template store<0>(o, tile_width);
    tiles.template store<1>(o + narrow_sums, tile_width);
    if (shape.value_pairs > 1) tiles.template store<2>(o + 2 * narrow_sums, tile_width);
    if (shape.value_pairs > 1) tiles.template store<3>(o + 3 * narrow_sums, tile_width);
    summing->begun = true;
    summing = nullptr;
    tiles.fence();
  }

 private:
  void take_up(const TileShape& shape, TileQueries& queries) {
    put_down(shape);
    tiles.fence();
    summing = &queries;
    if (!queries.begun) {
      tiles.template zero<0>();
      tiles.template zero<1>();
      tiles.template zero<2>();
      tiles.template zero<3>();
      return;
    }
    tiles.template load<0>(queries.o, tile_width);
    tiles.template load<1>(queries.o + narrow_sums, tile_width);
    if (shape.value_pairs > 1) tiles.template load<2>(queries.o + 2 * narrow_sums, tile_width);
    if (shape.value_pairs > 1) tiles.template load<3>(queries.o + 3 * narrow_sums, tile_width);
  }
};

// The scores of a row of tiles are stored where the weights are made from. Shares are such that by then they have been
// read: after the first product half of the weights are made, and a row's share of the second makes as much of the
// other half as it stores.

/// Values of the block before, then scores of the next one, and the weights of the block in the middle between them.
template <Exponential how, class Products>
HWY_INLINE void interleave(Products& products, const TileShape& shape, const TileStage& next, const TileStage& before,
                           const std::uint32_t* p, float* s, TileWeights& weights) {
  const std::int64_t pairs = shape.block / 2, value_stops = Products::value_stops(shape);
  const std::int64_t score_stops = Products::score_stops(shape);
  WeightsBeside<how> beside{running<16>(weights), pairs, (pairs / 2 + value_stops - 1) / value_stops};
  products.add_values(shape, before, p, beside);
  beside.share = (pairs - beside.next + score_stops - 1) / score_stops;
  products.make_scores(shape, next, s, beside);
  take_sums<16>(beside.weights, weights);
}

/// The same for a constant shape whose shares come out even, asking for `lines` of `later` at each stop.
template <Exponential how, TileShape shape, int lines, class Products>
HWY_INLINE void interleave_evenly(Products& products, const TileStage& next, const TileStage& before,
                                  const std::uint32_t* p, float* s, TileWeights& weights, const LaterLines& later) {
  constexpr std::int64_t stops = Products::value_stops(shape), share = shape.block / 4 / stops;
  static_assert(stops == Products::score_stops(shape) && share * stops * 4 == shape.block);
  EvenWeightsBeside<how, static_cast<int>(share), lines> beside{running<16>(weights)};
  beside.later.line = later.v;
  products.add_values(shape, before, p, beside);
  beside.later.line = later.k;
  products.make_scores(shape, next, s, beside);
  take_sums<16>(beside.weights, weights);
}

/// The pipeline of one work item.
template <class Unit>
class NarrowOrder {
 public:
  static constexpr int parts = 1, lanes = 16;
  /// Whether blocks that all queries see are taken many at a time, by attend_steadily.
  static constexpr bool steady = true;

  NarrowOrder(const TileShape& shape, const TileItem& item, TileScratch& scratch)
      : shape_(shape), item_(item), scratch_(scratch) {}

  [[nodiscard]] std::byte* clean() const { return scratch_.clean[turn_]; }

  /// A stage enters the pipeline; one without queries: it drains.
  void attend(const TileStage& stage) {
    stages_[next_] = stage;
    step(stages_[next_], stages_[now()], stages_[before()]);
    next_ = before();
    turn_ ^= 1;
  }

  /// Brings what is in the pipeline, and O, to memory.
  void finish() {
    for (int drain = 0; drain < 2; ++drain) attend({});
    products_.put_down(shape_);
    products_.tiles.fence();
  }

  /// Whether attend_steadily may go on from here with a block of these queries that all of them see, the block before
  /// and the one before that having been such blocks, too.
  [[nodiscard]] bool may_be_steady(const TileQueries& queries) const {
    return shape_.is(Products::known_shape) && item_.rule.plain() && queries.anchored == shape_.all_lanes();
  }

  /// The stages of `blocks` enter, which all queries see like those of the two blocks before, which are in the
  /// pipeline: products, weights and a look at their sums. What is the same for all of them stays in registers. Calls
  /// `between` once per block; `asks`: for lines of `later`, too. `stage_of`: the stage of a block.
  template <bool asks, class StageOf, class Between>
  void attend_steadily(TileQueries& queries, const LaterBlocks& later, const KeyRange& blocks, StageOf&& stage_of,
                       Between&& between);

 private:
  using Products = NarrowProducts<Unit>;

  [[nodiscard]] int now() const { return next_ == 0 ? 2 : next_ - 1; }
  [[nodiscard]] int before() const { return next_ == 2 ? 0 : next_ + 1; }

  void step(const TileStage& next, TileStage& now, const TileStage& before);
  template <Exponential how>
  void weigh_beside(const TileStage& next, const TileStage& before, TileWeights& weights);
  template <Exponential how>
  void fill_or_drain(const TileStage& next, const TileStage& now, const TileStage& before, TileWeights& weights);
  void settle(const TileStage& now, std::uint32_t fresh, TileWeights& weights);

  const TileShape& shape_;
  const TileItem& item_;
  TileScratch& scratch_;
  Products products_;
  TileStage stages_[3];  ///< next, now and before, in turn
  int next_ = 0;
  int turn_ = 0;  ///< which block of weights is the middle's
};

/// The scores of a block made a second time, for lanes whose base turned out to be stale, and weighed again.
template <class Unit>
void NarrowOrder<Unit>::settle(const TileStage& now, std::uint32_t fresh, TileWeights& weights) {
  NothingBeside nothing;
  products_.make_scores(shape_, now, scratch_.s_again, nothing);
  products_.put_down(shape_);
  item_.finish(shape_, now, scratch_, now.keys(), scratch_.s_again);
  weights.s = scratch_.s_again;
  weigh_stale<parts, lanes>(shape_, now, fresh, weights);
}

/// Where all three stages are there.
template <class Unit>
template <Exponential how>
void NarrowOrder<Unit>::weigh_beside(const TileStage& next, const TileStage& before, TileWeights& weights) {
  const std::uint32_t* const p = scratch_.p[turn_ ^ 1];
  if (shape_.is(Products::known_shape))
    return interleave_evenly<how, Products::known_shape, 0>(products_, next, before, p, scratch_.s, weights, {});
  interleave<how>(products_, shape_, next, before, p, scratch_.s, weights);
}

/// Where one of them is not.
template <class Unit>
template <Exponential how>
void NarrowOrder<Unit>::fill_or_drain(const TileStage& next, const TileStage& now, const TileStage& before,
                                      TileWeights& weights) {
  NothingBeside nothing;
  if (before.queries != nullptr) products_.add_values(shape_, before, scratch_.p[turn_ ^ 1], nothing);
  products_.tiles.fence();
  if (now.queries != nullptr)
    for (std::int64_t pair = 0; pair < shape_.block / 2; ++pair) weigh_pair<how, parts, lanes>(weights, pair, pair, 0);
  products_.tiles.fence();
  if (next.queries != nullptr) products_.make_scores(shape_, next, scratch_.s, nothing);
}

template <class Unit>
void NarrowOrder<Unit>::step(const TileStage& next, TileStage& now, const TileStage& before) {
  products_.tiles.fence();
  TileWeights weights;
  std::uint32_t fresh = 0;
  if (now.queries != nullptr) {
    item_.finish(shape_, now, scratch_, now.keys(), scratch_.s);
    weights =
        start_weights(shape_, *now.queries, scratch_.s, scratch_.p[turn_], item_.rule.to_log2(!item_.rule.plain()));
    if (now.queries->anchored != shape_.all_lanes()) fresh = anchor(shape_, weights, shape_.block, *now.queries);
    start_table(weights, 0);
  }
  const bool full = next.queries != nullptr && now.queries != nullptr && before.queries != nullptr;
  const auto step_by = [&]<Exponential how>() HWY_ATTR {
    full ? weigh_beside<how>(next, before, weights) : fill_or_drain<how>(next, now, before, weights);
  };
  now.edge() ? step_by.template operator()<Exponential::clamped_table>()
             : step_by.template operator()<Exponential::table>();
  products_.tiles.fence();
  if (now.queries == nullptr) return;
  if (stale_lanes<parts, lanes>(weights, fresh) != 0) {
    TileWeights again = weights;  // a copy, so that what the products leave to the vectors can live in registers
    settle(now, fresh, again);
  } else {
    add_sums(*now.queries, weights.sum[0], 0);
  }
  if (now.careful) {
    products_.put_down(shape_);
    add_by_hand(shape_, now, scratch_.p[turn_]);
    now.v = now.clean;
  }
}

template <class Unit>
template <bool asks, class StageOf, class Between>
void NarrowOrder<Unit>::attend_steadily(TileQueries& queries, const LaterBlocks& later, const KeyRange& blocks,
                                        StageOf&& stage_of, Between&& between) {
  static constexpr TileShape shape = Products::known_shape;
  const auto start = [&]() HWY_ATTR {
    TileWeights fresh = start_weights(shape, queries, scratch_.s, nullptr, item_.rule.to_log2(false));
    start_table(fresh, 0);
    return fresh;
  };
  TileWeights weights = start();
  int turn = turn_;
  for (std::int64_t block = blocks.first; block < blocks.last; ++block, turn ^= 1) {
    between();
    products_.tiles.fence();
    weights.p = scratch_.p[turn];
    weights.sum[0] = _mm512_setzero_ps();
    interleave_evenly<Exponential::table, shape, asks ? 1 : 0>(products_, stage_of(block), stage_of(block - 2),
                                                               scratch_.p[turn ^ 1], scratch_.s, weights,
                                                               asks ? later.of_block(shape, block) : LaterLines{});
    products_.tiles.fence();
    if (stale_lanes<parts, lanes>(weights, 0) != 0) {
      TileWeights again = weights;
      settle(stage_of(block - 1), 0, again);
      weights = start();
    } else {
      add_sums(queries, weights.sum[0], 0);
    }
  }
  turn_ = turn;
  stages_[now()] = stage_of(blocks.last - 1);
  stages_[before()] = stage_of(blocks.last - 2);
}

}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES
