// SPDX-License-Identifier: Apache-2.0
// Memory of tensors. Sizes are checked here once, so that nobody multiplies a stranger's extents.
#include "io/tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "io/words.hpp"
#include "semantics/words.hpp"

namespace fresnel {

std::optional<std::int64_t> byte_size_of(DType dtype, std::span<const std::int64_t> shape) {
  std::int64_t bytes = size_of(dtype);
  bool empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    empty = empty || extent == 0;
    const std::int64_t counted = std::max<std::int64_t>(extent, 1);
    if (counted > std::numeric_limits<std::int64_t>::max() / bytes) return std::nullopt;
    bytes *= counted;
  }
  return empty ? 0 : bytes;
}

Status check_booleans(std::span<const std::byte> bytes, std::string_view owner) {
  for (const std::byte value : bytes)
    if (value > std::byte{1})
      return refuse(std::string(owner), fmt::format("a boolean byte of {}", std::to_integer<int>(value)), "0 or 1");
  return Done{};
}

Result<OwnedTensor> OwnedTensor::zeros(DType dtype, std::vector<std::int64_t> shape) {
  const std::optional<std::int64_t> size = byte_size_of(dtype, shape);
  if (!size) return refuse("shape", print_shape(shape), "extents of at least 0 and fewer than 2^63 bytes");
  Result<AlignedBuffer> bytes = AlignedBuffer::allocate(static_cast<std::size_t>(*size), "shape");
  if (!bytes) return bytes.refusal();
  std::ranges::fill(bytes->span(), std::byte{0});
  return OwnedTensor{dtype, std::move(shape), std::move(*bytes)};
}

namespace {

template <class Pointer>
BasicView<Pointer> contiguous_view(Pointer data, DType dtype, std::span<const std::int64_t> shape) {
  if (shape.size() > BasicView<Pointer>::max_rank)
    throw Error(refuse("shape", print_shape(shape), "at most four axes"));
  BasicView<Pointer> view(data, dtype, {});
  view.rank = static_cast<int>(shape.size());
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    view.sizes[axis] = shape[axis];
    view.strides[axis] = stride;
    stride *= std::max<std::int64_t>(shape[axis], 1);
  }
  return view;
}

}  // namespace

View OwnedTensor::view() const { return contiguous_view<const void*>(bytes.data(), dtype, shape); }

MutableView OwnedTensor::mutable_view() { return contiguous_view<void*>(bytes.data(), dtype, shape); }

}  // namespace fresnel
