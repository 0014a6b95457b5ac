// SPDX-License-Identifier: Apache-2.0
// The two products of cpu.amx on the tile unit, with vector work between them: C[rows][32] (+)= A[rows][steps]
// B[steps][32], rows and steps counted in tiles. Vectors work between the last product of a sum and its being stored,
// so that neither waits for the other, however little the processor looks ahead (half as much where two threads share a
// core).
//
// Two orders of tiles, by what they load and store per product:
//
//     in pairs   sums 0 1   A 4   all steps of two rows    2 A + 2 B for 4 products, sums once per (2 rows, all steps)
//                     2 3     5   B 6 7                    split in parts: high x high, low x high, high x low
//     wide       sums 0 1   A 2 3   one row                2 A for 4 products, B (4 to 7) stays; two steps at most
#pragma once

#include <type_traits>

#include "kernels/cpu/tile_softmax-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace fresnel::cpu {

/// Distance between rows of S, P and O in memory: 32 lanes of 4 bytes.
inline constexpr std::ptrdiff_t tile_pitch = tile_queries * 4;

/// Rows of 16 lines of S or O.
inline constexpr std::int64_t sums_of_row = tile_lines * tile_queries;

struct NothingBeside {
  HWY_INLINE void some() {}
};

/// Weights of a block, `share` pairs of keys at each stop.
template <int parts>
struct WeightsBeside {
  TileWeights weights;
  std::int64_t pairs, share, next = 0;

  HWY_INLINE void some() {
    for (std::int64_t turn = 0; turn < share && next < pairs; ++turn, ++next)
      for (int half = 0; half < 2; ++half) weigh_pair<parts>(weights, next, half);
  }
};

/// The right operand of a product, tiles (step, half): P or Q.
[[nodiscard]] HWY_INLINE const std::uint32_t* right_tile(const std::uint32_t* b, std::int64_t step, int half) {
  return b + step * sums_of_row + half * 16;
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

/// One step of two rows, from 16 lines of A in registers on: both halves.
template <class Tiles, class Beside>
HWY_INLINE void multiply_square(Tiles& tiles, const std::byte* upper, const std::byte* lower, const std::uint32_t* b,
                                Beside& beside) {
  tiles.template load<4>(upper, tile_width);
  tiles.template load<6>(b, tile_pitch);
  tiles.template load<7>(b + 16, tile_pitch);
  tiles.template load<5>(lower, tile_width);
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
    float* const upper = c + row * sums_of_row;
    float* const lower = upper + sums_of_row;
    const std::byte* left = a + row * steps * parts * tile_bytes;
    start_sum<0, fresh>(tiles, upper);
    start_sum<1, fresh>(tiles, upper + 16);
    start_sum<2, fresh>(tiles, lower);
    start_sum<3, fresh>(tiles, lower + 16);
    for (std::int64_t step = 0; step < steps; ++step, left += parts * tile_bytes) {
      const std::byte* const below = left + steps * parts * tile_bytes;
      const std::uint32_t* const right = right_tile(b, step, 0);
      multiply_square(tiles, left, below, right, beside);
      if constexpr (parts == 2) {
        multiply_square(tiles, left + tile_bytes, below + tile_bytes, right, beside);
        multiply_square(tiles, left, below, right + b_part, beside);
      }
    }
    tiles.fence();  // scores that are read in the row's place have been read
    tiles.template store<0>(upper, tile_pitch);
    tiles.template store<1>(upper + 16, tile_pitch);
    tiles.template store<2>(lower, tile_pitch);
    tiles.template store<3>(lower + 16, tile_pitch);
  }
}

/// Row by row with two steps; B stays in registers.
template <bool fresh, class Tiles, class Beside>
HWY_INLINE void multiply_wide(Tiles& tiles, const std::byte* a, const std::uint32_t* b, std::int64_t rows, float* c,
                              Beside& beside) {
  tiles.template load<4>(right_tile(b, 0, 0), tile_pitch);
  tiles.template load<5>(right_tile(b, 0, 1), tile_pitch);
  tiles.template load<6>(right_tile(b, 1, 0), tile_pitch);
  tiles.template load<7>(right_tile(b, 1, 1), tile_pitch);
  for (std::int64_t row = 0; row < rows; ++row) {
    float* const to = c + row * sums_of_row;
    tiles.template load<2>(a + 2 * row * tile_bytes, tile_width);
    tiles.template load<3>(a + (2 * row + 1) * tile_bytes, tile_width);
    start_sum<0, fresh>(tiles, to);
    start_sum<1, fresh>(tiles, to + 16);
    tiles.template multiply_add<0, 2, 4>();
    tiles.template multiply_add<1, 2, 5>();
    beside.some();
    tiles.template multiply_add<0, 3, 6>();
    tiles.template multiply_add<1, 3, 7>();
    beside.some();
    tiles.fence();  // as above
    tiles.template store<0>(to, tile_pitch);
    tiles.template store<1>(to + 16, tile_pitch);
  }
}

// The scores of a row of tiles are stored where the weights are made from. Shares are such that by then they have been
// read: after the first product half of the weights are made, and a row's share of the second makes as much of the
// other half as it stores.

/// Values of the block before, then scores of the next one, in pairs. `shape` is a TileShape, a constant where speed
/// counts.
template <int parts, class Tiles>
HWY_INLINE void paired_step(Tiles& tiles, const TileShape& shape, const std::byte* k, const std::uint32_t* q,
                            const std::byte* v, const std::uint32_t* p, float* o, float* s, TileWeights& weights) {
  const std::int64_t pairs = shape.block / 2;
  constexpr std::int64_t squares = parts == 2 ? 3 : 1;
  const std::int64_t value_stops = squares * shape.key_steps() * shape.value_tiles();
  const std::int64_t score_stops = squares * shape.d_steps * shape.key_tiles();
  WeightsBeside<parts> beside{weights, pairs, (pairs / 2 + value_stops - 1) / value_stops};
  multiply<parts, false>(tiles, v, p, shape.p_part(), shape.key_steps(), shape.value_tiles(), o, beside);
  beside.share = (pairs - beside.next + score_stops - 1) / score_stops;
  multiply<parts, true>(tiles, k, q, shape.q_part(), shape.d_steps, shape.key_tiles(), s, beside);
  weights = beside.weights;
}

/// The same row by row, for wide_shape.
template <class Tiles>
HWY_INLINE void wide_step(Tiles& tiles, const std::byte* k, const std::uint32_t* q, const std::byte* v,
                          const std::uint32_t* p, float* o, float* s, TileWeights& weights) {
  constexpr TileShape shape = wide_shape;
  constexpr std::int64_t pairs = shape.block / 2;
  WeightsBeside<1> beside{weights, pairs, pairs / (2 * (shape.value_tiles() + shape.key_tiles()))};
  multiply_wide<false>(tiles, v, p, shape.value_tiles(), o, beside);
  multiply_wide<true>(tiles, k, q, shape.key_tiles(), s, beside);
  weights = beside.weights;
}

}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES
