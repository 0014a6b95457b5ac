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

// Never zero keys' worth: rows without keys are written by the items of one chunk.
std::int64_t decode_items(const Problem& problem, const Tile& tile) {
  if (problem.heads_kv == 0) return 0;
  const std::int64_t slabs = tiles_of(problem.group() * problem.queries, tile.queries);
  const std::int64_t once = problem.batch * problem.heads_kv * slabs, chunks = decode_chunks(problem, tile);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  return once > most / chunks ? most : once * chunks;
}

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
