// SPDX-License-Identifier: Apache-2.0
// The allocator behind AlignedBuffer: the C library's aligned_alloc and, where Linux has it, the huge page hint.
#include "runtime/memory.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace fresnel {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

/// `bytes` rounded up to a multiple of `unit`, a power of two; 0 where that overflows.
std::size_t rounded_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) & ~(unit - 1); }

}  // namespace

AlignedBuffer::~AlignedBuffer() { std::free(data_); }

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    std::free(data_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

Result<AlignedBuffer> AlignedBuffer::allocate(std::size_t bytes, std::string_view purpose, Pages pages) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  const bool huge = pages == Pages::huge && bytes >= huge_page_threshold;
  const std::size_t unit = huge ? huge_page : alignment;
  const std::size_t wanted = rounded_up(bytes, unit);
  // Distances inside an object must fit ptrdiff_t, so nothing larger is ever asked for.
  if (bytes <= static_cast<std::size_t>(PTRDIFF_MAX) - unit) {
    buffer.data_ = static_cast<std::byte*>(std::aligned_alloc(unit, wanted));
  }
  if (buffer.data_ == nullptr) {
    return Refusal{.fault = Fault::out_of_memory,
                   .kernel = {},
                   .argument = std::string(purpose),
                   .given = std::to_string(bytes) + " bytes",
                   .accepted = "what this machine can allocate",
                   .nearest = {}};
  }
  buffer.size_ = bytes;
#ifdef __linux__
  if (huge) static_cast<void>(madvise(buffer.data_, wanted, MADV_HUGEPAGE));  // a hint: refused is as good
#endif
  return buffer;
}

}  // namespace fresnel
