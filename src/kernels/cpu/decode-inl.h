// SPDX-License-Identifier: Apache-2.0
// Up to `most_together` query rows against one block of keys, lanes along the head dimension: every vector of K and V
// is loaded, and widened from half, once for all of them. How many rows share a load, and how many keys or columns a
// step takes, follows from the registers and changes no bit:
//
//     score    the lanes of one product sum are added in the order of sums_of_four, whichever of its four it is
//     output   a block's keys are summed from zero in ascending order, then the block is added to o
//
// so a row computes the same alone as in company. Rows that see different keys of a block go alone.

#if defined(FRESNEL_KERNELS_CPU_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FRESNEL_KERNELS_CPU_DECODE_INL_H_
#undef FRESNEL_KERNELS_CPU_DECODE_INL_H_
#else
#define FRESNEL_KERNELS_CPU_DECODE_INL_H_
#endif

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/rows-inl.h"
#include "walk/walk.hpp"

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

/// Rows that share loads.
inline constexpr int most_together = 4;

/// Sums kept in registers at a time: half of the 32 that AVX-512 and NEON have, half of 16 elsewhere.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int sums_at_once = 16;
#else
inline constexpr int sums_at_once = 8;
#endif

/// Keys of a score step and vectors of columns of an output step.
template <int rows>
inline constexpr int step_of = rows > 2 ? sums_at_once / 4 : 4;

/// The block of K or V that comes after the one a pass works on: while a row is read, the row that follows it by one
/// block is asked for, so that memory is never idle and never asked for two rows at once. Into the second level: there
/// are more requests under way to it than to the first, and the processor moves rows from there on its own. Without
/// this its prefetchers, which stop at pages, see four short streams in K and half of every row in V.
template <class In>
struct Ahead {
  Rows<const In> rows;
  KeyRange range;  ///< empty: another row has asked already, or there is nothing to ask for
  std::int64_t width;

  /// Asks for part `part` of `parts` of row `index`; touches nothing.
  HWY_INLINE void fetch(std::int64_t index, std::int64_t part, std::int64_t parts) const {
    constexpr std::int64_t line = 64 / sizeof(In), second_level = 2;
    if (index >= range.size()) return;
    const In* const row = rows.row(range.first + index);
    for (std::int64_t at = part * line; at < width; at += parts * line) __builtin_prefetch(row + at, 0, second_level);
  }
};

/// Scores of `rows` queries against `keys` keys from `first`.
template <class In, int rows, int keys>
HWY_INLINE void score_step(const DecodeRow<Real<In>>* row, Rows<const In> k, std::int64_t first, std::int64_t width) {
  using T = Real<In>;
  constexpr std::int64_t lanes = lanes_of<T>;
  Vector<T> sums[rows * keys];
  for (int sum = 0; sum < rows * keys; ++sum) sums[sum] = hn::Zero(Full<T>());
  const In* const from = k.row(first);
  const auto add = [&](std::int64_t at, auto&& load_key) HWY_ATTR {
    Vector<T> values[keys];
    for (int key = 0; key < keys; ++key) values[key] = load_key(from + key * k.stride + at);
    for (int query = 0; query < rows; ++query) {
      const auto q = load(row[query].q + at);
      for (int key = 0; key < keys; ++key)
        sums[query * keys + key] = hn::MulAdd(q, values[key], sums[query * keys + key]);
    }
  };
  std::int64_t at = 0;
  for (; at + lanes <= width; at += lanes) add(at, [](const In* element) HWY_ATTR { return load(element); });
  if (at < width) add(at, [&](const In* element) HWY_ATTR { return load_first(element, width - at); });

  T totals[(rows * keys + 3) / 4 * 4];
  for (int sum = 0; sum < rows * keys; sum += 4) {
    Vector<T> four[4];
    for (int one = 0; one < 4; ++one) four[one] = sums[std::min(sum + one, rows * keys - 1)];
    sums_of_four(four, totals + sum);
  }
  for (int query = 0; query < rows; ++query)
    std::copy_n(totals + query * keys, keys, row[query].scores + (first - row[query].seen.first));
}

template <class In, int rows>
void score_block(const DecodeRow<Real<In>>* row, Rows<const In> k, KeyRange range, std::int64_t width,
                 const Ahead<In>& ahead) {
  constexpr int step = step_of<rows>;
  std::int64_t key = range.first;
  for (; key + step <= range.last; key += step) {
    for (int one = 0; one < step; ++one) ahead.fetch(key + one - range.first, 0, 1);
    score_step<In, rows, step>(row, k, key, width);
  }
  for (; key < range.last; ++key) score_step<In, rows, 1>(row, k, key, width);
}

