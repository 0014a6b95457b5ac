// SPDX-License-Identifier: Apache-2.0
// The two products of cpu.amx on the tile unit, with vector work between them: C[rows][queries] (+)= A[rows][steps]
// B[steps][queries], rows and steps counted in tiles. Vectors work between products and before a sum is stored, so that
// neither waits for the other, however little the processor looks ahead (half as much where two threads share a core).
// Where a product needs a tile of A of its own they work between the two: while another thread of the core uses tiles,
// a load and the product right behind it wait for each other.
//
// Three orders of tiles, by what they load and store per product. A store takes as long as a product and nothing else
// begins meanwhile, so it is what an order saves first:
//
//     narrow     O 0 1 2 3   S or P 4   Q 5 6   A 7      D up to 64, 16 queries: O and Q stay from block to block,
//                                                        a store for 4 products, 1.1 loads each
//     deep       Q 0 1 2 3 4 5   S 6   A 7               D up to 192, 16 queries, 128 keys: Q stays for a block of
//                O 0 1 2 3   P 4   A 5 6                 scores, four tiles of O at a time for a block of values
//     in pairs   sums 0 1   A 4   all steps of two rows  32 queries: 2 A + 2 B for 4 products, sums once per (2 rows,
//                     2 3     5   B 6 7                  all steps); in parts: high x high, low x high, high x low
//
// A is met once per group of queries and streams past the first-level cache, which keeps S, P, Q and O.
#pragma once

#include <type_traits>

#include "kernels/cpu/tile_softmax-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")
namespace fresnel::cpu {

/// Distance in bytes between rows of S, P and O in memory, and numbers in 16 of them, where products go in pairs.
inline constexpr std::ptrdiff_t pair_pitch = most_lanes * 4;
inline constexpr std::int64_t pair_sums = tile_lines * most_lanes;
/// The numbers of 16 rows of 16 queries: a tile.
inline constexpr std::int64_t narrow_sums = tile_lines * 16;

struct NothingBeside {
  HWY_INLINE void some() {}
};

/// Weights of a block, `share` pairs of keys at each stop.
template <Exponential how, int parts, int lanes>
struct WeightsBeside {
  TileWeights weights;
  std::int64_t pairs, share, next = 0;

  HWY_INLINE void some() {
    for (std::int64_t turn = 0; turn < share && next < pairs; ++turn, ++next)
      for (int half = 0; half < lanes / 16; ++half) weigh_pair<how, parts, lanes>(weights, next, half);
  }
};

/// Lines that the second-level cache is asked for, `count` at each stop.
template <int count>
struct LinesBeside {
  const std::byte* line = nullptr;
  HWY_INLINE void some() {
    for (int turn = 0; turn < count; ++turn, line += tile_width)
      _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T1);
  }
};

/// The same where a constant share comes out even, and `lines` of what comes later.
template <Exponential how, int parts, int lanes, int share, int lines>
struct EvenWeightsBeside {
  TileWeights weights;
  LinesBeside<lines> later = {};
  std::int64_t next = 0;

  HWY_INLINE void some() {
    later.some();
    for (int turn = 0; turn < share; ++turn, ++next)
      for (int half = 0; half < lanes / 16; ++half) weigh_pair<how, parts, lanes>(weights, next, half);
  }
};

/// A sum begins at zero or goes on with what lies in memory.
template <int tile, bool fresh, class Tiles>
HWY_INLINE void start_sum(Tiles& tiles, const float* from) {
  if constexpr (fresh) {
    tiles.template zero<tile>();
  } else {
    tiles.template load<tile>(from, pair_pitch);
  }
}

/// One step of two rows, both halves. `again`: A will be asked for once more soon.
template <bool again, class Tiles, class Beside>
HWY_INLINE void multiply_square(Tiles& tiles, const std::byte* upper, const std::byte* lower, const std::uint32_t* b,
                                Beside& beside) {
  const auto load_left = [&]<int tile>(const std::byte* from) HWY_ATTR {
    if constexpr (again) {
      tiles.template load<tile>(from, tile_width);
    } else {
      tiles.template stream<tile>(from, tile_width);
    }
  };
  load_left.template operator()<4>(upper);
  tiles.template load<6>(b, pair_pitch);
  tiles.template load<7>(b + 16, pair_pitch);
  load_left.template operator()<5>(lower);
  tiles.template multiply_add<0, 4, 6>();
  tiles.template multiply_add<1, 4, 7>();
  beside.some();
  tiles.template multiply_add<2, 5, 6>();
  tiles.template multiply_add<3, 5, 7>();
  beside.some();
}

