// SPDX-License-Identifier: Apache-2.0
// The products of few queries on the tile unit. K and V are read as they lie, 16 keys by 32 columns being an operand,
// and multiplying them takes less time than reading them, however few the queries:
//
//     scores   S [16 keys][16 rows]     +=  K [16 keys][32 of D]       Q^T [pair of D][16 rows][2]
//     values   O [16 lines][16]         +=  P [16 lines][16 keys][2]   V   [16 keys][16 pairs of Dv][2]
//
// The unit adds both numbers of a pair, but a pair of V is two columns. So a weight stands alone in its pair of P,
// first in some lines and second in others, and a row has four: the unit sums its even and its odd columns apart. A
// weight is the sum of two bf16 numbers, so that a row loses no more than a float32 one whose output is bf16:
//
//     line     0 .. 3            4 .. 7            8 .. 11           12 .. 15
//     P        (high, 0)         (low, 0)          (0, high)         (0, low)        of rows 0 .. 3
//     O        even columns                        odd columns
//
// Memory is read at full rate only if it is asked without a pause, and a processor looks ahead by a few hundred
// instructions. So teams of rows meet blocks of keys in runs of up to eight, first K and then V, and between any two
// products stands some vector work for another team, and a request for what is read next:
//
//     over keys, team n      its scores are turned into rows, a tile later | weights of team n - 1 and their sum,
//                            relative to the largest score of the block
//     over values, team n    its weights are split, a tile ahead | sums of team n - 1 join o, both scaled to the
//                            largest score so far
//
// What passes between them is written a tile or two before it is read: the first level holds little beside what streams
// through it. The last team of a run is finished in the next steps.
//
// Sums over a block are made of zeros where a row or a key is not there, so a row computes the same alone as in
// company. Zero times a value that is not finite is no zero: sums that are not finite are made again by hand.

#if defined(FRESNEL_KERNELS_CPU_TILE_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FRESNEL_KERNELS_CPU_TILE_DECODE_INL_H_
#undef FRESNEL_KERNELS_CPU_TILE_DECODE_INL_H_
#else
#define FRESNEL_KERNELS_CPU_TILE_DECODE_INL_H_
#endif

#include "kernels/cpu/read_ahead-inl.h"
#include "kernels/cpu/tiles.hpp"
#include "kernels/cpu/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR  // a unit needs vectors beside it

using Number = hn::ScalableTag<std::uint16_t>;
using Numbers = hn::Vec<Number>;
inline constexpr std::int64_t numbers_at_once = HWY_LANES(std::uint16_t);

inline constexpr std::int64_t tile_depth = 32;                  ///< numbers of a line
inline constexpr std::int64_t block_tiles = decode_block / 16;  ///< of keys

/// Numbers [at, at + numbers_at_once) of a row of `width`, zeros beyond; of no row, zeros.
HWY_INLINE Numbers load_numbers(const BFloat16* row, std::int64_t at, std::int64_t width) {
  const Number d;
  if (row == nullptr || at >= width) return hn::Zero(d);
  const auto* const from = reinterpret_cast<const std::uint16_t*>(row) + at;
  if (at + numbers_at_once <= width) return hn::LoadU(d, from);
  HWY_ALIGN std::uint16_t padded[numbers_at_once] = {};
  std::copy_n(from, width - at, padded);
  return hn::Load(d, padded);
}

/// Where rows of K or V lie as an operand, for 16 keys.
struct KeyTile {
  const std::byte* from;
  std::ptrdiff_t stride;  ///< bytes
  [[nodiscard]] const std::byte* columns(std::int64_t step) const { return from + step * tile_width; }
};

/// Rows of an item that meet the same keys of a block together.
struct Team {
  const DecodeRow<float>* rows = nullptr;
  std::int64_t first = 0, count = 0;        ///< which rows of the item
  KeyRange keys{};                          ///< of the block
  std::int64_t block = 0;                   ///< its first key
  bool asks = false;                        ///< for what is read next; another team of the block has asked already
  float* weights = nullptr;                 ///< [16 rows][keys of the block], scores before
  float before[tile_team], now[tile_team];  ///< what o so far, and the sums over the block, are scaled by

  [[nodiscard]] KeyRange tile(std::int64_t index) const { return {block + 16 * index, block + 16 * index + 16}; }
};

