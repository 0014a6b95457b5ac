// SPDX-License-Identifier: Apache-2.0
// A tile unit for processors without one, to the letter of Intel's description of TDPBF16PS: even and odd products are
// summed apart, from zero, then together, then into C; subnormal numbers are read as zero and flushed. Vectors of 512
// bits, which the kernels beside it need as well.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstring>

#include "hwy/highway.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl")
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
  static __m512 upper(__m512i pairs) { return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-65536))); }
  static __m512 lower(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
  static void add_line(std::byte* c, const std::byte* a, const std::byte (*b)[64]) {
    __m512 even = _mm512_setzero_ps(), odd = even;
    for (int pair = 0; pair < 16; ++pair) {
      int number;
      std::memcpy(&number, a + 4 * pair, 4);
      const __m512i left = _mm512_set1_epi32(number), right = _mm512_loadu_si512(b[pair]);
      even = _mm512_fmadd_ps(lower(left), lower(right), even);
      odd = _mm512_fmadd_ps(upper(left), upper(right), odd);
    }
    _mm512_storeu_ps(c, _mm512_add_ps(_mm512_loadu_ps(c), _mm512_add_ps(even, odd)));
  }

  alignas(64) std::byte lines_[8][16][64];
};

}  // namespace fresnel::test
HWY_POP_ATTRIBUTES
