// SPDX-License-Identifier: Apache-2.0
// The tile of cpu.flash: queries in lanes, keys in rows. K and V are read as they lie, one scalar at a time as
// broadcast operands; only Q is transposed, once per query tile. The row maximum and row sum are then lane-wise, the
// rescale of O is one lane-wise factor, and nothing is ever reduced across lanes.
//
//        Q^T [D][queries]      K tile [keys][D]             P^T = S^T        V tile [keys][Dv]
//              q0 q1 .. q31      k0: . . .                   q0 .. q31         v0: . . .
//        d=0   .  .      .       k1: . . .      S^T [keys] k0 .     .          v1: . . .        O^T [Dv][queries]
//        d=1   .  .      .        :                        k1 .     .           :               c=0  .  .     .
//
//        S^T[k][:] = sum_d K[k][d] Q^T[d][:]                 O^T[c][:] = alpha O^T[c][:] + sum_k V[k][c] P^T[k][:]
//
// Both products are the same register tile: `rows` broadcasts against `vectors` loads, rows x vectors accumulators.

#if defined(FRESNEL_KERNELS_CPU_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FRESNEL_KERNELS_CPU_COLUMNS_INL_H_
#undef FRESNEL_KERNELS_CPU_COLUMNS_INL_H_
#else
#define FRESNEL_KERNELS_CPU_COLUMNS_INL_H_
#endif

#include <bit>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/read_ahead-inl.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

/// Query vectors of a group. Two keep Q^T, S^T and O^T of a group at 8 KB each for D 64 in 512-bit vectors.
inline constexpr int max_vectors = 2;
/// Keys (or output columns) of a register tile: 8 x 2 accumulators where there are 32 registers, 6 x 2 where 16, which
/// leaves three for two loads and a broadcast. Two multiply-adds a cycle of four cycles each want at least eight sums.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int tile_rows = 8;
#else
inline constexpr int tile_rows = 6;
#endif

/// Queries handled together.
template <class T>
inline constexpr std::int64_t group_width = max_vectors* lanes_of<T>;

/// What is asked for while a tile is computed, during its products with keys and during those with values.
struct TileAhead {
  LinesAhead during_keys, during_values;
};

/// step(at) for every `at` below `count`; where anything is asked for, `rows` lines before as many as fill a line.
template <class T, int rows, bool asks, class Step>
HWY_INLINE void for_steps(std::int64_t count, LinesAhead& ahead, Step&& step) {
  std::int64_t at = 0;
  if constexpr (asks) {
    constexpr std::int64_t line = 64 / sizeof(T);
    while (at + line <= count) {
      ahead.template some<rows>();
#pragma GCC unroll 4
      for (const std::int64_t end = at + line; at != end; ++at) step(at);
    }
  }
#pragma GCC unroll 4  // a turn of one step is a sixth loop
  for (; at < count; ++at) step(at);
}

/// scores[row][:] = scale sum_d k[row][d] q[d][:] for `rows` keys; `pitch` is the distance between rows of q and
/// scores. `best` becomes the largest of itself and them, while they are in registers.
template <class T, int rows, int vectors, bool asks>
HWY_INLINE void multiply_keys(const T* HWY_RESTRICT q, const T* HWY_RESTRICT k, std::ptrdiff_t k_stride,
                              std::int64_t depth, std::int64_t pitch, T scale, T* HWY_RESTRICT scores,
                              Vector<T> (&best)[vectors], LinesAhead& ahead) {
  constexpr std::int64_t lanes = lanes_of<T>;
  const Full<T> d;
  Vector<T> sums[rows][vectors];
  for (int row = 0; row < rows; ++row)
    for (int vector = 0; vector < vectors; ++vector) sums[row][vector] = hn::Zero(d);
  for_steps<T, rows, asks>(depth, ahead, [&](std::int64_t at) HWY_ATTR {
    Vector<T> query[vectors];
    for (int vector = 0; vector < vectors; ++vector) query[vector] = hn::Load(d, q + at * pitch + vector * lanes);
    for (int row = 0; row < rows; ++row) {
      const auto key = hn::Set(d, k[row * k_stride + at]);
      for (int vector = 0; vector < vectors; ++vector)
        sums[row][vector] = hn::MulAdd(key, query[vector], sums[row][vector]);
    }
  });
  for (int row = 0; row < rows; ++row) {
    for (int vector = 0; vector < vectors; ++vector) {
      const auto score = hn::Mul(hn::Set(d, scale), sums[row][vector]);
      best[vector] = hn::Max(best[vector], score);
      hn::Store(score, d, scores + row * pitch + vector * lanes);
    }
  }
}