/// Asks the first level for as many rows as are read, 4 KB ahead, a few at a time: more than a dozen lines at once
/// would have to wait for each other. After the rows before `last` come those of `then`.
class AskAhead {
 public:
  HWY_INLINE AskAhead(Rows<const BFloat16> rows, std::int64_t width, std::int64_t first, std::int64_t last,
                      Rows<const BFloat16> then, const KeyRange& range)
      : width_(width) {
    constexpr std::int64_t size = sizeof(BFloat16);
    const std::int64_t at = first + std::clamp<std::int64_t>(4096 / (width * size), 16, 256) / 16 * 16;
    const bool here = at < last;
    const std::int64_t row = here ? at : range.first + (at - last);
    const Rows<const BFloat16>& asked = here ? rows : then;
    rest_ = std::clamp<std::int64_t>((here ? last : range.last) - row, 0, 16);
    if (rest_ == 0) return;  // no such row: its address may not even be a number
    from_ = asked.row(row);
    stride_ = asked.stride;
  }
  /// A quarter of them.
  HWY_INLINE void some() {
    if (rest_ == 16 && stride_ == width_) return lines(from_ + 4 * taken_++ * width_, 4 * width_);
    for (std::int64_t row = 4 * taken_++, end = std::min(row + 4, rest_); row < end; ++row)
      lines(from_ + row * stride_, width_);
  }
  HWY_INLINE void nothing() { rest_ = 0; }

 private:
  static HWY_INLINE void lines(const BFloat16* from, std::int64_t numbers) {
    constexpr std::int64_t line = 64 / sizeof(BFloat16);
    for (; numbers >= 4 * line; numbers -= 4 * line, from += 4 * line) {
      __builtin_prefetch(from, 0, 3);
      __builtin_prefetch(from + line, 0, 3);
      __builtin_prefetch(from + 2 * line, 0, 3);
      __builtin_prefetch(from + 3 * line, 0, 3);
    }
    for (; numbers > 0; numbers -= line, from += line) __builtin_prefetch(from, 0, 3);
  }

  const BFloat16* from_ = nullptr;
  std::ptrdiff_t stride_ = 0;
  std::int64_t width_, rest_, taken_ = 0;
};

/// `Unit` is HardwareTiles, or a portable one in tests.
template <class Unit>
class TileProducts {
 public:
  using Element = BFloat16;

  TileProducts(Carver& carver, const Launch& launch, std::int64_t rows)
      : problem_(launch.plan.problem),
        d_steps_(tiles_of(problem_.head_dim, tile_depth)),
        value_steps_(tiles_of(problem_.value_dim, tile_depth)),
        scratch_(carver, problem_, launch.plan.tile) {
    std::fill_n(scratch_.q, tiles_of(rows, tile_team) * d_steps_ * 2 * tile_numbers, std::uint16_t{0});
    for (std::int64_t team = 0; team < TileDecodeScratch::teams; ++team)
      all_teams_[team].weights = scratch_.weights + team * tile_team * decode_block;
    std::fill_n(scratch_.p, tiles_of(std::min<std::int64_t>(rows, tile_team), 4) * p_slots * tile_numbers, 0u);
  }

  void place(std::int64_t row, const BFloat16* q) {
    std::uint16_t* const to = q_of(row / tile_team) + row % tile_team * 2;
    for (std::int64_t at = 0; at < problem_.head_dim; ++at) to[at / 2 * tile_depth + at % 2] = q[at].bits;
  }
  /// Of 32 columns, the even ones come first.
  [[nodiscard]] static std::int64_t place_in_o(std::int64_t at, std::int64_t /*width*/) {
    return at / 32 * 32 + at % 2 * 16 + at % 32 / 2;
  }
  [[nodiscard]] static std::int64_t o_width(std::int64_t width) { return decode_o_width(width); }

  /// The state of every row over its keys of `keys`, which begin with a block; rows `next` of K are read then. What is
  /// still missing after the last team comes in with the next chunk's, or with finish().
  void attend(DecodeRow<float>* rows, std::int64_t count, Rows<const BFloat16> k, Rows<const BFloat16> v,
              const KeyRange& keys, const KeyRange& next) {
    k_ = k;
    v_ = v;
    run_ = {keys.first, keys.last};
    for (std::int64_t key = keys.first; key < keys.last; key += decode_block) {
      bool asks = true;
      for_rows_together<tile_team>(rows, count, {key, key + decode_block},
                                   [&](std::int64_t together, const DecodeRow<float>* from, const KeyRange& seen)
                                       HWY_ATTR {
                                         if (teams_ == most_teams) {
                                           run_.last = key;
                                           meet({key, keys.last});
                                           run_ = {key, keys.last};
                                         }
                                         Team& team = team_of(teams_++);
                                         team.rows = from;
                                         team.first = from - rows;
                                         team.count = together;
                                         team.keys = seen;
                                         team.block = key;
                                         team.asks = asks;
                                         asks = false;
                                       });
    }
    meet(next);
  }
  void finish() {
    for (std::int64_t row = 0; row < summed_->count; ++row) add_sums(*summed_, row);
    summed_ = &none_;
  }

