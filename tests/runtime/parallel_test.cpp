// SPDX-License-Identifier: Apache-2.0
// parallel_for and parallel_for_groups: every item once, at most the asked lanes, a lane never in two places at once.
#include "runtime/parallel.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

namespace fresnel {
namespace {

/// An executor somebody else might write: wide on paper, one task after another, backwards.
class Backwards final : public Executor {
 public:
  [[nodiscard]] int width() const override { return 5; }
  void run(int tasks, TaskRef task) override {
    started = tasks;
    for (int index = tasks - 1; index >= 0; --index) task(index);
  }
  int started = 0;
};

TEST(ParallelFor, EveryItemOnceWithinItsLanes) {
  for (const int width : {1, 2, 7, 64}) {
    const auto executor = make_executor(width);
    for (const int lanes : {1, 2, 3, 100}) {
      for (const std::int64_t items : {0, 1, 2, 63, 1000}) {
        std::vector<std::atomic<int>> runs(static_cast<std::size_t>(items)), busy(static_cast<std::size_t>(lanes));
        std::atomic<int> wrong{0};
        parallel_for(*executor, lanes, items, [&](int lane, std::int64_t item) {
          if (lane < 0 || lane >= lanes || lane >= width || lane >= items) return void(wrong += 1);
          if (busy[static_cast<std::size_t>(lane)].exchange(1) != 0) wrong += 1;
          runs[static_cast<std::size_t>(item)] += 1;
          busy[static_cast<std::size_t>(lane)] = 0;
        });
        EXPECT_EQ(wrong, 0);
        for (const auto& count : runs) EXPECT_EQ(count, 1);
      }
    }
  }
}

TEST(ParallelForGroups, EveryItemOfEveryGroupOnce) {
  struct alignas(64) Counter {
    std::int64_t taken = 12345;  // whatever was there before
  };
  for (const int width : {1, 2, 7}) {
    const auto executor = make_executor(width);
    for (const std::int64_t groups : {0, 1, 2, 3, 40}) {
      for (const std::int64_t each : {0, 1, 5, 300}) {
        std::vector<Counter> counters(static_cast<std::size_t>(groups));
        std::vector<std::atomic<int>> runs(static_cast<std::size_t>(groups * each));
        const auto counter = [&](std::int64_t group) -> std::int64_t& {
          return counters[static_cast<std::size_t>(group)].taken;
        };
        parallel_for_groups(*executor, 3, groups, each, counter, [&](int, std::int64_t group, std::int64_t item) {
          runs[static_cast<std::size_t>(group * each + item)] += 1;
        });
        for (const auto& count : runs) EXPECT_EQ(count, 1);
      }
    }
  }
}

TEST(ParallelForGroups, ALaneStaysWithAGroup) {
  std::vector<std::int64_t> counters(3), order;
  const auto alone = make_executor(1);
  const auto counter = [&](std::int64_t group) -> std::int64_t& { return counters[static_cast<std::size_t>(group)]; };
  parallel_for_groups(*alone, 3, 3, 2, counter,
                      [&](int, std::int64_t group, std::int64_t item) { order.push_back(10 * group + item); });
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 10, 11, 20, 21}));
  // Lanes that work one after another, the last first: it begins with a group of its own.
  Backwards backwards;
  order.clear();
  parallel_for_groups(backwards, 3, 3, 1, counter,
                      [&](int, std::int64_t group, std::int64_t) { order.push_back(group); });
  EXPECT_EQ(order, (std::vector<std::int64_t>{2, 0, 1}));
}

TEST(ParallelFor, ALaneOwnsPlainMemory) {
  const auto executor = make_executor(4);
  std::vector<std::int64_t> sums(4);
  parallel_for(*executor, 4, 10000, [&](int lane, std::int64_t item) { sums[static_cast<std::size_t>(lane)] += item; });
  EXPECT_EQ(sums[0] + sums[1] + sums[2] + sums[3], 49995000);
}

TEST(ParallelFor, StartsNoMoreTasksThanUseful) {
  Backwards executor;
  const auto count = [&](int lanes, std::int64_t items) {
    executor.started = 0;
    std::int64_t done = 0;
    parallel_for(executor, lanes, items, [&](int, std::int64_t) { ++done; });
    EXPECT_EQ(done, items > 0 ? items : 0);
    return executor.started;
  };
  EXPECT_EQ(count(3, 100), 3);
  EXPECT_EQ(count(100, 100), 5);  // its width
  EXPECT_EQ(count(100, 2), 2);
  EXPECT_EQ(count(0, 10), 1);
  EXPECT_EQ(count(-1, 10), 1);
  EXPECT_EQ(count(3, 0), 0);
  EXPECT_EQ(count(3, -5), 0);
}

TEST(ParallelFor, AThrowReachesTheCaller) {
  const auto executor = make_executor(4);
  std::atomic<int> others{0};
  EXPECT_THROW(parallel_for(*executor, 4, 100,
                            [&](int, std::int64_t item) {
                              if (item == 0) throw std::runtime_error("item 0");
                              others += 1;
                            }),
               std::runtime_error);
  EXPECT_LE(others, 99);
}

}  // namespace
}  // namespace fresnel
