// SPDX-License-Identifier: Apache-2.0
// Placements keep their promises, and one changed byte anywhere outside the elements is noticed.
#include "inputs/guarded_tensor.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace fresnel {
namespace {

GuardedTensor tensor_of(const std::optional<Placement>& placement) {
  return std::move(GuardedTensor::allocate(placement.value(), "test")).value();
}

/// Address and outer strides, all multiples of 16 bytes?
bool is_aligned(const View& view) {
  bool aligned = reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
  for (std::size_t axis = 0; axis < 3; ++axis) aligned = aligned && view.strides[axis] * size_of(view.dtype) % 16 == 0;
  return aligned;
}

TEST(GuardedTensor, LayoutClassesAreWhatTheySay) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    for (const AxisOrder order : {AxisOrder::bhsd, AxisOrder::bshd})
      for (const bool aligned : {true, false})
        for (const std::int64_t width : {1, 7, 8, 64}) {
          const GuardedTensor tensor = tensor_of(place(dtype, {2, 3, 4, width}, LayoutClass{order, aligned}));
          const View view = tensor.view();
          EXPECT_EQ(is_aligned(view), aligned);
          EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data) % static_cast<std::uintptr_t>(size_of(dtype)), 0u);
          EXPECT_EQ(view.strides[1] > view.strides[2], order == AxisOrder::bhsd);
          EXPECT_EQ(view.strides[3], 1);
          EXPECT_EQ(view.sizes, (std::array<std::int64_t, 4>{2, 3, 4, width}));
        }
}

TEST(GuardedTensor, AlignedRowsOfWholeVectorsAreDense) {
  const GuardedTensor bhsd = tensor_of(place(DType::bf16, {2, 3, 4, 64}, LayoutClass{AxisOrder::bhsd, true}));
  EXPECT_EQ(bhsd.view().strides, (std::array<std::int64_t, 4>{768, 256, 64, 1}));
  const GuardedTensor bshd = tensor_of(place(DType::bf16, {2, 3, 4, 64}, LayoutClass{AxisOrder::bshd, true}));
  EXPECT_EQ(bshd.view().strides, (std::array<std::int64_t, 4>{768, 64, 192, 1}));
}

TEST(GuardedTensor, LowerRanksAreDense) {
  const GuardedTensor lse = tensor_of(place(DType::f32, {2, 3, 5}, AxisOrder::bhsd, Rows::dense));
  EXPECT_EQ(lse.view().rank, 3);
  EXPECT_EQ(lse.view().strides, (std::array<std::int64_t, 4>{15, 5, 1, 0}));
  const GuardedTensor one = tensor_of(place(DType::i32, {4}, AxisOrder::bhsd, Rows::dense));
  EXPECT_EQ(one.view().rank, 1);
  EXPECT_EQ(one.view().sizes[0], 4);
}

/// Changes every byte of the allocation in turn and asks whether that is noticed exactly where no element lies.
void expect_every_stray_byte_noticed(GuardedTensor tensor) {
  const View view = tensor.view();
  const auto* base = static_cast<const std::byte*>(view.data);
  const std::int64_t unit = size_of(view.dtype);
  constexpr std::int64_t around = 64;
  std::int64_t reach = 1;
  for (std::size_t axis = 0; axis < 4; ++axis) reach += (view.sizes[axis] - 1) * view.strides[axis];
  std::vector<bool> element(static_cast<std::size_t>(reach * unit), false);
  for (std::int64_t a = 0; a < view.sizes[0]; ++a)
    for (std::int64_t b = 0; b < view.sizes[1]; ++b)
      for (std::int64_t c = 0; c < view.sizes[2]; ++c)
        for (std::int64_t byte = 0; byte < view.sizes[3] * unit; ++byte)
          element[static_cast<std::size_t>((a * view.strides[0] + b * view.strides[1] + c * view.strides[2]) * unit +
                                           byte)] = true;
  for (std::int64_t byte = -around; byte < reach * unit + around; ++byte) {
    const bool inside = byte >= 0 && byte < reach * unit && element[static_cast<std::size_t>(byte)];
    auto* changed = const_cast<std::byte*>(base) + byte;
    *changed = std::byte{0};
    ASSERT_EQ(tensor.guards_intact(), inside) << "byte " << byte;
    *changed = std::byte{0xff};
  }
}

TEST(GuardedTensor, NoticesEveryStrayByte) {
  for (const AxisOrder order : {AxisOrder::bhsd, AxisOrder::bshd})
    for (const bool aligned : {true, false})
      expect_every_stray_byte_noticed(tensor_of(place(DType::f16, {2, 2, 3, 5}, LayoutClass{order, aligned})));
}

TEST(GuardedTensor, EmptyTensorsHaveAnAddressAndGuards) {
  GuardedTensor tensor = tensor_of(place(DType::f32, {2, 0, 3, 5}, LayoutClass{}));
  EXPECT_NE(tensor.view().data, nullptr);
  EXPECT_EQ(tensor.view().elements(), 0);
  EXPECT_TRUE(tensor.guards_intact());
  *tensor.row(0, 0, 0) = std::byte{1};
  EXPECT_FALSE(tensor.guards_intact());
  tensor.reset();
  EXPECT_TRUE(tensor.guards_intact());
}

TEST(GuardedTensor, SizesThatCannotBeAddressedHaveNoPlacement) {
  constexpr std::int64_t big = std::int64_t{1} << 31;
  EXPECT_FALSE(place(DType::f64, {1, 1, big, big}, LayoutClass{}));
  EXPECT_FALSE(place(DType::f64, {big, 0, big, 8}, LayoutClass{})) << "strides of an empty tensor overflow as well";
  EXPECT_TRUE(place(DType::f64, {big, 0, 8, 8}, LayoutClass{}));
}

}  // namespace
}  // namespace fresnel
