// SPDX-License-Identifier: Apache-2.0
// What a row of the catalogue asks for, level by level, found by going through its walk with its tile and no data:
// which tiles a mask skips, how often K and V come by, who shares them. It knows sizes and not registers: what a vector
// unit reloads within a tile is for a profiler to say.
//
//     tile     one element of K, V (or their gradients' operands) for each multiply-add
//     cache    what enters and leaves tiles: the queries of a tile once, the keys it sees once for each tile of queries
//     memory   every input read once and every output written once: the least that can be
#pragma once

#include "fresnel/result.hpp"
#include "kernels/kernel.hpp"

namespace fresnel::traffic {

/// Bytes.
struct Requests {
  double reads = 0;
  double writes = 0;
  [[nodiscard]] double bytes() const { return reads + writes; }
  bool operator==(const Requests&) const = default;
};

struct Replay {
  double visible = 0;  ///< pairs that the mask leaves
  double visited = 0;  ///< pairs of the tiles that are visited: what is computed where edge tiles are computed whole
  double fma = 0;      ///< multiply-adds of the visited pairs
  Requests tile, cache, memory;
  double working_set = 0;  ///< bytes of K and V that the queries of one kv head come back to
  double score_bytes = 0;  ///< the score matrix that is never written

  /// Bytes that reach device memory when a cache of this size is all that stands before it: the least where K and V of
  /// a head stay in it, else everything that tiles ask for.
  [[nodiscard]] double beyond(double cache_bytes) const {
    return working_set <= cache_bytes ? memory.bytes() : cache.bytes();
  }
};

/// Refuses rows whose walk is not described here. The row has to admit the problem; lengths are taken as full.
[[nodiscard]] Result<Replay> replay(const Kernel& kernel, const Problem& problem, const Tile& tile);

}  // namespace fresnel::traffic
