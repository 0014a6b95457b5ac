// SPDX-License-Identifier: Apache-2.0
// A tensor that owns its memory: what files are read into. Dense, outermost axis first, on a cache line. It computes
// nothing and refuses to grow into an array library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fresnel/result.hpp"
#include "fresnel/view.hpp"
#include "runtime/memory.hpp"

namespace fresnel {

/// Bytes of a dense tensor. Nothing for a negative extent, or where the bytes would pass 2^63 with empty axes counted
/// as one: strides of such a tensor could not be computed.
[[nodiscard]] std::optional<std::int64_t> byte_size_of(DType dtype, std::span<const std::int64_t> shape);

/// Refuses, naming `owner`, a boolean byte other than 0 and 1: C++ could not read it as a bool.
[[nodiscard]] Status check_booleans(std::span<const std::byte> bytes, std::string_view owner);

struct OwnedTensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  ///< outermost axis first; empty for a scalar
  AlignedBuffer bytes;              ///< elements in C order, little endian, without gaps

  /// Zeros. Refuses a shape that `byte_size_of` has no answer for, and Fault::out_of_memory.
  [[nodiscard]] static Result<OwnedTensor> zeros(DType dtype, std::vector<std::int64_t> shape);

  /// The tensor as an input or as an output. Throws Error for more than four axes, which a view cannot have.
  [[nodiscard]] View view() const;
  [[nodiscard]] MutableView mutable_view();

  template <class Element>
  [[nodiscard]] std::span<Element> elements() {
    return {reinterpret_cast<Element*>(bytes.data()), bytes.size() / sizeof(Element)};
  }
  template <class Element>
  [[nodiscard]] std::span<const Element> elements() const {
    return {reinterpret_cast<const Element*>(bytes.data()), bytes.size() / sizeof(Element)};
  }
};

}  // namespace fresnel
