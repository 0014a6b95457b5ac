// SPDX-License-Identifier: Apache-2.0
// Tests of single views, shared by describe (which never reads data) and check_indices (which does). Each test answers
// one question about one tensor; what tensors must agree on is describe's business.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "fresnel/view.hpp"
#include "semantics/words.hpp"

namespace fresnel {

/// One argument: its name, where it lies, and what its axes are called, outermost first; `rank` names are in use.
struct Tensor {
  const char* name;
  View view;
  int rank;
  std::array<const char*, View::max_rank> axes{};
};

[[nodiscard]] View as_input(const MutableView& view);

/// "[2,8,64]".
[[nodiscard]] std::string print_sizes(const View& view);

/// Rank (one axis for each name) and sizes of at least 0.
[[nodiscard]] Objection objection_to_shape(const Tensor& tensor);

/// An axis of a tensor and the extent it must have, with the reason ("as in k [2,4,9,64]").
[[nodiscard]] Objection objection_to_extent(const Tensor& tensor, int axis, std::int64_t extent,
                                            const std::string& reason);

/// Last axis contiguous, offsets and addresses within 64 bits, non-null and element-aligned where there are elements.
/// Shape faults must have been ruled out.
[[nodiscard]] Objection objection_to_memory(const Tensor& tensor);

/// No two elements of an output share memory: sorted strides each at least the extent below them.
[[nodiscard]] Objection objection_to_self_overlap(const Tensor& tensor);

/// Refuses an output whose byte range meets that of another tensor. Memory faults must have been ruled out.
[[nodiscard]] Objection objection_to_overlap(const Tensor& output, const Tensor& other);

/// Slopes: float32 [heads] or [batch, heads].
[[nodiscard]] Objection objection_to_slopes(const View& view, std::int64_t batch, std::int64_t heads);

/// Key counts: i32 [batch].
[[nodiscard]] Objection objection_to_seqlens(const View& view, std::int64_t batch);

}  // namespace fresnel
