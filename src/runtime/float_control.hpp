// SPDX-License-Identifier: Apache-2.0
// The floating-point control word of a thread: rounding direction and the flushing of subnormals. A team gives its
// helpers the caller's, so that the bits of a result cannot depend on which thread computed it.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace fresnel {

/// The calling thread's control word, without the sticky exception flags; 0 where fresnel cannot read it.
[[nodiscard]] inline std::uint64_t float_control() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3fu;
#elif defined(__aarch64__)
  std::uint64_t word;
  asm volatile("mrs %0, fpcr" : "=r"(word));
  return word;
#else
  return 0;
#endif
}

inline void set_float_control([[maybe_unused]] std::uint64_t word) {
#if defined(__x86_64__)
  _mm_setcsr(static_cast<unsigned>(word));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(word));
#endif
}

}  // namespace fresnel
