// SPDX-License-Identifier: Apache-2.0
// What a tensor looks like in memory: a pointer, a dtype, sizes and 64-bit strides in elements. A view owns nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#pragma GCC visibility push(default)  // what stands below is what a shared library exports

namespace fresnel {

/// Element types. Attention runs on f64, f32, f16 and bf16; i32 and boolean serve index arrays and masks.
enum class DType : std::uint8_t { f64, f32, f16, bf16, i32, boolean };

/// "f64", "f32", "f16", "bf16", "i32", "bool".
[[nodiscard]] constexpr std::string_view name(DType dtype) {
  constexpr std::array<std::string_view, 6> names{"f64", "f32", "f16", "bf16", "i32", "bool"};
  return names[static_cast<std::size_t>(dtype)];
}

/// Bytes per element.
[[nodiscard]] constexpr std::int64_t size_of(DType dtype) {
  constexpr std::array<std::int64_t, 6> sizes{8, 4, 2, 2, 4, 1};
  return sizes[static_cast<std::size_t>(dtype)];
}

enum class Device : std::uint8_t { cpu, cuda, webgpu };

[[nodiscard]] constexpr std::string_view name(Device device) {
  constexpr std::array<std::string_view, 3> names{"cpu", "cuda", "webgpu"};
  return names[static_cast<std::size_t>(device)];
}

/// A tensor of up to four axes. `Pointer` is `const void*` for inputs and `void*` for outputs.
///
/// Rules (checked by `describe`): any element-aligned address; outer strides are free on inputs, zero and negative
/// included; the last axis is contiguous; the stride of an axis of length 1 is ignored. Outputs must not overlap
/// themselves or any input.
template <class Pointer>
struct BasicView {
  static constexpr int max_rank = 4;

  Pointer data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, max_rank> sizes{};    ///< in elements, outermost axis first
  std::array<std::int64_t, max_rank> strides{};  ///< in elements
  Device device = Device::cpu;

  BasicView() = default;

  /// A contiguous view. More than `max_rank` sizes show in `rank` and are refused by `describe`.
  BasicView(Pointer data_, DType dtype_, std::initializer_list<std::int64_t> sizes_) : data(data_), dtype(dtype_) {
    for (const std::int64_t size : sizes_) {
      if (rank < max_rank) sizes[rank] = size;
      ++rank;
    }
    std::uint64_t stride = 1;  // wraps for sizes that describe refuses
    for (int axis = (rank < max_rank ? rank : max_rank) - 1; axis >= 0; --axis) {
      strides[axis] = static_cast<std::int64_t>(stride);
      stride *= static_cast<std::uint64_t>(sizes[axis] > 0 ? sizes[axis] : 1);
    }
  }

  /// A view with explicit strides in elements, one for each size.
  BasicView(Pointer data_, DType dtype_, std::initializer_list<std::int64_t> sizes_,
            std::initializer_list<std::int64_t> strides_)
      : BasicView(data_, dtype_, sizes_) {
    int axis = 0;
    for (const std::int64_t stride : strides_)
      if (axis < rank && axis < max_rank) strides[axis++] = stride;
  }

  /// The same tensor with two axes exchanged; makes [B, S, H, D] memory a [B, H, S, D] view.
  [[nodiscard]] BasicView transposed(int first, int second) const {
    BasicView view = *this;
    std::swap(view.sizes[first], view.sizes[second]);
    std::swap(view.strides[first], view.strides[second]);
    return view;
  }

  [[nodiscard]] std::int64_t elements() const {
    std::int64_t count = 1;
    for (int axis = 0; axis < rank && axis < max_rank; ++axis) count *= sizes[axis];
    return count;
  }
};

/// An input tensor.
using View = BasicView<const void*>;
/// An output tensor.
using MutableView = BasicView<void*>;

}  // namespace fresnel

#pragma GCC visibility pop
