// SPDX-License-Identifier: Apache-2.0
// A tensor that tests own: any dtype, any placement in memory, every byte that is not an element filled with 0xff (a
// NaN in every float type) and watched. Elements are read and written as double. It refuses to be fast.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fresnel/problem.hpp"
#include "fresnel/view.hpp"

namespace fresnel::test {

using Index = std::array<std::int64_t, 4>;

/// Memory that starts on a cache line, so that a copy of a tensor has the alignment of the original. Not a vector:
/// filled and compared in one piece, where a loop over bytes would be most of a test's time under a sanitizer.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(std::size_t size, std::byte filling = {});
  AlignedBytes(const AlignedBytes& other);
  AlignedBytes(AlignedBytes&& other) noexcept { swap(other); }
  AlignedBytes& operator=(AlignedBytes other) noexcept {
    swap(other);
    return *this;
  }
  ~AlignedBytes();

  [[nodiscard]] std::byte* data() { return data_; }
  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::byte* begin() { return data_; }
  [[nodiscard]] std::byte* end() { return data_ + size_; }

 private:
  void swap(AlignedBytes& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Does every one of these bytes hold `filling`?
[[nodiscard]] bool all_filled(std::span<const std::byte> bytes, std::byte filling);

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