/// o[c][:] = alpha o[c][:] + sum_k v[k][c] p[k][:] for `rows` output columns. The tile is summed from zero and added
/// once: the depth of the whole sum is keys per tile plus tiles.
template <class T, int rows, int vectors, bool asks>
HWY_INLINE void multiply_values(const T* HWY_RESTRICT p, const T* HWY_RESTRICT v, std::ptrdiff_t v_stride,
                                std::int64_t keys, std::int64_t pitch, const T* HWY_RESTRICT alpha, T* HWY_RESTRICT o,
                                LinesAhead& ahead) {
  constexpr std::int64_t lanes = lanes_of<T>;
  const Full<T> d;
  Vector<T> sums[rows][vectors];
  for (int row = 0; row < rows; ++row)
    for (int vector = 0; vector < vectors; ++vector) sums[row][vector] = hn::Zero(d);
  for_steps<T, rows, asks>(keys, ahead, [&](std::int64_t key) HWY_ATTR {
    Vector<T> weight[vectors];
    for (int vector = 0; vector < vectors; ++vector) weight[vector] = hn::Load(d, p + key * pitch + vector * lanes);
    for (int row = 0; row < rows; ++row) {
      const auto value = hn::Set(d, v[key * v_stride + row]);
      for (int vector = 0; vector < vectors; ++vector)
        sums[row][vector] = hn::MulAdd(value, weight[vector], sums[row][vector]);
    }
  });
  for (int vector = 0; vector < vectors; ++vector) {
    const auto rescale = hn::Load(d, alpha + vector * lanes);
    for (int row = 0; row < rows; ++row) {
      T* at = o + row * pitch + vector * lanes;
      hn::Store(hn::MulAdd(rescale, hn::Load(d, at), sums[row][vector]), d, at);
    }
  }
}

/// Runs body(std::integral_constant<int, n>, first) over `count` rows: register tiles of `rows`, then of the powers of
/// two below it.
template <int rows, class Body>
HWY_INLINE void for_row_blocks(std::int64_t count, Body&& body, std::int64_t first = 0) {
  for (; first + rows <= count; first += rows) body(std::integral_constant<int, rows>(), first);
  if constexpr (rows > 1)
    for_row_blocks<static_cast<int>(std::bit_floor(static_cast<unsigned>(rows - 1)))>(count, body, first);
}

/// What one key tile means to one group of queries.
template <class T>
struct TileRule {
  ScoreRule<T> scores;
  KeyRange whole;             ///< keys that every query sees, counted from the tile's first
  std::int64_t distance = 0;  ///< position of the tile's first key minus that of the group's first query
  const T* first = nullptr;   ///< per query: first visible key, counted from the tile's first
  const T* last = nullptr;    ///< per query: one past the last

  /// Some query does not see some key of the tile.
  [[nodiscard]] bool edge(std::int64_t keys) const { return whole.size() < keys; }
};

/// j - p for key `key` of the tile and the queries of vector `vector`, each exact before it is rounded to T.
template <class T>
HWY_INLINE Vector<T> distances(const TileRule<T>& rule, std::int64_t key, int vector) {
  const Full<T> d;
  const std::int64_t away = rule.distance + key - vector * lanes_of<T>;
  if (away > -exact_distance<T> && away < exact_distance<T>)
    return hn::Sub(hn::Set(d, static_cast<T>(away)), hn::Iota(d, T(0)));
  HWY_ALIGN T exact[lanes_of<T>];
  for (std::int64_t lane = 0; lane < lanes_of<T>; ++lane) exact[lane] = static_cast<T>(away - lane);
  return hn::Load(d, exact);
}

