// SPDX-License-Identifier: Apache-2.0
// Operands of the tile unit: K as it lies but cut into tiles, V and Q transposed in pairs of numbers. K and V are
// packed once per kv head and read by all of its queries; rows and columns that the problem does not have are zeros.
//
//     K block   [key tile][step of D][part]        16 keys x 32 numbers      A of S^T = K Q^T
//     V block   [tile of Dv][step of keys][part]   16 columns x 32 keys      A of O^T = V^T P^T
//     Q tile    [part][D / 2][queries]             pairs of numbers          B of S^T
//
// The unit has no f16, but a number of 11 bits is the sum of two of 8: x = high + low, exactly. Weights are split, too,
// in 16 bits. Of the four products of parts that of the two low ones is left out, 2^-16 of the whole.
//
// 512-bit vectors, written for processors that have a tile unit; needs AVX-512 F, BW, DQ and VL.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/tile_shape.hpp"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")
namespace fresnel::cpu {

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

/// 32 numbers as the unit takes them.
struct Parts {
  __m512i high, low;
};

/// The numbers [at, at + 32) of a row that has `width`; zeros beyond.
HWY_INLINE __m512i load_numbers(const void* row, std::int64_t at, std::int64_t width) {
  const auto* const numbers = static_cast<const std::uint16_t*>(row);
  if (at + 32 <= width) return _mm512_loadu_si512(numbers + at);
  const std::int64_t there = std::clamp<std::int64_t>(width - at, 0, 32);
  const auto mask = static_cast<__mmask32>((std::uint64_t{1} << there) - 1);
  return _mm512_maskz_loadu_epi16(mask, numbers + at);
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

/// The high part of 16 numbers and, exactly, what remains; nothing remains of a number that is not finite.
HWY_INLINE __m256i split_half(__m256i halves, __m256i& low) {
  const __m512 value = _mm512_cvtph_ps(halves);
  const __m256i high = to_bf16(value);
  const __m512 rest = _mm512_sub_ps(value, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
  low = _mm256_maskz_mov_epi16(_mm512_cmp_ps_mask(rest, rest, _CMP_ORD_Q), to_bf16(rest));
  return high;
}

HWY_INLINE Parts parts_of(const BFloat16* row, std::int64_t at, std::int64_t width) {
  return {load_numbers(row, at, width), _mm512_setzero_si512()};
}
HWY_INLINE Parts parts_of(const Float16* row, std::int64_t at, std::int64_t width) {
  const __m512i numbers = load_numbers(row, at, width);
  __m256i low[2], high[2];
  high[0] = split_half(_mm512_castsi512_si256(numbers), low[0]);
  high[1] = split_half(_mm512_extracti64x4_epi64(numbers, 1), low[1]);
  return {_mm512_inserti64x4(_mm512_castsi256_si512(high[0]), high[1], 1),
          _mm512_inserti64x4(_mm512_castsi256_si512(low[0]), low[1], 1)};
}

template <class Element>
inline constexpr int parts_in = std::is_same_v<Element, Float16> ? 2 : 1;

/// Rows [first, first + count) that will be read or written soon: memory is asked for a few lines at a time, between
/// other work, so that they do not crowd out what that asks for. They come as far as the second-level cache.
template <class T>
class RowsAhead {
 public:
  RowsAhead(Rows<T> rows, std::int64_t first, std::int64_t count, std::int64_t width)
      : row_(rows.row(first)), stride_(rows.stride), width_(width), lines_((width + line - 1) / line) {
    rest_ = std::max<std::int64_t>(count, 0) * lines_;
  }
  [[nodiscard]] std::int64_t rest() const { return rest_; }
  [[nodiscard]] std::int64_t lines_of_row() const { return lines_; }
  HWY_INLINE void some(std::int64_t count) {
    for (; count > 0 && rest_ > 0; --count, --rest_) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += line;
      if (at_ < width_) continue;
      at_ = 0;
      row_ += stride_;
    }
  }

 private:
  static constexpr std::int64_t line = 64 / sizeof(T);
  T* row_;
  std::ptrdiff_t stride_;
  std::int64_t width_, lines_, rest_, at_ = 0;
};

/// Keys [first, first + live) of a block, and zeros up to whole granules. `ahead`: the keys of the next one.
template <class Element>
void pack_keys(const TileShape& shape, Rows<const Element> k, std::int64_t first, std::int64_t live,
               std::int64_t head_dim, std::byte* to, RowsAhead<const Element>& ahead) {
  constexpr std::int64_t parts = parts_in<Element>;
  const std::int64_t keys = shape.whole_granules(live);
  for (std::int64_t key = 0; key < keys; ++key) {
    ahead.some(ahead.lines_of_row());
    const std::int64_t tile = key / tile_lines * shape.d_steps * parts;
    std::byte* const line = to + tile * tile_bytes + key % tile_lines * tile_width;
    for (std::int64_t step = 0; step < shape.d_steps; ++step) {
      const Parts numbers = key < live ? parts_of(k.row(first + key), step * product_depth, head_dim) : Parts{};
      _mm512_store_si512(line + step * parts * tile_bytes, numbers.high);
      if constexpr (parts == 2) _mm512_store_si512(line + (step * parts + 1) * tile_bytes, numbers.low);
    }
  }
}

/// Two rows of numbers, paired and transposed 32 times: a square of V.
struct ValueSquare {
  __m512i low[16], high[16];  ///< pairs of keys; columns 0-3, 8-11, .. and columns 4-7, 12-15, ..
  HWY_INLINE void take(int pair, __m512i even, __m512i odd) {
    low[pair] = _mm512_unpacklo_epi16(even, odd);
    high[pair] = _mm512_unpackhi_epi16(even, odd);
  }
  /// Columns 0 to 15 go to one tile, 16 to 31 to the next one of the same step.
  HWY_INLINE void store(std::byte* to, std::int64_t next_tile) {
    transpose_block(low);
    transpose_block(high);
    for (int i = 0; i < 16; ++i) {
      std::byte* const line = to + i / 8 * next_tile + (i / 4 % 2 * 8 + i % 4) * tile_width;
      _mm512_store_si512(line, low[i]);
      _mm512_store_si512(line + 4 * tile_width, high[i]);
    }
  }
};

/// The same for V, transposed. Returns whether every number is finite.
template <class Element>
bool pack_values(const TileShape& shape, Rows<const Element> v, std::int64_t first, std::int64_t live,
                 std::int64_t value_dim, std::byte* to, RowsAhead<const Element>& ahead) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  constexpr std::int64_t parts = parts_in<Element>;
  const std::int64_t next_tile = shape.key_steps() * parts * tile_bytes;
  const std::int64_t steps = shape.whole_granules(live) / product_depth;
  __mmask32 not_finite = 0;
  for (std::int64_t pair = 0; pair < shape.value_pairs; ++pair) {
    for (std::int64_t step = 0; step < steps; ++step) {
      ValueSquare square, remainders;
      for (int i = 0; i < 16; ++i) {
        const std::int64_t key = step * product_depth + 2 * i;
        ahead.some(2 * ahead.lines_of_row());
        Parts even{}, odd{};
        if (key < live) even = parts_of(v.row(first + key), pair * product_depth, value_dim);
        if (key + 1 < live) odd = parts_of(v.row(first + key + 1), pair * product_depth, value_dim);
        for (const __m512i numbers : {even.high, odd.high})
          not_finite |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(numbers, exponent), exponent);
        square.take(i, even.high, odd.high);
        if constexpr (parts == 2) remainders.take(i, even.low, odd.low);
      }
      std::byte* const at = to + (2 * pair * shape.key_steps() + step) * parts * tile_bytes;
      square.store(at, next_tile);
      if constexpr (parts == 2) remainders.store(at + tile_bytes, next_tile);
    }
  }
  return not_finite == 0;
}

