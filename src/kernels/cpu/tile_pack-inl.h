// SPDX-License-Identifier: Apache-2.0
// Operands of the tile unit: K as it lies but cut into tiles, V and Q transposed in pairs of numbers. K and V are
// packed once per kv head and read by all of its queries; rows and columns that the problem does not have are zeros.
//
//     K block   [key tile][step of D]          16 keys x 32 numbers      A of S^T = K Q^T
//     V block   [tile of Dv][step of keys]     16 columns x 32 keys      A of O^T = V^T P^T
//     Q tile    [D / 2][32 queries]            pairs of numbers          B of S^T
//
// 512-bit vectors, written for processors that have a tile unit; needs AVX-512 F, BW, DQ and VL.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/tiles.hpp"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace fresnel::cpu {

inline constexpr std::int64_t tile_queries = 32;   ///< queries of a score block: two tiles of 16 lanes
inline constexpr std::uint32_t all_lanes = 0xffffffff;
inline constexpr std::int64_t product_depth = 32;  ///< numbers of a product's sum

/// How a problem is cut into tiles.
struct TileShape {
  std::int64_t block;        ///< keys of a block
  std::int64_t d_steps;      ///< products along D
  std::int64_t value_pairs;  ///< pairs of tiles along Dv

  constexpr TileShape(std::int64_t keys, std::int64_t head_dim, std::int64_t value_dim)
      : block(keys),
        d_steps((head_dim + product_depth - 1) / product_depth),
        value_pairs((value_dim + product_depth - 1) / product_depth) {}
  TileShape(const Problem& problem, std::int64_t keys) : TileShape(keys, problem.head_dim, problem.value_dim) {}
  [[nodiscard]] constexpr bool is(const TileShape& other) const {
    return block == other.block && d_steps == other.d_steps && value_pairs == other.value_pairs;
  }
  [[nodiscard]] constexpr std::int64_t key_tiles() const { return block / tile_lines; }
  [[nodiscard]] constexpr std::int64_t key_steps() const { return block / product_depth; }
  [[nodiscard]] constexpr std::int64_t value_tiles() const { return 2 * value_pairs; }
  [[nodiscard]] constexpr std::int64_t k_bytes() const { return key_tiles() * d_steps * tile_bytes; }
  [[nodiscard]] constexpr std::int64_t v_bytes() const { return value_tiles() * key_steps() * tile_bytes; }
  /// Blocks that one group of queries meets before the next group does: half a megabyte of K and V, which the
  /// second-level cache keeps for the groups to come while what a group changes stays in the first level.
  [[nodiscard]] constexpr std::int64_t stretch() const {
    return std::max<std::int64_t>((std::int64_t{512} << 10) / (k_bytes() + v_bytes()), 1);
  }
  [[nodiscard]] constexpr std::int64_t q_bytes() const { return d_steps * product_depth / 2 * tile_queries * 4; }
  [[nodiscard]] constexpr std::int64_t o_floats() const { return value_tiles() * tile_lines * tile_queries; }
};

/// Shapes whose steps the compiler sees as constants: D and Dv 33 to 64, and 97 to 128.
inline constexpr TileShape wide_shape(64, 64, 64), deep_shape(128, 128, 128);