 private:
  static constexpr std::int64_t tile_numbers = TileDecodeScratch::tile;
  static constexpr std::int64_t most_teams = TileDecodeScratch::teams / 2;  ///< of a run

  [[nodiscard]] std::uint16_t* q_of(std::int64_t team) const { return scratch_.q + team * d_steps_ * tile_numbers * 2; }
  /// Teams of a run; those of the run before keep their places.
  [[nodiscard]] Team& team_of(std::int64_t index) {
    return all_teams_[(first_team_ + index) % TileDecodeScratch::teams];
  }

  /// Q of a team, packed anew where its first row is not the first of 16.
  const std::uint16_t* q_for(const Team& of) const {
    if (of.first % tile_team == 0) return q_of(of.first / tile_team);
    const std::int64_t lines = d_steps_ * 16;
    std::fill_n(scratch_.team_q, lines * tile_depth, std::uint16_t{0});
    for (std::int64_t row = 0; row < of.count; ++row) {
      const std::int64_t index = of.first + row;
      const std::uint16_t* const from = q_of(index / tile_team) + index % tile_team * 2;
      for (std::int64_t line = 0; line < lines; ++line)
        std::copy_n(from + line * tile_depth, 2, scratch_.team_q + line * tile_depth + row * 2);
    }
    return scratch_.team_q;
  }

  /// 16 keys of a block: as they lie where they are all there and their columns fill `steps`, else copied among zeros.
  HWY_INLINE KeyTile key_tile(const Team& of, Rows<const BFloat16> rows, std::int64_t tile, std::int64_t width,
                              std::int64_t steps) const {
    const std::int64_t padded = steps * tile_depth;
    const KeyRange keys = of.tile(tile);
    if (of.keys.first <= keys.first && keys.last <= of.keys.last && width == padded)
      return {reinterpret_cast<const std::byte*>(rows.row(keys.first)),
              rows.stride * static_cast<std::ptrdiff_t>(sizeof(BFloat16))};
    std::uint16_t* const copy = scratch_.keys + tile * 16 * padded;
    for (std::int64_t line = 0; line < 16; ++line) {
      const std::int64_t key = keys.first + line;
      const bool there = of.keys.first <= key && key < of.keys.last;
      for (std::int64_t at = 0; at < padded; at += numbers_at_once)
        hn::Store(load_numbers(there ? rows.row(key) : nullptr, at, width), Number(), copy + line * padded + at);
    }
    return {reinterpret_cast<const std::byte*>(copy), padded * static_cast<std::ptrdiff_t>(sizeof(BFloat16))};
  }

  /// The teams gathered meet their keys. Rows `next` of K come after.
  void meet(const KeyRange& next) {
    if (teams_ == 0) return;
    for (std::int64_t index = 0; index < teams_; ++index)
      key_step(team_of(index), index > 0 ? team_of(index - 1) : none_);
    unit_.fence();
    Team &first = team_of(0), &last = team_of(teams_ - 1);
    if (teams_ == 1) {  // no step of another team stands between
      for (int part = 0; part < 4; ++part) hand_out(last, 3, 4 * part);
      for (std::int64_t row = 0; row < last.count; ++row) weigh_block(last, row);
    }
    for (int part = 0; part < 4; ++part) split_weights(first, 0, part);
    for (std::int64_t index = 0; index < teams_; ++index)
      value_step(team_of(index), index + 1 < teams_ ? team_of(index + 1) : none_,
                 index == 0 && teams_ > 1 ? last : none_, next);
    first_team_ = (first_team_ + teams_) % TileDecodeScratch::teams;
    teams_ = 0;
  }