/// Queries [first, first + count) as pairs of numbers in lanes; lanes without a query repeat the last one.
template <class Element>
void pack_queries(const TileShape& shape, Rows<const Element> q, std::int64_t first, std::int64_t count,
                  std::int64_t head_dim, std::uint32_t* to) {
  const auto store = [&](__m512i(&rows)[16], std::uint32_t* at) {
    transpose_block(rows);
    for (int i = 0; i < 16; ++i) _mm512_store_si512(at + i * shape.lanes, rows[i]);
  };
  for (std::int64_t step = 0; step < shape.d_steps; ++step) {
    for (int half = 0; half < shape.halves(); ++half) {
      __m512i high[16], low[16];
      for (int i = 0; i < 16; ++i) {
        const std::int64_t query = first + std::min<std::int64_t>(half * 16 + i, count - 1);
        const Parts numbers = parts_of(q.row(query), step * product_depth, head_dim);
        high[i] = numbers.high;
        low[i] = numbers.low;
      }
      std::uint32_t* const at = to + step * 16 * shape.lanes + half * 16;
      store(high, at);
      if constexpr (parts_in<Element> == 2) store(low, at + shape.q_part());
    }
  }
}

/// 32 numbers of a row, to nearest even; as bf16, subnormal ones become zeros.
HWY_INLINE __m512i rounded(const BFloat16*, __m512 left, __m512 right) {
  return (__m512i)_mm512_cvtne2ps_pbh(right, left);
}
HWY_INLINE __m512i rounded(const Float16*, __m512 left, __m512 right) {
  constexpr int to_nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const __m512i low = _mm512_castsi256_si512(_mm512_cvtps_ph(left, to_nearest));
  return _mm512_inserti64x4(low, _mm512_cvtps_ph(right, to_nearest), 1);
}

/// O^T, each lane times its factor, as rows of the output: queries [first, first + count). 32 columns at a time, so
/// that a line is written at once.
template <class Element>
void store_queries(const TileShape& shape, const float* o, const float* factor, Rows<Element> out, std::int64_t first,
                   std::int64_t count, std::int64_t value_dim) {
  for (std::int64_t column = 0; column < value_dim; column += 32) {
    const std::int64_t there = std::min<std::int64_t>(value_dim - column, 32);
    const auto mask = static_cast<__mmask32>((std::uint64_t{1} << there) - 1);
    for (int half = 0; half < shape.halves() && half * 16 < count; ++half) {
      const __m512 by = _mm512_load_ps(factor + half * 16);
      __m512i left[16], right[16];
      const auto take = [&](__m512i(&rows)[16], std::int64_t at) HWY_ATTR {
        for (int i = 0; i < 16; ++i) {
          const float* const from = o + (at + i) * shape.lanes + half * 16;
          rows[i] = _mm512_castps_si512(_mm512_mul_ps(_mm512_load_ps(from), by));
        }
        transpose_block(rows);
      };
      take(left, column);
      take(right, column + 16);
      for (int i = 0; i < 16 && half * 16 + i < count; ++i) {
        Element* const to = out.row(first + half * 16 + i) + column;
        const __m512i numbers = rounded(to, _mm512_castsi512_ps(left[i]), _mm512_castsi512_ps(right[i]));
        _mm512_mask_storeu_epi16(to, mask, numbers);
      }
    }
  }
}

}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES
