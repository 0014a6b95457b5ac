// SPDX-License-Identifier: Apache-2.0
// Between the two products of the tile unit: a block of scores S^T [keys][queries] becomes weights P^T, rounded to
// bf16 and paired for the next product. Everything is lane-wise, a query a lane.
//
// There is no pass for the maximum. A lane keeps a base, a whole number of at least 8 above the largest score (in log2
// units) of the block that set it, and weighs 2^(s - base). While the weights of a block sum to at most 1, none exceeds
// 1 and the base stands. Else the block is weighed again with a base of its own maximum: that is when O and l are
// rescaled, by a power of two, exactly. What a lane does depends on its scores alone. Sources: the lazy rescale is that
// of FlashAttention-4; vreduceps and vscalefps take apart 2^x as in the Intel optimisation manual.
#pragma once

#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/cpu/tile_pack-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace fresnel::cpu {

/// Log2 units between a block's maximum and the base it sets: room to grow before the next rescale. Weights lose as
/// many powers of two at the small end: see tile_flash_roundings.
inline constexpr float base_margin = 8;

/// 2^x for x up to 127, +0 for -inf and below -150. Relative error 7.5e-5 where P is rounded to bf16 anyway, 1.5e-7
/// where it keeps two parts (measured by a test; polynomials that minimise the relative error on [0, 1)).
template <int parts>
HWY_INLINE __m512 exp2_of(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, 0x09);  // x - floor(x)
  const auto next = [&](__m512 y, float c) HWY_ATTR { return _mm512_fmadd_ps(y, f, _mm512_set1_ps(c)); };
  __m512 y;
  if constexpr (parts == 1) {
    y = next(_mm512_set1_ps(0x1.3f96a4p-4f), 0x1.cefc4cp-3f);
    y = next(y, 0x1.64444cp-1f);
    y = next(y, 0x1.fff632p-1f);
  } else {
    y = next(_mm512_set1_ps(0x1.ec320ap-10f), 0x1.26900cp-7f);
    y = next(y, 0x1.c95446p-5f);
    y = next(y, 0x1.ebd5a8p-3f);
    y = next(y, 0x1.62e4f6p-1f);
    y = next(y, 0x1.fffffep-1f);
  }
  return _mm512_scalef_ps(y, x);  // floors x itself
}

/// The walk of one block from scores to weights, in steps small enough to put between tile products.
struct TileWeights {
  const float* s;
  std::uint32_t* p;
  std::uint32_t* remainders;  ///< the low parts of p, where numbers are split
  __m512 scale;               ///< to log2 units
  __m512 base[2];
  __m512 sum[2];  ///< of the rounded weights
};

HWY_INLINE TileWeights start_weights(const TileShape& shape, const TileStage& stage, const float* s, std::uint32_t* p,
                                     float scale) {
  TileWeights w;
  w.s = s;
  w.p = p;
  w.remainders = p + shape.p_part();
  w.scale = _mm512_set1_ps(scale);
  for (int half = 0; half < shape.halves(); ++half) {
    w.base[half] = _mm512_load_ps(stage.queries->base + half * 16);
    w.sum[half] = _mm512_setzero_ps();
  }
  return w;
}

/// Stored scores less the base. `again`: lanes whose base was found from rounded scores; only the same rounding is sure
/// to be at most the base where scores are so large that their rounding errors are.
HWY_INLINE __m512 below_base(const TileWeights& w, const float* s, int half, __mmask16 again) {
  const __m512 dot = _mm512_load_ps(s);
  const __m512 fused = _mm512_fmsub_ps(dot, w.scale, w.base[half]);
  if (again == 0) return fused;
  return _mm512_mask_sub_ps(fused, again, _mm512_mul_ps(dot, w.scale), w.base[half]);
}

/// Bytes 2 and 3 of every 32-bit number, to bytes 0 and 1.
HWY_INLINE __m512i upper_half_down() {
  return _mm512_broadcast_i32x4(_mm_set_epi32(0x0f0e0f0e, 0x0b0a0b0a, 0x07060706, 0x03020302));
}