  /// Products of a team over keys. Registers: S 0, K 5 and 6 in turn, Q 1 to 4, or 7 where it has more steps.
  void key_step(Team& now, Team& before) {
    KeyTile tiles[block_tiles];
    for (std::int64_t tile = 0; tile < block_tiles; ++tile)
      tiles[tile] = key_tile(now, k_, tile, problem_.head_dim, d_steps_);
    const std::uint16_t* const q = q_for(now);
    const bool q_stays = d_steps_ <= 4;
    unit_.fence();
    if (q_stays) load_q(q);
    for (std::int64_t tile = 0; tile < block_tiles; ++tile) {
      AskAhead ahead(k_, problem_.head_dim, now.tile(tile).first, run_.last, v_, run_);
      if (!now.asks) ahead.nothing();
      unit_.fence();
      unit_.template zero<0>();
      const auto part = [&]<int at>() HWY_ATTR {
        if (q_stays && at < d_steps_) {
          unit_.template load<5 + at % 2>(tiles[tile].columns(at), tiles[tile].stride);
        }
        for (std::int64_t step = at * d_steps_ / 4; step < (at + 1) * d_steps_ / 4 && !q_stays; ++step) {
          unit_.template load<7>(q + step * 2 * tile_numbers, tile_width);
          unit_.template load<5 + at % 2>(tiles[tile].columns(step), tiles[tile].stride);
          unit_.template multiply_add<0, 5 + at % 2, 7>();
        }
        ahead.some();
        if (tile == 0) {
          hand_out(before, 3, 4 * at);
        } else {
          hand_out(now, tile - 1, 4 * at);
        }
        if (q_stays && at < d_steps_) unit_.template multiply_add<0, 5 + at % 2, 1 + at>();
        const std::int64_t row = 4 * at + tile;
        if (row < before.count) weigh_block(before, row);
        if (row < summed_->count) add_sums(*summed_, row);
      };
      part.template operator()<0>();
      part.template operator()<1>();
      part.template operator()<2>();
      part.template operator()<3>();
      unit_.template store<0>(scratch_.s + tile % 2 * tile_numbers, tile_width);
    }
    summed_ = &none_;
  }

  HWY_INLINE void load_q(const std::uint16_t* q) {
    unit_.template load<1>(q, tile_width);
    if (d_steps_ > 1) unit_.template load<2>(q + 2 * tile_numbers, tile_width);
    if (d_steps_ > 2) unit_.template load<3>(q + 4 * tile_numbers, tile_width);
    if (d_steps_ > 3) unit_.template load<4>(q + 6 * tile_numbers, tile_width);
  }

  /// Products of a team over values. Registers: O 0 to 3, V 5 and 6 in turn, P 7.
  void value_step(Team& now, const Team& next, Team& scored, const KeyRange& next_keys) {
    KeyTile tiles[block_tiles];
    for (std::int64_t tile = 0; tile < block_tiles; ++tile)
      tiles[tile] = key_tile(now, v_, tile, problem_.value_dim, value_steps_);
    zero_sums();
    for (std::int64_t tile = 0; tile < block_tiles; ++tile) {
      AskAhead ahead(v_, problem_.value_dim, now.tile(tile).first, run_.last, k_, next_keys);
      if (!now.asks) ahead.nothing();
      unit_.fence();
      unit_.template load<7>(p_of(now, 0, tile), tile_width);
      const auto part = [&]<int at>() HWY_ATTR {
        if (at < value_steps_) {
          unit_.template load<5 + at % 2>(tiles[tile].columns(at), tiles[tile].stride);
        }
        ahead.some();
        if (tile == 0) hand_out(scored, 3, 4 * at);
        if (at < value_steps_) unit_.template multiply_add<at, 7, 5 + at % 2>();
        const std::int64_t row = 4 * at + tile;
        if (row < scored.count) weigh_block(scored, row);
        if (tile == 3) {
          split_weights(next, 0, at);
        } else {
          split_weights(now, tile + 1, at);
        }
        if (row < summed_->count) add_sums(*summed_, row);
      };
      part.template operator()<0>();
      part.template operator()<1>();
      part.template operator()<2>();
      part.template operator()<3>();
    }
    unit_.fence();
    finish_values(now, tiles);
    summed_ = &now;
  }

  /// Four rows take their scores of 16 keys.
  HWY_INLINE void hand_out(const Team& of, std::int64_t tile, std::int64_t line) const {
    if (line >= of.count) return;
    const Full<float> d;
    const Rows<const float> s{scratch_.s + tile % 2 * tile_numbers, 16};
    float* const to = of.weights + line * decode_block + tile * 16;
    for (std::int64_t lane = 0; lane < 16; lane += lanes_of<float>) {
      Vector<float> v[4];
      for (std::int64_t row = 0; row < 4; ++row) v[row] = load_blocks(d, s, lane + row, 16, line);
      transpose_blocks(v);
      for (std::int64_t row = 0; row < 4; ++row) hn::Store(v[row], d, to + row * decode_block + lane);
    }
  }

