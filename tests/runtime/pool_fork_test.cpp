// SPDX-License-Identifier: Apache-2.0
// The pool after fork: the child has threads of its own, whatever the parent's were doing; nothing hangs and nobody
// joins the parent's threads. A child that hangs is ended by its alarm and fails the test.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "fresnel/executor.hpp"
#include "runtime/rendezvous.hpp"

namespace fresnel {
namespace {

using test::Rendezvous;

#if defined(__SANITIZE_THREAD__)
constexpr bool under_thread_sanitizer = true;
#elif defined(__has_feature)
constexpr bool under_thread_sanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool under_thread_sanitizer = false;
#endif

/// What `child` returned in a forked process; -1 when it did not end by itself.
template <class Child>
int result_in_child(Child child) {
  const pid_t process = fork();
  if (process == 0) {
    alarm(60);
    _exit(child());
  }
  int status = 0;
  if (process < 0 || waitpid(process, &status, 0) != process || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

/// 0 when `tasks` tasks really ran side by side.
int runs_side_by_side(Executor& executor, int tasks) {
  Rendezvous all(tasks);
  std::atomic<int> met{0};
  executor.run(tasks, [&](int) { met += all.arrive() ? 1 : 0; });
  return met == tasks ? 0 : 1;
}

class PoolFork : public testing::Test {
 protected:
  void SetUp() override {
    if (under_thread_sanitizer) GTEST_SKIP() << "the thread sanitizer does not follow threads of a forked child";
  }
};

TEST_F(PoolFork, TheChildHasThreadsOfItsOwn) {
  const auto executor = make_executor(3);
  ASSERT_EQ(runs_side_by_side(*executor, 3), 0);
  EXPECT_EQ(result_in_child([&] { return runs_side_by_side(*executor, 3); }), 0);
  EXPECT_EQ(runs_side_by_side(*executor, 3), 0);  // the parent's are unharmed
}

TEST_F(PoolFork, TheGrandchildToo) {
  const auto executor = make_executor(3);
  ASSERT_EQ(runs_side_by_side(*executor, 3), 0);
  const auto child = [&] {
    if (runs_side_by_side(*executor, 3) != 0) return 2;
    return result_in_child([&] { return runs_side_by_side(*executor, 3); });
  };
  EXPECT_EQ(result_in_child(child), 0);
}

TEST_F(PoolFork, WhileOtherThreadsRunJobs) {
  const auto executor = make_executor(3);
  std::atomic<bool> enough{false};
  std::atomic<long> jobs{0};
  const auto keep_busy = [&] {
    while (!enough) {
      executor->run(6, [](int) { std::this_thread::yield(); });
      jobs += 1;
    }
  };
  std::thread first(keep_busy), second(keep_busy);
  while (jobs < 10) std::this_thread::yield();
  int failures = 0;
  for (int repeat = 0; repeat < 20 && failures == 0; ++repeat) {
    if (result_in_child([&] { return runs_side_by_side(*executor, 3); }) != 0) failures += 1;
  }
  enough = true;
  first.join();
  second.join();
  EXPECT_EQ(failures, 0);
}

TEST_F(PoolFork, WhileOtherThreadsMakePools) {
  std::atomic<bool> enough{false};
  std::thread maker([&] {
    while (!enough) make_executor(3)->run(3, [](int) {});
  });
  int failures = 0;
  for (int repeat = 0; repeat < 20 && failures == 0; ++repeat) {
    if (result_in_child([] { return runs_side_by_side(*make_executor(2), 2); }) != 0) failures += 1;
  }
  enough = true;
  maker.join();
  EXPECT_EQ(failures, 0);
}

TEST_F(PoolFork, TheDefaultExecutorServesParentAndChild) {
  const int width = default_executor().width();
  ASSERT_EQ(runs_side_by_side(default_executor(), width), 0);
  EXPECT_EQ(result_in_child([&] { return runs_side_by_side(default_executor(), width); }), 0);
}

TEST_F(PoolFork, TheChildMayEndAPoolOfItsParent) {
  auto executor = make_executor(3);
  ASSERT_EQ(runs_side_by_side(*executor, 3), 0);
  const auto child = [&] {
    executor.reset();
    return 0;
  };
  EXPECT_EQ(result_in_child(child), 0);
}

}  // namespace
}  // namespace fresnel
