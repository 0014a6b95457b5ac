// SPDX-License-Identifier: Apache-2.0
// One query row against a run of keys, vectorised along the head dimension: what cpu.naive does for whole rows and
// cpu.flash for tiles with few queries. A row only ever touches keys it sees, so there is nothing to mask.
//
//     scores   s[j] = q . k_j        4 keys at a time, lanes along D
//     weights  p[j] = exp(s[j] - m)  lanes along keys; the array is padded with -inf to whole vectors
//     output   o[c] += p[j] v_j[c]   lanes along Dv, 4 vectors of columns at a time, keys in order
//
// cpu.naive takes one query at a time; cpu.flash takes two, so that every vector of K and V is loaded for both.

#if defined(FRESNEL_KERNELS_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FRESNEL_KERNELS_CPU_ROWS_INL_H_
#undef FRESNEL_KERNELS_CPU_ROWS_INL_H_
#else
#define FRESNEL_KERNELS_CPU_ROWS_INL_H_
#endif

#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

/// to[i] = sum of the lanes of v[i].
template <class T>
HWY_INLINE void sums_of_four(const Vector<T> (&v)[4], T* to) {
  for (int sum = 0; sum < 4; ++sum) to[sum] = sum_of<T>(v[sum]);
}

#else

/// Adds the 16-byte blocks of a vector.
template <class D>
HWY_INLINE auto sum_of_blocks(D, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) <= 16) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

/// to[i] = sum of the lanes of v[i]: four sums at once share their shuffles.
HWY_INLINE void sums_of_four(const Vector<float> (&v)[4], float* to) {
  const Full<float> d;
  const hn::Repartition<double, Full<float>> pairs;
  const auto first = hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1]));
  const auto second = hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3]));
  const auto low = hn::InterleaveLower(pairs, hn::BitCast(pairs, first), hn::BitCast(pairs, second));
  const auto high = hn::InterleaveUpper(pairs, hn::BitCast(pairs, first), hn::BitCast(pairs, second));
  const auto sums = sum_of_blocks(d, hn::Add(hn::BitCast(d, low), hn::BitCast(d, high)));
  hn::StoreU(sums, hn::FixedTag<float, 4>(), to);
}

HWY_INLINE void sums_of_four(const Vector<double> (&v)[4], double* to) {
  const Full<double> d;
  for (int pair = 0; pair < 4; pair += 2) {
    const auto sums =
        hn::Add(hn::InterleaveLower(d, v[pair], v[pair + 1]), hn::InterleaveUpper(d, v[pair], v[pair + 1]));
    hn::StoreU(sum_of_blocks(d, sums), hn::FixedTag<double, 2>(), to + pair);
  }
}

#endif  // HWY_SCALAR

/// A query row on its way through a key tile.
template <class T>
struct RowState {
  const T* q;  ///< D values, zero-padded to whole vectors
  T* o;        ///< Dv accumulators, padded
  T* scores;   ///< the tile's scores, then weights
  T* m;
  T* l;
  KeyRange seen;  ///< visible keys of the tile
  bool first;     ///< the row's first tile: o, m and l hold nothing yet
};

