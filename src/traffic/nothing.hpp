// SPDX-License-Identifier: Apache-2.0
// What stands where a number would on machines that count or trace and compute nothing.
#pragma once

#include <cstdint>

namespace fresnel::traffic {

/// Every operation on it is one more nothing.
struct Nothing {
  constexpr Nothing() = default;
  constexpr Nothing(float) {}  // constants in kernels become nothing, too
};
constexpr Nothing operator+(Nothing, Nothing) { return {}; }
constexpr Nothing operator-(Nothing, Nothing) { return {}; }
constexpr Nothing operator*(Nothing, Nothing) { return {}; }
constexpr Nothing operator/(Nothing, Nothing) { return {}; }
constexpr Nothing larger(Nothing, Nothing) { return {}; }

/// A row of registers.
struct NoRow {
  static inline Nothing element;
  Nothing& operator[](std::int64_t) const { return element; }
};

}  // namespace fresnel::traffic
