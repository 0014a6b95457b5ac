// SPDX-License-Identifier: Apache-2.0
// Small helpers for wording refusals inside the law room, so that every "no" about a problem or a view reads alike.
// Decides nothing: whoever calls has already found the fault.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "fresnel/result.hpp"
#include "fresnel/view.hpp"

namespace fresnel {

/// What a test of one rule finds: a refusal, or nothing to object to.
using Objection = std::optional<Refusal>;

/// A refusal that holds for every kernel.
[[nodiscard]] inline Refusal refuse(std::string argument, std::string given, std::string accepted,
                                    std::string nearest = {}) {
  return {Fault::bad_input, {}, std::move(argument), std::move(given), std::move(accepted), std::move(nearest)};
}

/// The dtype's name, also for a value outside the enumeration (a Problem may come from a cast).
[[nodiscard]] inline std::string spell(DType dtype) {
  const auto value = static_cast<unsigned>(dtype);
  return value <= static_cast<unsigned>(DType::boolean) ? std::string(name(dtype)) : fmt::format("dtype({})", value);
}

/// True for the four dtypes attention runs on.
[[nodiscard]] constexpr bool is_attention_dtype(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

}  // namespace fresnel
