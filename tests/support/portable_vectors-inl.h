// SPDX-License-Identifier: Apache-2.0
// The 512-bit intrinsics of cpu.amx in plain C++, lane by lane, so that what the kernel does with them is tested on
// processors that have none. They have the intrinsics' names in a namespace of their own, where the kernel's files are
// compiled a second time (portable_flash.cpp): a name in an enclosing namespace goes before a global one. Semantics:
// Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "runtime/half.hpp"

// What the kernel's files are compiled for: not what they ask for, but what goes without 512-bit vectors.
#undef HWY_PUSH_ATTRIBUTES
#if HWY_COMPILER_CLANG
#define HWY_PUSH_ATTRIBUTES(targets) \
  _Pragma("clang attribute push(__attribute__((target(\"avx2,fma\"))), apply_to = function)")
#else
#define HWY_PUSH_ATTRIBUTES(targets) _Pragma("GCC push_options") _Pragma("GCC target \"avx2,fma\"")
#endif

HWY_PUSH_ATTRIBUTES("")
namespace fresnel::test::vectors {

/// A vector as its lanes.
template <class T, int count>
struct Lanes {
  T at[count];
  template <class Vector>
  static Lanes of(const Vector& vector) {
    static_assert(sizeof(Lanes) == sizeof(Vector));
    return std::bit_cast<Lanes>(vector);
  }
  template <class Vector>
  operator Vector() const {  // NOLINT(google-explicit-constructor): to whatever type the intrinsic has
    return std::bit_cast<Vector>(*this);
  }
};
using Floats = Lanes<float, 16>;
using Doubles = Lanes<double, 8>;
using Words = Lanes<std::int32_t, 16>;
using Halves = Lanes<std::uint16_t, 32>;
using Bytes = Lanes<std::uint8_t, 64>;
using Quads = Lanes<std::uint64_t, 8>;

/// A result lane by lane: f(i).
template <class Result, class F>
Result each(F&& f) {
  Result result;
  int i = 0;
  for (auto& lane : result.at) lane = static_cast<std::remove_reference_t<decltype(lane)>>(f(i++));
  return result;
}
/// A bit for each lane: f(i).
template <class Mask, int count, class F>
Mask bits(F&& f) {
  Mask mask = 0;
  for (int i = 0; i < count; ++i) mask = static_cast<Mask>(mask | static_cast<Mask>(static_cast<Mask>(f(i)) << i));
  return mask;
}

inline bool compare(double a, double b, int predicate) {
  switch (predicate) {
    case _CMP_LT_OQ: return a < b;
    case _CMP_LE_OQ: return a <= b;
    case _CMP_ORD_Q: return !std::isnan(a) && !std::isnan(b);
    case _CMP_UNORD_Q: return std::isnan(a) || std::isnan(b);
    case _CMP_NEQ_UQ: return !(a == b);
    case _CMP_NLE_UQ: return !(a <= b);
    default: __builtin_trap();
  }
}
inline float greater(float a, float b) { return a > b ? a : b; }  // b where one is NaN
inline float scaled(float a, float b) {                           // a 2^floor(b)
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(
      std::ldexp(static_cast<double>(a), static_cast<int>(std::clamp(std::floor(b), -2e3f, 2e3f))));
}
inline float fraction(float x) { return std::isinf(x) ? 0.0f : x - std::floor(x); }
inline double mantissa(double x) {  // from 0.75 to 1.5
  if (x < 0 || std::isnan(x)) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0 || std::isinf(x)) return 1;
  int exponent = 0;
  const double half = std::frexp(x, &exponent);
  return half < 0.75 ? 2 * half : half;
}
inline float bf16(std::uint32_t upper) {  // subnormal numbers are zero
  return (upper & 0x7f80) == 0 ? 0.0f : std::bit_cast<float>(upper << 16);
}
inline std::uint16_t to_bf16(float x) {
  const auto number = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return static_cast<std::uint16_t>(number >> 16 | 0x40);
  if ((number & 0x7f800000) == 0) return static_cast<std::uint16_t>(number >> 16 & 0x8000);
  return static_cast<std::uint16_t>((number + 0x7fff + (number >> 16 & 1)) >> 16);
}