/// All true: the queries of `vector` that see key `key`.
template <class T>
HWY_INLINE auto sees(const TileRule<T>& rule, std::int64_t key, int vector) {
  const Full<T> d;
  const auto at = hn::Set(d, static_cast<T>(key));
  return hn::And(hn::Le(hn::Load(d, rule.first + vector * lanes_of<T>), at),
                 hn::Lt(at, hn::Load(d, rule.last + vector * lanes_of<T>)));
}

/// Scaled scores are capped and biased, then masked: the order of docs/semantics.md.
template <class T, int vectors>
void cap_and_bias(const TileRule<T>& rule, std::int64_t keys, std::int64_t pitch, T* HWY_RESTRICT scores) {
  const Full<T> d;
  for (std::int64_t key = 0; key < keys; ++key) {
    for (int vector = 0; vector < vectors; ++vector) {
      T* at = scores + key * pitch + vector * lanes_of<T>;
      auto s = hn::Load(d, at);
      if (rule.scores.softcap != T(0)) s = soft_capped<T>(s, rule.scores.softcap);
      if (rule.scores.alibi) {
        auto away = distances(rule, key, vector);
        if (rule.scores.distance) away = hn::Neg(hn::Abs(away));
        s = hn::Add(s, hn::Mul(hn::Set(d, rule.scores.slope), away));
      }
      hn::Store(s, d, at);
    }
  }
}

template <class T, int vectors>
void mask_keys(const TileRule<T>& rule, const KeyRange& keys, std::int64_t pitch, T* HWY_RESTRICT scores) {
  const Full<T> d;
  const auto hidden = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (std::int64_t key = keys.first; key < keys.last; ++key) {
    for (int vector = 0; vector < vectors; ++vector) {
      T* at = scores + key * pitch + vector * lanes_of<T>;
      hn::Store(hn::IfThenElse(sees(rule, key, vector), hn::Load(d, at), hidden), d, at);
    }
  }
}

/// The largest of `best` and the scores of a tile, lane by lane.
template <class T, int vectors>
void raise(std::int64_t keys, std::int64_t pitch, const T* HWY_RESTRICT scores, Vector<T> (&best)[vectors]) {
  for (std::int64_t key = 0; key < keys; ++key) {
    for (int vector = 0; vector < vectors; ++vector)
      best[vector] = hn::Max(best[vector], hn::Load(Full<T>(), scores + key * pitch + vector * lanes_of<T>));
  }
}

/// Scores of a tile become weights; `best` is the largest score of each query so far. m, l and alpha (the rescale of
/// what came before) of the group are updated.
template <class T, int vectors>
void weigh_tile(std::int64_t keys, std::int64_t pitch, const Vector<T> (&best)[vectors], T* HWY_RESTRICT scores,
                T* HWY_RESTRICT m, T* HWY_RESTRICT l, T* HWY_RESTRICT alpha) {
  constexpr std::int64_t lanes = lanes_of<T>;
  const Full<T> d;
  const auto none = hn::Set(d, -std::numeric_limits<T>::infinity());
  Vector<T> base[vectors], sum[vectors];
  for (int vector = 0; vector < vectors; ++vector) {
    // A query that has seen nothing yet keeps m = -inf and weighs against 0, so that exp never meets -inf - -inf.
    base[vector] = hn::IfThenElse(hn::Eq(best[vector], none), hn::Zero(d), best[vector]);
    const auto rescale = exp_nonpositive<T>(hn::Sub(hn::Load(d, m + vector * lanes), base[vector]));
    hn::Store(rescale, d, alpha + vector * lanes);
    hn::Store(best[vector], d, m + vector * lanes);
    sum[vector] = hn::Zero(d);
  }
  for (std::int64_t key = 0; key < keys; ++key) {
    for (int vector = 0; vector < vectors; ++vector) {
      T* at = scores + key * pitch + vector * lanes;
      const auto p = exp_nonpositive<T>(hn::Sub(hn::Load(d, at), base[vector]));
      hn::Store(p, d, at);
      sum[vector] = hn::Add(sum[vector], p);
    }
  }
  for (int vector = 0; vector < vectors; ++vector) {
    T* at = l + vector * lanes;
    hn::Store(hn::MulAdd(hn::Load(d, at), hn::Load(d, alpha + vector * lanes), sum[vector]), d, at);
  }
}

