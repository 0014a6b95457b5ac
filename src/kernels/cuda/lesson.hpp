// SPDX-License-Identifier: Apache-2.0
// The lesson's kernels on a CUDA device: what src/traffic emulates and counts, as small plain kernels, so that hardware
// counters can stand beside the count. One head, float32, no mask. They are for measuring and are slow on purpose: one
// thread a query, no matrix unit. Not in the catalogue.
#pragma once

#include <cstdint>

#include "fresnel/result.hpp"

namespace fresnel::cuda {

enum class Lesson : std::uint8_t {
  unfused,  ///< three kernels, the scores written and read back
  fused,    ///< one kernel, query tiles outermost
  broken,   ///< fused, and l is not rescaled when the maximum rises
};

/// Contiguous tensors [n, width] in device memory; `scores` [n, n] for `unfused`, else null.
struct LessonCall {
  const float* q;
  const float* k;
  const float* v;
  float* o;
  float* scores = nullptr;
  std::int64_t n;
  std::int64_t width;  ///< of q, k and v: 16 or 64
  float scale;
};

/// Rows of a tile: the most whose K and V fit 16,384 bytes, at most 128, as the emulation takes.
[[nodiscard]] constexpr std::int64_t lesson_tile(std::int64_t width) {
  const std::int64_t rows = 16384 / (2 * width * 4);
  return rows < 128 ? rows : 128;
}

/// Launches; does not wait. Refuses widths other than 16 and 64, and unfused calls without room for the scores.
[[nodiscard]] Status launch_lesson(Lesson kind, const LessonCall& call);

}  // namespace fresnel::cuda
