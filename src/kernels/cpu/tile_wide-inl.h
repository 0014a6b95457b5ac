// SPDX-License-Identifier: Apache-2.0
// The order of tiles of cpu.amx for D or Dv above 64, and for f16: 32 queries, sums in squares of two tiles by two.
//
//     sums 0 1   A 4      2 loads of A and 2 of B for 4 products; a row of scores sums over all of D, a pair of rows
//          2 3     5      of O over all keys of the block, which is long (256 keys) so that O is loaded and stored
//     B    6 7            seldom
//
// A is K or V, met once per group of queries, and streams past the first-level cache. That keeps Q, O, the weights of
// one block and, of its scores, two rows of 32 keys: vectors turn a row into weights while the unit makes the next one.
//
//     tile unit    S row 0 | S row 1 | .. | S row 7 | O columns 0-31    | O columns 32-63 | ..
//     vectors              | P row 0 | .. | P row 6 | P row 7           |
//
// P's last row is there before the last product of the first columns needs it. Those columns stay in registers until
// the sums of the weights say that no base was stale; else O in memory, which they have not changed, is rescaled, and
// they are made again. Nothing of a block is left for the next one, so a stage may be any run of rows.
#pragma once

#include "kernels/cpu/tile_item-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")
namespace fresnel::cpu {

/// Distance in bytes between rows of S, P, Q and O in memory, and numbers in 16 of them.
inline constexpr std::ptrdiff_t wide_pitch = most_lanes * 4;
inline constexpr std::int64_t wide_sums = tile_lines * most_lanes;
/// Pairs of keys in a row of scores.
inline constexpr std::int64_t row_pairs = product_depth / 2;

/// Weights of a block, `share` pairs of keys at each stop, from the two rows of scores there are at a time, and a line
/// of what comes later. No stop asks how far the scores are: that would cost the weights their registers.
template <Exponential how, int parts, int share, bool asks>
struct PairsBeside {
  static constexpr std::int64_t row_steps = row_pairs / share / 4;  ///< of products, four stops each, for a row's pairs
  TileWeights weights;
  LinesBeside<asks ? 1 : 0> later = {};
  std::int64_t pair = 0;

  HWY_INLINE void one() {
    const std::int64_t of_s = pair & (2 * row_pairs - 1);
    weigh_pair<how, parts, most_lanes>(weights, of_s, pair, 0);
    weigh_pair<how, parts, most_lanes>(weights, of_s, pair, 1);
    ++pair;
  }
  HWY_INLINE void some() {
    later.some();
    for (int turn = 0; turn < share; ++turn) one();
  }
  HWY_INLINE void up_to(std::int64_t last) {
    while (pair < last) one();
  }
};

/// How weights are made: by table where P is rounded to bf16. `plain`: all keys are visible and scores finite but for
/// overflow.
template <bool plain, int parts>
inline constexpr Exponential wide_exponential = parts == 2 ? Exponential::polynomial
                                                : plain    ? Exponential::table
                                                           : Exponential::clamped_table;

template <class Unit, int part_count>
class WideOrder {
 public:
  static constexpr int parts = part_count, lanes = most_lanes;
  static constexpr bool steady = false;

  WideOrder(const TileShape& shape, const TileItem& item, TileScratch& scratch)
      : shape_(shape), item_(item), scratch_(scratch) {}

  [[nodiscard]] std::byte* clean() const { return scratch_.clean[0]; }

  /// All there is to do for a stage. Calls `between` once per step of it; memory is asked for `later`.
  template <class Between>
  void attend(const TileStage& stage, const LaterLines& later, Between&& between) {
    parts == 1 && shape_.d_steps > 2 ? attend_in_shares<1>(stage, later, between)
                                     : attend_in_shares<2>(stage, later, between);
  }
  void finish() { tiles_.fence(); }

 private:
  template <int share, class Between>
  void attend_in_shares(const TileStage& stage, const LaterLines& later, Between&& between) {
    const auto attend_as = [&]<bool plain>() HWY_ATTR {
      later.k != nullptr ? attend_by<plain, share, true>(stage, later, between)
                         : attend_by<plain, share, false>(stage, later, between);
    };
    item_.rule.plain() && !stage.edge() ? attend_as.template operator()<true>()
                                        : attend_as.template operator()<false>();
  }
  template <bool plain, int share, bool asks, class Between>
  void attend_by(const TileStage& stage, const LaterLines& later, Between&& between);
  template <class Beside>
  void make_row(const TileStage& stage, std::int64_t row, std::int64_t weighing, Beside& beside);
  template <bool plain, class Beside, class Between>
  std::uint32_t make_rows(const TileStage& stage, Beside& beside, Between&& between);
  template <class Beside>
  bool weigh_last_row(const TileStage& stage, Beside& beside);
  void settle(const TileStage& stage, std::uint32_t fresh, TileWeights& weights);

