// SPDX-License-Identifier: Apache-2.0
// Work items over an executor: the one loop all kernels share. Items are handed out one by one from a counter, so
// uneven items balance themselves; results may not depend on which lane takes which item.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "fresnel/executor.hpp"

namespace fresnel {

/// Calls fn(int lane, std::int64_t item) once for every item in [0, items), in at most `lanes` tasks (at least one, and
/// no more than the executor is wide). A lane is one task: it owns slice `lane` of a workspace and takes its items one
/// after another. Allocates nothing. A throw ends its lane; the others go on, and the executor passes the first
/// exception on.
template <class Function>
void parallel_for(Executor& executor, int lanes, std::int64_t items, Function&& fn) {
  if (items <= 0) return;
  const int useful = std::max(1, std::min(lanes, executor.width()));
  const int tasks = static_cast<int>(std::min<std::int64_t>(useful, items));
  alignas(64) std::atomic<std::int64_t> next{0};  // a cache line of its own
  auto lane_loop = [&](int lane) {
    for (std::int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < items;) fn(lane, item);
  };
  executor.run(tasks, lane_loop);
}

/// An item of a group.
struct GroupItem {
  std::int64_t group, item;
};

/// Calls fn(int lane, next) once for every lane, of which there are at most `lanes`. next() hands out the items [0,
/// each) of all groups [0, groups), every one once, and then none. Items of a group share data, or follow each other in
/// memory: a lane stays with a group while it has items, begins with one of its own where there are enough, and helps
/// with others in the end. counter(group) is a number of the caller's for each group, best on a cache line of its own.
template <class Counter, class Function>
void parallel_lanes(Executor& executor, int lanes, std::int64_t groups, std::int64_t each, Counter&& counter,
                    Function&& fn) {
  if (groups <= 0 || each <= 0) return;
  for (std::int64_t group = 0; group < groups; ++group) counter(group) = 0;
  const int useful = std::max(1, std::min(lanes, executor.width()));
  const auto tasks = static_cast<int>(std::min<std::int64_t>(useful, groups * each));
  auto lane_loop = [&](int lane) {
    const std::int64_t home = lane * groups / useful;
    std::int64_t step = 0;  // groups before it have no items left, and never get any
    fn(lane, [&]() -> std::optional<GroupItem> {
      for (; step < groups; ++step) {
        const std::int64_t group = (home + step) % groups;
        const std::atomic_ref<std::int64_t> next(counter(group));
        if (next.load(std::memory_order_relaxed) >= each) continue;
        const std::int64_t item = next.fetch_add(1, std::memory_order_relaxed);
        if (item < each) return GroupItem{group, item};
      }
      return std::nullopt;
    });
  };
  executor.run(tasks, lane_loop);
}

/// The same for items that have nothing else in common: calls fn(int lane, std::int64_t group, std::int64_t item) for
/// each.
template <class Counter, class Function>
void parallel_for_groups(Executor& executor, int lanes, std::int64_t groups, std::int64_t each, Counter&& counter,
                         Function&& fn) {
  parallel_lanes(executor, lanes, groups, each, counter, [&](int lane, auto&& next) {
    while (const std::optional<GroupItem> one = next()) fn(lane, one->group, one->item);
  });
}

}  // namespace fresnel
