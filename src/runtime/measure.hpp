// SPDX-License-Identifier: Apache-2.0
// The loops behind the measured ceilings, one version per vector set. Each does a known amount of work and returns a
// value that depends on all of it; timing them is the business of ceilings.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fresnel/machine.hpp"

namespace fresnel {

struct MeasureLoops {
  /// `rounds` rounds of independent multiply-adds on registers. `seeds` holds 64 values in (0.5, 1): the sums stay
  /// normal.
  double (*fma_f32)(const float* seeds, std::int64_t rounds);
  double (*fma_f64)(const double* seeds, std::int64_t rounds);
  double fma_f32_flops;  ///< operations of one round, two per multiply-add
  double fma_f64_flops;
  /// Sum of exp over `count` values (a multiple of 64) in [-20, 0].
  double (*exp_f32)(const float* values, std::int64_t count);
  /// Reads `bytes` bytes (a multiple of 1024, 64-byte aligned) `passes` times.
  std::uint64_t (*read)(const std::byte* data, std::int64_t bytes, std::int64_t passes);
};

/// The loops for a set that `runs_here`.
[[nodiscard]] const MeasureLoops& measure_loops(Isa isa);

}  // namespace fresnel