  [[nodiscard]] float* row_of(std::int64_t row) const { return scratch_.s + row % 2 * wide_row; }

  /// One step of a square, loads first: where another thread of the core uses tiles, a load and the product right
  /// behind it wait for each other. `again`: A will be asked for once more soon.
  template <bool again, class Beside>
  HWY_INLINE void multiply_square(const std::byte* upper, const std::byte* lower, const std::uint32_t* b,
                                  Beside& beside) {
    const auto load_left = [&]<int tile>(const std::byte* from) HWY_ATTR {
      if constexpr (again) {
        tiles_.template load<tile>(from, tile_width);
      } else {
        tiles_.template stream<tile>(from, tile_width);
      }
    };
    load_left.template operator()<4>(upper);
    tiles_.template load<6>(b, wide_pitch);
    load_left.template operator()<5>(lower);
    tiles_.template load<7>(b + 16, wide_pitch);
    beside.some();
    tiles_.template multiply_add<0, 4, 6>();
    beside.some();
    tiles_.template multiply_add<1, 4, 7>();
    beside.some();
    tiles_.template multiply_add<2, 5, 6>();
    beside.some();
    tiles_.template multiply_add<3, 5, 7>();
  }

  /// The same for numbers in parts: high x high, low x high, high x low. Parts of B lie `b_part` pairs apart. Four
  /// stops.
  template <class Beside>
  HWY_INLINE void multiply_parts(const std::byte* upper, std::ptrdiff_t below, const std::uint32_t* b,
                                 std::int64_t b_part, Beside& beside) {
    multiply_square<parts == 2>(upper, upper + below, b, beside);
    if constexpr (parts == 2) {
      NothingBeside nothing;
      multiply_square<false>(upper + tile_bytes, upper + below + tile_bytes, b, nothing);
      multiply_square<false>(upper, upper + below, b + b_part, nothing);
    }
  }

  /// `steps` of the scores of 32 keys.
  template <class Beside>
  HWY_INLINE void add_scores(const TileStage& stage, std::int64_t row, const KeyRange& steps, Beside& beside) {
    const std::ptrdiff_t below = shape_.d_steps * parts * tile_bytes;
    const std::byte* const k = stage.k + 2 * row * below;
    for (std::int64_t step = steps.first; step < steps.last; ++step)
      multiply_parts(k + step * parts * tile_bytes, below, stage.queries->q + step * wide_sums, shape_.q_part(),
                     beside);
  }
  HWY_INLINE void zero_sums() {
    tiles_.template zero<0>();
    tiles_.template zero<1>();
    tiles_.template zero<2>();
    tiles_.template zero<3>();
  }

  /// 32 columns of O go on by `steps` of 32 keys.
  template <class Beside>
  HWY_INLINE void add_values(const TileStage& stage, std::int64_t pair, const KeyRange& steps, Beside& beside) {
    const std::ptrdiff_t below = shape_.key_steps() * parts * tile_bytes;
    const std::byte* const v = (stage.careful ? stage.clean : stage.v) + 2 * pair * below;
    for (std::int64_t step = steps.first; step < steps.last; ++step)
      multiply_parts(v + step * parts * tile_bytes, below, scratch_.p[0] + step * wide_sums, shape_.p_part(), beside);
  }
  HWY_INLINE float* columns(const TileStage& stage, std::int64_t pair) const {
    return stage.queries->o + pair * 2 * wide_sums;
  }
  HWY_INLINE void begin_columns(const TileStage& stage, std::int64_t pair) {
    stage.queries->begun ? load_sums(columns(stage, pair)) : zero_sums();
  }
  HWY_INLINE void load_sums(const float* from) {
    tiles_.template load<0>(from, wide_pitch);
    tiles_.template load<1>(from + 16, wide_pitch);
    tiles_.template load<2>(from + wide_sums, wide_pitch);
    tiles_.template load<3>(from + wide_sums + 16, wide_pitch);
  }
  HWY_INLINE void store_sums(float* to) {
    tiles_.template store<0>(to, wide_pitch);
    tiles_.template store<1>(to + 16, wide_pitch);
    tiles_.template store<2>(to + wide_sums, wide_pitch);
    tiles_.template store<3>(to + wide_sums + 16, wide_pitch);
  }

