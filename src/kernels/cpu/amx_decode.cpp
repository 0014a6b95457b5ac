// SPDX-License-Identifier: Apache-2.0
// The row cpu.amx_decode: decode_chunk-inl.h on the tile unit. How it cuts a problem is in decode.cpp.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/amx_decode.cpp"
#include "hwy/foreach_target.h"
// clang-format off: foreach_target.h has to come first
#include "kernels/cpu/decode_chunk-inl.h"
#include "kernels/cpu/tile_decode-inl.h"
// clang-format on
#include "kernels/cpu/isa.hpp"

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3
void amx_decode_any(const Launch& launch) { decode<TileProducts<HardwareTiles>>(launch); }
#else
void amx_decode_any(const Launch& /*launch*/) {}  // no plan names it: the row needs the unit and its vectors
#endif

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fresnel::cpu {

HWY_EXPORT(amx_decode_any);

void run_amx_decode(const Launch& launch) { version_for(HWY_DISPATCH_TABLE(amx_decode_any), launch.plan.isa)(launch); }

std::size_t amx_decode_lane_bytes(const Problem& problem, const Tile& tile) {
  Carver carver(nullptr);
  DecodeScratch<float>(carver, problem, tile);
  TileDecodeScratch(carver, problem, tile);
  return carver.used();
}

}  // namespace fresnel::cpu
#endif  // HWY_ONCE
