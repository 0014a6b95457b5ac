// SPDX-License-Identifier: Apache-2.0
// The arithmetic of placements: strides from an axis order, the first element's place when axes run backwards, and the
// list of bytes that belong to nobody.
#include "support/host_tensor.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/half.hpp"

namespace fresnel::test {
namespace {

double load(const void* data, DType dtype) {
  std::int32_t integer = 0;
  if (dtype == DType::i32) {
    std::memcpy(&integer, data, sizeof integer);
    return integer;
  }
  return load_as_double(data, dtype, 0);
}

}  // namespace

void store_element(void* data, DType dtype, double value) {
  const auto put = [&](auto element) { std::memcpy(data, &element, sizeof element); };
  switch (dtype) {
    case DType::f64: put(value); break;
    case DType::f32: put(static_cast<float>(value)); break;
    case DType::f16: put(float_to_f16(static_cast<float>(value))); break;
    case DType::bf16: put(float_to_bf16(static_cast<float>(value))); break;
    case DType::i32: put(static_cast<std::int32_t>(value)); break;
    case DType::boolean: put(value != 0); break;
  }
}

Placement placement_of(const LayoutClass& layout, DType dtype, std::int64_t width) {
  Placement placement;
  placement.order = layout.order;
  const std::int64_t unit = 16 / size_of(dtype);
  const std::int64_t rest = width % unit;
  if (layout.aligned) placement.row_padding = rest == 0 ? 0 : unit - rest;
  if (!layout.aligned) {
    placement.shift = 1;
    placement.row_padding = 1;
  }
  return placement;
}

HostTensor::HostTensor(DType dtype, const std::vector<std::int64_t>& sizes, const Placement& placement) {
  shape_.dtype = dtype;
  shape_.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), shape_.sizes.begin());
  std::vector<int> inner_to_outer;
  for (int axis = shape_.rank - 1; axis >= 0; --axis) inner_to_outer.push_back(axis);
  if (placement.order == AxisOrder::bshd && shape_.rank == 4) inner_to_outer = {3, 1, 2, 0};

  std::int64_t stride = 1;
  for (std::size_t place = 0; place < inner_to_outer.size(); ++place) {
    const auto axis = static_cast<std::size_t>(inner_to_outer[place]);
    shape_.strides[axis] = placement.expanded[axis] ? 0 : stride;
    if (!placement.expanded[axis]) stride *= std::max<std::int64_t>(shape_.sizes[axis], 1);
    if (place == 0) stride += placement.row_padding;
    if (placement.reversed[axis] && !placement.expanded[axis] && shape_.sizes[axis] > 1) {
      first_ += (shape_.sizes[axis] - 1) * shape_.strides[axis];
      shape_.strides[axis] = -shape_.strides[axis];
    }
  }
  first_ += placement.shift;
  const std::int64_t extent = stride + placement.shift;
  bytes_.assign(2 * guard_bytes + static_cast<std::size_t>(extent * size_of(dtype)), filling);
}

std::int64_t HostTensor::offset(const Index& index) const {
  std::int64_t place = first_;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(shape_.rank); ++axis)
    place += index[axis] * shape_.strides[axis];
  return place * size_of(shape_.dtype);
}

View HostTensor::view() const {
  View view = shape_;
  view.data = base() + first_ * size_of(shape_.dtype);
  return view;
}

MutableView HostTensor::mutable_view() {
  MutableView view;
  view.dtype = shape_.dtype;
  view.rank = shape_.rank;
  view.sizes = shape_.sizes;
  view.strides = shape_.strides;
  view.data = base() + first_ * size_of(shape_.dtype);
  return view;
}

double HostTensor::get(const Index& index) const { return load(base() + offset(index), shape_.dtype); }

void HostTensor::set(const Index& index, double value) { store_element(base() + offset(index), shape_.dtype, value); }

std::uint64_t HostTensor::bits(const Index& index) const {
  std::uint64_t bits = 0;
  std::memcpy(&bits, base() + offset(index), static_cast<std::size_t>(size_of(shape_.dtype)));
  return bits;
}

bool HostTensor::guards_intact() const {
  const auto width = static_cast<std::size_t>(size_of(shape_.dtype));
  const std::size_t start = guard_bytes;
  std::vector<bool> owned(bytes_.size(), false);
  for_each_index([&](const Index& index) {
    const std::size_t place = start + static_cast<std::size_t>(offset(index));
    for (std::size_t byte = 0; byte < width; ++byte) owned[place + byte] = true;
  });
  for (std::size_t place = 0; place < bytes_.size(); ++place)
    if (!owned[place] && bytes_[place] != filling) return false;
  return true;
}

std::string print(const Index& index) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < index.size(); ++axis) text += (axis ? ", " : "") + std::to_string(index[axis]);
  return text + "]";
}

double rounded(DType dtype, double value) {
  double element = 0;
  store_element(&element, dtype, value);
  return load(&element, dtype);
}

double largest(DType dtype) {
  switch (dtype) {
    case DType::f64: return std::numeric_limits<double>::max();
    case DType::f32: return static_cast<double>(std::numeric_limits<float>::max());
    case DType::f16: return 65504.0;
    default: return static_cast<double>(bf16_to_float(0x7f7f));
  }
}

}  // namespace fresnel::test