/// `columns` vectors of output columns from `at` over the keys of `range`; `rest` > 0: the last vector holds only that
/// many columns.
template <class In, int rows, int columns>
HWY_INLINE void value_step(const DecodeRow<Real<In>>* row, Rows<const In> v, KeyRange range, std::int64_t at,
                           std::int64_t rest, const Ahead<In>& ahead, std::int64_t part, std::int64_t parts) {
  using T = Real<In>;
  constexpr std::int64_t lanes = lanes_of<T>;
  const Full<T> d;
  Vector<T> sums[rows][columns];
  const T* weights[rows];
  for (int query = 0; query < rows; ++query) {
    weights[query] = row[query].scores + (range.first - row[query].seen.first);
    for (int column = 0; column < columns; ++column) sums[query][column] = hn::Zero(d);
  }
  for (std::int64_t key = 0; key < range.size(); ++key) {
    ahead.fetch(key, part, parts);
    const In* const from = v.row(range.first + key) + at;
    Vector<T> values[columns];
    for (int column = 0; column < columns; ++column)
      values[column] = rest > 0 ? load_first(from + column * lanes, rest) : load(from + column * lanes);
    for (int query = 0; query < rows; ++query) {
      const auto weight = hn::Set(d, weights[query][key]);
      for (int column = 0; column < columns; ++column)
        sums[query][column] = hn::MulAdd(weight, values[column], sums[query][column]);
    }
  }
  for (int query = 0; query < rows; ++query) {
    const bool fresh = range.first == row[query].seen.first;
    for (int column = 0; column < columns; ++column) {
      T* const to = row[query].o + at + column * lanes;
      hn::StoreU(fresh ? sums[query][column] : hn::Add(load(to), sums[query][column]), d, to);
    }
  }
}

template <class In, int rows>
void value_block(const DecodeRow<Real<In>>* row, Rows<const In> v, KeyRange range, std::int64_t width,
                 const Ahead<In>& ahead) {
  constexpr std::int64_t lanes = lanes_of<Real<In>>;
  constexpr int step = step_of<rows>;
  const std::int64_t wide = width / (step * lanes), narrow = tiles_of(width - wide * step * lanes, lanes);
  std::int64_t at = 0, part = 0;
  for (; at + step * lanes <= width; at += step * lanes)
    value_step<In, rows, step>(row, v, range, at, 0, ahead, part++, wide + narrow);
  for (; at + lanes <= width; at += lanes) value_step<In, rows, 1>(row, v, range, at, 0, ahead, part++, wide + narrow);
  if (at < width) value_step<In, rows, 1>(row, v, range, at, width - at, ahead, part, wide + narrow);
}

/// Calls step(integral_constant rows, first row, keys) for what `count` rows see of `block`: neighbours that see the
/// same keys together, others alone.
template <class T, class Step>
HWY_INLINE void for_rows_together(const DecodeRow<T>* row, std::int64_t count, const KeyRange& block, Step&& step) {
  const auto seen = [&](std::int64_t index) {
    const KeyRange& all = row[index].seen;
    return KeyRange{std::max(all.first, block.first), std::min(all.last, block.last)};
  };
  for (std::int64_t first = 0; first < count;) {
    const KeyRange keys = seen(first);
    const std::int64_t most = std::min<std::int64_t>(count, first + most_together);
    std::int64_t last = first + 1;
    while (last < most && seen(last) == keys) ++last;
    if (!keys.empty()) step(last - first, row + first, keys);
    first = last;
  }
}

template <class In>
void score_rows(const DecodeRow<Real<In>>* row, std::int64_t count, Rows<const In> k, const KeyRange& block,
                std::int64_t width, Ahead<In> ahead) {
  for_rows_together(row, count, block, [&](std::int64_t rows, const DecodeRow<Real<In>>* from, const KeyRange& keys) {
    switch (rows) {
      case 1: score_block<In, 1>(from, k, keys, width, ahead); break;
      case 2: score_block<In, 2>(from, k, keys, width, ahead); break;
      case 3: score_block<In, 3>(from, k, keys, width, ahead); break;
      default: score_block<In, 4>(from, k, keys, width, ahead);
    }
    ahead.range = {};
  });
}

template <class In>
void value_rows(const DecodeRow<Real<In>>* row, std::int64_t count, Rows<const In> v, const KeyRange& block,
                std::int64_t width, Ahead<In> ahead) {
  for_rows_together(row, count, block, [&](std::int64_t rows, const DecodeRow<Real<In>>* from, const KeyRange& keys) {
    switch (rows) {
      case 1: value_block<In, 1>(from, v, keys, width, ahead); break;
      case 2: value_block<In, 2>(from, v, keys, width, ahead); break;
      case 3: value_block<In, 3>(from, v, keys, width, ahead); break;
      default: value_block<In, 4>(from, v, keys, width, ahead);
    }
    ahead.range = {};
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard toggled per target
