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
[[nodiscard]] std::int64_t decode_items(const Problem& problem, const Tile& tile, int lanes);
[[nodiscard]] std::int64_t decode_items_at_most(const Problem& problem, const Tile& tile);
[[nodiscard]] std::int64_t decode_chunks(const Problem& problem, const Tile& tile);
[[nodiscard]] std::int64_t decode_run(const Problem& problem, const Tile& tile, int lanes);
[[nodiscard]] std::size_t decode_lane_bytes(const Problem& problem, const Tile& tile);
[[nodiscard]] std::size_t decode_shared_bytes(const Problem& problem, const Tile& tile);

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

/// Queries of a tile that are left to lanes along the head dimension are at most this many: see `few_queries`.
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

/// Rows of one kv head that cpu.decode takes through a chunk of keys together, at most.
inline constexpr std::int64_t decode_rows = 32;

/// Rows that share loads.
inline constexpr int most_together = 4;

/// Keys that its sums over a chunk are cut into.
inline constexpr std::int64_t decode_block = 64;

/// What cpu.decode keeps of one row over one chunk of keys.
template <class T>
struct Partial {
  T *o, *m, *l;
};

/// Many of them, each on cache lines of its own: Dv accumulators, padded, then m and l.
template <class T>
class Partials {
 public:
  Partials(std::byte* base, const Problem& problem)
      : base_(reinterpret_cast<T*>(base)), o_width_(padded_width(problem.value_dim)) {}
  [[nodiscard]] Partial<T> operator()(std::int64_t index) const {
    T* const o = base_ + index * (o_width_ + 16);
    return {o, o + o_width_, o + o_width_ + 1};
  }
  [[nodiscard]] static std::size_t bytes(const Problem& problem) {
    return static_cast<std::size_t>(padded_width(problem.value_dim) + 16) * sizeof(T);
  }

 private:
  T* base_;
  std::int64_t o_width_;
};

/// A query row on its way through one chunk of keys.
template <class T>
struct DecodeRow {
  const T* q;     ///< D values, zero-padded to whole vectors
  T* o;           ///< Dv accumulators, padded
  T* scores;      ///< of the keys it sees, then weights
  KeyRange seen;  ///< visible keys of the chunk
};

/// Scratch of cpu.decode: what one chunk needs of its rows.
template <class T>
struct DecodeScratch {
  DecodeScratch(Carver& carver, const Problem& problem, const Tile& tile)
      : rows(carver.take<DecodeRow<T>>(tile.queries)),
        q(carver.take<T>(tile.queries * padded_width(problem.head_dim))),
        scores(carver.take<T>(tile.queries * padded_width(tile.keys))),
        partials(carver.take<std::byte>(tile.queries * static_cast<std::int64_t>(Partials<T>::bytes(problem))),
                 problem),
        sums(carver.take<T>(most_together * padded_width(problem.value_dim))) {}
  DecodeRow<T>* rows;
  T* q;                  ///< [rows][D padded]
  T* scores;             ///< [rows][keys of a chunk]
  Partials<T> partials;  ///< of the only chunk, where there is one
  T* sums;               ///< of a block over values, for rows that share loads
};

}  // namespace fresnel::cpu