  /// A row's scores become weights.
  HWY_INLINE void weigh_block(Team& of, std::int64_t line) const {
    const DecodeRow<float>& row = of.rows[line];
    float* const weights = of.weights + line * decode_block;
    const std::int64_t from = of.keys.first - of.block, count = of.keys.size();
    if (from > 0) std::copy_n(weights + from, count, weights);
    const float m = finish_scores(row.rule, of.keys.first - row.position, count, weights);
    const float sum = weigh(m, count, weights);
    if (from > 0) std::copy_backward(weights, weights + count, weights + from + count);
    if (count < decode_block) {
      std::fill_n(weights, from, 0.0f);
      std::fill(weights + from + count, weights + decode_block, 0.0f);
    }
    raise(row, m, sum, fresh(of, line), of.before[line], of.now[line]);
  }
  /// The first block that the row sees.
  [[nodiscard]] static bool fresh(const Team& of, std::int64_t line) { return of.block <= of.rows[line].seen.first; }

  /// A block's largest score and sum join a row's state; its o so far and its sums are to be scaled by `before` and
  /// `now`. As State::push of semantics/softmax.hpp.
  HWY_INLINE void raise(const DecodeRow<float>& row, float m, float sum, bool fresh, float& before, float& now) const {
    constexpr float none = -std::numeric_limits<float>::infinity();
    before = now = 1;
    if (fresh) {
      *row.state.m = m;
      *row.state.l = sum;
      return;
    }
    const bool higher = m > *row.state.m;
    const float lower = higher ? *row.state.m : m, highest = higher ? m : *row.state.m;
    const float by =
        lower == none ? 0.0f : hn::GetLane(exp_nonpositive<float>(hn::Set(Full<float>(), lower - highest)));
    (higher ? before : now) = by;
    *row.state.l = *row.state.l * before + sum * now;
    *row.state.m = highest;
  }

  /// Four rows' weights of 16 keys go to their lines of P.
  HWY_INLINE void split_weights(const Team& of, std::int64_t tile, std::int64_t four) const {
    const std::int64_t rows = std::min<std::int64_t>(of.count - 4 * four, 4);
    if (rows <= 0) return;
    const float* from = of.weights + 4 * four * decode_block + tile * 16;
    std::uint32_t* to = p_of(of, four, tile);
    for (std::int64_t row = 0; row < rows; ++row, from += decode_block, to += 16) split_row(from, to);
  }
  static HWY_INLINE void split_row(const float* weights, std::uint32_t* to) {
    const Full<float> d;
    const hn::RebindToUnsigned<Full<float>> du;
    const auto upper_half = hn::Set(du, 0xffff0000u);
    for (std::int64_t at = 0; at < 16; at += lanes_of<float>) {
      const auto weight = hn::Load(d, weights + at);
      const auto high = hn::And(hn::BitCast(du, weight), upper_half);
      const auto rest = hn::BitCast(du, hn::Sub(weight, hn::BitCast(d, high)));
      const auto low = hn::And(hn::Add(rest, hn::Set(du, 0x8000u)), upper_half);  // of NaN, anything: high is NaN
      hn::Store(hn::ShiftRight<16>(high), du, to + at);
      hn::Store(hn::ShiftRight<16>(low), du, to + 64 + at);
      hn::Store(high, du, to + 128 + at);
      hn::Store(low, du, to + 192 + at);
    }
  }

  /// P of four rows and a tile of keys. That of the first four is read at once, and two slots will do; others, or
  /// further columns, wait for the end of their step, while the next team begins to write its own.
  static constexpr std::int64_t p_slots = TileDecodeScratch::p_slots;
  [[nodiscard]] std::uint32_t* p_of(const Team& of, std::int64_t four, std::int64_t tile) const {
    const std::int64_t turn = (&of - all_teams_) % 2;
    const std::int64_t slot = four == 0 && value_steps_ <= 4 ? tile % 2 : turn * block_tiles + tile;
    return scratch_.p + (four * p_slots + slot) * tile_numbers;
  }

