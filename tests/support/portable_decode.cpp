// SPDX-License-Identifier: Apache-2.0
// cpu.amx_decode on a tile unit written in plain C++, for each instruction set that its vectors can have.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "support/portable_decode.cpp"
#include "hwy/foreach_target.h"
// clang-format off: foreach_target.h has to come first
#include "kernels/cpu/decode_chunk-inl.h"
#include "kernels/cpu/tile_decode-inl.h"
// clang-format on
#include "kernels/cpu/isa.hpp"
#include "support/rows.hpp"
#if defined(__x86_64__)
#include "support/portable_tiles.hpp"
#endif

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
void portable_decode_any(const Launch& launch) { decode<TileProducts<test::PortableTiles>>(launch); }
#else
void portable_decode_any(const Launch& /*launch*/) {}  // rows.cpp lists the instruction sets that it is run with
#endif

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fresnel::cpu {

HWY_EXPORT(portable_decode_any);

void run_portable_decode(const Launch& launch) {
  version_for(HWY_DISPATCH_TABLE(portable_decode_any), launch.plan.isa)(launch);
}

}  // namespace fresnel::cpu
#endif  // HWY_ONCE