/// In pairs of rows; `rows` is even. The order of every sum is that of the steps. Parts of B lie `b_part` pairs of
/// numbers apart.
template <int parts, bool fresh, class Tiles, class Beside>
HWY_INLINE void multiply(Tiles& tiles, const std::byte* a, const std::uint32_t* b, std::int64_t b_part,
                         std::int64_t steps, std::int64_t rows, float* c, Beside& beside) {
  for (std::int64_t row = 0; row < rows; row += 2) {
    float* const upper = c + row * pair_sums;
    float* const lower = upper + pair_sums;
    const std::byte* left = a + row * steps * parts * tile_bytes;
    start_sum<0, fresh>(tiles, upper);
    start_sum<1, fresh>(tiles, upper + 16);
    start_sum<2, fresh>(tiles, lower);
    start_sum<3, fresh>(tiles, lower + 16);
    for (std::int64_t step = 0; step < steps; ++step, left += parts * tile_bytes) {
      const std::byte* const below = left + steps * parts * tile_bytes;
      const std::uint32_t* const right = b + step * pair_sums;
      multiply_square<parts == 2>(tiles, left, below, right, beside);
      if constexpr (parts == 2) {
        multiply_square<false>(tiles, left + tile_bytes, below + tile_bytes, right, beside);
        multiply_square<false>(tiles, left, below, right + b_part, beside);
      }
    }
    tiles.fence();  // scores that are read in the row's place have been read
    tiles.template store<0>(upper, pair_pitch);
    tiles.template store<1>(upper + 16, pair_pitch);
    tiles.template store<2>(lower, pair_pitch);
    tiles.template store<3>(lower + 16, pair_pitch);
  }
}

/// A product with a tile of A that no other one uses.
template <int c, int a, int b, class Tiles, class Beside>
HWY_INLINE void add_product(Tiles& tiles, const std::byte* from, Beside& beside) {
  tiles.template stream<a>(from, tile_width);
  beside.some();
  tiles.template multiply_add<c, a, b>();
}

/// Registers 0 to 3, or the first `count` of them, from or to tiles that lie one behind the other.
template <class Tiles, class T>
HWY_INLINE void load_some(Tiles& tiles, const T* from, std::int64_t count) {
  tiles.template load<0>(from, tile_width);
  if (count > 1) tiles.template load<1>(from + narrow_sums, tile_width);
  if (count > 2) tiles.template load<2>(from + 2 * narrow_sums, tile_width);
  if (count > 3) tiles.template load<3>(from + 3 * narrow_sums, tile_width);
}
template <class Tiles>
HWY_INLINE void store_some(Tiles& tiles, float* to, std::int64_t count) {
  tiles.template store<0>(to, tile_width);
  if (count > 1) tiles.template store<1>(to + narrow_sums, tile_width);
  if (count > 2) tiles.template store<2>(to + 2 * narrow_sums, tile_width);
  if (count > 3) tiles.template store<3>(to + 3 * narrow_sums, tile_width);
}

// The products of a block as a step needs them, in every order: a block's values are added to O, its scores made;
// put_down() brings what registers still hold to memory, where it may be read and rescaled. The sizes of known_shape,
// the usual ones, are constants for the compiler, so that a block is one run of instructions.

/// Nothing stays in registers.
template <class Unit, int part_count>
struct PairedProducts {
  static constexpr int parts = part_count, lanes = most_lanes;
  static constexpr std::int64_t squares = parts == 2 ? 3 : 1;
  static constexpr TileShape known_shape{DType::bf16, 64, 128, 128};
  Unit tiles;

  static constexpr std::int64_t value_stops(const TileShape& shape) {
    return squares * shape.key_steps() * shape.value_tiles();
  }
  static constexpr std::int64_t score_stops(const TileShape& shape) {
    return squares * shape.d_steps * shape.key_tiles();
  }
  template <class Beside>
  HWY_INLINE void add_values(const TileShape& shape, const TileStage& stage, const std::uint32_t* p, Beside& beside) {
    multiply<parts, false>(tiles, stage.v, p, shape.p_part(), shape.key_steps(), shape.value_tiles(), stage.queries->o,
                           beside);
  }
  template <class Beside>
  HWY_INLINE void make_scores(const TileShape& shape, const TileStage& stage, float* s, Beside& beside) {
    multiply<parts, true>(tiles, stage.k, stage.queries->q, shape.q_part(), shape.d_steps, shape.key_tiles(), s,
                          beside);
  }
  void put_down(const TileShape& /*shape*/) { tiles.fence(); }
};

/// For narrow shapes: registers 0 to 3 keep the O of one group of queries, 5 and 6 the Q of one.
template <class Unit>
struct NarrowProducts {
  static constexpr int parts = 1, lanes = 16;
  static constexpr TileShape known_shape{DType::bf16, 64, 64, 64};
  Unit tiles;
  const TileQueries* summing = nullptr;  ///< whose O is in registers and stale in memory
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
      tiles.fence();  // as above
      tiles.template store<4>(s + row * narrow_sums, tile_width);
    }
  }
  void put_down(const TileShape& shape) {
    if (summing == nullptr) return;
    store_some(tiles, summing->o, shape.value_tiles());
    summing = nullptr;
    tiles.fence();
  }

 private:
  void take_up(const TileShape& shape, const TileQueries& queries) {
    put_down(shape);
    tiles.fence();
    summing = &queries;
    load_some(tiles, queries.o, shape.value_tiles());
  }
};

