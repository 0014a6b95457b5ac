// SPDX-License-Identifier: Apache-2.0
// A tensor that tests own: any dtype, any placement in memory, every byte that is not an element filled with 0xff (a
// NaN in every float type) and watched. Elements are read and written as double. It refuses to be fast.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "fresnel/problem.hpp"
#include "fresnel/view.hpp"

namespace fresnel::test {

using Index = std::array<std::int64_t, 4>;

/// Memory that starts on a cache line, so that a copy of a tensor has the alignment of the original.
template <class Element>
struct CacheLineAllocator {
  using value_type = Element;
  static constexpr std::align_val_t alignment{64};

  CacheLineAllocator() = default;
  template <class Other>
  CacheLineAllocator(const CacheLineAllocator<Other>&) {}
  [[nodiscard]] Element* allocate(std::size_t count) {
    return static_cast<Element*>(::operator new(count * sizeof(Element), alignment));
  }
  void deallocate(Element* memory, std::size_t) { ::operator delete(memory, alignment); }
  bool operator==(const CacheLineAllocator&) const = default;
};
using AlignedBytes = std::vector<std::byte, CacheLineAllocator<std::byte>>;

/// How a [B, H, S, D] tensor (or one of lower rank) lies in memory.
struct Placement {
  AxisOrder order = AxisOrder::bhsd;
  std::int64_t shift = 0;          ///< elements between a 64-byte boundary and the first element
  std::int64_t row_padding = 0;    ///< unused elements after every innermost row
  std::array<bool, 4> reversed{};  ///< outer axes stored backwards: negative strides
  std::array<bool, 4> expanded{};  ///< outer axes stored once: stride 0
};

/// The placement that belongs to a layout class for rows of `width` elements.
[[nodiscard]] Placement placement_of(const LayoutClass& layout, DType dtype, std::int64_t width);

class HostTensor {
 public:
  HostTensor(DType dtype, const std::vector<std::int64_t>& sizes, const Placement& placement = {});

  [[nodiscard]] View view() const;
  [[nodiscard]] MutableView mutable_view();
  [[nodiscard]] DType dtype() const { return shape_.dtype; }
  [[nodiscard]] std::int64_t size(int axis) const { return shape_.sizes[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] std::int64_t elements() const { return shape_.elements(); }

  /// Lower ranks use the first indices.
  [[nodiscard]] double get(const Index& index) const;
  void set(const Index& index, double value);

  /// Calls value(index) for every element and stores what it returns, rounded to the dtype.
  template <class Value>
  void fill(Value&& value) {
    for_each_index([&](const Index& index) { set(index, value(index)); });
  }
  template <class Visit>
  void for_each_index(Visit&& visit) const {
    const auto extent = [&](int axis) { return axis < shape_.rank ? size(axis) : 1; };
    for (std::int64_t a = 0; a < extent(0); ++a)
      for (std::int64_t b = 0; b < extent(1); ++b)
        for (std::int64_t c = 0; c < extent(2); ++c)
          for (std::int64_t d = 0; d < extent(3); ++d) visit(Index{a, b, c, d});
  }

  /// The raw bits of one element, for comparisons that must be exact.
  [[nodiscard]] std::uint64_t bits(const Index& index) const;
  /// Whether every byte outside the elements still holds its filling.
  [[nodiscard]] bool guards_intact() const;

 private:
  static constexpr std::size_t guard_bytes = 256;
  static constexpr std::byte filling{0xff};

  [[nodiscard]] std::int64_t offset(const Index& index) const;
  [[nodiscard]] const std::byte* base() const { return bytes_.data() + guard_bytes; }
  [[nodiscard]] std::byte* base() { return bytes_.data() + guard_bytes; }

  View shape_;              ///< sizes and strides; data is set when a view is asked for
  std::int64_t first_ = 0;  ///< element offset of index 0 from the 64-byte boundary
  AlignedBytes bytes_;      ///< guard, elements and padding, guard
};

/// Stores `value`, rounded to `dtype`, at an address that need not be aligned.
void store_element(void* data, DType dtype, double value);

/// "[1, 0, 3, 2]".
[[nodiscard]] std::string print(const Index& index);

/// The element of `dtype` nearest to `value`, as double.
[[nodiscard]] double rounded(DType dtype, double value);

/// The largest finite value of a float type.
[[nodiscard]] double largest(DType dtype);

}  // namespace fresnel::test