template <class Vector>
Vector load(const void* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}
template <class Vector>
void store(void* to, const Vector& vector) {
  std::memcpy(to, &vector, sizeof vector);
}
template <class Lane, int count, class Mask>
void store_some(void* to, Mask mask, const __m512i& vector) {
  const auto lanes = Lanes<Lane, count>::of(vector);
  for (int i = 0; i < count; ++i)
    if (mask >> i & 1) std::memcpy(static_cast<std::byte*>(to) + sizeof(Lane) * i, &lanes.at[i], sizeof(Lane));
}

/// Pairs of lanes from both vectors in turn, in each part of 128 bits.
template <class T>
__m512i unpack(const __m512i& a, const __m512i& b, int high) {
  constexpr int count = 64 / sizeof(T), part = 16 / sizeof(T);
  const auto x = Lanes<T, count>::of(a), y = Lanes<T, count>::of(b);
  return each<Lanes<T, count>>([&](int i) {
    const int from = i / part * part + high * part / 2 + i % part / 2;
    return i % 2 == 0 ? x.at[from] : y.at[from];
  });
}
[[gnu::noinline]] inline __m512i shuffle_parts(const __m512i& a, const __m512i& b, int control) {
  const Quads x = Quads::of(a), y = Quads::of(b);
  return each<Quads>([&](int i) {
    const int from = (control >> (i / 2 * 2) & 3) * 2 + i % 2;
    return i < 4 ? x.at[from] : y.at[from];
  });
}
[[gnu::noinline]] inline __m512i logic(const __m512i& a, const __m512i& b, const __m512i& c, int table) {
  const Quads x = Quads::of(a), y = Quads::of(b), z = Quads::of(c);
  return each<Quads>([&](int i) {
    std::uint64_t result = 0;
    for (int term = 0; term < 8; ++term) {
      if ((table >> term & 1) == 0) continue;
      result |= (term & 4 ? x.at[i] : ~x.at[i]) & (term & 2 ? y.at[i] : ~y.at[i]) & (term & 1 ? z.at[i] : ~z.at[i]);
    }
    return result;
  });
}
[[gnu::noinline]] inline __m512i shuffle_bytes(const __m512i& source, std::uint64_t mask, const __m512i& a,
                                               const __m512i& control) {
  const Bytes from = Bytes::of(a), which = Bytes::of(control), others = Bytes::of(source);
  return each<Bytes>([&](int i) -> std::uint8_t {
    if ((mask >> i & 1) == 0) return others.at[i];
    return which.at[i] & 0x80 ? 0 : from.at[i / 16 * 16 + (which.at[i] & 15)];
  });
}
[[gnu::noinline]] inline __m512i look_up(std::uint64_t mask, const __m512i& low, const __m512i& index,
                                         const __m512i& high) {
  const Bytes first = Bytes::of(low), second = Bytes::of(high), which = Bytes::of(index);
  return each<Bytes>([&](int i) -> std::uint8_t {
    if ((mask >> i & 1) == 0) return 0;
    return (which.at[i] & 64 ? second : first).at[which.at[i] & 63];
  });
}
[[gnu::noinline]] inline __m512 add_pairs(const __m512& sum, const __m512i& a, const __m512i& b) {
  const Floats before = Floats::of(sum);
  const Halves x = Halves::of(a), y = Halves::of(b);
  return each<Floats>([&](int i) {
    const float odd = std::fma(bf16(x.at[2 * i + 1]), bf16(y.at[2 * i + 1]), before.at[i]);
    return std::fma(bf16(x.at[2 * i]), bf16(y.at[2 * i]), odd);
  });
}
[[gnu::noinline]] inline __m512i insert_upper(const __m512i& a, const __m256i& b) {
  __m512i result = a;
  std::memcpy(reinterpret_cast<std::byte*>(&result) + 32, &b, 32);
  return result;
}
[[gnu::noinline]] inline __m256i part_of(const __m512i& a, int which) {
  return load<__m256i>(reinterpret_cast<const std::byte*>(&a) + 32 * which);
}
[[gnu::noinline]] inline __m512i widen(const __m256i& a) {
  __m512i result{};
  std::memcpy(&result, &a, 32);
  return result;
}

}  // namespace fresnel::test::vectors

