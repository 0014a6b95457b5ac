// SPDX-License-Identifier: Apache-2.0
// A tensor between guard zones: every byte that is no element holds 0xff, which is a NaN in every float type, so that
// reading beyond the elements spoils a result and writing beyond them is noticed. Knows placements, never values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "fresnel/problem.hpp"
#include "fresnel/result.hpp"
#include "fresnel/view.hpp"
#include "runtime/memory.hpp"

namespace fresnel {

/// How rows follow each other.
enum class Rows : std::uint8_t {
  dense,      ///< no padding; the base on a 64-byte boundary
  aligned,    ///< padded to multiples of 16 bytes; the base on a 64-byte boundary
  unaligned,  ///< base and strides one element off: aligned to elements only
};

/// Where the elements of a tensor lie; all in elements of `dtype`. Tensors of lower rank have leading axes of length 1.
struct Placement {
  DType dtype = DType::f32;
  int rank = 4;
  std::array<std::int64_t, 4> sizes{1, 1, 1, 1};
  std::array<std::int64_t, 4> strides{};
  std::array<std::size_t, 3> memory_order{0, 1, 2};  ///< outer axes, outermost in memory first
  std::int64_t shift = 0;                            ///< from the 64-byte boundary to the first element
  std::int64_t bytes = 0;                            ///< guards included

  [[nodiscard]] bool empty() const;
};

/// The placement of a tensor of up to four axes; nothing where it would pass 2^60 bytes.
[[nodiscard]] std::optional<Placement> place(DType dtype, std::initializer_list<std::int64_t> sizes, AxisOrder order,
                                             Rows rows);
[[nodiscard]] std::optional<Placement> place(DType dtype, std::initializer_list<std::int64_t> sizes,
                                             const LayoutClass& layout);

class GuardedTensor {
 public:
  /// Every byte 0xff. Fault::out_of_memory, naming `owner`.
  [[nodiscard]] static Result<GuardedTensor> allocate(const Placement& placement, std::string_view owner);

  [[nodiscard]] View view() const;
  [[nodiscard]] MutableView mutable_view();
  /// The first element of a row, by the three outer indices.
  [[nodiscard]] std::byte* row(std::int64_t a, std::int64_t b, std::int64_t c);

  /// Every byte 0xff again.
  void reset();
  /// True while no byte outside the elements has changed.
  [[nodiscard]] bool guards_intact() const;

 private:
  GuardedTensor(const Placement& placement, AlignedBuffer memory);
  [[nodiscard]] std::int64_t offset_of(std::int64_t a, std::int64_t b, std::int64_t c) const;

  Placement placement_;
  AlignedBuffer memory_;
};

}  // namespace fresnel