/// Columns and rows of a 16 x 16 block of 32-bit numbers change places.
HWY_INLINE void transpose_block(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {  // r[i + c], lane L: column 4 L + c of rows i .. i + 3
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int c = 0; c < 4; ++c) {
    const __m512i even_low = _mm512_shuffle_i32x4(r[c], r[c + 4], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(r[c], r[c + 4], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0xdd);
    t[c] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    t[c + 4] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    t[c + 8] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    t[c + 12] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

/// The bf16 numbers [at, at + 32) of a row that has `width`; zeros beyond.
HWY_INLINE __m512i load_numbers(const BFloat16* row, std::int64_t at, std::int64_t width) {
  if (at + 32 <= width) return _mm512_loadu_si512(row + at);
  const std::int64_t there = std::clamp<std::int64_t>(width - at, 0, 32);
  const auto mask = static_cast<__mmask32>((std::uint64_t{1} << there) - 1);
  return _mm512_maskz_loadu_epi16(mask, row + at);
}

/// Keys [first, first + live) of a block; the rest of it is zeros.
inline void pack_keys(const TileShape& shape, Rows<const BFloat16> k, std::int64_t first, std::int64_t live,
                      std::int64_t head_dim, std::byte* to) {
  for (std::int64_t key = 0; key < shape.block; ++key) {
    std::byte* const line = to + key / tile_lines * shape.d_steps * tile_bytes + key % tile_lines * tile_width;
    for (std::int64_t step = 0; step < shape.d_steps; ++step) {
      const __m512i numbers =
          key < live ? load_numbers(k.row(first + key), step * product_depth, head_dim) : _mm512_setzero_si512();
      _mm512_store_si512(line + step * tile_bytes, numbers);
    }
  }
}

/// The same for V, transposed. Returns whether every number is finite.
inline bool pack_values(const TileShape& shape, Rows<const BFloat16> v, std::int64_t first, std::int64_t live,
                        std::int64_t value_dim, std::byte* to) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __mmask32 not_finite = 0;
  for (std::int64_t pair = 0; pair < shape.value_pairs; ++pair) {
    for (std::int64_t step = 0; step < shape.key_steps(); ++step) {
      __m512i low[16], high[16];  // pairs of keys; columns 0-3, 8-11, .. and columns 4-7, 12-15, ..
      for (int i = 0; i < 16; ++i) {
        const std::int64_t key = step * product_depth + 2 * i;
        __m512i even = _mm512_setzero_si512(), odd = even;
        if (key < live) even = load_numbers(v.row(first + key), pair * product_depth, value_dim);
        if (key + 1 < live) odd = load_numbers(v.row(first + key + 1), pair * product_depth, value_dim);
        for (const __m512i numbers : {even, odd})
          not_finite |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(numbers, exponent), exponent);
        low[i] = _mm512_unpacklo_epi16(even, odd);
        high[i] = _mm512_unpackhi_epi16(even, odd);
      }
      transpose_block(low);
      transpose_block(high);
      for (int i = 0; i < 16; ++i) {
        const std::int64_t tile = (2 * pair + i / 8) * shape.key_steps() + step;  // columns 0-15, then 16-31
        std::byte* const line = to + tile * tile_bytes + (i / 4 % 2 * 8 + i % 4) * tile_width;
        _mm512_store_si512(line, low[i]);
        _mm512_store_si512(line + 4 * tile_width, high[i]);
      }
    }
  }
  return not_finite == 0;
}

/// Queries [first, first + count) as pairs of numbers in lanes; lanes without a query repeat the last one.
inline void pack_queries(const TileShape& shape, Rows<const BFloat16> q, std::int64_t first, std::int64_t count,
                         std::int64_t head_dim, std::uint32_t* to) {
  for (std::int64_t step = 0; step < shape.d_steps; ++step) {
    for (int half = 0; half < 2; ++half) {
      __m512i rows[16];
      for (int i = 0; i < 16; ++i)
        rows[i] = load_numbers(q.row(first + std::min<std::int64_t>(half * 16 + i, count - 1)), step * product_depth,
                               head_dim);
      transpose_block(rows);
      for (int i = 0; i < 16; ++i) _mm512_store_si512(to + (step * 16 + i) * tile_queries + half * 16, rows[i]);
    }
  }
}

/// Rounds to bf16, to nearest even; a NaN stays one.
HWY_INLINE __m256i to_bf16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
}

/// O^T, each lane times its factor, as rows of the output: queries [first, first + count).
inline void store_queries(const float* o, const float* factor, Rows<BFloat16> out, std::int64_t first,
                          std::int64_t count, std::int64_t value_dim) {
  for (std::int64_t column = 0; column < value_dim; column += 16) {
    const auto mask = static_cast<__mmask16>((1u << std::min<std::int64_t>(value_dim - column, 16)) - 1);
    for (int half = 0; half < 2 && half * 16 < count; ++half) {
      const __m512 by = _mm512_load_ps(factor + half * 16);
      __m512i rows[16];
      for (int i = 0; i < 16; ++i) {
        const float* const at = o + (column + i) * tile_queries + half * 16;
        rows[i] = _mm512_castps_si512(_mm512_mul_ps(_mm512_load_ps(at), by));
      }
      transpose_block(rows);
      for (int i = 0; i < 16 && half * 16 + i < count; ++i)
        _mm256_mask_storeu_epi16(out.row(first + half * 16 + i) + column, mask, to_bf16(_mm512_castsi512_ps(rows[i])));
    }
  }
}

}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES
