// SPDX-License-Identifier: Apache-2.0
// Reading K and V at the rate of memory while arithmetic goes on: what to ask for, and when.

#if defined(FRESNEL_KERNELS_CPU_READ_AHEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FRESNEL_KERNELS_CPU_READ_AHEAD_INL_H_
#undef FRESNEL_KERNELS_CPU_READ_AHEAD_INL_H_
#else
#define FRESNEL_KERNELS_CPU_READ_AHEAD_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/decode.hpp"

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

/// Asks the second level of the caches for a row of K or V; touches nothing.
template <class In>
HWY_INLINE void ask(const In* row, std::int64_t width) {
  constexpr std::int64_t line = 64 / sizeof(In);
  for (std::int64_t at = 0; at < width; at += line) __builtin_prefetch(row + at, 0, 2);
}

/// All of K and V, to tell whether they may lie in caches.
[[nodiscard]] inline double bytes_of_keys(const Problem& problem) {
  return static_cast<double>(problem.batch * problem.heads_kv * (problem.head_dim + problem.value_dim)) *
         static_cast<double>(problem.keys) * static_cast<double>(size_of(problem.dtype));
}

/// The lines of some rows, to be asked for in their order, as many at a time as are read meanwhile: memory has
/// something to do at any time, and never so much that requests wait for each other.
class LinesAhead {
 public:
  LinesAhead() = default;  ///< nothing
  template <class In>
  HWY_INLINE LinesAhead(const In* row, std::ptrdiff_t stride, std::int64_t width, std::int64_t rows)
      : at_(reinterpret_cast<const std::byte*>(row)),
        in_row_((width * static_cast<std::int64_t>(sizeof(In)) + 63) / 64),
        to_next_row_(stride * static_cast<std::ptrdiff_t>(sizeof(In)) - in_row_ * 64),
        rows_(rows),
        left_(rows > 0 ? in_row_ : 0) {}
  template <int lines>
  HWY_INLINE void some() {
    if (left_ >= lines) {
      for (int line = 0; line < lines; ++line) __builtin_prefetch(at_ + line * 64, 0, 2);
      pass(lines);
    } else {
      for (int line = 0; line < lines && left_ > 0; ++line) {
        __builtin_prefetch(at_, 0, 2);
        pass(1);
      }
    }
  }
  HWY_INLINE void all() {
    while (left_ > 0) some<1>();
  }

 private:
  HWY_INLINE void pass(std::int64_t lines) {
    at_ += lines * 64;
    left_ -= lines;
    if (left_ > 0 || --rows_ == 0) return;
    at_ += to_next_row_;
    left_ = in_row_;
  }

  const std::byte* at_ = nullptr;
  std::int64_t in_row_ = 0;
  std::ptrdiff_t to_next_row_ = 0;
  std::int64_t rows_ = 0,
               left_ = 0;  ///< rows that are not done, and lines of the current one; none: nothing to ask for
};

/// Whether to ask for pages as well, which gains a fifth on processors with 512-bit vectors and loses as much on an
/// older one without (docs/performance.md).
inline constexpr bool asks_for_pages = HWY_TARGET != HWY_AVX2;

/// The order in which a pass reads memory: rows of K or V up to `last`, then others. While rows are read, as many lines
/// some KB further on are asked for, into the second level: more requests can be under way to it than to the
/// first, and the processor moves rows from there on its own. Its prefetchers stop at pages, whose addresses take as
/// long to look up as a row takes to read, so the first line of every page is asked for twice as far ahead.
template <class In>
struct Ahead {
  Rows<const In> rows;
  std::int64_t last;
  Rows<const In> next;
  std::int64_t next_first, next_last;
  std::int64_t near;   ///< how many rows ahead, a multiple of 4
  std::int64_t every;  ///< a row of so many, a power of two, begins a page or lies in one that another began
  std::int64_t asks;   ///< elements of a row; 0: another row has asked already, or it is not worth while

  Ahead(Rows<const In> own, std::int64_t width, std::int64_t own_last, Rows<const In> then, KeyRange then_range,
        std::int64_t rows_ahead, bool far_away)
      : rows(own),
        last(own_last),
        next(then),
        next_first(then_range.first),
        next_last(then_range.last),
        near(rows_ahead),
        asks(far_away ? width : 0) {
    constexpr std::int64_t size = sizeof(In);
    for (every = 1; every < 64 && std::abs(own.stride) <= 2048 / (every * size);) every *= 2;
  }

  /// As many rows from the one `near` after `key` on, or those of them that there are.
  HWY_INLINE LinesAhead from(std::int64_t key, std::int64_t count) const {
    const Place place = place_of(key + near);
    return {place.row, place.stride, asks, asks > 0 ? std::min(count, place.left) : 0};
  }

  /// Asks for part `part` of `parts` of the rows that follow those asked for until `key`: while nothing is read.
  HWY_INLINE void ask_share(std::int64_t key, std::int64_t part, std::int64_t parts) const {
    const Place place = place_of(key + near);
    const std::int64_t count = std::min(near, place.left);
    for (std::int64_t row = part * count / parts; row < (part + 1) * count / parts; ++row)
      ask(place.row + row * place.stride, asks);
  }

  HWY_INLINE void ask_page(std::int64_t key) const {
    if (!asks_for_pages || (key & (every - 1)) != 0 || asks == 0) return;
    if (const Place place = place_of(key + 2 * near); place.row != nullptr) ask(place.row, 1);
  }

 private:
  struct Place {
    const In* row;
    std::ptrdiff_t stride;
    std::int64_t left;  ///< rows from there on; none: nothing to ask for
  };
  HWY_INLINE Place place_of(std::int64_t key) const {
    if (key < last) return {rows.row(key), rows.stride, last - key};
    const std::int64_t row = next_first + (key - last);
    return row < next_last ? Place{next.row(row), next.stride, next_last - row} : Place{nullptr, 0, 0};
  }
};

/// Calls step(rows, first row, keys) for what `count` rows see of `block`: up to `most` neighbours that see the same
/// keys together, others alone.
template <int most, class T, class Step>
HWY_INLINE void for_rows_together(const DecodeRow<T>* row, std::int64_t count, const KeyRange& block, Step&& step) {
  const auto seen = [&](std::int64_t index) {
    const KeyRange& all = row[index].seen;
    return KeyRange{std::max(all.first, block.first), std::min(all.last, block.last)};
  };
  for (std::int64_t first = 0; first < count;) {
    const KeyRange keys = seen(first);
    const std::int64_t end = std::min<std::int64_t>(count, first + most);
    std::int64_t last = first + 1;
    while (last < end && seen(last) == keys) ++last;
    if (!keys.empty()) step(last - first, row + first, keys);
    first = last;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard toggled per target
