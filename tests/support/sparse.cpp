// SPDX-License-Identifier: Apache-2.0
// mmap without access rights reserves addresses and nothing else; mprotect opens single pages.
#include "support/sparse.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace fresnel::test {

std::int64_t SparseRegion::page_bytes() { return sysconf(_SC_PAGESIZE); }

SparseRegion::SparseRegion(std::size_t bytes) : bytes_(bytes) {
  void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  base_ = static_cast<std::byte*>(memory);
}

SparseRegion::~SparseRegion() { munmap(base_, bytes_); }

void SparseRegion::open(std::int64_t first, std::size_t bytes) const {
  const std::int64_t start = first / page_bytes() * page_bytes();
  const auto length = static_cast<std::size_t>(first - start) + bytes;
  if (mprotect(base_ + start, length, PROT_READ | PROT_WRITE) != 0) std::abort();
}

}  // namespace fresnel::test
