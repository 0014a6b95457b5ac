// SPDX-License-Identifier: Apache-2.0
// Caches as counters: sets of lines, the least recently used thrown out, several levels of which the first ones belong
// to one workgroup, or to those on one multiprocessor, and the last ones to all. They hold addresses and no data, and
// count what passes on to device memory. No prefetching, no bandwidth and no time: what a cache of this shape has to
// fetch, not when.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "traffic/counts.hpp"

namespace fresnel::traffic {

struct CacheShape {
  std::string name;
  std::int64_t bytes = 0;
  std::int64_t ways = 8;       ///< lines of a set
  bool write_through = false;  ///< writes pass on at once and bring no line in; else they stay until thrown out
};

struct HierarchyShape {
  std::int64_t line_bytes = 128;
  std::vector<CacheShape> own;       ///< of each multiprocessor, nearest first
  std::vector<CacheShape> shared;    ///< of all, nearest first
  std::int64_t in_flight = 1;        ///< workgroups at a time
  bool fetches_on_write = false;     ///< a line that is written is read first, as CPUs do
  bool own_end_with_kernel = false;  ///< the own caches are emptied between kernels, as on GPUs
  std::int64_t multiprocessors = 0;  ///< that workgroups in flight are dealt out to; 0: one for each
  bool cold = false;                 ///< all caches are emptied before each kernel, uncounted, as under a profiler

  /// Own levels, then shared ones.
  [[nodiscard]] const CacheShape& level(std::size_t at) const {
    return at < own.size() ? own[at] : shared[at - own.size()];
  }
};

/// One cache.
class Cache {
 public:
  /// Whole sets only; fewer bytes than one line a way: no cache, every touch misses.
  Cache(const CacheShape& shape, std::int64_t line_bytes);

  struct Outcome {
    bool hit = false;
    bool throws_out = false;  ///< a line that was written
    std::uint64_t thrown = 0;
  };
  /// Finds line `line` or brings it in; `write` marks it.
  Outcome touch(std::uint64_t line, bool write);
  /// Finds it without bringing it in.
  bool find(std::uint64_t line);
  /// Empties the cache and calls written(line) for each line that was written.
  template <class Written>
  void empty(Written&& written) {
    for (std::uint64_t& entry : entries_) {
      if (entry != nothing && (entry & 1) != 0) written(entry >> 1);
      entry = nothing;
    }
  }
  [[nodiscard]] bool exists() const { return sets_ > 0; }

 private:
  static constexpr std::uint64_t nothing = ~std::uint64_t{0};
  std::uint64_t sets_;
  std::uint64_t ways_;
  std::vector<std::uint64_t> entries_;  ///< line * 2 + written, the last used first in each set
};

/// Touches of lines at one level, all caches of it together.
struct LevelCounts {
  Count reads = 0;
  Count read_misses = 0;
  Count writes = 0;
  Count write_misses = 0;
  bool operator==(const LevelCounts&) const = default;
};

class Hierarchy {
 public:
  explicit Hierarchy(const HierarchyShape& shape);

  [[nodiscard]] const HierarchyShape& shape() const { return shape_; }
  /// One line touched by the workgroup in slot `slot`.
  void touch(std::int64_t slot, std::uint64_t line, bool write) {
    touch_from(0, slot % multiprocessors_, line, write, false);
  }
  void begin_kernel();
  void end_kernel();
  /// Everything that was written reaches memory.
  void flush();

  /// Own levels, then shared ones.
  [[nodiscard]] const std::vector<LevelCounts>& levels() const { return counts_; }
  [[nodiscard]] Count memory_reads() const { return memory_reads_; }    ///< lines
  [[nodiscard]] Count memory_writes() const { return memory_writes_; }  ///< lines

 private:
  /// `whole`: the line is written in full by the level above, so that nothing has to be fetched.
  void touch_from(std::size_t level, std::int64_t multiprocessor, std::uint64_t line, bool write, bool whole);
  void empty_own();
  [[nodiscard]] Cache& cache_at(std::size_t level, std::int64_t multiprocessor) {
    const auto own = shape_.own.size();
    return level < own ? own_[static_cast<std::size_t>(multiprocessor) * own + level] : shared_[level - own];
  }

  HierarchyShape shape_;
  std::int64_t multiprocessors_;
  std::vector<Cache> own_;  ///< [multiprocessor][level]
  std::vector<Cache> shared_;
  std::vector<LevelCounts> counts_;
  Count memory_reads_ = 0, memory_writes_ = 0;
};

}  // namespace fresnel::traffic
