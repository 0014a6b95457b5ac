// SPDX-License-Identifier: Apache-2.0
// Placing and watching. Rows lie in memory in the order of `memory_order`, so that the bytes which belong to nobody are
// the gaps met while walking them.
#include "inputs/guarded_tensor.hpp"

#include <algorithm>
#include <utility>

namespace fresnel {
namespace {

constexpr std::int64_t guard_bytes = 4096;  // each side; a whole vector tile of rows written too far stays inside
constexpr std::byte filling{0xff};
constexpr std::int64_t most_bytes = std::int64_t{1} << 60;

/// a * b + c for numbers of at least 0, or -1 where that or an argument is beyond `most_bytes`.
std::int64_t bounded(std::int64_t a, std::int64_t b, std::int64_t c) {
  if (a < 0 || b < 0 || (a > 0 && b > (most_bytes - c) / a)) return -1;
  return a * b + c;
}

/// Elements from the start of one row to the start of the next.
std::int64_t pitch_of(std::int64_t width, DType dtype, Rows rows) {
  const std::int64_t unit = 16 / size_of(dtype);
  switch (rows) {
    case Rows::dense: return width;
    case Rows::aligned: return (width + unit - 1) / unit * unit;
    default: return width + 1;
  }
}

template <class Pointer>
BasicView<Pointer> view_of(const Placement& placement, Pointer data) {
  BasicView<Pointer> view(data, placement.dtype, {});
  view.rank = placement.rank;
  const auto missing = static_cast<std::ptrdiff_t>(placement.sizes.size()) - placement.rank;
  std::copy(placement.sizes.begin() + missing, placement.sizes.end(), view.sizes.begin());
  std::copy(placement.strides.begin() + missing, placement.strides.end(), view.strides.begin());
  return view;
}

}  // namespace

bool Placement::empty() const { return std::find(sizes.begin(), sizes.end(), 0) != sizes.end(); }

std::optional<Placement> place(DType dtype, std::initializer_list<std::int64_t> sizes, AxisOrder order, Rows rows) {
  Placement placement;
  placement.dtype = dtype;
  placement.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), placement.sizes.end() - placement.rank);
  if (order == AxisOrder::bshd) placement.memory_order = {0, 2, 1};
  const std::int64_t odd = rows == Rows::unaligned ? 1 : 0;
  placement.shift = odd;

  placement.strides[3] = 1;
  std::int64_t extent = pitch_of(placement.sizes[3], dtype, rows);
  for (std::size_t index = 3; index-- > 0;) {
    const std::size_t axis = placement.memory_order[index];
    placement.strides[axis] = extent;
    // An empty axis counts as one, so that the strides of an empty tensor cannot overflow either.
    extent = bounded(extent, std::max<std::int64_t>(placement.sizes[axis], 1), odd);
    if (extent < 0) return std::nullopt;
  }
  placement.bytes = bounded(extent + odd, size_of(dtype), 2 * guard_bytes);
  if (placement.bytes < 0) return std::nullopt;
  if (placement.empty()) placement.bytes = 2 * guard_bytes;
  return placement;
}

std::optional<Placement> place(DType dtype, std::initializer_list<std::int64_t> sizes, const LayoutClass& layout) {
  return place(dtype, sizes, layout.order, layout.aligned ? Rows::aligned : Rows::unaligned);
}

GuardedTensor::GuardedTensor(const Placement& placement, AlignedBuffer memory)
    : placement_(placement), memory_(std::move(memory)) {
  reset();
}

Result<GuardedTensor> GuardedTensor::allocate(const Placement& placement, std::string_view owner) {
  Result<AlignedBuffer> memory = AlignedBuffer::allocate(static_cast<std::size_t>(placement.bytes), owner);
  if (!memory) return memory.refusal();
  return GuardedTensor(placement, std::move(*memory));
}

std::int64_t GuardedTensor::offset_of(std::int64_t a, std::int64_t b, std::int64_t c) const {
  const auto& strides = placement_.strides;
  const std::int64_t elements = placement_.shift + a * strides[0] + b * strides[1] + c * strides[2];
  return guard_bytes + elements * size_of(placement_.dtype);
}

View GuardedTensor::view() const { return view_of<const void*>(placement_, memory_.data() + offset_of(0, 0, 0)); }

MutableView GuardedTensor::mutable_view() { return view_of<void*>(placement_, row(0, 0, 0)); }

std::byte* GuardedTensor::row(std::int64_t a, std::int64_t b, std::int64_t c) {
  return memory_.data() + offset_of(a, b, c);
}

void GuardedTensor::reset() { std::ranges::fill(memory_.span(), filling); }

bool GuardedTensor::guards_intact() const {
  const auto untouched = [&](std::int64_t first, std::int64_t last) {
    return std::all_of(memory_.data() + first, memory_.data() + last, [](std::byte byte) { return byte == filling; });
  };
  std::int64_t seen = 0;
  if (!placement_.empty()) {
    const auto [outer, middle, inner] = placement_.memory_order;
    std::array<std::int64_t, 3> at{};
    for (at[outer] = 0; at[outer] < placement_.sizes[outer]; ++at[outer])
      for (at[middle] = 0; at[middle] < placement_.sizes[middle]; ++at[middle])
        for (at[inner] = 0; at[inner] < placement_.sizes[inner]; ++at[inner]) {
          const std::int64_t start = offset_of(at[0], at[1], at[2]);
          if (!untouched(seen, start)) return false;
          seen = start + placement_.sizes[3] * size_of(placement_.dtype);
        }
  }
  return untouched(seen, static_cast<std::int64_t>(memory_.size()));
}

}  // namespace fresnel