/// Two keys of 16 queries as a pair of bf16, added to their sum. Rounds half away from zero, which is to nearest: the
/// pair is the upper halves of both.
HWY_INLINE __m512i pair_up(__m512 even, __m512 odd, __m512& sum) {
  const __m512i half_unit = _mm512_set1_epi32(0x8000), ones = _mm512_set1_epi16(0x3f80);
  constexpr __mmask64 lower_bytes = 0x3333333333333333;
  const __m512i both =
      _mm512_mask_shuffle_epi8(_mm512_add_epi32(_mm512_castps_si512(odd), half_unit), lower_bytes,
                               _mm512_add_epi32(_mm512_castps_si512(even), half_unit), upper_half_down());
  sum = _mm512_dpbf16_ps(sum, (__m512bh)both, (__m512bh)ones);
  return both;
}

template <int parts, int lanes>
HWY_INLINE void weigh_pair(TileWeights& w, std::int64_t pair, int half, __mmask16 again = 0) {
  const float* const s = w.s + pair * 2 * lanes + half * 16;
  const __m512 even = exp2_of<parts>(below_base(w, s, half, again));
  const __m512 odd = exp2_of<parts>(below_base(w, s + lanes, half, again));
  const __m512i high = pair_up(even, odd, w.sum[half]);
  const std::int64_t at = pair * lanes + half * 16;
  _mm512_store_si512(w.p + at, high);
  if constexpr (parts == 2) {
    const __m512 even_high = _mm512_castsi512_ps(_mm512_slli_epi32(high, 16));
    const __m512 odd_high = _mm512_castsi512_ps(_mm512_and_si512(high, _mm512_set1_epi32(-65536)));
    const __m512i low = pair_up(_mm512_sub_ps(even, even_high), _mm512_sub_ps(odd, odd_high), w.sum[half]);
    _mm512_store_si512(w.remainders + at, low);
  }
}

/// A whole block.
template <int parts, int lanes>
void weigh_block(TileWeights& w, std::int64_t block) {
  for (std::int64_t pair = 0; pair < block / 2; ++pair)
    for (int half = 0; half < lanes / 16; ++half) weigh_pair<parts, lanes>(w, pair, half);
}

/// What is not a plain scale: ALiBi, hidden keys, and scales that are not positive (they would turn -inf around).
struct TileRule {
  ScoreRule<float> scores;
  std::int64_t offset = 0;  ///< position of query 0
  [[nodiscard]] bool plain() const { return scores.plain() && scores.scale > 0; }
  /// From a stored score to log2 units; a finished score is in natural ones.
  [[nodiscard]] float to_log2(bool finished) const {
    return finished ? std::numbers::log2e_v<float>
                    : static_cast<float>(static_cast<double>(scores.scale) * std::numbers::log2e);
  }
};

/// Scores of a block, in place: scaled and biased unless `rule` is plain, and -inf where a query does not see a key.
inline void finish_block(const TileShape& shape, const TileRule& rule, std::int64_t first_query, const TileStage& stage,
                         float* scores) {
  const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512 none = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  for (int half = 0; half < shape.halves(); ++half) {
    const __m512i first = _mm512_load_si512(stage.queries->first + half * 16);
    const __m512i last = _mm512_load_si512(stage.queries->last + half * 16);
    for (std::int64_t row = 0; row < shape.block; ++row) {
      float* const at = scores + row * shape.lanes + half * 16;
      __m512 s = _mm512_load_ps(at);
      const std::int64_t key = stage.first_key + row;
      if (!rule.plain()) {
        s = _mm512_mul_ps(s, _mm512_set1_ps(rule.scores.scale));
        if (rule.scores.alibi) {
          const std::int64_t away = key - (first_query + half * 16 + rule.offset);  // of lane 0; lane i is i less
          __m512 steps = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_set1_epi32(static_cast<int>(away)), lanes));
          if (rule.scores.distance) steps = _mm512_sub_ps(_mm512_setzero_ps(), _mm512_abs_ps(steps));
          s = _mm512_add_ps(s, _mm512_mul_ps(_mm512_set1_ps(rule.scores.slope), steps));
        }
      }
      const __m512i here = _mm512_set1_epi32(static_cast<int>(key));
      const __mmask16 seen = _mm512_cmple_epi32_mask(first, here) & _mm512_cmplt_epi32_mask(here, last);
      _mm512_store_ps(at, _mm512_mask_mov_ps(none, seen, s));
    }
  }
}

