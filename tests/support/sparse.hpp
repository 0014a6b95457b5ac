// SPDX-License-Identifier: Apache-2.0
// Memory that is mostly not there: a large reserved range of addresses in which only the pages that a test opens exist,
// so that an offset computed in 32 bits, or a read one element too far, meets a page that faults. POSIX only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fresnel::test {

class SparseRegion {
 public:
  /// Reserves `bytes` of addresses, none of them usable yet. Aborts when the system refuses to reserve them.
  explicit SparseRegion(std::size_t bytes);
  ~SparseRegion();
  SparseRegion(const SparseRegion&) = delete;
  SparseRegion& operator=(const SparseRegion&) = delete;

  [[nodiscard]] std::byte* at(std::int64_t byte) const { return base_ + byte; }
  /// Makes the pages that hold [first, first + bytes) usable, zero-filled.
  void open(std::int64_t first, std::size_t bytes) const;
  [[nodiscard]] static std::int64_t page_bytes();

 private:
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace fresnel::test
