// SPDX-License-Identifier: Apache-2.0
// How few queries are taken through many keys, and the memory that takes: plain code, for every processor and for both
// rows that do so, cpu.decode on vectors and cpu.amx_decode on the tile unit.
#pragma once

#include "kernels/cpu/cpu.hpp"
#include "walk/walk.hpp"

namespace fresnel::cpu {

/// Rows of one kv head, queries times grouped heads, that go through a chunk of keys together, at most.
inline constexpr std::int64_t decode_rows = 32;

/// Keys that sums over a chunk are cut into.
inline constexpr std::int64_t decode_block = 64;

/// Rows that share loads of vectors.
inline constexpr int most_together = 4;

/// Rows that share products of tiles over keys; over values it is 4, each of which fills four lines.
inline constexpr int tile_team = 16;

[[nodiscard]] std::int64_t decode_chunks(const Problem& problem, const Tile& tile);
/// Accumulators of a row, whole pairs of tiles: 32 numbers each.
[[nodiscard]] constexpr std::int64_t decode_o_width(std::int64_t value_dim) { return (value_dim + 31) / 32 * 32; }

/// What is kept of one row over one chunk of keys.
template <class T>
struct Partial {
  T *o, *m, *l;
};

/// Many of them, each on cache lines of its own: Dv accumulators, padded, then m and l.
template <class T>
class Partials {
 public:
  Partials(std::byte* base, const Problem& problem)
      : base_(reinterpret_cast<T*>(base)), o_width_(decode_o_width(problem.value_dim)) {}
  [[nodiscard]] Partial<T> operator()(std::int64_t index) const {
    T* const o = base_ + index * (o_width_ + 16);
    return {o, o + o_width_, o + o_width_ + 1};
  }
  /// Numbers of one.
  [[nodiscard]] static std::int64_t width(const Problem& problem) { return decode_o_width(problem.value_dim) + 16; }
  [[nodiscard]] static std::size_t bytes(const Problem& problem) {
    return static_cast<std::size_t>(width(problem)) * sizeof(T);
  }

 private:
  T* base_;
  std::int64_t o_width_;
};

/// A query row on its way through one chunk of keys.
template <class T>
struct DecodeRow {
  KeyRange seen;     ///< visible keys of the chunk
  Partial<T> state;  ///< what it leaves
  ScoreRule<T> rule;
  std::int64_t position;  ///< the query's
  // Where vectors make the scores:
  const T* q = nullptr;  ///< D values, padded
  T* scores = nullptr;   ///< of the keys it sees, then weights
};

/// K that is read after a chunk; none: it is not known.
template <class In>
struct Upcoming {
  Rows<const In> k{};
  KeyRange keys{};
};

/// What a chunk needs of its rows, and a lane of its items.
template <class T>
struct DecodeScratch {
  DecodeScratch(Carver& carver, const Problem& problem, const Tile& tile)
      : taken(carver.take<std::int64_t>(8)),
        partials(carver.take<std::byte>(tile.queries * static_cast<std::int64_t>(Partials<T>::bytes(problem))),
                 problem),
        rows(carver.take<DecodeRow<T>>(tile.queries)) {}
  std::int64_t* taken;   ///< items handed out of those that begin with this lane; a cache line of its own
  Partials<T> partials;  ///< of the only chunk, where there is one
  DecodeRow<T>* rows;
};

/// What its products need on vectors.
template <class T>
struct VectorDecodeScratch {
  VectorDecodeScratch(Carver& carver, const Problem& problem, const Tile& tile)
      : q(carver.take<T>(tile.queries * padded_width(problem.head_dim))),
        scores(carver.take<T>(tile.queries * padded_width(tile.keys))),
        sums(carver.take<T>(most_together * padded_width(problem.value_dim))) {}
  T* q;       ///< [rows][D padded]
  T* scores;  ///< [rows][keys of a chunk]
  T* sums;    ///< of a block over values, for rows that share loads
};

/// What they need on tiles (tile_decode-inl.h), for up to tile_team rows that go through a chunk together.
struct TileDecodeScratch {
  static constexpr std::int64_t tile = 256;   ///< pairs of numbers, or sums, of a tile
  static constexpr std::int64_t s_slots = 4;  ///< the one that is made, the two before, and one to spare
  static constexpr std::int64_t p_slots = 8;  ///< tiles of two sets
  TileDecodeScratch(Carver& carver, const Problem& problem, const Tile& cut)
      : q(carver.take<std::uint16_t>(tiles_of(cut.queries, tile_team) * tiles_of(problem.head_dim, 32) * tile * 2)),
        team_q(carver.take<std::uint16_t>(tiles_of(problem.head_dim, 32) * tile * 2)),
        keys(carver.take<std::uint16_t>(decode_block * decode_o_width(std::max(problem.head_dim, problem.value_dim)))),
        s(carver.take<float>(s_slots * tile)),
        p(carver.take<std::uint32_t>(p_slots * tile)),
        o(carver.take<float>(tile_team / 4 * tiles_of(problem.value_dim, 32) * tile)),
        scores(carver.take<float>(tiles_of(cut.keys, decode_block) * decode_block * tile_team)) {}
  std::uint16_t* q;       ///< [16 rows][32 of D][pair of them][row][2]
  std::uint16_t* team_q;  ///< of a team that does not begin with one of 16 rows
  std::uint16_t* keys;    ///< [keys][D or Dv, padded]: those that cannot be read as they lie
  float* s;               ///< [tiles in turn][16 keys][16 rows]
  std::uint32_t* p;       ///< [tiles of two sets][line][16 keys]
  float* o;               ///< [4 rows][32 of Dv][line][pair of them]
  float* scores;          ///< [16 keys][4 rows][line][4 keys][4 rows], then weights
};

}  // namespace fresnel::cpu
