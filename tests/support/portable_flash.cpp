// SPDX-License-Identifier: Apache-2.0
// cpu.amx on a tile unit and on 512-bit vectors that are both written in plain C++: the kernel's own files, compiled a
// second time into a namespace of their own, so that they meet portable_vectors-inl.h instead of the intrinsics.
#if defined(__x86_64__)

#include "runtime/amx.hpp"
#include "runtime/parallel.hpp"
#include "semantics/mask.hpp"
#include "support/portable_tiles.hpp"
#include "support/portable_vectors-inl.h"
#include "support/rows.hpp"
#include "walk/walk.hpp"

// What the kernel has inlined for its registers' sake takes minutes to compile under sanitizers, and has none here.
#undef HWY_INLINE
#define HWY_INLINE inline

#define cpu portable_cpu
#include "kernels/cpu/tile_flash-inl.h"
#undef cpu

namespace fresnel::cpu {

void run_portable_flash(const Launch& launch) { portable_cpu::tile_flash<test::PortableTiles>(launch); }

}  // namespace fresnel::cpu

#endif