/// The largest stored score of each lane of one half, in log2 units, rounded; NaN where there is one.
HWY_INLINE __m512 largest_scores(const TileShape& shape, const TileWeights& w, int half) {
  __m512 most = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  for (std::int64_t row = 0; row < shape.block; ++row) {
    const __m512 s = _mm512_mul_ps(_mm512_load_ps(w.s + row * shape.lanes + half * 16), w.scale);
    const __mmask16 larger = _mm512_cmp_ps_mask(s, most, _CMP_NLE_UQ);  // a NaN stays the largest
    most = _mm512_mask_mov_ps(most, larger, s);
  }
  return most;
}

/// Bases of the lanes `which` after these scores; a lane that sees none of the block's keys is not among the result.
HWY_INLINE __mmask16 raise_bases(TileWeights& w, TileQueries& queries, __m512 most, int half, __mmask16 which) {
  which &= _mm512_cmp_ps_mask(most, _mm512_set1_ps(-std::numeric_limits<float>::infinity()), _CMP_NEQ_UQ);
  const __m512 raised = _mm512_add_ps(_mm512_roundscale_ps(most, 0x0a), _mm512_set1_ps(base_margin));  // ceil
  w.base[half] = _mm512_mask_mov_ps(w.base[half], which, raised);
  _mm512_store_ps(queries.base + half * 16, w.base[half]);
  return which;
}

/// Lanes that have no base yet set one, before their first visible keys are weighed; returns them.
inline std::uint32_t anchor(const TileShape& shape, TileWeights& w, TileQueries& queries) {
  std::uint32_t set = 0;
  for (int half = 0; half < shape.halves(); ++half) {
    const auto fresh = static_cast<__mmask16>(~(queries.anchored >> (16 * half)));
    if (fresh == 0) continue;
    const __m512 most = largest_scores(shape, w, half);
    set |= static_cast<std::uint32_t>(raise_bases(w, queries, most, half, fresh)) << (16 * half);
  }
  queries.anchored |= set;
  return set;
}

/// The lanes of a half whose block has to be weighed again. `fresh` ones have just set their base, so their largest
/// weight is 2^-9 or more, unless scores are so large that their rounding errors are.
HWY_INLINE __mmask16 unsettled(__m512 sum, std::uint32_t fresh, int half) {
  const __mmask16 large = _mm512_cmp_ps_mask(sum, _mm512_set1_ps(1), _CMP_NLE_UQ);
  const __mmask16 small = _mm512_cmp_ps_mask(sum, _mm512_set1_ps(0x1p-10f), _CMP_LT_OQ);
  return static_cast<__mmask16>(large | (small & (fresh >> (16 * half))));
}

/// Gives the lanes `again` of one half a new base, rescales what they have, and weighs the block once more.
template <int parts, int lanes>
__m512 weigh_again(const TileShape& shape, TileWeights& w, TileQueries& queries, int half, __mmask16 again) {
  const __m512 before = w.base[half], one = _mm512_set1_ps(1);
  again = raise_bases(w, queries, largest_scores(shape, w, half), half, again);
  const __m512 factor = _mm512_mask_scalef_ps(one, again, one, _mm512_sub_ps(before, w.base[half]));
  for (std::int64_t row = 0; row < shape.value_tiles() * tile_lines; ++row) {
    float* const at = queries.o + row * lanes + half * 16;
    _mm512_store_ps(at, _mm512_mul_ps(_mm512_load_ps(at), factor));
  }
  float* const l = queries.l + half * 16;
  _mm512_store_ps(l, _mm512_mul_ps(_mm512_load_ps(l), factor));
  w.sum[half] = _mm512_setzero_ps();
  for (std::int64_t pair = 0; pair < shape.block / 2; ++pair) weigh_pair<parts, lanes>(w, pair, half, again);
  return w.sum[half];
}

