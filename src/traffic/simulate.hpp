// SPDX-License-Identifier: Apache-2.0
// What a kernel's requests become once caches stand before device memory: the same kernel, traced through the caches of
// a machine.
#pragma once

#include "fresnel/result.hpp"
#include "kernels/kernel.hpp"
#include "traffic/cache.hpp"
#include "traffic/emulate.hpp"
#include "traffic/machines.hpp"

namespace fresnel::traffic {

struct Simulation {
  HierarchyShape shape;
  std::vector<LevelCounts> levels;  ///< own, then shared
  Count memory_reads = 0;           ///< lines
  Count memory_writes = 0;          ///< lines; what is left in the caches at the end is written, too
  [[nodiscard]] Count read_bytes() const { return memory_reads * static_cast<Count>(shape.line_bytes); }
  [[nodiscard]] Count written_bytes() const { return memory_writes * static_cast<Count>(shape.line_bytes); }
  /// What device memory takes for both at its rate.
  [[nodiscard]] std::optional<double> seconds(const Rates& rates) const {
    if (!rates.memory_bytes) return std::nullopt;
    return static_cast<double>(read_bytes() + written_bytes()) / *rates.memory_bytes;
  }
};

/// The caches of a GPU of the table (machines.hpp) for a kernel of this shape: as many workgroups in flight as its
/// multiprocessors hold, those on one sharing its first-level cache; of the second level what one part holds. Refuses
/// machines without any.
[[nodiscard]] Result<HierarchyShape> caches_of(const Rates& rates, const Shape& shape, std::int64_t shared_bytes);

/// The caches of a CPU: one task for each thread; first and second level of its own, the third for all.
[[nodiscard]] HierarchyShape caches_of(const Machine& machine, std::int64_t tasks);

/// An emulated kernel through caches. Refuses what would take minutes.
[[nodiscard]] Result<Simulation> simulate(Kind kind, const Shape& shape, const HierarchyShape& caches);

/// A row of the catalogue that goes by tiles of queries of one head (see replay.hpp), packed tensors of the problem's
/// dtype.
[[nodiscard]] Result<Simulation> simulate(const Kernel& kernel, const Problem& problem, const Tile& tile,
                                          const HierarchyShape& caches);

}  // namespace fresnel::traffic
