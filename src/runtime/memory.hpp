// SPDX-License-Identifier: Apache-2.0
// Owned memory for workspaces and arrays. An allocation that fails is a Refusal, never an exception.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "fresnel/result.hpp"

namespace fresnel {

/// Whether to ask the kernel for huge pages; a hint that acts from `AlignedBuffer::huge_page_threshold` on.
enum class Pages { ordinary, huge };

/// Bytes on a 64-byte boundary, not initialised. Moves, never copies.
class AlignedBuffer {
 public:
  static constexpr std::size_t alignment = 64;
  static constexpr std::size_t huge_page_threshold = std::size_t{4} << 20;

  AlignedBuffer() = default;
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;

  /// `bytes` of memory; 0 bytes give an empty buffer. Refuses with Fault::out_of_memory, naming `purpose`.
  [[nodiscard]] static Result<AlignedBuffer> allocate(std::size_t bytes, std::string_view purpose = "memory",
                                                      Pages pages = Pages::ordinary);

  [[nodiscard]] std::byte* data() { return data_; }
  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<std::byte> span() { return {data_, size_}; }
  [[nodiscard]] std::span<const std::byte> span() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace fresnel
