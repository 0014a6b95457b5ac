// SPDX-License-Identifier: Apache-2.0
// Tests of single views: shapes, strides and addresses, never data. All arithmetic is checked, so that a hostile view
// is refused instead of wrapped.
#include "semantics/views.hpp"

#include <algorithm>

namespace fresnel {
namespace {

std::string print_row(const std::array<std::int64_t, View::max_rank>& row, int rank) {
  std::string text = "[";
  for (int axis = 0; axis < std::min(rank, View::max_rank); ++axis)
    text += fmt::format("{}{}", axis > 0 ? "," : "", row[axis]);
  return text + (rank > View::max_rank ? ",...]" : "]");
}

std::string print_axes(const Tensor& tensor) {
  std::string text = "[";
  for (int axis = 0; axis < tensor.rank; ++axis) text += fmt::format("{}{}", axis > 0 ? ", " : "", tensor.axes[axis]);
  return text + "]";
}

bool has_elements(const View& view) {
  for (int axis = 0; axis < view.rank; ++axis)
    if (view.sizes[axis] == 0) return false;
  return true;
}

/// Addresses a view touches, half-open.
struct ByteRange {
  std::uintptr_t first = 0;
  std::uintptr_t last = 0;
};

/// The bytes of a view with elements; nothing when an offset or an address overflows.
std::optional<ByteRange> bytes_of(const View& view) {
  std::int64_t lowest = 0, highest = 1;  // in elements from the base, half-open
  for (int axis = 0; axis < view.rank; ++axis) {
    std::int64_t reach;  // 0 for an axis of length 1, whatever its stride
    if (__builtin_mul_overflow(view.sizes[axis] - 1, view.strides[axis], &reach)) return std::nullopt;
    std::int64_t& end = reach < 0 ? lowest : highest;
    if (__builtin_add_overflow(end, reach, &end)) return std::nullopt;
  }
  const std::int64_t width = size_of(view.dtype);
  const auto base = reinterpret_cast<std::uintptr_t>(view.data);
  ByteRange range;
  if (__builtin_mul_overflow(lowest, width, &lowest) || __builtin_mul_overflow(highest, width, &highest) ||
      __builtin_add_overflow(base, lowest, &range.first) || __builtin_add_overflow(base, highest, &range.last))
    return std::nullopt;
  return range;
}

}  // namespace

View as_input(const MutableView& view) {
  View input;
  input.data = view.data;
  input.dtype = view.dtype;
  input.rank = view.rank;
  input.sizes = view.sizes;
  input.strides = view.strides;
  input.device = view.device;
  return input;
}

std::string print_sizes(const View& view) { return print_row(view.sizes, view.rank); }

Objection objection_to_shape(const Tensor& tensor) {
  const View& view = tensor.view;
  if (view.rank != tensor.rank)
    return refuse(tensor.name, fmt::format("rank {} {}", view.rank, print_sizes(view)),
                  fmt::format("rank {} {}", tensor.rank, print_axes(tensor)));
  for (int axis = 0; axis < view.rank; ++axis)
    if (view.sizes[axis] < 0)
      return refuse(
          tensor.name,
          fmt::format("size {} on axis {} ({}) of {}", view.sizes[axis], axis, tensor.axes[axis], print_sizes(view)),
          "sizes of at least 0");
  return std::nullopt;
}

Objection objection_to_extent(const Tensor& tensor, int axis, std::int64_t extent, const std::string& reason) {
  const std::int64_t given = tensor.view.sizes[axis];
  if (given == extent) return std::nullopt;
  const char* label = tensor.axes[axis];
  return refuse(tensor.name, fmt::format("{} = {} (axis {} of {})", label, given, axis, print_sizes(tensor.view)),
                fmt::format("{} = {}, {}", label, extent, reason), fmt::format("{}", extent));
}

Objection objection_to_memory(const Tensor& tensor) {
  const View& view = tensor.view;
  const int last = view.rank - 1;
  if (view.sizes[last] > 1 && view.strides[last] != 1)
    return refuse(tensor.name, fmt::format("stride {} on the last axis ({})", view.strides[last], tensor.axes[last]),
                  "a contiguous last axis (stride 1)", "1");
  if (!has_elements(view)) return std::nullopt;
  if (view.data == nullptr)
    return refuse(tensor.name, fmt::format("a null pointer for shape {}", print_sizes(view)),
                  "an address (null only when there are no elements)");
  const auto width = static_cast<std::uintptr_t>(size_of(view.dtype));
  if (reinterpret_cast<std::uintptr_t>(view.data) % width != 0)
    return refuse(tensor.name, fmt::format("address {}", fmt::ptr(view.data)),
                  fmt::format("a multiple of {} bytes, the size of {}", width, spell(view.dtype)));
  if (!bytes_of(view))
    return refuse(tensor.name,
                  fmt::format("shape {} with strides {}", print_sizes(view), print_row(view.strides, view.rank)),
                  "sizes and strides whose byte offsets and addresses fit in 64 bits");
  return std::nullopt;
}

Objection objection_to_self_overlap(const Tensor& tensor) {
  const View& view = tensor.view;
  if (!has_elements(view)) return std::nullopt;
  std::array<int, View::max_rank> axes{};  // those longer than 1, by rising stride
  std::size_t count = 0;
  for (int axis = 0; axis < view.rank; ++axis) {
    if (view.sizes[axis] <= 1) continue;
    std::size_t place = count++;
    for (; place > 0 && view.strides[axes[place - 1]] > view.strides[axis]; --place) axes[place] = axes[place - 1];
    axes[place] = axis;
  }
  std::int64_t extent = 1;  // elements from the first to the last of the axes below; bytes_of has ruled out overflow
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t stride = view.strides[axes[i]];
    if (stride < extent)
      return refuse(tensor.name,
                    fmt::format("shape {} with strides {}, where axis {} steps by {} over the {} elements of the axes "
                                "below it",
                                print_sizes(view), print_row(view.strides, view.rank), axes[i], stride, extent),
                    "an output that does not overlap itself");
    extent += stride * (view.sizes[axes[i]] - 1);
  }
  return std::nullopt;
}

