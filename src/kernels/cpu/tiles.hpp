// SPDX-License-Identifier: Apache-2.0
// The tile unit (Intel AMX) as a kernel sees it: eight registers of 16 rows x 64 bytes and one operation,
//
//     C[m][n] += sum_k A[m][2k] B[k][2n] + A[m][2k+1] B[k][2n+1]        m, n, k < 16; A, B bf16, C float32
//
// so A holds 16 rows of 32 numbers as they lie and B pairs of numbers in 16 columns. Kernels take the unit as a
// template parameter: tests run them on machines without one, on a unit written in plain C++. Source: Intel 64 and
// IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS: rounds to nearest, reads subnormal numbers as
// zero and flushes subnormal results.
#pragma once

#include <cstddef>

#include "runtime/amx.hpp"

namespace fresnel::cpu {

inline constexpr int tile_lines = 16;  ///< rows of a tile register
inline constexpr int tile_width = 64;  ///< bytes of a row
inline constexpr int tile_bytes = tile_lines * tile_width;

#if defined(__x86_64__)

/// The processor's own; lives as long as a work item. Registers are named by number: the compiler knows nothing of them
/// and never uses them itself. Memory that tiles are loaded from or stored to is settled by `fence`.
class HardwareTiles {
 public:
  HardwareTiles() { amx_configure(); }
  ~HardwareTiles() { amx_release(); }
  HardwareTiles(const HardwareTiles&) = delete;
  HardwareTiles& operator=(const HardwareTiles&) = delete;

  template <int tile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(tile));
  }
  /// Rows `stride` bytes apart.
  template <int tile>
  void load(const void* from, std::ptrdiff_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile));
  }
  /// The same for what is not needed again soon: it does not displace the rest from the first-level cache.
  template <int tile>
  void stream(const void* from, std::ptrdiff_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile));
  }
  template <int tile>
  void store(void* to, std::ptrdiff_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile));
  }
  template <int c, int a, int b>
  void multiply_add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
  /// Nothing the compiler reads or writes moves across: ordinary code and tiles see each other's memory from here on.
  void fence() { asm volatile("" ::: "memory"); }
};

#endif

}  // namespace fresnel::cpu
