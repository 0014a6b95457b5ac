// SPDX-License-Identifier: Apache-2.0
// Vector primitives of the CPU kernels, compiled once per Highway target: loads that widen half types, loads of row
// tails that never touch the next row, and exp and tanh with declared errors.

#if defined(FRESNEL_KERNELS_CPU_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FRESNEL_KERNELS_CPU_VECTOR_INL_H_
#undef FRESNEL_KERNELS_CPU_VECTOR_INL_H_
#else
#define FRESNEL_KERNELS_CPU_VECTOR_INL_H_
#endif

#include <concepts>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/element.hpp"

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Full = hn::ScalableTag<T>;
template <class T>
using Vector = hn::Vec<Full<T>>;

/// Lanes of a vector of T; a constant on every target fresnel is compiled for.
template <class T>
inline constexpr std::int64_t lanes_of = HWY_LANES(T);

template <class T>
HWY_INLINE Vector<T> load(const T* from) {
  return hn::LoadU(Full<T>(), from);
}

HWY_INLINE Vector<float> widen(BFloat16, hn::Vec<hn::Rebind<std::uint16_t, Full<float>>> bits) {
  const Full<float> d;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<Full<float>>(), bits)));
}

HWY_INLINE Vector<float> widen(Float16, hn::Vec<hn::Rebind<std::uint16_t, Full<float>>> bits) {
  const Full<float> d;
#if HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, Full<float>>(), bits));
#else
  // As f16_to_float: the pattern read as a float is 2^-112 times the value; only Inf and NaN need a patch.
  const hn::RebindToUnsigned<Full<float>> du;
  const auto wide = hn::PromoteTo(du, bits);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du, 0x7fffu)));
  const auto finite = hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f));
  const auto special = hn::BitCast(d, hn::Add(magnitude, hn::Set(du, 0x70000000u)));
  const auto is_special = hn::Ge(hn::BitCast(d, magnitude), hn::BitCast(d, hn::Set(du, 0x0f800000u)));
  return hn::Or(hn::IfThenElse(is_special, special, finite), hn::BitCast(d, sign));
#endif
}

template <class Half>
requires(!reads_in_place<Half>) HWY_INLINE Vector<float> load(const Half* from) {
  const hn::Rebind<std::uint16_t, Full<float>> dh;
  return widen(Half{}, hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(from)));
}

/// The first `count` elements, zero in the other lanes; reads nothing beyond them.
template <class In>
HWY_INLINE Vector<Real<In>> load_first(const In* from, std::int64_t count) {
#if HWY_TARGET <= HWY_AVX2
  if constexpr (reads_in_place<In>) {
    const Full<In> d;
    return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, from);
  }
#endif
  HWY_ALIGN In padded[lanes_of<Real<In>>] = {};
  for (std::int64_t lane = 0; lane < count; ++lane) padded[lane] = from[lane];
  return load(padded);
}

/// exp of double: minimax on |r| <= ln2 / 2, relative error 3.6e-18 with c0 = c1 = 1, so that exp(0) is exactly 1. ln2
/// is split so that n * ln2_high is exact.
struct WideExp {
  static constexpr double coefficients[] = {0x1.ad7f771a51dafp-26,
                                            0x1.28ad6bf8553dfp-22,
                                            0x1.71df2541fea82p-19,
                                            0x1.a0199a137204dp-16,
                                            0x1.a01a012a63d9ep-13,
                                            0x1.6c16c184279eep-10,
                                            0x1.1111111127bb3p-7,
                                            0x1.5555555550887p-5,
                                            0x1.55555555554fap-3,
                                            0x1.000000000000ap-1,
                                            1.0,
                                            1.0};
  static constexpr double ln2_high = 0x1.62e42p-1, ln2_low = 0x1.fdf473de6af28p-22, log2e = 0x1.71547652b82fep0;
  static constexpr double round_shift = 0x1.8p52 + 1023;
  static constexpr double cutoff = -709;  ///< between ln 2^-1023 and ln 2^-1022.5: gives 2^-1023, that is 0
};

/// 2^f as a polynomial with c0 = 1, minimax in relative error (2.0e-9 on both intervals).
struct ShortExp {
  static constexpr float nearest[] = {0x1.41fbbcp-13f,
                                      0x1.5f3e52p-10f,
                                      0x1.3b2d4cp-7f,
                                      0x1.c6aee8p-5f,
                                      0x1.ebfbdcp-3f,
                                      0x1.62e43p-1f,
                                      1.0f};  ///< -0.5 <= f <= 0.5
  static constexpr float fraction[] = {0x1.c54174p-13f,
                                       0x1.46d64ep-10f,
                                       0x1.3d0b92p-7f,
                                       0x1.c68912p-5f,
                                       0x1.ebfd58p-3f,
                                       0x1.62e42cp-1f,
                                       1.0f};  ///< 0 <= f < 1
  static constexpr float log2e = 0x1.715476p0f;
  static constexpr float round_shift =
      0x1.8p23f + 127;                  ///< adding it leaves the nearest integer, biased, in the low bits
  static constexpr float cutoff = -88;  ///< between ln 2^-127 and ln 2^-126.5: gives 2^-127, that is 0
};