  /// The first four rows and 128 columns have been multiplied step by step. The others follow in one go, their values
  /// in the first level by now.
  HWY_INLINE void finish_values(const Team& now, const KeyTile* tiles) {
    store_sums(0, 0);
    for (std::int64_t four = 0; 4 * four < now.count; ++four) {
      for (std::int64_t first = four == 0 ? 4 : 0; first < value_steps_; first += 4) {
        zero_sums();
        for (std::int64_t tile = 0; tile < block_tiles; ++tile) {
          unit_.template load<7>(p_of(now, four, tile), tile_width);
          multiply_columns<0>(tiles[tile], first);
          multiply_columns<1>(tiles[tile], first);
          multiply_columns<2>(tiles[tile], first);
          multiply_columns<3>(tiles[tile], first);
        }
        store_sums(four, first);
      }
    }
    unit_.fence();
  }
  template <int at>
  HWY_INLINE void multiply_columns(const KeyTile& v, std::int64_t first) {
    if (first + at >= value_steps_) return;
    unit_.template load<5>(v.columns(first + at), v.stride);
    unit_.template multiply_add<at, 7, 5>();
  }
  HWY_INLINE void zero_sums() {
    unit_.template zero<0>();
    unit_.template zero<1>();
    unit_.template zero<2>();
    unit_.template zero<3>();
  }
  HWY_INLINE void store_sums(std::int64_t four, std::int64_t first) {
    float* const to = scratch_.o + (four * value_steps_ + first) * tile_numbers;
    unit_.template store<0>(to, tile_width);
    if (first + 1 < value_steps_) unit_.template store<1>(to + tile_numbers, tile_width);
    if (first + 2 < value_steps_) unit_.template store<2>(to + 2 * tile_numbers, tile_width);
    if (first + 3 < value_steps_) unit_.template store<3>(to + 3 * tile_numbers, tile_width);
  }

  /// A row's sums over a block, high parts and low parts, even columns and odd, join its o.
  HWY_INLINE void add_sums(const Team& of, std::int64_t line) const {
    const Full<float> d;
    const hn::RebindToUnsigned<Full<float>> du;
    const bool first = fresh(of, line);
    const auto before = hn::Set(d, of.before[line]), now = hn::Set(d, of.now[line]);
    for (std::int64_t step = 0; step < value_steps_; ++step) {
      const float* const from = scratch_.o + (line / 4 * value_steps_ + step) * tile_numbers + line % 4 * 16;
      HWY_ALIGN float sums[32];
      auto odd_one = hn::Zero(d);
      for (std::int64_t at = 0; at < 32; at += lanes_of<float>) {
        const float* const high = from + at / 16 * 128 + at % 16;
        const auto sum = hn::Add(hn::Load(d, high), hn::Load(d, high + 64));
        odd_one = hn::Or(odd_one, hn::Sub(sum, sum));  // zero, or NaN
        hn::Store(sum, d, sums + at);
      }
      if (!hn::AllTrue(du, hn::Eq(hn::BitCast(du, odd_one), hn::Zero(du)))) sum_by_hand(of, line, step, sums);
      float* const o = of.rows[line].state.o + step * 32;
      for (std::int64_t at = 0; at < 32; at += lanes_of<float>) {
        const auto sum = hn::Load(d, sums + at);
        hn::StoreU(first ? sum : hn::MulAdd(sum, now, hn::Mul(load(o + at), before)), d, o + at);
      }
    }
  }

  void sum_by_hand(const Team& of, std::int64_t line, std::int64_t step, float* sums) const {
    const float* const weights = of.weights + line * decode_block;
    std::fill_n(sums, 32, 0.0f);
    const std::int64_t last = std::min(problem_.value_dim, (step + 1) * 32);
    for (std::int64_t key = of.keys.first; key < of.keys.last; ++key)
      for (std::int64_t at = step * 32; at < last; ++at)
        sums[place_in_o(at, last) - step * 32] += weights[key - of.block] * to_real(v_.row(key)[at]);
  }

  const Problem& problem_;
  std::int64_t d_steps_, value_steps_;
  TileDecodeScratch scratch_;
  Unit unit_;
  Rows<const BFloat16> k_{}, v_{};
  KeyRange run_{};                            ///< keys of a run
  Team all_teams_[TileDecodeScratch::teams];  ///< of a run and of the one before
  std::int64_t first_team_ = 0, teams_ = 0;   ///< of the run
  Team none_;
  const Team* summed_ = &none_;  ///< has sums in scratch that have not joined o
};

#endif  // HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard toggled per target
