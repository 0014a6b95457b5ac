// SPDX-License-Identifier: Apache-2.0
// Formulas as text: `2 * b * hq * visible_pairs * (d + dv)`. A contract prints its cost formulas for whoever plans with
// them, and what is printed is what is evaluated here. Knows numbers, names, + - * / ( ), min and max; no formula can
// do anything but give a number.
#pragma once

#include <span>
#include <string_view>

#include "fresnel/result.hpp"

namespace fresnel {

/// A name that formulas may use, and its value.
struct Symbol {
  std::string_view name;
  double value = 0;
};

/// The value of a formula, computed in double from left to right. Refuses, as `formula`, what is no formula and names
/// that are no symbol.
[[nodiscard]] Result<double> evaluate(std::string_view formula, std::span<const Symbol> symbols);

}  // namespace fresnel
