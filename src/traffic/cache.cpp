// SPDX-License-Identifier: Apache-2.0
// Lines in and out: see cache.hpp.
#include "traffic/cache.hpp"

#include <algorithm>

namespace fresnel::traffic {

Cache::Cache(const CacheShape& shape, std::int64_t line_bytes)
    : sets_(static_cast<std::uint64_t>(shape.bytes / (line_bytes * shape.ways))),
      ways_(static_cast<std::uint64_t>(shape.ways)),
      entries_(static_cast<std::size_t>(sets_ * ways_), nothing) {}

Cache::Outcome Cache::touch(std::uint64_t line, bool write) {
  if (!exists()) return {false, write, line};  // passes through: a write is thrown out at once
  const auto set = entries_.begin() + static_cast<std::ptrdiff_t>(line % sets_ * ways_);
  const auto end = set + static_cast<std::ptrdiff_t>(ways_);
  const auto found = std::find_if(set, end, [&](std::uint64_t entry) { return entry >> 1 == line; });
  if (found != end) {
    const std::uint64_t entry = *found | (write ? 1 : 0);
    std::move_backward(set, found, found + 1);
    *set = entry;
    return {true, false, 0};
  }
  const std::uint64_t last = *(end - 1);
  std::move_backward(set, end - 1, end);
  *set = line << 1 | (write ? 1 : 0);
  return {false, last != nothing && (last & 1) != 0, last >> 1};
}

bool Cache::find(std::uint64_t line) {
  if (!exists()) return false;
  const auto set = entries_.begin() + static_cast<std::ptrdiff_t>(line % sets_ * ways_);
  const auto end = set + static_cast<std::ptrdiff_t>(ways_);
  return std::any_of(set, end, [&](std::uint64_t entry) { return entry >> 1 == line; });
}

Hierarchy::Hierarchy(const HierarchyShape& shape)
    : shape_(shape),
      multiprocessors_(shape.multiprocessors > 0 ? shape.multiprocessors : shape.in_flight),
      counts_(shape.own.size() + shape.shared.size()) {
  for (std::int64_t at = 0; at < multiprocessors_; ++at)
    for (const CacheShape& cache : shape.own) own_.emplace_back(cache, shape.line_bytes);
  for (const CacheShape& cache : shape.shared) shared_.emplace_back(cache, shape.line_bytes);
}

void Hierarchy::touch_from(std::size_t level, std::int64_t multiprocessor, std::uint64_t line, bool write, bool whole) {
  if (level == counts_.size()) {
    ++(write ? memory_writes_ : memory_reads_);
    return;
  }
  Cache& cache = cache_at(level, multiprocessor);
  LevelCounts& counts = counts_[level];
  ++(write ? counts.writes : counts.reads);
  if (write && shape_.level(level).write_through) {
    if (!cache.find(line)) ++counts.write_misses;
    return touch_from(level + 1, multiprocessor, line, true, whole);
  }
  const Cache::Outcome outcome = cache.touch(line, write);
  if (!outcome.hit) ++(write ? counts.write_misses : counts.read_misses);
  if (!outcome.hit && (!write || (shape_.fetches_on_write && !whole)))
    touch_from(level + 1, multiprocessor, line, false, false);
  if (outcome.throws_out) touch_from(level + 1, multiprocessor, outcome.thrown, true, true);
}

void Hierarchy::empty_own() {
  for (std::int64_t at = 0; at < multiprocessors_; ++at)
    for (std::size_t level = 0; level < shape_.own.size(); ++level)
      cache_at(level, at).empty([&](std::uint64_t line) { touch_from(level + 1, at, line, true, true); });
}

void Hierarchy::begin_kernel() {
  if (!shape_.cold) return;
  const auto forgotten = [](std::uint64_t) {};
  for (Cache& cache : own_) cache.empty(forgotten);
  for (Cache& cache : shared_) cache.empty(forgotten);
}

void Hierarchy::end_kernel() {
  if (shape_.own_end_with_kernel) empty_own();
}

void Hierarchy::flush() {
  if (shape_.cold) return;  // what is left is counted for no kernel
  empty_own();
  for (std::size_t level = shape_.own.size(); level < counts_.size(); ++level)
    cache_at(level, 0).empty([&](std::uint64_t line) { touch_from(level + 1, 0, line, true, true); });
}

}  // namespace fresnel::traffic
