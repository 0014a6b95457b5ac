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

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")
namespace fresnel::cpu {

/// Log2 units between a block's maximum and the base it sets: room to grow before the next rescale. Weights lose as
/// many powers of two at the small end: see tile_flash_roundings.
inline constexpr float base_margin = 8;

/// Relative errors of weights before they are rounded: half a step of the table, and exp2_of<1>.
inline constexpr double table_error = 2.712e-3, polynomial_error = 7.6e-5;

/// 2^x for x up to 127, +0 for -inf and below -150. Relative error polynomial_error where P is rounded to bf16 anyway,
/// 1.5e-7 where it keeps two parts (measured by a test; polynomials that minimise the relative error on [0, 1)).
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
  std::int64_t part;  ///< from a number of p to its low part, where numbers are split
  __m512 scale;       ///< to log2 units
  __m512 base[2];
  __m512 sum[2];  ///< of the rounded weights
  // For weights by table, see weigh_pair_by_table.
  __m512 steps;      ///< scale times steps_per_unit
  __m512 origin[2];  ///< step 0 less the base
  __m512i any[2];    ///< all steps so far, or-ed
  __m512i every[2];  ///< and and-ed
};

/// Bytes 2 and 3 of every 32-bit number, to bytes 0 and 1.
HWY_INLINE __m512i upper_half_down() {
  return _mm512_broadcast_i32x4(_mm_set_epi32(0x0f0e0f0e, 0x0b0a0b0a, 0x07060706, 0x03020302));
}

/// Bytes 0 and 1, to bytes 2 and 3.
HWY_INLINE __m512i lower_half_up() {
  return _mm512_broadcast_i32x4(_mm_set_epi32(0x0d0c0d0c, 0x09080908, 0x05040504, 0x01000100));
}

// Weights by table. A bf16 is 2^n (1 + m / 128) with its bits at 128 (n + 127) + m, so the bits of 2^x are 128 (x +
// 127) less what the fraction's chord lies above 2^x, a whole number from 0 to 11. x is rounded to steps of 1/128 by
// adding a number so large that a float has no finer ones; its low 16 bits are then the step, counted from below_window
// units below the base, and two keys of 16 queries make 32 of them: everything after that is done on 32 weights at
// once. A step outside of its 16 bits, like NaN and infinity, changes bits above them, which are or-ed from key to key
// and looked at once per block.

inline constexpr float steps_per_unit = 128;
inline constexpr float below_window = 383;
/// The step of 2^-127, as a signed number of 16 bits.
inline constexpr auto least_step = static_cast<std::int16_t>((below_window - 127) * steps_per_unit - 65536);
/// Where the upper half of a float's bits stays the same for 2^16 steps: 1.5 x 2^23.
inline constexpr float first_place = 0x1.8p23f;
inline constexpr float step_zero = first_place + below_window * steps_per_unit;
/// Beyond this a base makes step_zero - 128 base more than 24 bits wide.
inline constexpr float most_base = 0x1p14f;

/// By how many steps the chord from 2^0 to 2^1 lies above 2^(i / 128), rounded to bf16.
struct ChordTable {
  alignas(64) std::uint8_t above[128] = {};
  constexpr ChordTable() {
    double power = 1;  // 2^(i / 128)
    int mantissa = 0;  // of it, in steps, to nearest
    for (int i = 0; i < 128; ++i, power *= 0x1.0163da9fb3335p0) {
      while (mantissa + 0.5 <= 128 * (power - 1)) ++mantissa;
      above[i] = static_cast<std::uint8_t>(i - mantissa);
    }
  }
};
inline constexpr ChordTable chord_table;

/// The steps of 16 scores. `clamped`: those below the table, -inf too, are its first, whose weight is zero like theirs.
template <bool clamped>
HWY_INLINE __m512i steps_of(const TileWeights& w, const float* s, int half) {
  __m512 steps = _mm512_fmadd_ps(_mm512_load_ps(s), w.steps, w.origin[half]);
  if constexpr (clamped) steps = _mm512_max_ps(_mm512_set1_ps(first_place), steps);  // NaN where steps are
  return _mm512_castps_si512(steps);
}

