// SPDX-License-Identifier: Apache-2.0
// From the Isa a plan names to the code compiled for it. Highway compiles a kernel once per target and gathers the
// versions in a table; the plan, not the process, says which one runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fresnel/machine.hpp"
#include "hwy/highway.h"

namespace fresnel::cpu {

[[nodiscard]] constexpr std::int64_t vector_bytes(Isa isa) {
  return isa == Isa::avx3 ? 64 : isa == Isa::avx2 ? 32 : 16;
}

[[nodiscard]] constexpr std::int64_t highway_target(Isa isa) {
  switch (isa) {
    case Isa::avx3: return HWY_AVX3;
    case Isa::avx2: return HWY_AVX2;
    case Isa::neon: return HWY_NEON;
    default: return HWY_STATIC_TARGET;
  }
}

/// The version of a HWY_EXPORTed function for `isa`.
template <class Function, std::size_t count>
[[nodiscard]] Function version_for(Function const (&table)[count], Isa isa) {
  if constexpr (count == 1) {
    return table[0];
  } else {
    hwy::ChosenTarget chosen;
    chosen.Update(highway_target(isa));
    return table[chosen.GetIndex()];
  }
}

}  // namespace fresnel::cpu