  const TileShape& shape_;
  const TileItem& item_;
  TileScratch& scratch_;
  Unit tiles_;
};

/// The scores of a stage made a second time, for lanes whose base turned out to be stale, and weighed again.
template <class Unit, int part_count>
void WideOrder<Unit, part_count>::settle(const TileStage& stage, std::uint32_t fresh, TileWeights& weights) {
  NothingBeside nothing;
  for (std::int64_t row = 0; row < stage.steps; ++row) {
    zero_sums();
    add_scores(stage, row, {0, shape_.d_steps}, nothing);
    store_sums(scratch_.s_again + row * wide_row);
  }
  tiles_.fence();
  item_.finish(shape_, stage, scratch_, stage.keys(), scratch_.s_again);
  weights.s = scratch_.s_again;
  weigh_stale<parts, lanes>(shape_, stage, fresh, weights);
}

/// A row of scores; the weights of the row before go beside the first `weighing` steps, others beside none.
template <class Unit, int part_count>
template <class Beside>
HWY_INLINE void WideOrder<Unit, part_count>::make_row(const TileStage& stage, std::int64_t row, std::int64_t weighing,
                                                      Beside& beside) {
  tiles_.fence();
  zero_sums();
  add_scores(stage, row, {0, weighing}, beside);
  add_scores(stage, row, {weighing, shape_.d_steps}, beside.later);
  beside.up_to(row * row_pairs);
  tiles_.fence();
  store_sums(row_of(row));
  tiles_.fence();
}

/// The rows of scores after the first, and all weights but the last row's. Returns lanes that have set a base. Where
/// nothing is hidden, nothing here but `between` is called, so that the weights live in registers.
template <class Unit, int part_count>
template <bool plain, class Beside, class Between>
HWY_INLINE std::uint32_t WideOrder<Unit, part_count>::make_rows(const TileStage& stage, Beside& beside,
                                                                Between&& between) {
  const std::int64_t weighing = std::min(shape_.d_steps, Beside::row_steps);
  std::uint32_t fresh = 0;
  for (std::int64_t row = 1; row < stage.steps; ++row) {
    between();
    make_row(stage, row, weighing, beside);
    if constexpr (plain) continue;
    item_.finish(shape_, stage, scratch_, stage.keys_of(row), row_of(row));
    if (stage.queries->anchored == shape_.all_lanes()) continue;
    TileWeights weights = running<lanes>(beside.weights);
    weights.s = row_of(row);
    fresh |= anchor(shape_, weights, product_depth, *stage.queries);  // who see none of the earlier rows
    for_halves<lanes>([&]<int half>() HWY_ATTR {
      beside.weights.base[half] = weights.base[half];
      beside.weights.origin[half] = table_origin(weights.base[half]);
    });
  }
  return fresh;
}

/// The weights of the last row, beside the first columns of O where those do not need them too soon. Returns whether
/// registers hold these columns.
template <class Unit, int part_count>
template <class Beside>
HWY_INLINE bool WideOrder<Unit, part_count>::weigh_last_row(const TileStage& stage, Beside& beside) {
  const bool columns_too = stage.steps > Beside::row_steps && !stage.careful;
  if (columns_too) {
    begin_columns(stage, 0);
    add_values(stage, 0, {0, Beside::row_steps}, beside);
    tiles_.fence();
    add_values(stage, 0, {Beside::row_steps, stage.steps}, beside.later);
  } else {
    beside.up_to(stage.steps * row_pairs);
  }
  tiles_.fence();
  return columns_too;
}

template <class Unit, int part_count>
template <bool plain, int share, bool asks, class Between>
void WideOrder<Unit, part_count>::attend_by(const TileStage& stage, const LaterLines& later, Between&& between) {
  using Beside = PairsBeside<wide_exponential<plain, parts>, parts, share, asks>;
  TileWeights start =
      start_weights(shape_, *stage.queries, scratch_.s, scratch_.p[0], item_.rule.to_log2(!item_.rule.plain()));
  Beside first{start, {later.k}};
  between();
  make_row(stage, 0, 0, first);
  item_.finish(shape_, stage, scratch_, stage.keys_of(0), row_of(0));
  std::uint32_t fresh = 0;
  if (stage.queries->anchored != shape_.all_lanes()) fresh = anchor(shape_, start, product_depth, *stage.queries);
  for (int half = 0; half < 2; ++half) start_table(start, half);
  Beside beside{running<lanes>(start), first.later};
  fresh |= make_rows<plain>(stage, beside, between);
  beside.later.line = later.v;
  bool columns_there = weigh_last_row(stage, beside);
  if (stale_lanes<parts, lanes>(beside.weights, fresh) != 0) {
    TileWeights again = running<lanes>(beside.weights);
    settle(stage, fresh, again);
    columns_there = false;
  } else {
    for_halves<lanes>([&]<int half>() HWY_ATTR { add_sums(*stage.queries, beside.weights.sum[half], half); });
  }
  if (stage.careful) add_by_hand(shape_, stage, scratch_.p[0]);
  tiles_.fence();
  for (std::int64_t pair = 0; pair < shape_.value_pairs; ++pair) {
    if (pair > 0 || !columns_there) {
      begin_columns(stage, pair);
      add_values(stage, pair, {0, stage.steps}, beside.later);
    }
    store_sums(columns(stage, pair));
  }
  stage.queries->begun = true;
  tiles_.fence();
}

}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES
