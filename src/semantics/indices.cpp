// SPDX-License-Identifier: Apache-2.0
// Faults of the index arrays and slopes, element by element. The only file of this room that reads data, and only on
// the host: arrays that lie on a device are never read here (kernels clamp lengths there).
#include <cmath>

#include "fresnel/plan.hpp"
#include "semantics/views.hpp"

namespace fresnel {
namespace {

/// An array that the problem says is given must be there, and none that it does not mention.
Objection objection_to_presence(const char* name, bool expected, bool given) {
  if (expected == given) return std::nullopt;
  return refuse(name, given ? "an array that the problem does not have" : "nothing",
                expected ? "the array that the problem has" : "nothing");
}

Objection objection_to_lengths(const Problem& problem, const View& view) {
  if (auto fault = objection_to_seqlens(view, problem.batch)) return fault;
  if (view.device != Device::cpu) return std::nullopt;
  const auto* lengths = static_cast<const std::int32_t*>(view.data);
  for (std::int64_t b = 0; b < problem.batch; ++b)
    if (lengths[b] < 0 || lengths[b] > problem.keys)
      return refuse(fmt::format("seqlens_k[{}]", b), fmt::format("{}", lengths[b]),
                    fmt::format("a key count from 0 to {}", problem.keys),
                    fmt::format("{}", lengths[b] < 0 ? 0 : problem.keys));
  return std::nullopt;
}

Objection objection_to_slope_values(const Problem& problem, const View& view) {
  if (auto fault = objection_to_slopes(view, problem.batch, problem.heads_q)) return fault;
  const bool per_batch = problem.alibi_slopes == AlibiSlopes::per_batch_and_head;
  if (view.rank != (per_batch ? 2 : 1))
    return refuse("alibi_slopes", fmt::format("rank {} {}", view.rank, print_sizes(view)),
                  per_batch ? "rank 2 [batch, heads], as the problem says" : "rank 1 [heads], as the problem says");
  if (view.device != Device::cpu) return std::nullopt;
  const auto* slopes = static_cast<const float*>(view.data);
  for (std::int64_t b = 0; b < (per_batch ? problem.batch : 1); ++b)
    for (std::int64_t h = 0; h < problem.heads_q; ++h) {
      // The stride of an axis of length 1 is ignored, so it may be anything.
      const float slope = slopes[(b > 0 ? b * view.strides[0] : 0) + h];
      if (!std::isfinite(slope))
        return refuse(per_batch ? fmt::format("alibi_slopes[{},{}]", b, h) : fmt::format("alibi_slopes[{}]", h),
                      fmt::format("{}", slope), "a finite number");
    }
  return std::nullopt;
}

}  // namespace

Status check_indices(const Problem& problem, const Inputs& inputs) {
  const bool slopes_expected = problem.alibi_slopes != AlibiSlopes::none;
  if (auto fault = objection_to_presence("alibi_slopes", slopes_expected, inputs.alibi_slopes.has_value()))
    return *std::move(fault);
  if (auto fault = objection_to_presence("seqlens_k", problem.seqlens_k, inputs.seqlens_k.has_value()))
    return *std::move(fault);
  if (inputs.alibi_slopes)
    if (auto fault = objection_to_slope_values(problem, *inputs.alibi_slopes)) return *std::move(fault);
  if (inputs.seqlens_k)
    if (auto fault = objection_to_lengths(problem, *inputs.seqlens_k)) return *std::move(fault);
  return Done{};
}

}  // namespace fresnel
