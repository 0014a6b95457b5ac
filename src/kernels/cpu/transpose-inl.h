// SPDX-License-Identifier: Apache-2.0
// Rows to lanes and back: Q becomes Q^T [D][queries] once per query tile, O^T goes out as rows. Both move 16-byte
// blocks: a vector is filled with the same few columns of several rows, one row per block, and transposed inside its
// blocks.
//
//     block b of vector r = row 4 b + r, columns c..c+3      transposed: vector i = column c + i of rows 0, 1, 2, ...
//
// (4 columns of float, 2 of double.)

#if defined(FRESNEL_KERNELS_CPU_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FRESNEL_KERNELS_CPU_TRANSPOSE_INL_H_
#undef FRESNEL_KERNELS_CPU_TRANSPOSE_INL_H_
#else
#define FRESNEL_KERNELS_CPU_TRANSPOSE_INL_H_
#endif

#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR  // single lanes have no blocks: the loops over the rest do all

/// Elements of a 16-byte block.
template <class T>
inline constexpr int block_of = 16 / sizeof(T);

/// Transposes inside each block: element i of vector r becomes element r of vector i.
HWY_INLINE void transpose_blocks(Vector<float> (&v)[4]) {
  const Full<float> d;
  const hn::Repartition<double, Full<float>> pairs;
  const auto even_low = hn::BitCast(pairs, hn::InterleaveLower(d, v[0], v[1]));
  const auto even_high = hn::BitCast(pairs, hn::InterleaveUpper(d, v[0], v[1]));
  const auto odd_low = hn::BitCast(pairs, hn::InterleaveLower(d, v[2], v[3]));
  const auto odd_high = hn::BitCast(pairs, hn::InterleaveUpper(d, v[2], v[3]));
  v[0] = hn::BitCast(d, hn::InterleaveLower(pairs, even_low, odd_low));
  v[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, even_low, odd_low));
  v[2] = hn::BitCast(d, hn::InterleaveLower(pairs, even_high, odd_high));
  v[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, even_high, odd_high));
}

HWY_INLINE void transpose_blocks(Vector<double> (&v)[2]) {
  const Full<double> d;
  const auto low = hn::InterleaveLower(d, v[0], v[1]);
  v[1] = hn::InterleaveUpper(d, v[0], v[1]);
  v[0] = low;
}

/// A vector whose block b holds the block at `at` of row `first + b * block_of`; rows from `count` on repeat the last.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_blocks(D d, Rows<const T> rows, std::int64_t first, std::int64_t count, std::int64_t at) {
  constexpr int lanes = static_cast<int>(hn::MaxLanes(D()));
  if constexpr (lanes == block_of<T>) {
    return hn::LoadU(d, rows.row(std::min(first, count - 1)) + at);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_blocks(half, rows, first + lanes / 2, count, at),
                       load_blocks(half, rows, first, count, at));
  }
}

/// The reverse of load_blocks; rows from `count` on are not written.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_blocks(D d, hn::Vec<D> v, Rows<T> rows, std::int64_t first, std::int64_t count, std::int64_t at) {
  constexpr int lanes = static_cast<int>(hn::MaxLanes(D()));
  if constexpr (lanes == block_of<T>) {
    if (first < count) hn::StoreU(v, d, rows.row(first) + at);
  } else {
    const hn::Half<D> half;
    store_blocks(half, hn::LowerHalf(half, v), rows, first, count, at);
    store_blocks(half, hn::UpperHalf(half, v), rows, first + lanes / 2, count, at);
  }
}

#endif  // HWY_SCALAR

/// to[column][0, lanes) = rows[0, count) of that column, for the `lanes` rows from `first`; `pitch` separates columns.
template <class T>
void rows_to_lanes(Rows<const T> rows, std::int64_t first, std::int64_t count, std::int64_t width, std::int64_t pitch,
                   T* to) {
  std::int64_t at = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr int block = block_of<T>;
  const Full<T> d;
  for (; at + block <= width; at += block) {
    Vector<T> v[block];
    for (int row = 0; row < block; ++row) v[row] = load_blocks(d, rows, first + row, count, at);
    transpose_blocks(v);
    for (int column = 0; column < block; ++column) hn::Store(v[column], d, to + (at + column) * pitch);
  }
#endif
  for (; at < width; ++at)
    for (std::int64_t lane = 0; lane < lanes_of<T>; ++lane)
      to[at * pitch + lane] = rows.row(std::min(first + lane, count - 1))[at];
}

/// rows[first + lane][column] = factor[lane] * from[column][lane] for rows below `count`.
template <class T>
void lanes_to_rows(const T* from, std::int64_t pitch, Vector<T> factor, std::int64_t first, std::int64_t count,
                   std::int64_t width, Rows<T> rows) {
  const Full<T> d;
  std::int64_t at = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr int block = block_of<T>;
  for (; at + block <= width; at += block) {
    Vector<T> v[block];
    for (int column = 0; column < block; ++column)
      v[column] = hn::Mul(factor, hn::Load(d, from + (at + column) * pitch));
    transpose_blocks(v);
    for (int row = 0; row < block; ++row) store_blocks(d, v[row], rows, first + row, count, at);
  }
#endif
  HWY_ALIGN T column[lanes_of<T>];
  for (; at < width; ++at) {
    hn::Store(hn::Mul(factor, hn::Load(d, from + at * pitch)), d, column);
    for (std::int64_t lane = 0; lane < std::min(lanes_of<T>, count - first); ++lane)
      rows.row(first + lane)[at] = column[lane];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard toggled per target
