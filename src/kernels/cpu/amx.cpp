// SPDX-License-Identifier: Apache-2.0
// The row cpu.amx: how its problems are cut, what it needs and what it declares. The kernel is in tile_flash-inl.h.
#include <algorithm>

#include "kernels/cpu/cpu.hpp"

#if defined(__x86_64__)
#include "kernels/cpu/tile_flash-inl.h"
#endif

namespace fresnel::cpu {

#if defined(__x86_64__)

void run_amx(const Launch& launch) { tile_flash<HardwareTiles>(launch); }

/// Keys of a block. Narrow: 64, so that what a step touches stays near the first-level cache. Wide: 256, so that O is
/// loaded and stored seldom, or 128 for numbers in two parts.
std::int64_t amx_block(const Problem& problem) {
  if (problem.dtype == DType::f16) return 128;
  return TileShape(problem, 64).narrow() ? 64 : 256;
}

/// Up to 256 queries (and 192 KB of them) share K and V in the second-level cache; a short sequence is cut into eight
/// items, but never finer than two groups of queries, which fill each other's pauses.
Tile amx_tile(const Problem& problem, const Machine&) {
  const TileShape shape(problem, amx_block(problem));
  const std::int64_t fit = (192 << 10) / (shape.q_bytes() + shape.o_floats() * 4);
  const std::int64_t most = std::clamp<std::int64_t>(fit, 1, 256 / shape.lanes);
  const std::int64_t groups = std::max<std::int64_t>(tiles_of(problem.queries, shape.lanes), 1);
  const std::int64_t even = std::clamp<std::int64_t>(groups / 8, std::min<std::int64_t>(2, most), most);
  return {std::min(even, groups) * shape.lanes, amx_block(problem)};
}

std::size_t amx_lane_bytes(const Problem& problem, const Tile& tile) {
  Carver carver(nullptr);
  const TileShape shape(problem, tile.keys);
  TileScratch(carver, shape, tiles_of(tile.queries, shape.lanes));
  return carver.used();
}

/// Packed K and V: as many kv heads as fit 32 MB, at least one.
std::size_t amx_shared_bytes(const Problem& problem, const Tile& tile) {
  constexpr std::int64_t most = 32 << 20;
  const std::int64_t head = packed_head_bytes(problem, TileShape(problem, tile.keys));
  const std::int64_t heads = std::max<std::int64_t>(problem.batch * problem.heads_kv, 1);
  return static_cast<std::size_t>(head * std::clamp<std::int64_t>(most / std::max<std::int64_t>(head, 1), 1, heads));
}

#endif

/// Scores in log2 units, a short exponential, P rounded to bf16 and summed as rounded, tiles that flush subnormal
/// numbers. Weights are kept up to 2^9 below their usual size (base_margin and the rounding up of a base), so what
/// underflows is as much larger, far larger than the subnormal bf16 that storing o flushes; a rescale is a power of two
/// and exact. f16 has its weights in two parts of 8 bits, both summed; left out, of scores and of values, is the
/// product of the low parts, each at most 2^-8 of its number.
Roundings amx_roundings(const Problem& problem, const Tile& tile) {
  constexpr double lost = 0x1p-126 * 0x1p9;
  Roundings roundings;
  roundings.name = "cpu.amx";
  roundings.unit = 0x1p-24;
  roundings.unit_p = 0x1p-8 + 2.723e-3;  // to bf16, and before to a step of the table (table_error)
  roundings.least_p = roundings.least = roundings.least_exp = lost;
  roundings.sums_rounded_p = true;
  roundings.flushes_inputs = true;
  roundings.exp_constant = 7.6e-5;  // polynomial_error
  roundings.rescale = 0;
  roundings.log = 0x1p-50;  // taken in double
  roundings.log2_scores = true;
  roundings.tile_keys = tile.keys;
  if (problem.dtype == DType::f16) {
    roundings.split = 0x1p-16 + 8 * roundings.unit;  // and sums of three products are a few additions deeper
    roundings.unit_p = 0x1p-16;
    roundings.sums_rounded_p = false;
    roundings.exp_constant = 1.6e-7 + 0x1p-16;  // the weights' second part is rounded
  }
  return roundings;
}

}  // namespace fresnel::cpu
