// SPDX-License-Identifier: Apache-2.0
// The arithmetic of placements: strides from an axis order, the first element's place when axes run backwards, and the
// list of bytes that belong to nobody.
#include "support/host_tensor.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include "runtime/half.hpp"

namespace fresnel::test {
namespace {

constexpr std::align_val_t cache_line{64};

double load(const void* data, DType dtype) {
  std::int32_t integer = 0;
  if (dtype == DType::i32) {
    std::memcpy(&integer, data, sizeof integer);
    return integer;
  }
  return load_as_double(data, dtype, 0);
}

}  // namespace

AlignedBytes::AlignedBytes(std::size_t size, std::byte filling)
    : data_(static_cast<std::byte*>(::operator new(size, cache_line))), size_(size) {
  std::memset(data_, static_cast<int>(filling), size);
}

AlignedBytes::AlignedBytes(const AlignedBytes& other)
    : data_(static_cast<std::byte*>(::operator new(other.size_, cache_line))), size_(other.size_) {
  if (size_ > 0) std::memcpy(data_, other.data_, size_);
}

AlignedBytes::~AlignedBytes() { ::operator delete(data_, cache_line); }

bool all_filled(std::span<const std::byte> bytes, std::byte filling) {
  if (bytes.empty()) return true;
  return bytes[0] == filling && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

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
  bytes_ = AlignedBytes(2 * guard_bytes + static_cast<std::size_t>(extent * size_of(dtype)), filling);
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
  AlignedBytes rest = bytes_;
  for_each_index([&](const Index& index) {
    std::memset(rest.data() + guard_bytes + offset(index), static_cast<int>(filling), width);
  });
  return all_filled(rest, filling);
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