// Some compilers have macros of these names.
#undef _mm512_cmp_pd_mask
#undef _mm512_cmp_ps_mask
#undef _mm512_cmpeq_epi16_mask
#undef _mm512_cmple_epi32_mask
#undef _mm512_cmplt_epi32_mask
#undef _mm512_cmpneq_epi32_mask
#undef _mm512_cvtps_ph
#undef _mm512_extracti64x4_epi64
#undef _mm512_getmant_pd
// This one's arguments are of a global type, by which a call finds the intrinsic as well.
#define _mm512_getmant_pd getmant_pd
#undef _mm512_inserti64x4
#undef _mm512_reduce_ps
#undef _mm512_roundscale_ps
#undef _mm512_shuffle_i32x4
#undef _mm512_slli_epi32
#undef _mm512_srli_epi32
#undef _mm512_ternarylogic_epi32

// Calls, since the kernel uses them by the thousand: inlined they would take minutes to compile.
namespace fresnel::portable_cpu {
namespace v = test::vectors;

[[gnu::noinline]] inline __m512 _mm512_add_ps(const __m512& a, const __m512& b) {
  const auto x = v::Floats::of(a), y = v::Floats::of(b);
  return v::each<v::Floats>([&](int i) { return x.at[i] + y.at[i]; });
}
[[gnu::noinline]] inline __m512 _mm512_sub_ps(const __m512& a, const __m512& b) {
  const auto x = v::Floats::of(a), y = v::Floats::of(b);
  return v::each<v::Floats>([&](int i) { return x.at[i] - y.at[i]; });
}
[[gnu::noinline]] inline __m512 _mm512_mul_ps(const __m512& a, const __m512& b) {
  const auto x = v::Floats::of(a), y = v::Floats::of(b);
  return v::each<v::Floats>([&](int i) { return x.at[i] * y.at[i]; });
}
[[gnu::noinline]] inline __m512 _mm512_max_ps(const __m512& a, const __m512& b) {
  const auto x = v::Floats::of(a), y = v::Floats::of(b);
  return v::each<v::Floats>([&](int i) { return v::greater(x.at[i], y.at[i]); });
}
[[gnu::noinline]] inline __m512 _mm512_scalef_ps(const __m512& a, const __m512& b) {
  const auto x = v::Floats::of(a), y = v::Floats::of(b);
  return v::each<v::Floats>([&](int i) { return v::scaled(x.at[i], y.at[i]); });
}
[[gnu::noinline]] inline __m512d _mm512_add_pd(const __m512d& a, const __m512d& b) {
  const auto x = v::Doubles::of(a), y = v::Doubles::of(b);
  return v::each<v::Doubles>([&](int i) { return x.at[i] + y.at[i]; });
}
[[gnu::noinline]] inline __m512d _mm512_sub_pd(const __m512d& a, const __m512d& b) {
  const auto x = v::Doubles::of(a), y = v::Doubles::of(b);
  return v::each<v::Doubles>([&](int i) { return x.at[i] - y.at[i]; });
}
[[gnu::noinline]] inline __m512d _mm512_mul_pd(const __m512d& a, const __m512d& b) {
  const auto x = v::Doubles::of(a), y = v::Doubles::of(b);
  return v::each<v::Doubles>([&](int i) { return x.at[i] * y.at[i]; });
}
[[gnu::noinline]] inline __m512d _mm512_div_pd(const __m512d& a, const __m512d& b) {
  const auto x = v::Doubles::of(a), y = v::Doubles::of(b);
  return v::each<v::Doubles>([&](int i) { return x.at[i] / y.at[i]; });
}
[[gnu::noinline]] inline __m512 _mm512_fmadd_ps(const __m512& a, const __m512& b, const __m512& c) {
  const auto x = v::Floats::of(a), y = v::Floats::of(b), z = v::Floats::of(c);
  return v::each<v::Floats>([&](int i) { return std::fma(x.at[i], y.at[i], z.at[i]); });
}
[[gnu::noinline]] inline __m512 _mm512_fmsub_ps(const __m512& a, const __m512& b, const __m512& c) {
  const auto x = v::Floats::of(a), y = v::Floats::of(b), z = v::Floats::of(c);
  return v::each<v::Floats>([&](int i) { return std::fma(x.at[i], y.at[i], -z.at[i]); });
}
[[gnu::noinline]] inline __m512 _mm512_fnmadd_ps(const __m512& a, const __m512& b, const __m512& c) {
  const auto x = v::Floats::of(a), y = v::Floats::of(b), z = v::Floats::of(c);
  return v::each<v::Floats>([&](int i) { return std::fma(-x.at[i], y.at[i], z.at[i]); });
}
[[gnu::noinline]] inline __m512d _mm512_fmadd_pd(const __m512d& a, const __m512d& b, const __m512d& c) {
  const auto x = v::Doubles::of(a), y = v::Doubles::of(b), z = v::Doubles::of(c);
  return v::each<v::Doubles>([&](int i) { return std::fma(x.at[i], y.at[i], z.at[i]); });
}
[[gnu::noinline]] inline __m512 _mm512_abs_ps(const __m512& a) {
  const auto x = v::Floats::of(a);
  return v::each<v::Floats>([&](int i) { return std::abs(x.at[i]); });
}
[[gnu::noinline]] inline __m512 _mm512_reduce_ps(const __m512& a, int /*floor*/) {
  const auto x = v::Floats::of(a);
  return v::each<v::Floats>([&](int i) { return v::fraction(x.at[i]); });
}
[[gnu::noinline]] inline __m512 _mm512_roundscale_ps(const __m512& a, int /*ceil*/) {
  const auto x = v::Floats::of(a);
  return v::each<v::Floats>([&](int i) { return std::ceil(x.at[i]); });
}
[[gnu::noinline]] inline __m512d _mm512_getmant_pd(const __m512d& a, int /*interval*/, int /*sign*/) {
  const auto x = v::Doubles::of(a);
  return v::each<v::Doubles>([&](int i) { return v::mantissa(x.at[i]); });
}
[[gnu::noinline]] inline __m512d _mm512_getexp_pd(const __m512d& a) {
  const auto x = v::Doubles::of(a);
  return v::each<v::Doubles>([&](int i) { return std::logb(x.at[i]); });
}
[[gnu::noinline]] inline __m512 _mm512_mask_sub_ps(const __m512& source, __mmask16 mask, const __m512& a,
                                                   const __m512& b) {
  const auto s = v::Floats::of(source), x = v::Floats::of(a), y = v::Floats::of(b);
  return v::each<v::Floats>([&](int i) { return mask >> i & 1 ? x.at[i] - y.at[i] : s.at[i]; });
}
[[gnu::noinline]] inline __m512 _mm512_mask_max_ps(const __m512& source, __mmask16 mask, const __m512& a,
                                                   const __m512& b) {
  const auto s = v::Floats::of(source), x = v::Floats::of(a), y = v::Floats::of(b);
  return v::each<v::Floats>([&](int i) { return mask >> i & 1 ? v::greater(x.at[i], y.at[i]) : s.at[i]; });
}
[[gnu::noinline]] inline __m512 _mm512_mask_scalef_ps(const __m512& source, __mmask16 mask, const __m512& a,
                                                      const __m512& b) {
  const auto s = v::Floats::of(source), x = v::Floats::of(a), y = v::Floats::of(b);
  return v::each<v::Floats>([&](int i) { return mask >> i & 1 ? v::scaled(x.at[i], y.at[i]) : s.at[i]; });
}
[[gnu::noinline]] inline __m512d _mm512_mask_add_pd(const __m512d& source, __mmask8 mask, const __m512d& a,
                                                    const __m512d& b) {
  const auto s = v::Doubles::of(source), x = v::Doubles::of(a), y = v::Doubles::of(b);
  return v::each<v::Doubles>([&](int i) { return mask >> i & 1 ? x.at[i] + y.at[i] : s.at[i]; });
}
[[gnu::noinline]] inline __m512 _mm512_mask_mov_ps(const __m512& source, __mmask16 mask, const __m512& a) {
  const auto s = v::Floats::of(source), x = v::Floats::of(a);
  return v::each<v::Floats>([&](int i) { return mask >> i & 1 ? x.at[i] : s.at[i]; });
}
[[gnu::noinline]] inline __m512i _mm512_mask_mov_epi32(const __m512i& source, __mmask16 mask, const __m512i& a) {
  const auto s = v::Words::of(source), x = v::Words::of(a);
  return v::each<v::Words>([&](int i) { return mask >> i & 1 ? x.at[i] : s.at[i]; });
}
[[gnu::noinline]] inline __m256i _mm256_maskz_mov_epi16(__mmask16 mask, const __m256i& a) {
  using Shorts = v::Lanes<std::uint16_t, 16>;
  const auto x = Shorts::of(a);
  return v::each<Shorts>([&](int i) { return mask >> i & 1 ? x.at[i] : 0; });
}
[[gnu::noinline]] inline __m512 _mm512_maskz_div_ps(__mmask16 mask, const __m512& a, const __m512& b) {
  const auto x = v::Floats::of(a), y = v::Floats::of(b);
  return v::each<v::Floats>([&](int i) { return mask >> i & 1 ? x.at[i] / y.at[i] : 0.0f; });
}
[[gnu::noinline]] inline __m512 _mm512_mask3_fmadd_ps(const __m512& a, const __m512& b, const __m512& c,
                                                      __mmask16 mask) {
  const auto x = v::Floats::of(a), y = v::Floats::of(b), z = v::Floats::of(c);
  return v::each<v::Floats>([&](int i) { return mask >> i & 1 ? std::fma(x.at[i], y.at[i], z.at[i]) : z.at[i]; });
}
[[gnu::noinline]] inline __m512i _mm512_add_epi32(const __m512i& a, const __m512i& b) {
  const auto x = v::Words::of(a), y = v::Words::of(b);
  return v::each<v::Words>(
      [&](int i) { return static_cast<std::uint32_t>(x.at[i]) + static_cast<std::uint32_t>(y.at[i]); });
}
[[gnu::noinline]] inline __m512i _mm512_sub_epi32(const __m512i& a, const __m512i& b) {
  const auto x = v::Words::of(a), y = v::Words::of(b);
  return v::each<v::Words>(
      [&](int i) { return static_cast<std::uint32_t>(x.at[i]) - static_cast<std::uint32_t>(y.at[i]); });
}
[[gnu::noinline]] inline __m512i _mm512_and_si512(const __m512i& a, const __m512i& b) {
  const auto x = v::Quads::of(a), y = v::Quads::of(b);
  return v::each<v::Quads>([&](int i) { return x.at[i] & y.at[i]; });
}
[[gnu::noinline]] inline __m512i _mm512_or_si512(const __m512i& a, const __m512i& b) {
  const auto x = v::Quads::of(a), y = v::Quads::of(b);
  return v::each<v::Quads>([&](int i) { return x.at[i] | y.at[i]; });
}
[[gnu::noinline]] inline __m512i _mm512_subs_epu16(const __m512i& a, const __m512i& b) {
  const auto x = v::Halves::of(a), y = v::Halves::of(b);
  return v::each<v::Halves>([&](int i) { return x.at[i] > y.at[i] ? x.at[i] - y.at[i] : 0; });
}
[[gnu::noinline]] inline __m512i _mm512_slli_epi32(const __m512i& a, int count) {
  const auto x = v::Words::of(a);
  return v::each<v::Words>([&](int i) { return static_cast<std::uint32_t>(x.at[i]) << count; });
}
[[gnu::noinline]] inline __m512i _mm512_srli_epi32(const __m512i& a, int count) {
  const auto x = v::Words::of(a);
  return v::each<v::Words>([&](int i) { return static_cast<std::uint32_t>(x.at[i]) >> count; });
}
[[gnu::noinline]] inline __m512i _mm512_ternarylogic_epi32(const __m512i& a, const __m512i& b, const __m512i& c,
                                                           int table) {
  return v::logic(a, b, c, table);
}
[[gnu::noinline]] inline __mmask16 _mm512_cmp_ps_mask(const __m512& a, const __m512& b, int predicate) {
  const auto x = v::Floats::of(a), y = v::Floats::of(b);
  return v::bits<__mmask16, 16>([&](int i) { return v::compare(x.at[i], y.at[i], predicate); });
}
[[gnu::noinline]] inline __mmask8 _mm512_cmp_pd_mask(const __m512d& a, const __m512d& b, int predicate) {
  const auto x = v::Doubles::of(a), y = v::Doubles::of(b);
  return v::bits<__mmask8, 8>([&](int i) { return v::compare(x.at[i], y.at[i], predicate); });
}
[[gnu::noinline]] inline __mmask16 _mm512_cmple_epi32_mask(const __m512i& a, const __m512i& b) {
  const auto x = v::Words::of(a), y = v::Words::of(b);
  return v::bits<__mmask16, 16>([&](int i) { return x.at[i] <= y.at[i]; });
}
[[gnu::noinline]] inline __mmask16 _mm512_cmplt_epi32_mask(const __m512i& a, const __m512i& b) {
  const auto x = v::Words::of(a), y = v::Words::of(b);
  return v::bits<__mmask16, 16>([&](int i) { return x.at[i] < y.at[i]; });
}
[[gnu::noinline]] inline __mmask16 _mm512_cmpneq_epi32_mask(const __m512i& a, const __m512i& b) {
  const auto x = v::Words::of(a), y = v::Words::of(b);
  return v::bits<__mmask16, 16>([&](int i) { return x.at[i] != y.at[i]; });
}
[[gnu::noinline]] inline __mmask32 _mm512_cmpeq_epi16_mask(const __m512i& a, const __m512i& b) {
  const auto x = v::Halves::of(a), y = v::Halves::of(b);
  return v::bits<__mmask32, 32>([&](int i) { return x.at[i] == y.at[i]; });
}
[[gnu::noinline]] inline __m512i _mm512_castps_si512(const __m512& a) { return std::bit_cast<__m512i>(a); }
[[gnu::noinline]] inline __m512 _mm512_castsi512_ps(const __m512i& a) { return std::bit_cast<__m512>(a); }
[[gnu::noinline]] inline __m512i _mm512_castsi256_si512(const __m256i& a) { return v::widen(a); }
[[gnu::noinline]] inline __m256i _mm512_castsi512_si256(const __m512i& a) { return v::part_of(a, 0); }
[[gnu::noinline]] inline __m256i _mm512_extracti64x4_epi64(const __m512i& a, int which) { return v::part_of(a, which); }
[[gnu::noinline]] inline __m512i _mm512_inserti64x4(const __m512i& a, const __m256i& b, int /*upper*/) {
  return v::insert_upper(a, b);
}
[[gnu::noinline]] inline __m512i _mm512_broadcast_i32x4(const __m128i& a) {
  using Part = v::Lanes<std::uint64_t, 2>;
  const auto x = Part::of(a);
  return v::each<v::Quads>([&](int i) { return x.at[i % 2]; });
}
[[gnu::noinline]] inline __m256i _mm512_cvtepi32_epi16(const __m512i& a) {
  using Shorts = v::Lanes<std::uint16_t, 16>;
  const auto x = v::Words::of(a);
  return v::each<Shorts>([&](int i) { return x.at[i]; });
}
[[gnu::noinline]] inline __m512 _mm512_cvtepi32_ps(const __m512i& a) {
  const auto x = v::Words::of(a);
  return v::each<v::Floats>([&](int i) { return static_cast<float>(x.at[i]); });
}
[[gnu::noinline]] inline __m512i _mm512_cvtepu16_epi32(const __m256i& a) {
  using Shorts = v::Lanes<std::uint16_t, 16>;
  const auto x = Shorts::of(a);
  return v::each<v::Words>([&](int i) { return x.at[i]; });
}
[[gnu::noinline]] inline __m512 _mm512_cvtph_ps(const __m256i& a) {
  using Shorts = v::Lanes<std::uint16_t, 16>;
  const auto x = Shorts::of(a);
  return v::each<v::Floats>([&](int i) { return f16_to_float(x.at[i]); });
}
[[gnu::noinline]] inline __m256i _mm512_cvtps_ph(const __m512& a, int /*to nearest*/) {
  using Shorts = v::Lanes<std::uint16_t, 16>;
  const auto x = v::Floats::of(a);
  return v::each<Shorts>([&](int i) { return float_to_f16(x.at[i]); });
}
[[gnu::noinline]] inline __m512d _mm512_cvtps_pd(const __m256& a) {
  using Part = v::Lanes<float, 8>;
  const auto x = Part::of(a);
  return v::each<v::Doubles>([&](int i) { return static_cast<double>(x.at[i]); });
}
[[gnu::noinline]] inline __m256 _mm512_cvtpd_ps(const __m512d& a) {
  using Part = v::Lanes<float, 8>;
  const auto x = v::Doubles::of(a);
  return v::each<Part>([&](int i) { return x.at[i]; });
}
[[gnu::noinline]] inline __m512bh _mm512_cvtne2ps_pbh(const __m512& high, const __m512& low) {
  const auto x = v::Floats::of(low), y = v::Floats::of(high);
  return v::each<v::Halves>([&](int i) { return v::to_bf16(i < 16 ? x.at[i] : y.at[i - 16]); });
}
[[gnu::noinline]] inline __m512 _mm512_dpbf16_ps(const __m512& sum, const __m512bh& a, const __m512bh& b) {
  return v::add_pairs(sum, std::bit_cast<__m512i>(a), std::bit_cast<__m512i>(b));
}
[[gnu::noinline]] inline __m512 _mm512_load_ps(const void* from) { return v::load<__m512>(from); }
[[gnu::noinline]] inline __m512i _mm512_load_si512(const void* from) { return v::load<__m512i>(from); }
[[gnu::noinline]] inline __m512i _mm512_loadu_si512(const void* from) { return v::load<__m512i>(from); }
[[gnu::noinline]] inline void _mm512_store_ps(void* to, const __m512& a) { v::store(to, a); }
[[gnu::noinline]] inline void _mm512_store_si512(void* to, const __m512i& a) { v::store(to, a); }
[[gnu::noinline]] inline void _mm512_mask_store_epi32(void* to, __mmask16 mask, const __m512i& a) {
  v::store_some<std::uint32_t, 16>(to, mask, a);
}
[[gnu::noinline]] inline void _mm512_mask_storeu_epi16(void* to, __mmask32 mask, const __m512i& a) {
  v::store_some<std::uint16_t, 32>(to, mask, a);
}
[[gnu::noinline]] inline __m512i _mm512_maskz_loadu_epi16(__mmask32 mask, const void* from) {
  const auto* const numbers = static_cast<const std::uint16_t*>(from);
  return v::each<v::Halves>([&](int i) { return mask >> i & 1 ? numbers[i] : 0; });
}
[[gnu::noinline]] inline __m512i _mm512_mask_shuffle_epi8(const __m512i& source, __mmask64 mask, const __m512i& a,
                                                          const __m512i& control) {
  return v::shuffle_bytes(source, mask, a, control);
}
[[gnu::noinline]] inline __m512i _mm512_maskz_permutex2var_epi8(__mmask64 mask, const __m512i& low,
                                                                const __m512i& index, const __m512i& high) {
  return v::look_up(mask, low, index, high);
}
[[gnu::noinline]] inline __m512i _mm512_shuffle_i32x4(const __m512i& a, const __m512i& b, int control) {
  return v::shuffle_parts(a, b, control);
}
[[gnu::noinline]] inline __m512i _mm512_unpacklo_epi16(const __m512i& a, const __m512i& b) {
  return v::unpack<std::uint16_t>(a, b, 0);
}
[[gnu::noinline]] inline __m512i _mm512_unpackhi_epi16(const __m512i& a, const __m512i& b) {
  return v::unpack<std::uint16_t>(a, b, 1);
}
[[gnu::noinline]] inline __m512i _mm512_unpacklo_epi32(const __m512i& a, const __m512i& b) {
  return v::unpack<std::uint32_t>(a, b, 0);
}
[[gnu::noinline]] inline __m512i _mm512_unpackhi_epi32(const __m512i& a, const __m512i& b) {
  return v::unpack<std::uint32_t>(a, b, 1);
}
[[gnu::noinline]] inline __m512i _mm512_unpacklo_epi64(const __m512i& a, const __m512i& b) {
  return v::unpack<std::uint64_t>(a, b, 0);
}
[[gnu::noinline]] inline __m512i _mm512_unpackhi_epi64(const __m512i& a, const __m512i& b) {
  return v::unpack<std::uint64_t>(a, b, 1);
}
[[gnu::noinline]] inline __m512i _mm512_set1_epi16(short x) {
  return v::each<v::Halves>([&](int) { return static_cast<std::uint16_t>(x); });
}
[[gnu::noinline]] inline __m512i _mm512_set1_epi32(int x) {
  return v::each<v::Words>([&](int) { return x; });
}
[[gnu::noinline]] inline __m512d _mm512_set1_pd(double x) {
  return v::each<v::Doubles>([&](int) { return x; });
}
[[gnu::noinline]] inline __m512 _mm512_set1_ps(float x) {
  return v::each<v::Floats>([&](int) { return x; });
}
[[gnu::noinline]] inline __m512i _mm512_set_epi32(int x15, int x14, int x13, int x12, int x11, int x10, int x9, int x8,
                                                  int x7, int x6, int x5, int x4, int x3, int x2, int x1, int x0) {
  return v::Words{{x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15}};
}
[[gnu::noinline]] inline __m512 _mm512_setzero_ps() { return __m512{}; }
[[gnu::noinline]] inline __m512i _mm512_setzero_si512() { return __m512i{}; }

}  // namespace fresnel::portable_cpu
HWY_POP_ATTRIBUTES
