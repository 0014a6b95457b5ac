// SPDX-License-Identifier: Apache-2.0
// The laws of the pool, for any width: every task once, callers at once, calls within calls, exceptions, no allocation,
// no work when idle, the caller's floating-point control on every thread.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fresnel/executor.hpp"
#include "fresnel/machine.hpp"
#include "runtime/counted_allocations.hpp"
#include "runtime/float_control.hpp"
#include "runtime/host.hpp"
#include "runtime/rendezvous.hpp"

namespace fresnel {
namespace {

using test::Rendezvous;

class PoolLaws : public testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Executor> executor_ = make_executor(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Widths, PoolLaws, testing::Values(1, 2, 7, 64), testing::PrintToStringParamName());

TEST_P(PoolLaws, ReportsItsWidth) { EXPECT_EQ(executor_->width(), GetParam()); }

TEST_P(PoolLaws, RunsEveryTaskExactlyOnce) {
  for (const int tasks : {0, 1, 2, 3, 63, 64, 65, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
    executor_->run(tasks, [&](int task) { runs.at(static_cast<std::size_t>(task)).fetch_add(1); });
    for (int task = 0; task < tasks; ++task)
      EXPECT_EQ(runs[static_cast<std::size_t>(task)], 1) << task << " of " << tasks;
  }
}

TEST_P(PoolLaws, NoTasksAreNoWork) {
  for (const int tasks : {0, -1, std::numeric_limits<int>::min()}) {
    executor_->run(tasks, [](int) { ADD_FAILURE(); });
  }
}

TEST_P(PoolLaws, RunsAsManyTasksAtOnceAsItIsWide) {
  Rendezvous all(GetParam());
  std::atomic<int> met{0};
  executor_->run(GetParam(), [&](int) { met += all.arrive() ? 1 : 0; });
  EXPECT_EQ(met, GetParam());
}

TEST_P(PoolLaws, ManySmallJobs) {
  // Plain memory: what a task writes is seen by the caller, and by the tasks of the next job.
  std::vector<long> sums(8);
  for (int job = 0; job < 1000; ++job) {
    executor_->run(8, [&](int task) { sums[static_cast<std::size_t>(task)] += task + job; });
  }
  for (int task = 0; task < 8; ++task) EXPECT_EQ(sums[static_cast<std::size_t>(task)], 1000 * task + 499500);
}

TEST_P(PoolLaws, ACallFromInsideATaskRunsInline) {
  const auto other = make_executor(3);
  std::atomic<int> inner{0}, elsewhere{0};
  executor_->run(5, [&](int) {
    const auto here = std::this_thread::get_id();
    const auto nested = [&](int) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // time for a helper to come, if one did
      inner += 1;
      if (std::this_thread::get_id() != here) elsewhere += 1;
    };
    executor_->run(4, nested);
    other->run(4, [&](int) { executor_->run(2, nested); });
  });
  EXPECT_EQ(inner, 5 * (4 + 4 * 2));
  EXPECT_EQ(elsewhere, 0);
}

TEST_P(PoolLaws, ServesSeveralCallersAtOnce) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 12; ++caller) {  // more than the pool has slots
    callers.emplace_back([&, caller] {
      for (int job = 0; job < 100; ++job) {
        std::vector<std::atomic<int>> runs(static_cast<std::size_t>(1 + (caller + job) % 9));
        executor_->run(static_cast<int>(runs.size()), [&](int task) { runs[static_cast<std::size_t>(task)] += 1; });
        for (const auto& count : runs) wrong += count == 1 ? 0 : 1;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(PoolLaws, CallersWhoseTasksWaitForEachOtherBothFinish) {
  Rendezvous both(2);
  std::atomic<int> met{0};
  const auto job = [&] { executor_->run(3, [&](int task) { met += task == 0 && both.arrive() ? 1 : 0; }); };
  std::thread other(job);
  job();
  other.join();
  EXPECT_EQ(met, 2);
}

TEST_P(PoolLaws, AnExceptionReachesTheCallerAfterAllTasksEnded) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::atomic<int> ended{0};
    std::string caught;
    try {
      executor_->run(16, [&](int task) {
        if (task == 5) throw std::runtime_error("task 5");
        std::this_thread::yield();
        ended += 1;
      });
    } catch (const std::runtime_error& error) {
      caught = error.what();
      EXPECT_EQ(ended, 15);
    }
    EXPECT_EQ(caught, "task 5");
  }
  std::atomic<int> after{0};
  executor_->run(16, [&](int) { after += 1; });
  EXPECT_EQ(after, 16);
}

TEST_P(PoolLaws, OneOfSeveralExceptionsIsPassedOn) {
  std::atomic<int> ended{0};
  EXPECT_THROW(executor_->run(16,
                              [&](int task) {
                                ended += 1;
                                throw task;
                              }),
               int);
  EXPECT_EQ(ended, 16);
  EXPECT_NO_THROW(executor_->run(16, [](int) {}));
}

TEST_P(PoolLaws, TheFirstExceptionWins) {
  std::atomic<bool> thrown{false};
  try {
    executor_->run(2, [&](int task) {
      if (task == 0) {
        thrown = true;
        throw std::runtime_error("first");
      }
      while (!thrown) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the pool has caught it
      throw std::runtime_error("second");
    });
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_TRUE(thrown);
}

TEST_P(PoolLaws, IsAsWideAfterManyJobsExceptionsAndSleep) {
  for (int job = 0; job < 20; ++job) {
    EXPECT_THROW(executor_->run(2, [](int) { throw 1; }), int);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // helpers have gone to sleep and must be woken
  Rendezvous all(GetParam());
  std::atomic<int> met{0};
  executor_->run(GetParam(), [&](int) { met += all.arrive() ? 1 : 0; });
  EXPECT_EQ(met, GetParam());
}

TEST_P(PoolLaws, AllocatesNothingOnceItsThreadsExist) {
  std::atomic<int> sum{0};
  const auto task = [&](int index) { sum += index; };
  executor_->run(64, task);
  const long before = test::allocation_count();
  for (int job = 0; job < 100; ++job) executor_->run(64, task);
  EXPECT_EQ(test::allocation_count(), before);
}

TEST_P(PoolLaws, IsIdleWhenThereIsNoWork) {
  executor_->run(GetParam(), [](int) {});
  const auto processor_seconds = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = processor_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(processor_seconds() - before, 0.1);  // one thread that spins would use 0.3
}

#if defined(__x86_64__)
TEST_P(PoolLaws, EveryThreadHasTheCallersFloatingPointControl) {
  constexpr std::uint64_t flush_subnormals = 0x8040;  // FTZ and DAZ
  const std::uint64_t ordinary = float_control();
  for (const std::uint64_t control : {ordinary | flush_subnormals, ordinary}) {
    Rendezvous all(GetParam());
    std::atomic<int> flushed{0};
    set_float_control(control);
    executor_->run(GetParam(), [&](int) {
      all.arrive();
      volatile float small = std::numeric_limits<float>::min();
      flushed += small * 0.5f == 0 ? 1 : 0;
    });
    set_float_control(ordinary);
    EXPECT_EQ(flushed, control == ordinary ? 0 : GetParam());
  }
}
#endif

TEST(Pool, WidthIsAtLeastOneAndBounded) {
  EXPECT_EQ(make_executor(0)->width(), 1);
  EXPECT_EQ(make_executor(-7)->width(), 1);
  EXPECT_EQ(make_executor(std::numeric_limits<int>::max())->width(), most_threads);
}

TEST(Pool, StartsNoThreadBeforeItsFirstJob) {
  const long before = test::allocation_count();
  const auto executor = make_executor(most_threads);
  EXPECT_LE(test::allocation_count() - before, 1);
}

TEST(Pool, TheDefaultExecutorIsOneAndAsWideAsTheHost) {
  EXPECT_EQ(&default_executor(), &default_executor());
  EXPECT_EQ(default_executor().width(), Machine::host().threads);
  std::atomic<int> runs{0};
  default_executor().run(9, [&](int) { runs += 1; });
  EXPECT_EQ(runs, 9);
}

TEST(Pool, IsMadeAndEndedManyTimes) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    const auto executor = make_executor(4);
    std::atomic<int> runs{0};
    executor->run(repeat % 6, [&](int) { runs += 1; });
    EXPECT_EQ(runs, repeat % 6);
  }
}

}  // namespace
}  // namespace fresnel