/// The careful form of multiply_values, for an edge tile whose values are not all finite: a hidden value is not
/// multiplied by its zero weight (0 x NaN is NaN) but left out.
template <class T, int vectors>
void multiply_visible_values(const TileRule<T>& rule, const T* p, Rows<const T> v, std::int64_t keys,
                             std::int64_t columns, std::int64_t pitch, const T* alpha, T* o) {
  constexpr std::int64_t lanes = lanes_of<T>;
  const Full<T> d;
  for (std::int64_t column = 0; column < columns; ++column) {
    for (int vector = 0; vector < vectors; ++vector) {
      auto sum = hn::Zero(d);
      for (std::int64_t key = 0; key < keys; ++key) {
        const auto value = hn::IfThenElseZero(sees(rule, key, vector), hn::Set(d, v.row(key)[column]));
        sum = hn::MulAdd(value, hn::Load(d, p + key * pitch + vector * lanes), sum);
      }
      T* at = o + column * pitch + vector * lanes;
      hn::Store(hn::MulAdd(hn::Load(d, alpha + vector * lanes), hn::Load(d, at), sum), d, at);
    }
  }
}

/// False where a tile holds Inf or NaN: 0 x them is NaN, and a sum keeps it.
template <class T>
bool all_finite(Rows<const T> rows, std::int64_t count, std::int64_t width) {
  constexpr std::int64_t lanes = lanes_of<T>;
  const Full<T> d;
  auto zero = hn::Zero(d);
  for (std::int64_t row = 0; row < count; ++row) {
    std::int64_t at = 0;
    for (; at + lanes <= width; at += lanes) zero = hn::MulAdd(load(rows.row(row) + at), hn::Zero(d), zero);
    if (at < width) zero = hn::MulAdd(load_first(rows.row(row) + at, width - at), hn::Zero(d), zero);
  }
  return sum_of<T>(zero) == T(0);
}

/// One key tile for one group of `vectors` vectors of queries: scores, weights, values.
template <class T, int vectors, bool asks>
void tile_step(const TileRule<T>& rule, const ColumnScratch<T>& group, Rows<const T> k, Rows<const T> v,
               std::int64_t keys, std::int64_t head_dim, std::int64_t value_dim, TileAhead ahead) {
  constexpr std::int64_t pitch = group_width<T>;
  Vector<T> before[vectors], best[vectors];
  for (int vector = 0; vector < vectors; ++vector)
    before[vector] = best[vector] = hn::Load(Full<T>(), group.m + vector * lanes_of<T>);
  for_row_blocks<tile_rows>(keys, [&](auto rows, std::int64_t first) HWY_ATTR {
    multiply_keys<T, rows.value, vectors, asks>(group.q, k.row(first), k.stride, head_dim, pitch, rule.scores.scale,
                                                group.scores + first * pitch, best, ahead.during_keys);
  });
  const bool plain = rule.scores.plain(), edge = rule.edge(keys);
  if (!plain) cap_and_bias<T, vectors>(rule, keys, pitch, group.scores);
  if (edge) {
    mask_keys<T, vectors>(rule, {0, rule.whole.first}, pitch, group.scores);
    mask_keys<T, vectors>(rule, {rule.whole.last, keys}, pitch, group.scores);
  }
  if (!plain || edge) raise<T, vectors>(keys, pitch, group.scores, before);
  weigh_tile<T, vectors>(keys, pitch, plain && !edge ? best : before, group.scores, group.m, group.l, group.alpha);
  if (edge && !all_finite(v, keys, value_dim)) {
    multiply_visible_values<T, vectors>(rule, group.scores, v, keys, value_dim, pitch, group.alpha, group.o);
    return;
  }
  for_row_blocks<tile_rows>(value_dim, [&](auto rows, std::int64_t first) HWY_ATTR {
    multiply_values<T, rows.value, vectors, asks>(group.scores, v.base + first, v.stride, keys, pitch, group.alpha,
                                                  group.o + first * pitch, ahead.during_values);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard toggled per target