/// Two keys of 16 queries, whose scores are at `s` and weights at `p`; `stored`: the lanes whose weights are kept.
template <bool clamped, int lanes>
HWY_INLINE void weigh_pair_by_table(TileWeights& w, const float* s, std::uint32_t* p, int half,
                                    __mmask16 stored = 0xffff) {
  const __m512i even = steps_of<clamped>(w, s, half), odd = steps_of<clamped>(w, s + lanes, half);
  w.any[half] = _mm512_ternarylogic_epi32(w.any[half], even, odd, 0xfe);
  w.every[half] = _mm512_ternarylogic_epi32(w.every[half], even, odd, 0x80);
  constexpr __mmask64 upper_bytes = 0xcccccccccccccccc, low_bytes = 0x5555555555555555;
  const __m512i both = _mm512_mask_shuffle_epi8(even, upper_bytes, odd, lower_half_up());
  const __m512i above = _mm512_maskz_permutex2var_epi8(low_bytes, _mm512_load_si512(chord_table.above), both,
                                                       _mm512_load_si512(chord_table.above + 64));
  const __m512i bits = _mm512_subs_epu16(both, _mm512_or_si512(above, _mm512_set1_epi16(least_step)));
  w.sum[half] = _mm512_dpbf16_ps(w.sum[half], (__m512bh)bits, (__m512bh)_mm512_set1_epi16(0x3f80));
  _mm512_mask_store_epi32(p, stored, bits);
}

/// Lanes whose base has the table, which those of NaN have not.
HWY_INLINE __mmask16 has_table(__m512 base) {
  return _mm512_cmp_ps_mask(_mm512_abs_ps(base), _mm512_set1_ps(most_base), _CMP_LE_OQ);
}

/// Lanes that have been weighed by a table that does not hold for them.
HWY_INLINE __mmask16 off_the_table(const TileWeights& w, int half) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  const __m512i same = _mm512_castps_si512(_mm512_set1_ps(first_place));
  return static_cast<__mmask16>(_mm512_cmpneq_epi32_mask(_mm512_and_si512(w.any[half], upper), same) |
                                _mm512_cmpneq_epi32_mask(_mm512_and_si512(w.every[half], upper), same) |
                                ~has_table(w.base[half]));
}

HWY_INLINE TileWeights start_weights(const TileShape& shape, const TileQueries& queries, const float* s,
                                     std::uint32_t* p, float scale) {
  TileWeights w;
  w.s = s;
  w.p = p;
  w.part = shape.p_part();
  w.scale = _mm512_set1_ps(scale);
  for (int half = 0; half < shape.halves(); ++half) {
    w.base[half] = _mm512_load_ps(queries.base + half * 16);
    w.sum[half] = _mm512_setzero_ps();
  }
  return w;
}

HWY_INLINE __m512 table_origin(__m512 base) {
  return _mm512_fnmadd_ps(base, _mm512_set1_ps(steps_per_unit), _mm512_set1_ps(step_zero));
}

/// Once bases are set.
HWY_INLINE void start_table(TileWeights& w, int half) {
  w.steps = _mm512_mul_ps(w.scale, _mm512_set1_ps(steps_per_unit));
  w.origin[half] = table_origin(w.base[half]);
  w.any[half] = _mm512_setzero_si512();
  w.every[half] = _mm512_set1_epi32(-1);
}

/// Calls f.operator()<half>() for each half. Arrays of two live in registers only where no loop indexes them.
template <int lanes, class F>
HWY_INLINE void for_halves(F&& f) {
  f.template operator()<0>();
  if constexpr (lanes > 16) f.template operator()<1>();
}

/// What making weights reads and changes. A copy of its own lives in registers, where one of everything would be copied
/// through memory.
template <int lanes>
HWY_INLINE TileWeights running(const TileWeights& w) {
  TileWeights copy;
  copy.s = w.s;
  copy.p = w.p;
  copy.part = w.part;
  copy.scale = w.scale;
  copy.steps = w.steps;
  for_halves<lanes>([&]<int half>() HWY_ATTR {
    copy.base[half] = w.base[half];
    copy.origin[half] = w.origin[half];
    copy.sum[half] = w.sum[half];
    copy.any[half] = w.any[half];
    copy.every[half] = w.every[half];
  });
  return copy;
}

template <int lanes>
HWY_INLINE void take_sums(const TileWeights& copy, TileWeights& w) {
  for (int half = 0; half < lanes / 16; ++half) {
    w.sum[half] = copy.sum[half];
    w.any[half] = copy.any[half];
    w.every[half] = copy.every[half];
  }
}