/// scores[key] of `rows` queries against keys [first, first + keys_at_once): every key vector is loaded once for all.
template <class In, int rows, int keys_at_once>
HWY_INLINE void dot_keys(const RowState<Real<In>>* row, Rows<const In> k, std::int64_t first, std::int64_t width) {
  using T = Real<In>;
  constexpr std::int64_t lanes = lanes_of<T>;
  Vector<T> sums[rows][keys_at_once];
  for (int query = 0; query < rows; ++query)
    for (int key = 0; key < keys_at_once; ++key) sums[query][key] = hn::Zero(Full<T>());
  const In* const keys = k.row(first);
  const auto add = [&](std::int64_t at, auto&& load_key) HWY_ATTR {
    Vector<T> values[rows];
    for (int query = 0; query < rows; ++query) values[query] = load(row[query].q + at);
    for (int key = 0; key < keys_at_once; ++key) {
      const auto value = load_key(keys + key * k.stride + at);
      for (int query = 0; query < rows; ++query) sums[query][key] = hn::MulAdd(values[query], value, sums[query][key]);
    }
  };
  std::int64_t at = 0;
  for (; at + lanes <= width; at += lanes) add(at, [](const In* from) HWY_ATTR { return load(from); });
  if (at < width) add(at, [&](const In* from) HWY_ATTR { return load_first(from, width - at); });
  for (int query = 0; query < rows; ++query) {
    T* const to = row[query].scores + (first - row[query].seen.first);
    if constexpr (keys_at_once == 4) {
      sums_of_four(sums[query], to);
    } else {
      to[0] = sum_of<T>(sums[query][0]);
    }
  }
}

/// Dot products of `rows` queries with the keys of `range`, which all of them see.
template <class In, int rows>
void dot_range(const RowState<Real<In>>* row, Rows<const In> k, KeyRange range, std::int64_t width) {
  std::int64_t key = range.first;
  for (; key + 4 <= range.last; key += 4) dot_keys<In, rows, 4>(row, k, key, width);
  for (; key < range.last; ++key) dot_keys<In, rows, 1>(row, k, key, width);
}

/// Turns dot products into final scores and pads them with -inf to whole vectors. `distance` is key 0's position minus
/// the query's. Returns the largest score.
template <class T>
T finish_scores(const ScoreRule<T>& rule, std::int64_t distance, std::int64_t count, T* scores) {
  const Full<T> d;
  constexpr std::int64_t lanes = lanes_of<T>;
  constexpr T none = -std::numeric_limits<T>::infinity();
  const bool steps_exactly = distance > -exact_distance<T> && distance + count < exact_distance<T>;
  auto best = hn::Set(d, none);
  for (std::int64_t at = 0; at < count; at += lanes) {
    auto s = hn::Mul(load(scores + at), hn::Set(d, rule.scale));
    if (rule.softcap != T(0)) s = soft_capped<T>(s, rule.softcap);
    if (rule.alibi) {
      auto away = hn::Iota(d, steps_exactly ? static_cast<T>(distance + at) : T(0));
      if (!steps_exactly) {
        HWY_ALIGN T exact[lanes];
        for (std::int64_t lane = 0; lane < lanes; ++lane) exact[lane] = static_cast<T>(distance + at + lane);
        away = load(exact);
      }
      if (rule.distance) away = hn::Neg(hn::Abs(away));
      s = hn::Add(s, hn::Mul(hn::Set(d, rule.slope), away));
    }
    if (count - at < lanes)
      s = hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(count - at)), s, hn::Set(d, none));
    hn::StoreU(s, d, scores + at);
    best = hn::Max(best, s);
  }
  return max_of<T>(best);
}

/// Replaces padded scores by weights relative to `m` and returns their sum.
template <class T>
T weigh(T m, std::int64_t count, T* scores) {
  const Full<T> d;
  const T base = m == -std::numeric_limits<T>::infinity() ? T(0) : m;
  auto sum = hn::Zero(d);
  for (std::int64_t at = 0; at < count; at += lanes_of<T>) {
    const auto p = exp_nonpositive<T>(hn::Sub(load(scores + at), hn::Set(d, base)));
    hn::StoreU(p, d, scores + at);
    sum = hn::Add(sum, p);
  }
  return sum_of<T>(sum);
}