Objection objection_to_overlap(const Tensor& output, const Tensor& other) {
  if (!has_elements(output.view) || !has_elements(other.view)) return std::nullopt;
  if (output.view.device != other.view.device) return std::nullopt;
  const std::optional<ByteRange> mine = bytes_of(output.view), theirs = bytes_of(other.view);
  if (!mine || !theirs || mine->last <= theirs->first || theirs->last <= mine->first) return std::nullopt;
  return refuse(output.name,
                fmt::format("bytes [{:#x}, {:#x}), which meet {} at [{:#x}, {:#x})", mine->first, mine->last,
                            other.name, theirs->first, theirs->last),
                "an output whose byte range meets no other tensor's");
}

Objection objection_to_slopes(const View& view, std::int64_t batch, std::int64_t heads) {
  const Tensor tensor =
      view.rank == 2 ? Tensor{"alibi_slopes", view, 2, {"batch", "heads"}} : Tensor{"alibi_slopes", view, 1, {"heads"}};
  if (view.rank != 1 && view.rank != 2)
    return refuse(tensor.name, fmt::format("rank {} {}", view.rank, print_sizes(view)),
                  "rank 1 [heads] or rank 2 [batch, heads]");
  if (auto fault = objection_to_shape(tensor)) return fault;
  if (view.dtype != DType::f32) return refuse(tensor.name, spell(view.dtype), "f32", "f32");
  if (view.rank == 2)
    if (auto fault = objection_to_extent(tensor, 0, batch, "the batch of q")) return fault;
  if (auto fault = objection_to_extent(tensor, view.rank - 1, heads, "the heads of q")) return fault;
  return objection_to_memory(tensor);
}

Objection objection_to_seqlens(const View& view, std::int64_t batch) {
  const Tensor tensor{"seqlens_k", view, 1, {"batch"}};
  if (auto fault = objection_to_shape(tensor)) return fault;
  if (view.dtype != DType::i32) return refuse(tensor.name, spell(view.dtype), "i32", "i32");
  if (auto fault = objection_to_extent(tensor, 0, batch, "the batch of q")) return fault;
  return objection_to_memory(tensor);
}

}  // namespace fresnel
