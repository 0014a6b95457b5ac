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

/// Sums kept in registers at a time: half of the 32 that AVX-512 and NEON have, half of 16 elsewhere.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int sums_at_once = 16;
#else
inline constexpr int sums_at_once = 8;
#endif

/// Keys of a score step and vectors of columns of an output step.
template <int rows>
inline constexpr int step_of = rows > 2 ? sums_at_once / 4 : 4;

/// The order in which a pass reads memory: rows of K or V up to `last`, then others. While a row is read, the row 8 KB
/// further on is asked for, into the second level: more requests can be under way to it than to the first, and the
/// processor moves rows from there on its own. Its prefetchers stop at pages, whose addresses take as long to look up
/// as a row takes to read, so the first line of every page is asked for twice as far ahead.
template <class In>
struct Ahead {
  Rows<const In> rows;
  std::int64_t last, width;
  Rows<const In> next;
  std::int64_t next_first, next_last, next_width;
  bool idle;  ///< another row asks

  /// Rows of `width` in 8 KB.
  [[nodiscard]] static std::int64_t rows_near(std::int64_t width) {
    return std::clamp<std::int64_t>(8192 / (width * static_cast<std::int64_t>(sizeof(In))), 4, 64) / 4 * 4;
  }

  /// Asks for part `part` of `parts` of the row `near` after `key`; touches nothing.
  HWY_INLINE void fetch(std::int64_t key, std::int64_t near, std::int64_t part, std::int64_t parts) const {
    if (idle) return;
    if (const Row row = row_at(key + near); row.at != nullptr) {
      for (std::int64_t at = part * line; at < row.width; at += parts * line)
        __builtin_prefetch(row.at + at, 0, second_level);
    }
    if (part > 0) return;
    if (const Row row = row_at(key + 2 * near); row.at != nullptr && row.begins_page)
      __builtin_prefetch(row.at, 0, second_level);
  }

 private:
  static constexpr std::int64_t line = 64 / sizeof(In);
  static constexpr int second_level = 2;

  struct Row {
    const In* at;
    std::int64_t width;
    bool begins_page;
  };

  HWY_INLINE Row row_at(std::int64_t key) const {
    const bool own = key < last;
    const std::int64_t row = own ? key : next_first + (key - last);
    if (!own && row >= next_last) return {nullptr, 0, false};
    const Rows<const In>& of = own ? rows : next;
    const In* const at = of.row(row);
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    const std::uintptr_t before = address - static_cast<std::uintptr_t>(of.stride) * sizeof(In);
    return {at, own ? width : next_width, (address ^ before) >= 4096};
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
  const std::int64_t near = Ahead<In>::rows_near(width);
  std::int64_t key = range.first;
  for (; key + step <= range.last; key += step) {
    for (int one = 0; one < step; ++one) ahead.fetch(key + one, near, 0, 1);
    score_step<In, rows, step>(row, k, key, width);
  }
  for (; key < range.last; ++key) score_step<In, rows, 1>(row, k, key, width);
}

/// Some columns of a block of values: `columns` vectors from `at`, of which the last holds only `rest` where that is
/// not 0. They are part `part` of `parts` of a row.
struct Columns {
  std::int64_t at, rest, part, parts;
};

/// A block's sums of values over the keys of `range`, part of `block`, for one part of the columns. Between the ranges
/// of a block its sums wait in `waiting`, rows of `pitch`.
template <class In, int rows, int columns>
HWY_INLINE void value_step(const DecodeRow<Real<In>>* row, Rows<const In> v, const KeyRange& block,
                           const KeyRange& range, const Columns& where, const Ahead<In>& ahead, std::int64_t near,
                           Real<In>* waiting, std::int64_t pitch) {
  using T = Real<In>;
  constexpr std::int64_t lanes = lanes_of<T>;
  const Full<T> d;
  Vector<T> sums[rows][columns];
  const T* weights[rows];
  const bool starts = range.first == block.first, ends = range.last == block.last;
  for (int query = 0; query < rows; ++query) {
    weights[query] = row[query].scores + (range.first - row[query].seen.first);
    for (int column = 0; column < columns; ++column)
      sums[query][column] = starts ? hn::Zero(d) : load(waiting + query * pitch + where.at + column * lanes);
  }
  for (std::int64_t key = 0; key < range.size(); ++key) {
    ahead.fetch(range.first + key, near, where.part, where.parts);
    const In* const from = v.row(range.first + key) + where.at;
    Vector<T> values[columns];
    for (int column = 0; column < columns; ++column)
      values[column] = where.rest > 0 ? load_first(from + column * lanes, where.rest) : load(from + column * lanes);
    for (int query = 0; query < rows; ++query) {
      const auto weight = hn::Set(d, weights[query][key]);
      for (int column = 0; column < columns; ++column)
        sums[query][column] = hn::MulAdd(weight, values[column], sums[query][column]);
    }
  }
  for (int query = 0; query < rows; ++query) {
    const bool fresh = block.first == row[query].seen.first;
    for (int column = 0; column < columns; ++column) {
      T* const o = row[query].o + where.at + column * lanes;
      const auto sum = sums[query][column];
      if (!ends) {
        hn::StoreU(sum, d, waiting + query * pitch + where.at + column * lanes);
      } else {
        hn::StoreU(fresh ? sum : hn::Add(load(o), sum), d, o);
      }
    }
  }
}

/// Rows are read in pieces no longer than what is asked for ahead, and not one part of all of them first.
template <class In, int rows>
void value_block(const DecodeRow<Real<In>>* row, Rows<const In> v, const KeyRange& block, std::int64_t width,
                 const Ahead<In>& ahead, Real<In>* waiting) {
  constexpr std::int64_t lanes = lanes_of<Real<In>>;
  constexpr int step = step_of<rows>;
  const std::int64_t wide = width / (step * lanes), parts = wide + tiles_of(width - wide * step * lanes, lanes);
  const std::int64_t near = Ahead<In>::rows_near(width), pitch = padded_width(width);
  for (std::int64_t first = block.first; first < block.last;) {
    const KeyRange range{first, parts == 1 ? block.last : std::min(first + near, block.last)};
    const auto add = [&](auto columns, const Columns& where) HWY_ATTR {
      value_step<In, rows, columns.value>(row, v, block, range, where, ahead, near, waiting, pitch);
    };
    std::int64_t at = 0, part = 0;
    for (; at + step * lanes <= width; at += step * lanes)
      add(std::integral_constant<int, step>(), {at, 0, part++, parts});
    for (; at + lanes <= width; at += lanes) add(std::integral_constant<int, 1>(), {at, 0, part++, parts});
    if (at < width) add(std::integral_constant<int, 1>(), {at, width - at, part, parts});
    first = range.last;
  }
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
    ahead.idle = true;
  });
}

template <class In>
void value_rows(const DecodeRow<Real<In>>* row, std::int64_t count, Rows<const In> v, const KeyRange& block,
                std::int64_t width, Ahead<In> ahead, Real<In>* waiting) {
  for_rows_together(row, count, block, [&](std::int64_t rows, const DecodeRow<Real<In>>* from, const KeyRange& keys) {
    switch (rows) {
      case 1: value_block<In, 1>(from, v, keys, width, ahead, waiting); break;
      case 2: value_block<In, 2>(from, v, keys, width, ahead, waiting); break;
      case 3: value_block<In, 3>(from, v, keys, width, ahead, waiting); break;
      default: value_block<In, 4>(from, v, keys, width, ahead, waiting);
    }
    ahead.idle = true;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard toggled per target
