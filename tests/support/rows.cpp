// SPDX-License-Identifier: Apache-2.0
#include "support/rows.hpp"

#include "support/runner.hpp"

#if defined(__x86_64__)
#include "kernels/cpu/tile_flash-inl.h"
#include "support/portable_tiles.hpp"

namespace fresnel::cpu {
void run_portable_decode(const Launch& launch);  // portable_decode.cpp
void run_portable_flash(const Launch& launch);   // portable_flash.cpp
}  // namespace fresnel::cpu
#endif

namespace fresnel::test {
namespace {

/// What the tile files are compiled for, beyond what every processor of this vector width has.
bool has_tile_vectors() {
#if defined(__x86_64__)
  return runs_here(Isa::avx3) && __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vbmi") != 0;
#else
  return false;
#endif
}

#if defined(__x86_64__)
Kernel portable_copy(const char* name, void (*run)(const Launch&)) {
  Kernel copy = *find_kernel(name);
  copy.needs_tile_unit = false;
  copy.run = run;
  return copy;
}
#endif

/// The row on portable tiles, and on portable vectors where there are not those that the rest of it takes; null where
/// there is not even AVX2.
const Kernel* on_portable_tiles(const Kernel& row) {
#if defined(__x86_64__)
  if (row.name == "cpu.amx_decode") {
    static const Kernel decode = portable_copy("cpu.amx_decode", &cpu::run_portable_decode);
    return runs_here(Isa::avx2) ? &decode : nullptr;
  }
  static const Kernel flash =
      portable_copy("cpu.amx", [](const Launch& launch) { cpu::tile_flash<PortableTiles>(launch); });
  static const Kernel flash_on_any_vectors = portable_copy("cpu.amx", &cpu::run_portable_flash);
  if (has_tile_vectors()) return &flash;
  return runs_here(Isa::avx2) ? &flash_on_any_vectors : nullptr;
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
  std::vector<Isa> all = isas_here();
  const bool on_tiles = find_kernel(row.name) != nullptr && find_kernel(row.name)->needs_tile_unit;
  const bool any_vectors = !row.needs_tile_unit && (row.name == "cpu.amx_decode" || !has_tile_vectors());
  if (on_tiles) std::erase_if(all, [&](Isa isa) { return isa != Isa::avx3 && !(any_vectors && isa == Isa::avx2); });
  return all;
}

}  // namespace fresnel::test
