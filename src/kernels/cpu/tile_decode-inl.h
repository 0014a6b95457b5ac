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
// instructions. So a team of rows meets all K of a chunk and then all V of it, and between any two products stands some
// vector work for another tile, and a request for what is read next:
//
//     over K, tile n    scores of tile n - 2 are scaled, their largest noted
//     over V, set n     scores of set n + 1, 4 tiles of 4 rows, become weights and lines of P
//
// What is written by one side waits that long before the other reads it: no tile can be loaded from a store that is on
// its way. Vectors hold scores and weights as they come, four rows by as many keys as there are lanes for, and are
// turned round only where they become P.
//
// Sums are made of zeros where a row or a key is not there, so a row computes the same alone as in company. Zero times
// a value that is not finite is no zero: sums that are not finite are made again by hand.

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
inline constexpr std::int64_t block_tiles = decode_block / 16;  ///< of keys that are looked at together

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

/// Four rows of a team. Of 16 keys they have 4 x 16 scores, then weights, key 4 b + i of row r in number 4 b + r of
/// line i.
struct Quad {
  static constexpr std::int64_t numbers = 64;
  HWY_ALIGN std::int32_t away[16];  ///< ALiBi: from the row's position to the keys of line 0 of the team's first tile
  HWY_ALIGN float slope[16];        ///< the row's
  HWY_ALIGN float most[16];         ///< largest scores; then those of the row, or 0, which weights are relative to
  HWY_ALIGN float sum[16];          ///< of weights
};

/// Rows of an item that meet the same keys of a chunk together.
struct Team {
  const DecodeRow<float>* rows = nullptr;
  std::int64_t first = 0, count = 0;  ///< which rows of the item
  KeyRange keys{};                    ///< what they see of the chunk
  std::int64_t start = 0;             ///< key 0 of its tiles, at or before that
  bool asks = false;                  ///< for what is read next; another team has asked already

  [[nodiscard]] std::int64_t quads() const { return tiles_of(count, 4); }
  [[nodiscard]] std::int64_t blocks() const { return tiles_of(keys.last - start, decode_block); }
  [[nodiscard]] KeyRange tile(std::int64_t index) const { return {start + 16 * index, start + 16 * index + 16}; }
};

/// How far ahead rows are asked for: 6 KB for the first level, and another 16 KB for the second.
struct Reach {
  explicit Reach(std::int64_t row) : width(row), near(rows_in(6144, 16)), far(rows_in(16384, 4)) {}
  std::int64_t width;      ///< of a row
  std::int64_t near, far;  ///< rows

 private:
  [[nodiscard]] std::int64_t rows_in(std::int64_t bytes, std::int64_t least) const {
    return std::clamp<std::int64_t>(bytes / (width * static_cast<std::int64_t>(sizeof(BFloat16))), least, 256) / 4 * 4;
  }
};

/// Asks the first level for as many rows as are read, a few at a time: more than a dozen lines at once would have to
/// wait for each other; and the second level for a line of them, which sets off the processor's own requests in a page
/// that nothing was read from yet. After the rows before `last` come those of `then`.
class AskAhead {
 public:
  HWY_INLINE AskAhead(Rows<const BFloat16> rows, const Reach& reach, std::int64_t first, std::int64_t last,
                      Rows<const BFloat16> then, const KeyRange& range)
      : rows_(rows), then_(then), range_(range), last_(last), at_(first + reach.near), reach_(reach) {}
  /// A quarter of them.
  HWY_INLINE void some() {
    const bool here = at_ < last_;
    const std::int64_t row = here ? at_ : range_.first + (at_ - last_);
    const std::int64_t left = (here ? last_ : range_.last) - row;
    at_ += 4;
    if (left <= 0) return;  // no such row: its address may not even be a number
    const Rows<const BFloat16>& asked = here ? rows_ : then_;
    const BFloat16* const from = asked.row(row);
    if (reach_.far < left) __builtin_prefetch(from + reach_.far * asked.stride, 0, 2);
    if (left >= 4 && asked.stride == reach_.width) return lines(from, 4 * reach_.width);
    for (std::int64_t one = 0; one < std::min<std::int64_t>(left, 4); ++one)
      lines(from + one * asked.stride, reach_.width);
  }
  HWY_INLINE void nothing() {
    last_ = 0;
    range_ = {};
  }

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

