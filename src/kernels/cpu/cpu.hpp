// SPDX-License-Identifier: Apache-2.0
// The functions behind the CPU rows of the catalogue, and the scratch each of them cuts from one lane's workspace.
#pragma once

#include "kernels/cpu/element.hpp"
#include "kernels/kernel.hpp"

namespace fresnel::cpu {

void run_naive(const Launch& launch);
[[nodiscard]] Tile naive_tile(const Problem& problem, const Machine& machine);
[[nodiscard]] std::size_t naive_lane_bytes(const Problem& problem, const Tile& tile);

void run_flash(const Launch& launch);
[[nodiscard]] Tile flash_tile(const Problem& problem, const Machine& machine);
[[nodiscard]] std::size_t flash_lane_bytes(const Problem& problem, const Tile& tile);

void run_decode(const Launch& launch);
[[nodiscard]] Tile decode_tile(const Problem& problem, const Machine& machine);
/// Work items: a chunk of keys for up to decode_rows rows.
[[nodiscard]] std::int64_t decode_items(const Problem& problem, const Tile& tile);
[[nodiscard]] std::size_t decode_lane_bytes(const Problem& problem, const Tile& tile);
[[nodiscard]] std::size_t decode_shared_bytes(const Problem& problem, const Tile& tile);

void run_amx_decode(const Launch& launch);
[[nodiscard]] std::size_t amx_decode_lane_bytes(const Problem& problem, const Tile& tile);

#if defined(__x86_64__)
void run_amx(const Launch& launch);
[[nodiscard]] Tile amx_tile(const Problem& problem, const Machine& machine);
[[nodiscard]] std::size_t amx_lane_bytes(const Problem& problem, const Tile& tile);
[[nodiscard]] std::size_t amx_shared_bytes(const Problem& problem, const Tile& tile);
#endif

void run_backward(const Launch& launch);
[[nodiscard]] Tile backward_tile(const Problem& problem, const Machine& machine);
[[nodiscard]] std::size_t backward_lane_bytes(const Problem& problem, const Tile& tile);

/// What the kernels round: nothing but their own float32 (float64) arithmetic and the stored output.
[[nodiscard]] Roundings flash_roundings(const Problem& problem, const Tile& tile);
[[nodiscard]] Roundings decode_roundings(const Problem& problem, const Tile& tile);
[[nodiscard]] Roundings naive_roundings(const Problem& problem, const Tile& tile);
[[nodiscard]] Roundings amx_roundings(const Problem& problem, const Tile& tile);
[[nodiscard]] Roundings amx_decode_roundings(const Problem& problem, const Tile& tile);
[[nodiscard]] Roundings backward_roundings(const Problem& problem, const Tile& tile);

/// Whole vectors of the widest set (64 bytes, 16 floats), whatever the target: scratch does not depend on the ISA.
[[nodiscard]] constexpr std::int64_t padded_width(std::int64_t width) { return (width + 15) / 16 * 16; }

/// One row's scratch in cpu.naive: the whole score row, O(Sk).
template <class T>
struct NaiveScratch {
  NaiveScratch(Carver& carver, const Problem& problem)
      : scores(carver.take<T>(padded_width(problem.keys))),
        q(carver.take<T>(padded_width(problem.head_dim))),
        o(carver.take<T>(padded_width(problem.value_dim))) {}
  T* scores;
  T* q;
  T* o;
};

/// Queries of a tile that are left to lanes along the head dimension are at most this many: see rows_at_end of
/// flash.cpp.
inline constexpr std::int64_t most_rows = 8;

/// Key tiles such a query takes at once: raising its maximum costs as much as a dozen keys.
inline constexpr std::int64_t row_span = 16;

/// Scratch of cpu.flash for queries whose lanes run along the head dimension.
template <class T>
struct RowScratch {
  RowScratch(Carver& carver, const Problem& problem, const Tile& tile)
      : q(carver.take<T>(most_rows * padded_width(problem.head_dim))),
        o(carver.take<T>(most_rows * padded_width(problem.value_dim))),
        scores(carver.take<T>(2 * padded_width(row_span * tile.keys))),
        m(carver.take<T>(most_rows)),
        l(carver.take<T>(most_rows)) {}
  T* q;       ///< [queries][D padded]
  T* o;       ///< [queries][Dv padded]
  T* scores;  ///< [2][span of keys]
  T *m, *l;
};

/// Scratch of cpu.flash for queries in lanes; half types also hold the converted K and V tiles.
template <class T>
struct ColumnScratch {
  ColumnScratch(Carver& carver, const Problem& problem, const Tile& tile)
      : q(carver.take<T>(tile.queries * problem.head_dim)),
        o(carver.take<T>(tile.queries * problem.value_dim)),
        scores(carver.take<T>(tile.queries * tile.keys)),
        m(carver.take<T>(tile.queries)),
        l(carver.take<T>(tile.queries)),
        alpha(carver.take<T>(tile.queries)),
        first(carver.take<T>(tile.queries)),
        last(carver.take<T>(tile.queries)) {
    const bool converts = problem.dtype == DType::f16 || problem.dtype == DType::bf16;
    k = carver.take<T>(converts ? tile.keys * padded_width(problem.head_dim) : 0);
    v = carver.take<T>((converts ? std::max(tile.keys, tile.queries) : tile.queries) * padded_width(problem.value_dim));
  }
  T* q;       ///< per group of query vectors: [D][lanes of the group]
  T* o;       ///< per group: [Dv][lanes of the group]
  T* scores;  ///< [keys][lanes of the group]
  T *m, *l, *alpha;
  T *first, *last;  ///< visible keys of each query, relative to the key tile
  T* k;             ///< of a tile, where they are converted
  T* v;             ///< the same; in the end, rows of O on their way out
};

}  // namespace fresnel::cpu