/// o = alpha o + sum_j p[j] v_j (just the sum where alpha is 0 in a row's first tile) over `range` for `columns`
/// vectors of output columns from `at`, for `rows` queries that share every load of V. The tile is summed from zero and
/// added once, so the depth of the sum is keys per tile plus tiles. `rest` > 0: the last vector holds only that many
/// columns.
template <class In, int rows, int columns>
HWY_INLINE void add_columns(const RowState<Real<In>>* row, Rows<const In> v, KeyRange range, std::int64_t at,
                            std::int64_t rest, const Real<In>* alpha) {
  using T = Real<In>;
  constexpr std::int64_t lanes = lanes_of<T>;
  const Full<T> d;
  Vector<T> sums[rows][columns];
  const T* weights[rows];
  for (int query = 0; query < rows; ++query) {
    weights[query] = row[query].scores + (range.first - row[query].seen.first);
    for (int column = 0; column < columns; ++column) sums[query][column] = hn::Zero(d);
  }
  for (std::int64_t key = range.first; key < range.last; ++key) {
    const In* const from = v.row(key) + at;
    for (int column = 0; column < columns; ++column) {
      const auto value = rest > 0 ? load_first(from + column * lanes, rest) : load(from + column * lanes);
      for (int query = 0; query < rows; ++query)
        sums[query][column] = hn::MulAdd(hn::Set(d, weights[query][key - range.first]), value, sums[query][column]);
    }
  }
  for (int query = 0; query < rows; ++query) {
    const bool fresh = row[query].first && alpha[query] == T(0);
    for (int column = 0; column < columns; ++column) {
      T* const to = row[query].o + at + column * lanes;
      const auto sum = sums[query][column];
      hn::StoreU(fresh ? sum : hn::MulAdd(hn::Set(d, alpha[query]), load(to), sum), d, to);
    }
  }
}

template <class In, int rows>
void add_values(const RowState<Real<In>>* row, Rows<const In> v, KeyRange range, std::int64_t width,
                const Real<In>* alpha) {
  constexpr std::int64_t lanes = lanes_of<Real<In>>;
  std::int64_t at = 0;
  for (; at + 4 * lanes <= width; at += 4 * lanes) add_columns<In, rows, 4>(row, v, range, at, 0, alpha);
  for (; at + lanes <= width; at += lanes) add_columns<In, rows, 1>(row, v, range, at, 0, alpha);
  if (at < width) add_columns<In, rows, 1>(row, v, range, at, width - at, alpha);
}

/// A row whose scores are all held at once: one maximum, then weights and the sum over V in blocks of `block` keys,
/// like a tiled kernel's, so that their depth does not grow with the row. `row` is fresh.
template <class In>
HWY_INLINE void whole_row(const Problem& problem, const ScoreRule<Real<In>>& rule, std::int64_t distance,
                          std::int64_t block, Rows<const In> k, Rows<const In> v, const RowState<Real<In>>& row) {
  using T = Real<In>;
  dot_range<In, 1>(&row, k, row.seen, problem.head_dim);
  const T m = finish_scores(rule, distance, row.seen.size(), row.scores);
  T l = 0;
  for (std::int64_t first = row.seen.first; first < row.seen.last; first += block) {
    const KeyRange keys{first, std::min(first + block, row.seen.last)};
    l += weigh(m, keys.size(), row.scores + (first - row.seen.first));
    const T alpha = first == row.seen.first ? T(0) : T(1);
    add_values<In, 1>(&row, v, keys, problem.value_dim, &alpha);
  }
  *row.m = m;
  *row.l = l;
}

/// Copies a query into zero-padded scratch.
template <class In>
void load_query(const In* from, std::int64_t width, std::int64_t padded, Real<In>* q) {
  for (std::int64_t at = 0; at < width; ++at) q[at] = to_real(from[at]);
  for (std::int64_t at = width; at < padded; ++at) q[at] = 0;
}

/// Writes o / l.
template <class In>
void store_row(const Real<In>* o, Real<In> l, std::int64_t width, In* to) {
  const Real<In> inverse = Real<In>(1) / l;
  for (std::int64_t at = 0; at < width; ++at) to[at] = from_real<In>(o[at] * inverse);
}

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard toggled per target
