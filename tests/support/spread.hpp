// SPDX-License-Identifier: Apache-2.0
// Tensors spread over memory that is mostly not there: any strides, single rows on pages of their own, everything
// between them forbidden. Shared by the tests of 64-bit offsets.
#pragma once

#include <array>
#include <cstdint>

#include "support/host_tensor.hpp"
#include "support/sparse.hpp"

namespace fresnel::test {

using Strides = std::array<std::int64_t, 4>;

/// Copies the elements of `source` to `region`, the first one at byte `first`, and opens just the pages of its rows.
template <class AnyView>
[[nodiscard]] AnyView spread(const SparseRegion& region, const HostTensor& source, const Strides& strides,
                             std::int64_t first) {
  AnyView view;
  const View shape = source.view();
  view.dtype = shape.dtype;
  view.rank = shape.rank;
  view.sizes = shape.sizes;
  view.strides = strides;
  view.data = region.at(first);
  const std::int64_t width = size_of(shape.dtype);
  source.for_each_index([&](const Index& at) {
    std::int64_t place = 0;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(shape.rank); ++axis) place += at[axis] * strides[axis];
    region.open(first + place * width, static_cast<std::size_t>(width));
    store_element(region.at(first + place * width), shape.dtype, source.get(at));
  });
  return view;
}

/// Reads spread elements back.
void gather(const MutableView& view, HostTensor& target);

/// A tensor of the same shape that holds NaN: what an output holds before a run.
[[nodiscard]] HostTensor unwritten(HostTensor tensor);

/// Contiguous strides of a shape.
[[nodiscard]] Strides dense(const HostTensor& tensor);

/// `axis` gets the huge stride, the others stay as dense as they were.
[[nodiscard]] Strides stretched(const HostTensor& tensor, std::size_t axis, std::int64_t stride);

}  // namespace fresnel::test