/// Stored scores less the base. `again`: lanes whose base was found from rounded scores; only the same rounding is sure
/// to be at most the base where scores are so large that their rounding errors are.
HWY_INLINE __m512 below_base(const TileWeights& w, const float* s, int half, __mmask16 again) {
  const __m512 dot = _mm512_load_ps(s);
  const __m512 fused = _mm512_fmsub_ps(dot, w.scale, w.base[half]);
  if (again == 0) return fused;
  return _mm512_mask_sub_ps(fused, again, _mm512_mul_ps(dot, w.scale), w.base[half]);
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

/// The same by polynomial; `stored`: the lanes whose weights are kept.
template <int parts, int lanes>
HWY_INLINE void weigh_pair_by_polynomial(TileWeights& w, const float* s, std::uint32_t* p, int half,
                                         __mmask16 again = 0, __mmask16 stored = 0xffff) {
  const __m512 even = exp2_of<parts>(below_base(w, s, half, again));
  const __m512 odd = exp2_of<parts>(below_base(w, s + lanes, half, again));
  const __m512i high = pair_up(even, odd, w.sum[half]);
  _mm512_mask_store_epi32(p, stored, high);
  if constexpr (parts == 2) {
    const __m512 even_high = _mm512_castsi512_ps(_mm512_slli_epi32(high, 16));
    const __m512 odd_high = _mm512_castsi512_ps(_mm512_and_si512(high, _mm512_set1_epi32(-65536)));
    const __m512i low = pair_up(_mm512_sub_ps(even, even_high), _mm512_sub_ps(odd, odd_high), w.sum[half]);
    _mm512_mask_store_epi32(p + w.part, stored, low);
  }
}

/// How a block's weights are made: by table where P is rounded to bf16, clamped where keys are hidden.
enum class Exponential : std::uint8_t { polynomial, table, clamped_table };

/// Pair `of_s` of the scores, whose weights are pair `of_p`.
template <Exponential how, int parts, int lanes>
HWY_INLINE void weigh_pair(TileWeights& w, std::int64_t of_s, std::int64_t of_p, int half) {
  const float* const s = w.s + of_s * 2 * lanes + half * 16;
  std::uint32_t* const p = w.p + of_p * lanes + half * 16;
  if constexpr (how != Exponential::polynomial) {
    weigh_pair_by_table<how == Exponential::clamped_table, lanes>(w, s, p, half);
  } else {
    weigh_pair_by_polynomial<parts, lanes>(w, s, p, half);
  }
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

/// Scores of `keys`, in place: scaled and biased unless `rule` is plain, and -inf where a query does not see a key.
inline void finish_scores(const TileShape& shape, const TileRule& rule, std::int64_t first_query,
                          const TileQueries& queries, const KeyRange& keys, float* scores) {
  const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512 none = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  for (int half = 0; half < shape.halves(); ++half) {
    const __m512i first = _mm512_load_si512(queries.first + half * 16);
    const __m512i last = _mm512_load_si512(queries.last + half * 16);
    for (std::int64_t key = keys.first; key < keys.last; ++key) {
      float* const at = scores + (key - keys.first) * shape.lanes + half * 16;
      __m512 s = _mm512_load_ps(at);
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

/// The largest of the stored scores of `keys` keys, for each lane of one half, in log2 units, rounded; NaN where there
/// is one. Four chains, since a maximum takes four clocks.
HWY_INLINE __m512 largest_scores(const TileShape& shape, const TileWeights& w, std::int64_t keys, int half) {
  constexpr int chains = 4;
  __m512 most[chains];
  for (__m512& one : most) one = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __mmask16 not_a_number = 0;
  for (std::int64_t row = 0; row < keys; row += chains) {
    for (int chain = 0; chain < chains; ++chain) {
      const __m512 s = _mm512_mul_ps(_mm512_load_ps(w.s + (row + chain) * shape.lanes + half * 16), w.scale);
      most[chain] = _mm512_max_ps(most[chain], s);
      not_a_number |= _mm512_cmp_ps_mask(s, s, _CMP_UNORD_Q);
    }
  }
  const __m512 largest = _mm512_max_ps(_mm512_max_ps(most[0], most[1]), _mm512_max_ps(most[2], most[3]));
  return _mm512_mask_mov_ps(largest, not_a_number, _mm512_set1_ps(std::numeric_limits<float>::quiet_NaN()));
}

/// A base for each lane after these scores.
HWY_INLINE __m512 base_over(__m512 most) {
  return _mm512_add_ps(_mm512_roundscale_ps(most, 0x0a), _mm512_set1_ps(base_margin));  // ceil
}

/// New bases for the lanes `which`; a lane that sees none of the keys is not among the result.
HWY_INLINE __mmask16 set_bases(TileWeights& w, TileQueries& queries, __m512 most, __m512 bases, int half,
                               __mmask16 which) {
  which &= _mm512_cmp_ps_mask(most, _mm512_set1_ps(-std::numeric_limits<float>::infinity()), _CMP_NEQ_UQ);
  w.base[half] = _mm512_mask_mov_ps(w.base[half], which, bases);
  _mm512_store_ps(queries.base + half * 16, w.base[half]);
  return which;
}

/// Lanes that have no base yet set one, before `keys` keys, their first visible ones, are weighed; returns them.
inline std::uint32_t anchor(const TileShape& shape, TileWeights& w, std::int64_t keys, TileQueries& queries) {
  std::uint32_t set = 0;
  for (int half = 0; half < shape.halves(); ++half) {
    const auto fresh = static_cast<__mmask16>(~(queries.anchored >> (16 * half)));
    if (fresh == 0) continue;
    const __m512 most = largest_scores(shape, w, keys, half);
    set |= static_cast<std::uint32_t>(set_bases(w, queries, most, base_over(most), half, fresh)) << (16 * half);
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

/// The block once more, for the lanes `which` of one half; w.sum[half] gets their sums. `exactly`: see below_base.
template <int parts, int lanes>
void weigh_lanes(TileWeights& w, std::int64_t keys, int half, __mmask16 which, __mmask16 exactly) {
  const __m512 others = w.sum[half];
  const __mmask16 by_table = parts == 1 ? which & has_table(w.base[half]) : 0;
  const auto by_polynomial = static_cast<__mmask16>(which & ~by_table);
  const auto weigh = [&](__mmask16 lanes_of_pass, auto weigh_pair) HWY_ATTR {
    if (lanes_of_pass == 0) return;
    const __m512 before = w.sum[half];
    w.sum[half] = _mm512_setzero_ps();
    for (std::int64_t pair = 0; pair < keys / 2; ++pair)
      weigh_pair(w.s + pair * 2 * lanes + half * 16, w.p + pair * lanes + half * 16);
    w.sum[half] = _mm512_mask_mov_ps(before, lanes_of_pass, w.sum[half]);
  };
  start_table(w, half);
  weigh(by_table,
        [&](const float* s, std::uint32_t* p) HWY_ATTR { weigh_pair_by_table<true, lanes>(w, s, p, half, by_table); });
  weigh(by_polynomial, [&](const float* s, std::uint32_t* p)
                           HWY_ATTR { weigh_pair_by_polynomial<parts, lanes>(w, s, p, half, exactly, by_polynomial); });
  w.sum[half] = _mm512_mask_mov_ps(others, which, w.sum[half]);
}

/// Gives lanes of one half a new base, rescales what they have, and weighs the block once more for them: the `stale`
/// ones, and those `off` the table, whose sums say nothing, a base that is no lower than before.
template <int parts, int lanes>
void weigh_again(const TileShape& shape, TileWeights& w, const TileStage& stage, int half, __mmask16 stale,
                 __mmask16 off) {
  TileQueries& queries = *stage.queries;
  const std::int64_t keys = stage.keys().size();
  const __m512 before = w.base[half], one = _mm512_set1_ps(1), most = largest_scores(shape, w, keys, half);
  const __m512 bases = _mm512_mask_max_ps(base_over(most), off, before, base_over(most));  // NaN where `most` is
  const __mmask16 exactly = set_bases(w, queries, most, bases, half, stale | off);
  queries.anchored |= static_cast<std::uint32_t>(exactly) << (16 * half);
  const __m512 factor = _mm512_mask_scalef_ps(one, exactly, one, _mm512_sub_ps(before, w.base[half]));
  for (std::int64_t row = 0; queries.begun && row < shape.value_tiles() * tile_lines; ++row) {
    float* const at = queries.o + row * lanes + half * 16;
    _mm512_store_ps(at, _mm512_mul_ps(_mm512_load_ps(at), factor));
  }
  float* const l = queries.l + half * 16;
  _mm512_store_ps(l, _mm512_mul_ps(_mm512_load_ps(l), factor));
  weigh_lanes<parts, lanes>(w, keys, half, stale | off, exactly);
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
  stage.queries->begin(shape);
  const std::int64_t per_tile = tile_bytes / 2, tile_pitch = shape.key_steps() * shape.parts * per_tile;
  for (std::int64_t tile = 0; tile < shape.value_tiles(); ++tile) {
    const auto* const from = reinterpret_cast<const std::uint16_t*>(stage.v) + tile * tile_pitch;
    auto* const clean = reinterpret_cast<std::uint16_t*>(stage.clean) + tile * tile_pitch;
    for (std::int64_t at = 0; at < stage.steps * shape.parts * per_tile; ++at) {
      const bool finite = (from[at] & 0x7f80) != 0x7f80;
      clean[at] = finite ? from[at] : 0;
      if (finite) continue;
      const __m512 value = _mm512_set1_ps(bf16_to_float(from[at]));
      const std::int64_t column = tile * 16 + at % per_tile / product_depth;
      const std::int64_t key = at / per_tile / shape.parts * product_depth + at % product_depth;
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
}

}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES
