// SPDX-License-Identifier: Apache-2.0
#include "support/rows.hpp"

#include "support/runner.hpp"

#if defined(__x86_64__)
#include "kernels/cpu/tile_flash-inl.h"
#include "support/portable_tiles.hpp"
#endif

namespace fresnel::test {
namespace {

#if defined(__x86_64__)
/// What the tile files are compiled for, beyond what every processor of this vector width has.
bool has_tile_vectors() {
  return runs_here(Isa::avx3) && __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vbmi") != 0;
}
#endif

/// The row on portable tiles; null where there are not the 512-bit vectors that the rest of it takes.
const Kernel* on_portable_tiles(const Kernel& row) {
#if defined(__x86_64__)
  if (!has_tile_vectors()) return nullptr;
  static const Kernel portable = [&] {
    Kernel copy = row;
    copy.needs_tile_unit = false;
    copy.run = [](const Launch& launch) { cpu::tile_flash<PortableTiles>(launch); };
    return copy;
  }();
  return &portable;
#else
  static_cast<void>(row);
  return nullptr;
#endif
}

}  // namespace

const std::vector<const Kernel*>& rows_here() {
  static const std::vector<const Kernel*> all = [] {
    std::vector<const Kernel*> found;
    for (const Kernel& row : catalogue()) {
      if (row.device != Device::cpu || row.run == nullptr) continue;
      const bool lacks_unit = row.needs_tile_unit && Machine::host().tile_unit != TileUnit::amx_bf16;
      const Kernel* const here = lacks_unit ? on_portable_tiles(row) : &row;
      if (here != nullptr) found.push_back(here);
    }
    return found;
  }();
  return all;
}

bool is_listed(const Kernel& row) { return find_kernel(row.name) == &row; }

std::vector<Isa> isas_of(const Kernel& row) {
  if (row.needs_tile_unit || !is_listed(row)) return {Isa::avx3};
  return isas_here();
}

}  // namespace fresnel::test