/// log x of 8 numbers, to 2^-50 of it: x = 2^k m with m from 0.75 to 1.5, log m = 2 artanh((m - 1) / (m + 1)).
HWY_INLINE __m512d log_of(__m512d x) {
  const __m512d one = _mm512_set1_pd(1), m = _mm512_getmant_pd(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan);
  const __m512d exponent = _mm512_getexp_pd(x);
  const __m512d k = _mm512_mask_add_pd(exponent, _mm512_cmp_pd_mask(m, one, _CMP_LT_OQ), exponent, one);
  const __m512d r = _mm512_div_pd(_mm512_sub_pd(m, one), _mm512_add_pd(m, one)), square = _mm512_mul_pd(r, r);
  __m512d series = _mm512_set1_pd(1.0 / 23);
  for (int odd = 21; odd > 0; odd -= 2) series = _mm512_fmadd_pd(series, square, _mm512_set1_pd(1.0 / odd));
  const __m512d log_m = _mm512_mul_pd(_mm512_add_pd(r, r), series);
  return _mm512_fmadd_pd(k, _mm512_set1_pd(std::numbers::ln2), log_m);
}

/// lse of every lane: base ln 2 + log l.
inline void log_sums(const TileShape& shape, const TileQueries& queries, float* lse) {
  for (std::int64_t lane = 0; lane < shape.lanes; lane += 8) {
    const __m512d base = _mm512_cvtps_pd(_mm256_load_ps(queries.base + lane));
    const __m512d log_l = log_of(_mm512_cvtps_pd(_mm256_load_ps(queries.l + lane)));
    _mm256_store_ps(lse + lane, _mm512_cvtpd_ps(_mm512_fmadd_pd(base, _mm512_set1_pd(std::numbers::ln2), log_l)));
  }
}

/// l takes the block in.
HWY_INLINE void add_sums(const TileQueries& queries, __m512 sum, int half) {
  float* const l = queries.l + half * 16;
  _mm512_store_ps(l, _mm512_add_ps(_mm512_load_ps(l), sum));
}

/// Values of a packed block that are not finite, added by hand: o += p v for the lanes that see the key. `clean` gets
/// the block with zeros in their place, which hidden lanes (p = 0) may multiply. The high parts of p are enough for
/// that.
inline void add_by_hand(const TileShape& shape, const TileStage& stage, const std::uint32_t* p) {
  std::memcpy(stage.clean, stage.v, static_cast<std::size_t>(shape.v_bytes()));
  auto* const values = reinterpret_cast<std::uint16_t*>(stage.clean);
  const std::int64_t count = shape.v_bytes() / 2, per_tile = tile_bytes / 2;
  for (std::int64_t at = 0; at < count; ++at) {
    if ((values[at] & 0x7f80) != 0x7f80) continue;
    const __m512 value = _mm512_set1_ps(bf16_to_float(values[at]));
    values[at] = 0;
    const std::int64_t tile = at / per_tile / shape.parts;
    const std::int64_t column = tile / shape.key_steps() * 16 + at % per_tile / 32;
    const std::int64_t key = tile % shape.key_steps() * 32 + at % 32;
    const __m512i here = _mm512_set1_epi32(static_cast<int>(stage.first_key + key));
    for (int half = 0; half < shape.halves(); ++half) {
      const __mmask16 seen = _mm512_cmple_epi32_mask(_mm512_load_si512(stage.queries->first + half * 16), here) &
                             _mm512_cmplt_epi32_mask(here, _mm512_load_si512(stage.queries->last + half * 16));
      const __m512i weights = _mm512_load_si512(p + key / 2 * shape.lanes + half * 16);
      const __m512 weight = _mm512_castsi512_ps(
          key % 2 == 0 ? _mm512_slli_epi32(weights, 16)
                       : _mm512_and_si512(weights, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
      float* const o = stage.queries->o + column * shape.lanes + half * 16;
      _mm512_store_ps(o, _mm512_mask3_fmadd_ps(weight, value, _mm512_load_ps(o), seen));
    }
  }
}

}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES
