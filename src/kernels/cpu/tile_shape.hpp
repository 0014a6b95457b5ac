// SPDX-License-Identifier: Apache-2.0
// How cpu.amx cuts a problem, and the memory it takes for that. Plain code for every processor: planning asks for it
// where no tile unit is, so nothing here may stand between the attributes of the other tile files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/tiles.hpp"
#include "walk/walk.hpp"

namespace fresnel::cpu {

inline constexpr std::int64_t product_depth = 32;  ///< numbers of a product's sum
inline constexpr int most_lanes = 32;              ///< queries of a block of scores: one tile of 16, or two
inline constexpr std::int64_t wide_row = product_depth * most_lanes;  ///< scores of 32 keys and 32 queries

/// How a problem is cut into tiles.
struct TileShape {
  std::int64_t block;        ///< keys of a block
  std::int64_t d_steps;      ///< products along D
  std::int64_t value_pairs;  ///< pairs of tiles along Dv
  std::int64_t parts;        ///< of a number: f16 is split in two
  std::int64_t lanes;        ///< queries: 16 where tile registers keep their Q and O, else 32

  constexpr TileShape(DType dtype, std::int64_t keys, std::int64_t head_dim, std::int64_t value_dim)
      : block(keys),
        d_steps((head_dim + product_depth - 1) / product_depth),
        value_pairs((value_dim + product_depth - 1) / product_depth),
        parts(dtype == DType::f16 ? 2 : 1),
        lanes(narrow() ? 16 : most_lanes) {}
  /// Where there are fewer keys than `keys`, wide blocks are as short as that: the same results in less memory.
  TileShape(const Problem& problem, std::int64_t keys)
      : TileShape(problem.dtype, keys, problem.head_dim, problem.value_dim) {
    if (!narrow()) block = std::clamp(tiles_of(problem.keys, product_depth) * product_depth, product_depth, keys);
  }
  [[nodiscard]] constexpr bool is(const TileShape& other) const {
    return block == other.block && d_steps == other.d_steps && value_pairs == other.value_pairs && parts == other.parts;
  }
  /// Whether tile registers keep Q and O.
  [[nodiscard]] constexpr bool narrow() const { return parts == 1 && d_steps <= 2 && value_pairs <= 2; }
  /// Keys of which a stage has a whole number: of a block, where that is short, or of 32.
  [[nodiscard]] constexpr std::int64_t granule() const { return narrow() ? block : product_depth; }
  [[nodiscard]] constexpr std::int64_t whole_granules(std::int64_t keys) const {
    return tiles_of(keys, granule()) * granule();
  }
  [[nodiscard]] constexpr int halves() const { return static_cast<int>(lanes / 16); }
  [[nodiscard]] constexpr std::uint32_t all_lanes() const { return lanes == 16 ? 0xffff : 0xffffffff; }
  [[nodiscard]] constexpr std::int64_t key_tiles() const { return block / tile_lines; }
  [[nodiscard]] constexpr std::int64_t key_steps() const { return block / product_depth; }
  [[nodiscard]] constexpr std::int64_t value_tiles() const { return 2 * value_pairs; }
  [[nodiscard]] constexpr std::int64_t k_bytes() const { return key_tiles() * d_steps * parts * tile_bytes; }
  [[nodiscard]] constexpr std::int64_t v_bytes() const { return value_tiles() * key_steps() * parts * tile_bytes; }
  /// Blocks that one group of queries meets before the next group does: half a megabyte of K and V, which the
  /// second-level cache keeps for the groups to come while what a group changes stays in the first level.
  [[nodiscard]] constexpr std::int64_t stretch() const {
    return std::max<std::int64_t>((std::int64_t{512} << 10) / (k_bytes() + v_bytes()), 1);
  }
  /// Pairs of numbers in one part of Q and of P.
  [[nodiscard]] constexpr std::int64_t q_part() const { return d_steps * product_depth / 2 * lanes; }
  [[nodiscard]] constexpr std::int64_t p_part() const { return block / 2 * lanes; }
  [[nodiscard]] constexpr std::int64_t q_bytes() const { return parts * q_part() * 4; }
  [[nodiscard]] constexpr std::int64_t o_floats() const { return value_tiles() * tile_lines * lanes; }
};

/// The queries of one block of scores, 16 or 32 of one head, on their way through the keys.
struct TileQueries {
  std::uint32_t* q;            ///< packed, B of the first product
  float* o;                    ///< O^T [Dv padded][lanes], relative to base
  float* base;                 ///< [lanes] log2 units, whole numbers
  float* l;                    ///< [lanes] sums of rounded weights, relative to base
  std::int32_t* first;         ///< [lanes] first visible key
  std::int32_t* last;          ///< [lanes] one past the last
  std::uint32_t anchored = 0;  ///< lanes that have set a base
  bool begun = false;          ///< o holds sums; till then they are zeros, whatever it holds

  /// Before o is read as it lies.
  void begin(const TileShape& shape) {
    if (!begun) std::fill_n(o, shape.o_floats(), 0.0f);
    begun = true;
  }
};

/// Keys of one block for these queries: those that one of them sees, and others up to whole granules.
struct TileStage {
  TileQueries* queries = nullptr;
  const std::byte* k = nullptr;  ///< packed, from first_key on
  const std::byte* v = nullptr;  ///< packed, from first_key on
  std::byte* clean = nullptr;    ///< room for v without the numbers that are not finite
  std::int64_t first_key = 0;
  std::int64_t steps = 0;  ///< of 32 keys
  KeyRange whole;          ///< keys that every query sees
  bool careful = false;    ///< some query does not see some key, and some value is not finite

  [[nodiscard]] KeyRange keys() const { return {first_key, first_key + steps * product_depth}; }
  /// Those of one step.
  [[nodiscard]] KeyRange keys_of(std::int64_t step) const {
    return {first_key + step * product_depth, first_key + (step + 1) * product_depth};
  }
  /// Whether some query does not see some key.
  [[nodiscard]] bool edge() const { return keys().first < whole.first || keys().last > whole.last; }
};

/// The packed K and V of one kv head, per block whether every value is finite, and how many of its items are taken.
struct PackedHead {
  std::byte* k;
  std::byte* v;
  bool* finite;
  std::int64_t* taken;
  PackedHead(Carver& carver, const Problem& problem, const TileShape& shape)
      : k(carver.take<std::byte>(tiles_of(problem.keys, shape.block) * shape.k_bytes())),
        v(carver.take<std::byte>(tiles_of(problem.keys, shape.block) * shape.v_bytes())),
        finite(carver.take<bool>(tiles_of(problem.keys, shape.block))),
        taken(carver.take<std::int64_t>(1)) {}
};

/// One lane's scratch: the queries of a work item, and scores and weights on their way. The narrow order has a block of
/// scores and two blocks of weights in its pipeline, the wide one two rows of scores and one block of weights.
struct TileScratch {
  static constexpr std::int64_t most_groups = 16;
  TileQueries queries[most_groups];
  float* s;             ///< [block][lanes]; wide: two rows of [32][lanes]
  std::uint32_t* p[2];  ///< [block / 2][lanes] pairs of bf16; wide: the first only
  float* s_again;       ///< [block][lanes] scores made a second time
  std::byte* clean[2];  ///< blocks of V without the numbers that are not finite; wide: the first only
  float* factor;        ///< [lanes] 1 / l
  float* lse;           ///< [lanes]
  TileScratch(Carver& carver, const TileShape& shape, std::int64_t groups) {
    const int blocks = shape.narrow() ? 2 : 1;
    s = carver.take<float>(shape.narrow() ? shape.block * shape.lanes : 2 * wide_row);
    for (int i = 0; i < blocks; ++i) p[i] = carver.take<std::uint32_t>(shape.parts * shape.p_part());
    for (std::int64_t group = 0; group < groups; ++group) {
      TileQueries& one = queries[group];
      one.q = carver.take<std::uint32_t>(shape.q_bytes() / 4);
      one.o = carver.take<float>(shape.o_floats());
      for (float** array : {&one.base, &one.l}) *array = carver.take<float>(shape.lanes);
      for (std::int32_t** array : {&one.first, &one.last}) *array = carver.take<std::int32_t>(shape.lanes);
    }
    for (float** array : {&factor, &lse}) *array = carver.take<float>(shape.lanes);
    s_again = carver.take<float>(shape.block * shape.lanes);
    for (int i = 0; i < blocks; ++i) clean[i] = carver.take<std::byte>(shape.v_bytes());
  }
};

[[nodiscard]] inline std::int64_t packed_head_bytes(const Problem& problem, const TileShape& shape) {
  Carver carver(nullptr);
  PackedHead(carver, problem, shape);
  return static_cast<std::int64_t>(carver.used());
}

}  // namespace fresnel::cpu
