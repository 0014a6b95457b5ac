// SPDX-License-Identifier: Apache-2.0
// The tile unit, by the rules of Intel's Software Developer's Manual, volume 1, chapter 18: cpuid and XCR0 say whether
// it is there, Linux wants to be asked before a process touches its registers, each thread loads a tile configuration.
#include "runtime/amx.hpp"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fresnel {
namespace {

bool processor_has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & (1u << 27)) == 0) return false;  // OSXSAVE: xgetbv may be executed
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned tile_state = 3u << 17;  // XTILECFG and XTILEDATA
  if ((low & tile_state) != tile_state) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned bf16_and_tile = (1u << 22) | (1u << 24);
  return (d & bf16_and_tile) == bf16_and_tile;
}

bool system_grants_amx() {
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

/// What ldtilecfg reads: eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace

TileUnit tile_unit_here() {
  static const TileUnit unit = !processor_has_amx()   ? TileUnit::absent
                               : !system_grants_amx() ? TileUnit::denied
                                                      : TileUnit::amx_bf16;
  return unit;
}

// GCC's intrinsic for ldtilecfg names the first 8 of the 64 bytes it reads; the others may then never be written.
void amx_configure() {
  static constexpr TileConfig config;
  asm volatile("ldtilecfg %0" ::"m"(config));
}

void amx_release() { asm volatile("tilerelease"); }

__attribute__((target("amx-tile,amx-bf16"))) float amx_bf16_products(std::int64_t rounds) {
  alignas(64) std::uint16_t ones[512];  // one tile of bf16, normal numbers that sum without overflow
  for (std::uint16_t& value : ones) value = 0x3f80;
  alignas(64) float result[256];
  amx_configure();
  _tile_zero(0);
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  // One sum: the unit adds to what it has just made at full rate, and where another thread shares the core, going from
  // sum to sum halves it.
  for (std::int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(0, 4, 5);
  }
  _tile_stored(0, result, 64);
  const float sum = result[0];
  amx_release();
  return sum;
}

}  // namespace fresnel

#else

namespace fresnel {

TileUnit tile_unit_here() { return TileUnit::absent; }
void amx_configure() {}
void amx_release() {}
float amx_bf16_products(std::int64_t) { return 0; }

}  // namespace fresnel

#endif
