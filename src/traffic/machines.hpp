// SPDX-License-Identifier: Apache-2.0
// Machines by name, with the rates that a prediction needs, and the roofline over a count: the longest of the times
// that each unit would take alone. Predictions only; nothing is chosen by them. Source of the roofline: Williams,
// Waterman and Patterson, "Roofline", 2009.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace fresnel::traffic {

/// Rates for each second; nothing where they are not known.
struct Rates {
  std::string_view name;
  std::string_view about;
  std::optional<double> flops;         ///< float32, two for a multiply-add, outside of matrix units
  std::optional<double> exps;          ///< float32 exponentials
  std::optional<double> shared_bytes;  ///< workgroup memory, or the first-level caches
  std::optional<double> memory_bytes;  ///< device memory
  std::int64_t cache_bytes = 0;        ///< the last cache before device memory
  std::int64_t workgroup_bytes = 0;    ///< workgroup memory that one workgroup may take
};

/// The machines known by data sheet: h100, h200, a100, and webgpu, whose limits are promised and whose rates are not.
[[nodiscard]] std::span<const Rates> machines();
[[nodiscard]] const Rates* machine_named(std::string_view name);

/// What is to be done.
struct Work {
  double flops = 0;
  double exps = 0;
  double shared_bytes = 0;
  double memory_bytes = 0;
};

/// Seconds of each unit on its own; nothing where the machine's rate is not known.
struct Roofline {
  struct Part {
    std::string_view name;
    std::optional<double> seconds;
  };
  std::array<Part, 4> parts;

  /// The longest part; null where no rate is known.
  [[nodiscard]] const Part* limit() const;
};

[[nodiscard]] Roofline roofline(const Work& work, const Rates& rates);

}  // namespace fresnel::traffic
