// SPDX-License-Identifier: Apache-2.0
// What the meter counts. A request is one 4-byte word that one thread asks for: a word that 128 threads read is 128
// requests, whatever a cache or a broadcast makes of them. Unsigned, 64 bits; `emulate.hpp` refuses what would not fit.
#pragma once

#include <cstdint>

namespace fresnel::traffic {

using Count = std::uint64_t;

/// Bytes of one request.
inline constexpr std::int64_t word_bytes = 4;

struct Counts {
  Count global_reads = 0;
  Count global_writes = 0;
  Count shared_reads = 0;   ///< of workgroup memory
  Count shared_writes = 0;  ///< of workgroup memory
  Count barriers = 0;       ///< one for a workgroup, however many threads wait at it
  Count fma = 0;            ///< multiply-adds of the matrix products; scales and rescales are not among them
  Count exps = 0;

  [[nodiscard]] constexpr Count global() const { return global_reads + global_writes; }
  [[nodiscard]] constexpr Count global_bytes() const { return word_bytes * global(); }
  bool operator==(const Counts&) const = default;
};

}  // namespace fresnel::traffic
