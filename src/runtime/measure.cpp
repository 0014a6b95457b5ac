// SPDX-License-Identifier: Apache-2.0
// The loops behind the measured ceilings, compiled once per Highway target. They reach the limits of a core, not those
// of a clever program: registers only for arithmetic, plain streaming loads for bandwidth.
#include "runtime/measure.hpp"

#include <iterator>
#include <numeric>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/measure.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fresnel {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Multiply-adds in flight hide each other's latency: 4 cycles times 2 units need 8, Haswell's 5 times 2 need 10. Beside
// two constants, 12 fit the 16 registers of AVX2; the 32 of AVX-512 and NEON hold 16, which four NEON units need.
#if HWY_TARGET == HWY_AVX2
constexpr std::size_t chains = 12;
#else
constexpr std::size_t chains = 16;
#endif

template <class T>
using Full = hn::ScalableTag<T>;

template <class V, std::size_t... chain>
HWY_INLINE void multiply_add_all(V (&sums)[chains], V factor, V term, std::index_sequence<chain...>) {
  ((sums[chain] = hn::MulAdd(sums[chain], factor, term)), ...);
}

template <class T>
double multiply_adds(const T* seeds, std::int64_t rounds) {
  const Full<T> d;
  using V = hn::Vec<Full<T>>;
  const V factor = hn::LoadU(d, seeds);
  const V term = hn::LoadU(d, seeds + 16);
  V sums[chains];
  for (std::size_t chain = 0; chain < chains; ++chain) sums[chain] = hn::LoadU(d, seeds + 32 + chain);
  for (std::int64_t round = 0; round < rounds; ++round) {
    multiply_add_all(sums, factor, term, std::make_index_sequence<chains>());
  }
  V total = sums[0];
  for (std::size_t chain = 1; chain < chains; ++chain) total = hn::Add(total, sums[chain]);
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, total)));
}

template <class T>
constexpr double flops_per_round() {
  return 2.0 * static_cast<double>(chains) * HWY_LANES(T);
}

/// exp(x) for x in [-20, 0] to about one unit in the last place: x = n ln2 + r with ln2 in two parts (Cody and Waite,
/// Software Manual for the Elementary Functions, 1980, chapter 6), a polynomial in r, n added to the exponent.
template <class V>
HWY_INLINE V exp_of(V x) {
  const Full<float> d;
  const Full<std::int32_t> di;
  const V shift = hn::Set(d, 0x1.8p23f);  // adding it leaves the nearest integer in the low bits
  const V shifted = hn::MulAdd(x, hn::Set(d, 0x1.715476p0f), shift);
  const V n = hn::Sub(shifted, shift);
  V r = hn::NegMulAdd(n, hn::Set(d, 0x1.63p-1f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -0x1.bd0106p-13f), r);
  V value = hn::MulAdd(hn::Set(d, 1.0f / 720), r, hn::Set(d, 1.0f / 120));
  value = hn::MulAdd(value, r, hn::Set(d, 1.0f / 24));
  value = hn::MulAdd(value, r, hn::Set(d, 1.0f / 6));
  value = hn::MulAdd(value, r, hn::Set(d, 0.5f));
  value = hn::MulAdd(value, r, hn::Set(d, 1.0f));
  value = hn::MulAdd(value, r, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, value), exponent));
}

double exp_sum(const float* values, std::int64_t count) {
  const Full<float> d;
  constexpr std::int64_t lanes = HWY_LANES(float);
  auto even = hn::Zero(d), odd = hn::Zero(d);
  for (std::int64_t at = 0; at < count; at += 2 * lanes) {
    even = hn::Add(even, exp_of(hn::LoadU(d, values + at)));
    odd = hn::Add(odd, exp_of(hn::LoadU(d, values + at + lanes)));
  }
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd))));
}

template <class V, std::size_t... chain>
HWY_INLINE void add_loaded(V (&sums)[8], const std::uint64_t* from, std::index_sequence<chain...>) {
  const Full<std::uint64_t> d;
  ((sums[chain] = hn::Add(sums[chain], hn::Load(d, from + chain * HWY_LANES(std::uint64_t)))), ...);
}

std::uint64_t read(const std::byte* data, std::int64_t bytes, std::int64_t passes) {
  const Full<std::uint64_t> d;
  using V = hn::Vec<Full<std::uint64_t>>;
  constexpr std::int64_t step = 8 * HWY_LANES(std::uint64_t);
  const std::int64_t words = bytes / 8;
  V sums[8];
  for (V& sum : sums) sum = hn::Zero(d);
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    const auto* from = reinterpret_cast<const std::uint64_t*>(data);
    asm volatile("" : "+r"(from) : : "memory");  // every pass reads again
    for (std::int64_t at = 0; at < words; at += step) add_loaded(sums, from + at, std::make_index_sequence<8>());
  }
  HWY_ALIGN std::uint64_t lanes[8 * HWY_LANES(std::uint64_t)];
  for (int chain = 0; chain < 8; ++chain) hn::Store(sums[chain], d, lanes + chain * HWY_LANES(std::uint64_t));
  return std::accumulate(std::begin(lanes), std::end(lanes), std::uint64_t{0});
}

const MeasureLoops loops{
    .fma_f32 = &multiply_adds<float>,
    .fma_f64 = &multiply_adds<double>,
    .fma_f32_flops = flops_per_round<float>(),
    .fma_f64_flops = flops_per_round<double>(),
    .exp_f32 = &exp_sum,
    .read = &read,
};

}  // namespace HWY_NAMESPACE
}  // namespace fresnel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fresnel {

const MeasureLoops& measure_loops(Isa isa) {
  switch (isa) {
#if HWY_TARGETS & HWY_AVX3
    case Isa::avx3: return N_AVX3::loops;
#endif
#if HWY_TARGETS & HWY_AVX2
    case Isa::avx2: return N_AVX2::loops;
#endif
#if HWY_TARGETS & HWY_NEON
    case Isa::neon: return N_NEON::loops;
#endif
    default: return HWY_STATIC_DISPATCH(loops);
  }
}

}  // namespace fresnel
#endif  // HWY_ONCE