/// For deep shapes. Columns that make no whole four of tiles are two of them.
template <class Unit>
struct DeepProducts {
  static constexpr int parts = 1, lanes = 16;
  static constexpr TileShape known_shape{DType::bf16, 128, 128, 128};
  Unit tiles;

  static constexpr std::int64_t value_stops(const TileShape& shape) { return shape.key_steps() * shape.value_tiles(); }
  static constexpr std::int64_t score_stops(const TileShape& shape) { return shape.d_steps * shape.key_tiles(); }

  template <class Beside>
  HWY_INLINE void add_values(const TileShape& shape, const TileStage& stage, const std::uint32_t* p, Beside& beside) {
    const std::int64_t next_tile = shape.key_steps() * tile_bytes;
    for (std::int64_t first = 0; first < shape.value_tiles(); first += 4) {
      const std::int64_t count = std::min<std::int64_t>(shape.value_tiles() - first, 4);
      float* const o = stage.queries->o + first * narrow_sums;
      const std::byte* v = stage.v + first * next_tile;
      load_some(tiles, o, count);
      for (std::int64_t step = 0; step < shape.key_steps(); ++step, v += tile_bytes) {
        tiles.template load<4>(p + step * narrow_sums, tile_width);
        add_product<0, 5, 4>(tiles, v, beside);
        add_product<1, 6, 4>(tiles, v + next_tile, beside);
        if (count < 4) continue;
        add_product<2, 5, 4>(tiles, v + 2 * next_tile, beside);
        add_product<3, 6, 4>(tiles, v + 3 * next_tile, beside);
      }
      store_some(tiles, o, count);
    }
  }
  template <class Beside>
  HWY_INLINE void make_scores(const TileShape& shape, const TileStage& stage, float* s, Beside& beside) {
    const std::uint32_t* const q = stage.queries->q;
    load_some(tiles, q, shape.d_steps);
    if (shape.d_steps > 4) tiles.template load<4>(q + 4 * narrow_sums, tile_width);
    if (shape.d_steps > 5) tiles.template load<5>(q + 5 * narrow_sums, tile_width);
    const std::byte* k = stage.k;
    for (std::int64_t row = 0; row < shape.key_tiles(); ++row, k += shape.d_steps * tile_bytes) {
      tiles.template zero<6>();
      add_product<6, 7, 0>(tiles, k, beside);
      if (shape.d_steps > 1) add_product<6, 7, 1>(tiles, k + tile_bytes, beside);
      if (shape.d_steps > 2) add_product<6, 7, 2>(tiles, k + 2 * tile_bytes, beside);
      if (shape.d_steps > 3) add_product<6, 7, 3>(tiles, k + 3 * tile_bytes, beside);
      if (shape.d_steps > 4) add_product<6, 7, 4>(tiles, k + 4 * tile_bytes, beside);
      if (shape.d_steps > 5) add_product<6, 7, 5>(tiles, k + 5 * tile_bytes, beside);
      tiles.fence();  // as above
      tiles.template store<6>(s + row * narrow_sums, tile_width);
    }
  }
  void put_down(const TileShape& /*shape*/) { tiles.fence(); }
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
  constexpr int lanes = Products::lanes;
  WeightsBeside<how, Products::parts, lanes> beside{running<lanes>(weights), pairs,
                                                    (pairs / 2 + value_stops - 1) / value_stops};
  products.add_values(shape, before, p, beside);
  beside.share = (pairs - beside.next + score_stops - 1) / score_stops;
  products.make_scores(shape, next, s, beside);
  take_sums<lanes>(beside.weights, weights);
}

/// Packed K and V that memory is asked for during a step, from here on.
struct LaterLines {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
};

/// The same for a constant shape whose shares come out even, asking for `lines` of `later` at each stop.
template <Exponential how, TileShape shape, int lines, class Products>
HWY_INLINE void interleave_evenly(Products& products, const TileStage& next, const TileStage& before,
                                  const std::uint32_t* p, float* s, TileWeights& weights, const LaterLines& later) {
  constexpr std::int64_t stops = Products::value_stops(shape), share = shape.block / 4 / stops;
  static_assert(stops == Products::score_stops(shape) && share * stops * 4 == shape.block);
  constexpr int lanes = Products::lanes;
  EvenWeightsBeside<how, Products::parts, lanes, static_cast<int>(share), lines> beside{running<lanes>(weights)};
  beside.later.line = later.v;
  products.add_values(shape, before, p, beside);
  beside.later.line = later.k;
  products.make_scores(shape, next, s, beside);
  take_sums<lanes>(beside.weights, weights);
}

}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES
