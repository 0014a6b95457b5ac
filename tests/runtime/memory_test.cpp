// SPDX-License-Identifier: Apache-2.0
// AlignedBuffer: alignment, ownership, and a refusal where there is no memory.
#include "runtime/memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <utility>

namespace fresnel {
namespace {

std::uintptr_t address(const AlignedBuffer& buffer) { return reinterpret_cast<std::uintptr_t>(buffer.data()); }

TEST(AlignedBuffer, IsAlignedAndWritable) {
  for (const std::size_t bytes : {1u, 63u, 64u, 65u, 4096u, 1000000u}) {
    auto buffer = AlignedBuffer::allocate(bytes);
    ASSERT_TRUE(buffer);
    EXPECT_EQ(buffer->size(), bytes);
    EXPECT_EQ(buffer->span().size(), bytes);
    EXPECT_EQ(address(*buffer) % AlignedBuffer::alignment, 0u);
    std::memset(buffer->data(), 0xab, bytes);
    EXPECT_EQ(std::as_const(*buffer).span().back(), std::byte{0xab});
  }
}

TEST(AlignedBuffer, HugePagesAreAskedForOnlyWhereTheyFit) {
  constexpr std::size_t huge_page = std::size_t{2} << 20;
  auto large = AlignedBuffer::allocate(AlignedBuffer::huge_page_threshold + 1, "workspace", Pages::huge);
  ASSERT_TRUE(large);
  EXPECT_EQ(address(*large) % huge_page, 0u);
  std::memset(large->data(), 1, large->size());
  EXPECT_TRUE(AlignedBuffer::allocate(100, "workspace", Pages::huge));
}

TEST(AlignedBuffer, NothingIsEmpty) {
  const auto buffer = AlignedBuffer::allocate(0);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_EQ(buffer->size(), 0u);
}

TEST(AlignedBuffer, MovesLeaveAnEmptyBuffer) {
  auto first = AlignedBuffer::allocate(100);
  ASSERT_TRUE(first);
  const std::uintptr_t where = address(*first);
  AlignedBuffer second(std::move(*first));
  EXPECT_EQ(address(second), where);
  EXPECT_EQ(first->data(), nullptr);
  EXPECT_EQ(first->size(), 0u);
  AlignedBuffer third = std::move(AlignedBuffer::allocate(50)).value();
  third = std::move(second);
  EXPECT_EQ(address(third), where);
  EXPECT_EQ(second.data(), nullptr);  // NOLINT(bugprone-use-after-move): a buffer moved from is empty
  AlignedBuffer& same = third;
  third = std::move(same);
  EXPECT_EQ(address(third), where);
  EXPECT_EQ(third.size(), 100u);
}

TEST(AlignedBuffer, RefusesWhatNoMachineHas) {
  for (const std::size_t bytes :
       {SIZE_MAX, SIZE_MAX - 63, static_cast<std::size_t>(PTRDIFF_MAX), std::size_t{1} << 62}) {
    for (const Pages pages : {Pages::ordinary, Pages::huge}) {
      const auto buffer = AlignedBuffer::allocate(bytes, "workspace", pages);
      ASSERT_FALSE(buffer) << bytes;
      EXPECT_EQ(buffer.refusal().fault, Fault::out_of_memory);
      EXPECT_EQ(buffer.refusal().argument, "workspace");
      EXPECT_EQ(buffer.refusal().given, std::to_string(bytes) + " bytes");
    }
  }
}

}  // namespace
}  // namespace fresnel