/// Horner's scheme, highest power first.
template <class T, int terms>
HWY_INLINE Vector<T> polynomial(const T (&coefficients)[terms], Vector<T> x) {
  const Full<T> d;
  auto value = hn::Set(d, coefficients[0]);
  for (int term = 1; term < terms; ++term) value = hn::MulAdd(value, x, hn::Set(d, coefficients[term]));
  return value;
}

/// The larger of both, NaN where x is.
template <class T>
HWY_INLINE Vector<T> at_least(Vector<T> least, Vector<T> x) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  return hn::Max(least, x);  // the second operand where one is NaN; elsewhere the one that is not
#else
  return hn::IfThenElse(hn::Lt(x, least), least, x);
#endif
}

/// 2^n from a number whose low bits hold n and the bias of exponents: in the exponent's place they are 2^n, or 0.
template <int mantissa_bits, class T>
HWY_INLINE Vector<T> power_of_two(Vector<T> shifted) {
  const hn::RebindToSigned<Full<T>> di;
  return hn::BitCast(Full<T>(), hn::ShiftLeft<mantissa_bits>(hn::BitCast(di, shifted)));
}

/// exp(x) for x <= 0, -inf and NaN included, exactly 1 at 0; subnormal or 0 where the result would be subnormal (the
/// roundings declare it as least_exp). Relative error below 2 u, for float (2 + 1.25 abs(x)) u: x log2 e is one rounded
/// number there.
template <class T>
requires std::same_as<T, double> HWY_INLINE Vector<T> exp_nonpositive(Vector<T> x) {
  const Full<T> d;
  x = at_least<T>(hn::Set(d, WideExp::cutoff), x);
  const auto shift = hn::Set(d, WideExp::round_shift);
  const auto shifted = hn::MulAdd(x, hn::Set(d, WideExp::log2e), shift);
  const auto n = hn::Sub(shifted, shift);
  const auto r = hn::NegMulAdd(n, hn::Set(d, WideExp::ln2_high), x);
  const auto value = polynomial(WideExp::coefficients, hn::NegMulAdd(n, hn::Set(d, WideExp::ln2_low), r));
  return hn::Mul(value, power_of_two<52, T>(shifted));
}
template <class T>
requires std::same_as<T, float> HWY_INLINE Vector<T> exp_nonpositive(Vector<T> x) {
  const Full<T> d;
#if HWY_TARGET <= HWY_AVX3
  const auto exponent = hn::Mul(x, hn::Set(d, ShortExp::log2e));
  const Vector<T> f{_mm512_reduce_ps(exponent.raw, 0x09)};  // less its floor; 0 where it is -inf
  return Vector<T>{_mm512_scalef_ps(polynomial(ShortExp::fraction, f).raw, exponent.raw)};  // floors it itself
#else
  const auto exponent = hn::Mul(at_least<T>(hn::Set(d, ShortExp::cutoff), x), hn::Set(d, ShortExp::log2e));
  const auto shift = hn::Set(d, ShortExp::round_shift), shifted = hn::Add(exponent, shift);
  const auto f = hn::Sub(exponent, hn::Sub(shifted, shift));
  return hn::Mul(polynomial(ShortExp::nearest, f), power_of_two<23, T>(shifted));  // a NaN stays one
#endif
}

/// c tanh(s / c): Highway's tanh, declared at 8 u, one division and one product. It converts its argument to an
/// integer, which for NaN is undefined behaviour on the baseline, so NaN goes around it.
template <class T>
HWY_INLINE Vector<T> soft_capped(Vector<T> s, T softcap) {
  const Full<T> d;
  const auto c = hn::Set(d, softcap);
  const auto is_number = hn::Eq(s, s);
  return hn::IfThenElse(is_number, hn::Mul(c, hn::CallTanh(d, hn::Div(hn::IfThenElseZero(is_number, s), c))), s);
}

/// Sum of the lanes in a fixed order.
template <class T>
HWY_INLINE T sum_of(Vector<T> v) {
  return hn::GetLane(hn::SumOfLanes(Full<T>(), v));
}

template <class T>
HWY_INLINE T max_of(Vector<T> v) {
  return hn::GetLane(hn::MaxOfLanes(Full<T>(), v));
}

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard toggled per target
