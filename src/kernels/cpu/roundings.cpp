// SPDX-License-Identifier: Apache-2.0
// What the CPU kernels declare about their arithmetic. tests/kernels measures the exponential and the hyperbolic
// tangent against these figures; docs/numerics.md turns them into budgets.
#include "kernels/cpu/decode.hpp"

namespace fresnel::cpu {
namespace {

Roundings cpu_roundings(const char* row, const Problem& problem, const Tile& tile) {
  Roundings roundings;
  roundings.name = row;
  const bool wide = problem.dtype == DType::f64;
  const double unit = wide ? 0x1p-53 : 0x1p-24;
  roundings.unit = unit;
  roundings.least = wide ? 0x1p-1074 : 0x1p-149;
  roundings.least_exp = wide ? 0x1p-1022 : 0x1p-126;  // exp_nonpositive gives 0 below the normal range
  roundings.exp_constant = 2 * unit;
  roundings.exp_slope = wide ? 0 : 1.25 * unit;  // x log2 e is rounded, and so is log2 e
  roundings.rescale = 2 * unit;
  roundings.tanh = 8 * unit;
  roundings.log = wide ? 2 * unit : 0x1p-50;  // taken in double either way
  roundings.tile_keys = tile.keys;
  return roundings;
}

}  // namespace

Roundings flash_roundings(const Problem& problem, const Tile& tile) {
  return cpu_roundings("cpu.flash", problem, tile);
}
/// A chunk's sums are made of blocks, and its states are merged.
Roundings decode_roundings(const Problem& problem, const Tile& tile) {
  Roundings roundings = cpu_roundings("cpu.decode", problem, {tile.queries, std::min(tile.keys, decode_block)});
  roundings.splits = decode_chunks(problem, tile);
  return roundings;
}
/// A chunk's sums are made in one go, on tiles that flush subnormal numbers; a weight is the sum of two bf16 numbers,
/// of which the second is rounded: to 8 bits of less than 2^-7 of the weight.
Roundings amx_decode_roundings(const Problem& problem, const Tile& tile) {
  Roundings roundings = cpu_roundings("cpu.amx_decode", problem, tile);
  roundings.splits = decode_chunks(problem, tile);
  roundings.unit_p = 0x1p-16;
  roundings.least_p = roundings.least = 0x1p-126;
  roundings.flushes_inputs = true;
  return roundings;
}
Roundings naive_roundings(const Problem& problem, const Tile& tile) {
  return cpu_roundings("cpu.naive", problem, tile);
}

/// exp and tanh are the C library's: within one unit in the last place, two and a half for tanh.
Roundings backward_roundings(const Problem& problem, const Tile& tile) {
  Roundings roundings = cpu_roundings("cpu.reference_backward", problem, tile);
  roundings.exp_slope = 0;
  roundings.dot_lanes = 16;
  return roundings;
}

}  // namespace fresnel::cpu
