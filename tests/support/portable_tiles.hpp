// SPDX-License-Identifier: Apache-2.0
// A tile unit for processors without one, to the letter of Intel's description of TDPBF16PS: even and odd products are
// summed apart, from zero, then together, then into C; subnormal numbers are read as zero and flushed. Vectors of 256
// bits, so that kernels whose other half is portable, too, run on any processor that has these.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstring>

#include "hwy/highway.h"

HWY_PUSH_ATTRIBUTES("avx2,fma")
namespace fresnel::test {

class PortableTiles {
 public:
  template <int tile>
  void zero() {
    std::memset(lines_[tile], 0, sizeof lines_[tile]);
  }
  template <int tile>
  void load(const void* from, std::ptrdiff_t stride) {
    for (int line = 0; line < 16; ++line)
      std::memcpy(lines_[tile][line], static_cast<const std::byte*>(from) + line * stride, 64);
  }
  template <int tile>
  void stream(const void* from, std::ptrdiff_t stride) {
    load<tile>(from, stride);
  }
  template <int tile>
  void store(void* to, std::ptrdiff_t stride) {
    for (int line = 0; line < 16; ++line)
      std::memcpy(static_cast<std::byte*>(to) + line * stride, lines_[tile][line], 64);
  }
  template <int c, int a, int b>
  void multiply_add() {
    const unsigned control = _mm_getcsr();
    _mm_setcsr(control | 0x8040);  // flush to zero, denormals are zero
    for (int line = 0; line < 16; ++line) add_line(lines_[c][line], lines_[a][line], lines_[b]);
    _mm_setcsr(control);
  }
  void fence() { asm volatile("" ::: "memory"); }

 private:
  static __m256 upper(__m256i pairs) { return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536))); }
  static __m256 lower(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
  static void add_line(std::byte* c, const std::byte* a, const std::byte (*b)[64]) {
    for (int half = 0; half < 64; half += 32) {
      __m256 even = _mm256_setzero_ps(), odd = even;
      for (int pair = 0; pair < 16; ++pair) {
        int number;
        std::memcpy(&number, a + 4 * pair, 4);
        const __m256i left = _mm256_set1_epi32(number);
        const __m256i right = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b[pair] + half));
        even = _mm256_fmadd_ps(lower(left), lower(right), even);
        odd = _mm256_fmadd_ps(upper(left), upper(right), odd);
      }
      auto* const sums = reinterpret_cast<float*>(c + half);
      _mm256_storeu_ps(sums, _mm256_add_ps(_mm256_loadu_ps(sums), _mm256_add_ps(even, odd)));
    }
  }

  alignas(64) std::byte lines_[8][16][64];
};

}  // namespace fresnel::test
HWY_POP_ATTRIBUTES
