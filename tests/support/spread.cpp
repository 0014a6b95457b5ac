// SPDX-License-Identifier: Apache-2.0
// Tensors over sparse memory: see spread.hpp.
#include "support/spread.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace fresnel::test {

void gather(const MutableView& view, HostTensor& target) {
  target.fill([&](const Index& at) {
    std::int64_t place = 0;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis)
      place += at[axis] * view.strides[axis];
    HostTensor element(view.dtype, {1});
    const auto* source = static_cast<const std::byte*>(view.data) + place * size_of(view.dtype);
    std::copy(source, source + size_of(view.dtype), static_cast<std::byte*>(element.mutable_view().data));
    return element.get({});
  });
}

HostTensor unwritten(HostTensor tensor) {
  tensor.fill([](const Index&) { return std::numeric_limits<double>::quiet_NaN(); });
  return tensor;
}

Strides dense(const HostTensor& tensor) {
  const View view = tensor.view();
  Strides strides{};
  std::int64_t stride = 1;
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    strides[static_cast<std::size_t>(axis)] = stride;
    stride *= view.sizes[static_cast<std::size_t>(axis)];
  }
  return strides;
}

Strides stretched(const HostTensor& tensor, std::size_t axis, std::int64_t stride) {
  Strides strides = dense(tensor);
  strides[axis] = stride;
  return strides;
}

}  // namespace fresnel::test
