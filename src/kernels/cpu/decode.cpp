// SPDX-License-Identifier: Apache-2.0
// The row cpu.decode: decode_chunk-inl.h on vectors; and how both rows for few queries cut a problem.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/decode.cpp"
#include "hwy/foreach_target.h"
// clang-format off: foreach_target.h has to come first
#include "kernels/cpu/decode-inl.h"
#include "kernels/cpu/decode_chunk-inl.h"
// clang-format on
#include "kernels/cpu/isa.hpp"

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

void decode_any(const Launch& launch) {
  switch (launch.plan.problem.dtype) {
    case DType::f64: return decode<VectorProducts<double>>(launch);
    case DType::f32: return decode<VectorProducts<float>>(launch);
    case DType::f16: return decode<VectorProducts<Float16>>(launch);
    default: return decode<VectorProducts<BFloat16>>(launch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fresnel::cpu {

HWY_EXPORT(decode_any);

void run_decode(const Launch& launch) { version_for(HWY_DISPATCH_TABLE(decode_any), launch.plan.isa)(launch); }

Tile decode_tile(const Problem&, const Machine&) { return {decode_rows, 512}; }

std::int64_t decode_chunks(const Problem& problem, const Tile& tile) {
  return std::max<std::int64_t>(tiles_of(problem.keys, tile.keys), 1);
}

// Four items for every lane, but no more: within an item, the values of one chunk ask for the keys of the next.
std::int64_t decode_run(const Problem& problem, const Tile& tile, int lanes) {
  const std::int64_t heads = std::max<std::int64_t>(problem.batch * problem.heads_kv, 1);
  const std::int64_t chunks = decode_chunks(problem, tile), wanted = std::int64_t{4} * lanes;
  return std::clamp<std::int64_t>(chunks / std::max<std::int64_t>(wanted / heads, 1), 1, 16);
}

// Never zero keys' worth: rows without keys are written by the items of one chunk.
std::int64_t decode_items(const Problem& problem, const Tile& tile, int lanes) {
  if (problem.heads_kv == 0) return 0;
  const std::int64_t slabs = tiles_of(problem.group() * problem.queries, tile.queries);
  const std::int64_t once = problem.batch * problem.heads_kv * slabs;
  const std::int64_t runs = tiles_of(decode_chunks(problem, tile), decode_run(problem, tile, lanes));
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  return once > most / runs ? most : once * runs;
}

// What a machine of 64 cores could take: planning asks before it knows the lanes.
std::int64_t decode_items_at_most(const Problem& problem, const Tile& tile) { return decode_items(problem, tile, 64); }

std::size_t decode_lane_bytes(const Problem& problem, const Tile& tile) {
  Carver carver(nullptr);
  if (problem.dtype == DType::f64) {
    DecodeScratch<double>(carver, problem, tile);
    VectorDecodeScratch<double>(carver, problem, tile);
  } else {
    DecodeScratch<float>(carver, problem, tile);
    VectorDecodeScratch<float>(carver, problem, tile);
  }
  return carver.used();
}

// A product too large for memory is cut off where no allocation can succeed.
std::size_t decode_shared_bytes(const Problem& problem, const Tile& tile) {
  const std::int64_t chunks = decode_chunks(problem, tile), rows = problem.batch * problem.heads_q * problem.queries;
  if (chunks == 1) return 0;
  constexpr std::size_t most = std::size_t{1} << 60;
  const auto row = static_cast<std::size_t>(chunks) *
                   (problem.dtype == DType::f64 ? Partials<double>::bytes(problem) : Partials<float>::bytes(problem));
  return row > 0 && static_cast<std::size_t>(rows) > most / row ? most : row * static_cast<std::size_t>(rows);
}

}  // namespace fresnel::cpu
#endif  // HWY_ONCE