  Rows<const BFloat16> rows_, then_;
  KeyRange range_;
  std::int64_t last_, at_;
  const Reach& reach_;
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
        to_k_(problem_.head_dim),
        to_v_(problem_.value_dim),
        scratch_(carver, problem_, launch.plan.tile) {
    std::fill_n(scratch_.q, tiles_of(rows, tile_team) * d_steps_ * 2 * tile_numbers, std::uint16_t{0});
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

  /// The state of every row over its keys of `keys`, a chunk or what rows see of it; then `upcoming` is read.
  void attend(DecodeRow<float>* rows, std::int64_t count, Rows<const BFloat16> k, Rows<const BFloat16> v,
              const KeyRange& keys, const Upcoming<BFloat16>& upcoming) {
    k_ = k;
    v_ = v;
    upcoming_ = upcoming;
    bool asks = true;
    for_rows_together<tile_team>(
        rows, count, keys, [&](std::int64_t together, const DecodeRow<float>* from, const KeyRange& seen) HWY_ATTR {
          const std::int64_t start = keys.first + (seen.first - keys.first) / decode_block * decode_block;
          team_ = {from, from - rows, together, seen, start, std::exchange(asks, false)};
          begin_team();
          meet_keys();
          set_bases();
          meet_values();
          for (std::int64_t row = 0; row < team_.count; ++row) {
            if (row < extra_tiles) ask_at_value_tile(team_.blocks() * block_tiles + row);
            take_sums(row);
          }
        });
  }

 private:
  static constexpr std::int64_t tile_numbers = TileDecodeScratch::tile;
  /// For so many tiles more is asked where vectors work alone for a while.
  static constexpr std::int64_t extra_tiles = 4;

  [[nodiscard]] std::uint16_t* q_of(std::int64_t team) const { return scratch_.q + team * d_steps_ * tile_numbers * 2; }
  [[nodiscard]] float* numbers_of(std::int64_t tile, std::int64_t quad) const {
    return scratch_.scores + (tile * team_.quads() + quad) * Quad::numbers;
  }

  /// Q of the team, packed anew where its first row is not the first of 16.
  const std::uint16_t* q_for_team() const {
    if (team_.first % tile_team == 0) return q_of(team_.first / tile_team);
    const std::int64_t lines = d_steps_ * 16;
    std::fill_n(scratch_.team_q, lines * tile_depth, std::uint16_t{0});
    for (std::int64_t row = 0; row < team_.count; ++row) {
      const std::int64_t index = team_.first + row;
      const std::uint16_t* const from = q_of(index / tile_team) + index % tile_team * 2;
      for (std::int64_t line = 0; line < lines; ++line)
        std::copy_n(from + line * tile_depth, 2, scratch_.team_q + line * tile_depth + row * 2);
    }
    return scratch_.team_q;
  }

  /// 16 keys: as they lie where they are all there and their columns fill `steps`, else copied among zeros.
  HWY_INLINE KeyTile key_tile(Rows<const BFloat16> rows, std::int64_t tile, std::int64_t width,
                              std::int64_t steps) const {
    const std::int64_t padded = steps * tile_depth;
    const KeyRange keys = team_.tile(tile);
    if (team_.keys.first <= keys.first && keys.last <= team_.keys.last && width == padded)
      return {reinterpret_cast<const std::byte*>(rows.row(keys.first)),
              rows.stride * static_cast<std::ptrdiff_t>(sizeof(BFloat16))};
    std::uint16_t* const copy = scratch_.keys + tile % block_tiles * 16 * padded;
    for (std::int64_t line = 0; line < 16; ++line) {
      const std::int64_t key = keys.first + line;
      const bool there = team_.keys.first <= key && key < team_.keys.last;
      for (std::int64_t at = 0; at < padded; at += numbers_at_once)
        hn::Store(load_numbers(there ? rows.row(key) : nullptr, at, width), Number(), copy + line * padded + at);
    }
    return {reinterpret_cast<const std::byte*>(copy), padded * static_cast<std::ptrdiff_t>(sizeof(BFloat16))};
  }

  void begin_team() {
    for (std::int64_t at = 0; at < 16 * team_.quads(); ++at) {
      const std::int64_t lane = at % 16, row = std::min(at / 16 * 4 + lane % 4, team_.count - 1);
      const DecodeRow<float>& of = team_.rows[row];
      Quad& quad = quads_[at / 16];
      quad.away[lane] = static_cast<std::int32_t>(team_.start + lane / 4 * 4 - of.position);
      quad.slope[lane] = of.rule.slope;
      quad.most[lane] = -std::numeric_limits<float>::infinity();
      quad.sum[lane] = 0;
    }
  }

  /// Products over K. Registers: S 0, K 5 and 6 in turn, Q 1 to 4, or 7 where it has more steps.
  void meet_keys() {
    const std::uint16_t* const q = q_for_team();
    const bool q_stays = d_steps_ <= 4;
    unit_.fence();
    if (q_stays) load_q(q);
    const std::int64_t last = team_.blocks() * block_tiles;
    KeyTile tiles[block_tiles];
    for (std::int64_t tile = 0; tile < last; ++tile) {
      if (tile % block_tiles == 0) {
        unit_.fence();
        for (std::int64_t one = 0; one < block_tiles; ++one)
          tiles[one] = key_tile(k_, tile + one, problem_.head_dim, d_steps_);
      }
      const KeyTile& k = tiles[tile % block_tiles];
      AskAhead ahead(k_, to_k_, team_.tile(tile).first, team_.keys.last, v_, team_.keys);
      if (!team_.asks) ahead.nothing();
      unit_.fence();
      unit_.template zero<0>();
      const auto part = [&]<int at>() HWY_ATTR {
        if (q_stays && at < d_steps_) {
          unit_.template load<5 + at % 2>(k.columns(at), k.stride);
        }
        for (std::int64_t step = at * d_steps_ / 4; step < (at + 1) * d_steps_ / 4 && !q_stays; ++step) {
          unit_.template load<7>(q + step * 2 * tile_numbers, tile_width);
          unit_.template load<5 + at % 2>(k.columns(step), k.stride);
          unit_.template multiply_add<0, 5 + at % 2, 7>();
        }
        ahead.some();
        if (tile >= 2) take_scores(tile - 2, at);
        if (q_stays && at < d_steps_) unit_.template multiply_add<0, 5 + at % 2, 1 + at>();
      };
      part.template operator()<0>();
      part.template operator()<1>();
      part.template operator()<2>();
      part.template operator()<3>();
      unit_.template store<0>(s_of(tile), tile_width);
    }
    unit_.fence();
    for (std::int64_t tile = last - 2; tile < last; ++tile)
      for (int line = 0; line < 4; ++line) take_scores(tile, line);
  }

  /// Asks for what a tile of V, or of what comes after V, asks for.
  void ask_at_value_tile(std::int64_t tile) const {
    if (!team_.asks) return;
    AskAhead ahead(v_, to_v_, team_.tile(tile).first, team_.keys.last, upcoming_.k, upcoming_.keys);
    for (int part = 0; part < 4; ++part) ahead.some();
  }

  HWY_INLINE void load_q(const std::uint16_t* q) {
    unit_.template load<1>(q, tile_width);
    if (d_steps_ > 1) unit_.template load<2>(q + 2 * tile_numbers, tile_width);
    if (d_steps_ > 2) unit_.template load<3>(q + 4 * tile_numbers, tile_width);
    if (d_steps_ > 3) unit_.template load<4>(q + 6 * tile_numbers, tile_width);
  }
  [[nodiscard]] float* s_of(std::int64_t tile) const {
    return scratch_.s + tile % TileDecodeScratch::s_slots * tile_numbers;
  }

  /// Every fourth key of a tile: scores of all rows, finished.
  HWY_INLINE void take_scores(std::int64_t tile, int line) {
    const Full<float> d;
    const Rows<const float> s{s_of(tile), 16};
    const KeyRange keys = team_.tile(tile);
    const bool hides = keys.first < team_.keys.first || keys.last > team_.keys.last;
    const ScoreRule<float>& rule = team_.rows->rule;
    for (std::int64_t of = 0; of < team_.quads(); ++of) {
      Quad& quad = quads_[of];
      float* const to = numbers_of(tile, of) + line * 16;
      for (std::int64_t lane = 0; lane < 16; lane += lanes_of<float>) {
        auto score = hn::Mul(load_blocks(d, s, lane + line, 16, 4 * of), hn::Set(d, rule.scale));
        if (!rule.plain()) score = biased(quad, tile, line, lane, score);
        if (hides) score = hidden_out(keys.first, line, lane, score);
        hn::Store(score, d, to + lane);
        hn::Store(hn::Max(hn::Load(d, quad.most + lane), score), d, quad.most + lane);
      }
    }
  }
  HWY_INLINE Vector<float> biased(const Quad& quad, std::int64_t tile, int line, std::int64_t lane,
                                  Vector<float> score) const {
    const Full<float> d;
    const ScoreRule<float>& rule = team_.rows->rule;
    if (rule.softcap != 0) score = soft_capped<float>(score, rule.softcap);
    if (!rule.alibi) return score;
    const hn::RebindToSigned<Full<float>> di;
    const auto here = hn::Set(di, static_cast<std::int32_t>(16 * tile + line));
    auto away = hn::ConvertTo(d, hn::Add(hn::Load(di, quad.away + lane), here));
    if (rule.distance) away = hn::Neg(hn::Abs(away));
    return hn::Add(score, hn::Mul(hn::Load(d, quad.slope + lane), away));
  }
  /// -inf for keys that the team does not see.
  HWY_INLINE Vector<float> hidden_out(std::int64_t first, int line, std::int64_t lane, Vector<float> score) const {
    const Full<float> d;
    HWY_ALIGN float kept[lanes_of<float>];
    hn::Store(score, d, kept);
    for (std::int64_t at = 0; at < lanes_of<float>; ++at) {
      const std::int64_t key = first + (lane + at) / 4 * 4 + line;
      if (key < team_.keys.first || key >= team_.keys.last) kept[at] = -std::numeric_limits<float>::infinity();
    }
    return hn::Load(d, kept);
  }

  /// The largest score of every row, which its weights are relative to.
  void set_bases() {
    for (std::int64_t row = 0; row < 4 * team_.quads(); ++row) {
      float* const most = quads_[row / 4].most + row % 4;
      float m = most[0];
      for (int block = 4; block < 16; block += 4)
        if (most[block] > m) m = most[block];
      if (row < team_.count) *team_.rows[row].state.m = m;
      const float base = m == -std::numeric_limits<float>::infinity() ? 0 : m;
      for (int block = 0; block < 16; block += 4) most[block] = base;
    }
  }

  /// Products over V. Registers: O 0 to 3, V 5 and 6 in turn, P 7. O of the only four rows and columns stays there.
  void meet_values() {
    const std::int64_t quads = team_.quads(), groups = tiles_of(value_steps_, 4), blocks = team_.blocks();
    const bool o_stays = quads * groups == 1;
    for (std::int64_t tile = 0; tile < block_tiles; ++tile) {
      if (tile < extra_tiles) ask_at_value_tile(tile);
      for (int part = 0; part < 4; ++part) make_weights(0, tile, part);
    }
    for (std::int64_t set = 0; set < blocks * quads; ++set) {
      const std::int64_t block = set / quads, quad = set % quads;
      KeyTile tiles[block_tiles];
      unit_.fence();
      for (std::int64_t tile = 0; tile < block_tiles; ++tile)
        tiles[tile] = key_tile(v_, block * block_tiles + tile, problem_.value_dim, value_steps_);
      for (std::int64_t group = 0; group < groups; ++group) {
        const bool asks = team_.asks && quad == 0 && group == 0;
        if (block == 0) {
          zero_o();
        } else if (!o_stays) {
          unit_.fence();
          load_o(quad, group);
        }
        for (std::int64_t tile = 0; tile < block_tiles; ++tile) value_tile(tiles[tile], set, tile, group, asks);
        if (!o_stays || block + 1 == blocks) store_o(quad, group);
      }
    }
    unit_.fence();
  }
  /// 16 keys of four rows and up to 128 columns; the weights of the next set beside the first ones.
  HWY_INLINE void value_tile(const KeyTile& v, std::int64_t set, std::int64_t tile, std::int64_t group, bool asks) {
    const std::int64_t quads = team_.quads(), first = 4 * group, index = set / quads * block_tiles + tile;
    const bool makes = group == 0 && set + 1 < team_.blocks() * quads;
    AskAhead ahead(v_, to_v_, team_.tile(index).first, team_.keys.last, upcoming_.k, upcoming_.keys);
    if (!asks) ahead.nothing();
    unit_.fence();
    unit_.template load<7>(p_of(set, tile), tile_width);
    const auto part = [&]<int at>() HWY_ATTR {
      if (first + at < value_steps_) unit_.template load<5 + at % 2>(v.columns(first + at), v.stride);
      ahead.some();
      if (makes) make_weights(set + 1, tile, at);
      if (first + at < value_steps_) unit_.template multiply_add<at, 7, 5 + at % 2>();
    };
    part.template operator()<0>();
    part.template operator()<1>();
    part.template operator()<2>();
    part.template operator()<3>();
  }

  /// P of a set; those of two sets are there.
  [[nodiscard]] std::uint32_t* p_of(std::int64_t set, std::int64_t tile) const {
    return scratch_.p + (set % 2 * block_tiles + tile) * tile_numbers;
  }
  /// A quarter of the work for a tile of a set: scores become weights, and these, row by row, lines of P.
  HWY_INLINE void make_weights(std::int64_t set, std::int64_t tile, int part) {
    const Full<float> d;
    const std::int64_t quads = team_.quads();
    Quad& quad = quads_[set % quads];
    float* const numbers = numbers_of(set / quads * block_tiles + tile, set % quads);
    for (std::int64_t lane = 0; lane < 16; lane += lanes_of<float>) {
      if (part < 2) {
        const auto base = hn::Load(d, quad.most + lane);
        auto sum = hn::Load(d, quad.sum + lane);
        for (int line = 2 * part; line < 2 * part + 2; ++line) {
          float* const at = numbers + line * 16 + lane;
          const auto weight = exp_nonpositive<float>(hn::Sub(hn::Load(d, at), base));
          hn::Store(weight, d, at);
          sum = hn::Add(sum, weight);
        }
        hn::Store(sum, d, quad.sum + lane);
        continue;
      }
      Vector<float> lines[4];
      for (int line = 0; line < 4; ++line) lines[line] = hn::Load(d, numbers + line * 16 + lane);
      transpose_blocks(lines);
      std::uint32_t* const to = p_of(set, tile) + lane;
      split_row(lines[2 * part - 4], to + (2 * part - 4) * 16);
      split_row(lines[2 * part - 3], to + (2 * part - 3) * 16);
    }
  }
  /// A row's weights in two parts, each of which stands first in one line and second in another.
  static HWY_INLINE void split_row(Vector<float> weight, std::uint32_t* to) {
    const Full<float> d;
    const hn::RebindToUnsigned<Full<float>> du;
    const auto upper_half = hn::Set(du, 0xffff0000u);
    const auto high = hn::And(hn::BitCast(du, weight), upper_half);
    const auto rest = hn::BitCast(du, hn::Sub(weight, hn::BitCast(d, high)));
    const auto low = hn::And(hn::Add(rest, hn::Set(du, 0x8000u)), upper_half);  // of NaN, anything: high is NaN
    hn::Store(hn::ShiftRight<16>(high), du, to);
    hn::Store(hn::ShiftRight<16>(low), du, to + 64);
    hn::Store(high, du, to + 128);
    hn::Store(low, du, to + 192);
  }

  HWY_INLINE void zero_o() {
    unit_.template zero<0>();
    unit_.template zero<1>();
    unit_.template zero<2>();
    unit_.template zero<3>();
  }
  [[nodiscard]] float* o_of(std::int64_t quad, std::int64_t step) const {
    return scratch_.o + (quad * value_steps_ + step) * tile_numbers;
  }
  HWY_INLINE void load_o(std::int64_t quad, std::int64_t group) {
    const float* const from = o_of(quad, 4 * group);
    const std::int64_t steps = value_steps_ - 4 * group;
    unit_.template load<0>(from, tile_width);
    if (steps > 1) unit_.template load<1>(from + tile_numbers, tile_width);
    if (steps > 2) unit_.template load<2>(from + 2 * tile_numbers, tile_width);
    if (steps > 3) unit_.template load<3>(from + 3 * tile_numbers, tile_width);
  }
  HWY_INLINE void store_o(std::int64_t quad, std::int64_t group) {
    float* const to = o_of(quad, 4 * group);
    const std::int64_t steps = value_steps_ - 4 * group;
    unit_.template store<0>(to, tile_width);
    if (steps > 1) unit_.template store<1>(to + tile_numbers, tile_width);
    if (steps > 2) unit_.template store<2>(to + 2 * tile_numbers, tile_width);
    if (steps > 3) unit_.template store<3>(to + 3 * tile_numbers, tile_width);
  }

  /// A row's sums, of high parts and low parts, even columns and odd, become its state.
  void take_sums(std::int64_t row) {
    const Full<float> d;
    const hn::RebindToUnsigned<Full<float>> du;
    const Partial<float>& state = team_.rows[row].state;
    const float* const sums = quads_[row / 4].sum + row % 4;
    *state.l = (sums[0] + sums[4]) + (sums[8] + sums[12]);
    for (std::int64_t step = 0; step < value_steps_; ++step) {
      float* const o = state.o + step * 32;
      auto odd_one = hn::Zero(d);
      for (std::int64_t at = 0; at < 32; at += lanes_of<float>) {
        const float* const high = o_of(row / 4, step) + row % 4 * 16 + at / 16 * 128 + at % 16;
        const auto sum = hn::Add(hn::Load(d, high), hn::Load(d, high + 64));
        odd_one = hn::Or(odd_one, hn::Sub(sum, sum));  // zero, or NaN
        hn::StoreU(sum, d, o + at);
      }
      if (!hn::AllTrue(du, hn::Eq(hn::BitCast(du, odd_one), hn::Zero(du)))) sum_by_hand(row, step, o);
    }
  }
  void sum_by_hand(std::int64_t row, std::int64_t step, float* sums) const {
    std::fill_n(sums, 32, 0.0f);
    const std::int64_t last = std::min(problem_.value_dim, (step + 1) * 32);
    for (std::int64_t key = team_.keys.first; key < team_.keys.last; ++key) {
      const std::int64_t tile = (key - team_.start) / 16, within = (key - team_.start) % 16;
      const float weight = numbers_of(tile, row / 4)[within % 4 * 16 + within / 4 * 4 + row % 4];
      for (std::int64_t at = step * 32; at < last; ++at)
        sums[place_in_o(at, last) - step * 32] += weight * to_real(v_.row(key)[at]);
    }
  }

  const Problem& problem_;
  std::int64_t d_steps_, value_steps_;
  Reach to_k_, to_v_;
  TileDecodeScratch scratch_;
  Unit unit_;
  Rows<const BFloat16> k_{}, v_{};
  Upcoming<BFloat16> upcoming_;
  Team team_;
  Quad quads_[tile_team / 4];
};

#endif  // HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard toggled per target
