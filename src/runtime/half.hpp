// SPDX-License-Identifier: Apache-2.0
// Half-precision bit patterns to float and back, in portable integer code: exact on the way in, round to nearest even
// on the way out, NaN stays NaN (quieted), overflow becomes infinity, subnormals are kept.
#pragma once

#include <cstdint>
#include <cstring>

#include "fresnel/view.hpp"

namespace fresnel {

[[nodiscard]] inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

[[nodiscard]] inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

[[nodiscard]] inline float bf16_to_float(std::uint16_t half) {
  return float_of(static_cast<std::uint32_t>(half) << 16);
}

[[nodiscard]] inline std::uint16_t float_to_bf16(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);  // ties to even
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<std::uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded >> 16);
}

[[nodiscard]] inline float f16_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7fffu) << 13;
  if (magnitude >= 0x0f800000u) return float_of(sign | (magnitude + 0x70000000u));  // Inf and NaN
  if (magnitude >= 0x00800000u) return float_of(sign | (magnitude + 0x38000000u));  // normal: another bias, 112 more
  // Subnormal: the mantissa counts units of 2^-24. No float here is subnormal, so threads that flush those agree too.
  return float_of(sign | bits_of(static_cast<float>(magnitude >> 13) * 0x1p-24f));
}

[[nodiscard]] inline std::uint16_t float_to_f16(float value) {
  const std::uint32_t bits = bits_of(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // NaN
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {                        // below 2^-14: subnormal
    // Adding 1/2 aligns the 10 bits that survive with the end of the mantissa; the addition itself rounds to even.
    return sign | static_cast<std::uint16_t>(bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return sign | static_cast<std::uint16_t>((rounded - 0x38000000u) >> 13);
}

/// Reads element `index` of a buffer of `dtype` (f64, f32, f16, bf16) as double, exactly.
[[nodiscard]] inline double load_as_double(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f64: return static_cast<const double*>(data)[index];
    case DType::f32: return static_cast<const float*>(data)[index];
    case DType::f16: return f16_to_float(static_cast<const std::uint16_t*>(data)[index]);
    default: return bf16_to_float(static_cast<const std::uint16_t*>(data)[index]);
  }
}

}  // namespace fresnel
