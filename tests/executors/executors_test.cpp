// SPDX-License-Identifier: Apache-2.0
// The executors of examples/executors: each task runs once, exceptions arrive, and attention has the same bits on them
// as on one thread of our own: plainly, nested in their own parallel regions, and in a forked child.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "fresnel/fresnel.hpp"
#ifdef FRESNEL_OPENMP
#include "examples/executors/openmp.hpp"
#endif
#ifdef FRESNEL_TBB
#include "examples/executors/tbb.hpp"
#endif

namespace fresnel {
namespace {

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// Forward and backward of b2 h4/2 q70 k150 d32 f32 causal: o, lse, dq, dk and dv, one after another.
std::vector<float> attended(Executor& executor) {
  static const std::vector<float> q = random_values(2 * 4 * 70 * 32, 1), k = random_values(2 * 2 * 150 * 32, 2),
                                  v = random_values(2 * 2 * 150 * 32, 3), dout = random_values(2 * 4 * 70 * 32, 4);
  std::vector<float> all(2 * q.size() + 2 * 4 * 70 + k.size() + v.size());
  float* place = all.data();
  const auto next = [&place](std::initializer_list<std::int64_t> sizes) {
    const MutableView view(place, DType::f32, sizes);
    place += view.elements();
    return view;
  };
  Options options;
  options.causal = true;
  Context context;
  context.executor = &executor;
  context.options.lanes = 8;
  const Outputs outputs{next({2, 4, 70, 32}), next({2, 4, 70}), next({2, 4, 70, 32}), next({2, 2, 150, 32}),
                        next({2, 2, 150, 32})};
  const auto report = attend(options,
                             {{q.data(), DType::f32, {2, 4, 70, 32}},
                              {k.data(), DType::f32, {2, 2, 150, 32}},
                              {v.data(), DType::f32, {2, 2, 150, 32}},
                              {},
                              {},
                              View(dout.data(), DType::f32, {2, 4, 70, 32})},
                             outputs, context);
  if (!report) throw Error(report.refusal());
  return all;
}

bool same_bits(const std::vector<float>& first, const std::vector<float>& second) {
  return std::memcmp(first.data(), second.data(), first.size() * sizeof(float)) == 0;
}

const std::vector<float>& expected() {
  static const std::vector<float> values = attended(*make_executor(1));
  return values;
}

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

template <class Adapter>
class Adapters : public testing::Test {};
#if defined(FRESNEL_OPENMP) && defined(FRESNEL_TBB)
using Known = testing::Types<OpenMpExecutor, TbbExecutor>;
#elif defined(FRESNEL_OPENMP)
using Known = testing::Types<OpenMpExecutor>;
#else
using Known = testing::Types<TbbExecutor>;
#endif
TYPED_TEST_SUITE(Adapters, Known);

TYPED_TEST(Adapters, EachTaskRunsOnce) {
  TypeParam executor;
  EXPECT_GE(executor.width(), 1);
  for (const int tasks : {0, 1, 2, 100}) {
    std::vector<std::atomic<int>> ran(100);
    executor.run(tasks, [&](int index) { ran.at(static_cast<std::size_t>(index)) += 1; });
    for (int index = 0; index < 100; ++index)
      EXPECT_EQ(ran[static_cast<std::size_t>(index)], index < tasks ? 1 : 0) << tasks << " tasks, " << index;
  }
}

TYPED_TEST(Adapters, ExceptionsArrive) {
  TypeParam executor;
  EXPECT_THROW(executor.run(8,
                            [](int index) {
                              if (index == 5) throw std::runtime_error("five");
                            }),
               std::runtime_error);
  EXPECT_TRUE(same_bits(attended(executor), expected()));  // and the threads are unharmed
}

TYPED_TEST(Adapters, SameBits) {
  TypeParam executor;
  for (int turn = 0; turn < 20; ++turn) ASSERT_TRUE(same_bits(attended(executor), expected())) << turn;
}

TYPED_TEST(Adapters, SameBitsInsideItsOwnParallelRegion) {
  TypeParam outer, inner;
  std::atomic<int> right{0}, right_on_pool{0};
  outer.run(6, [&](int) {
    right += same_bits(attended(inner), expected()) ? 1 : 0;
    right_on_pool += same_bits(attended(default_executor()), expected()) ? 1 : 0;
  });
  EXPECT_EQ(right, 6);
  EXPECT_EQ(right_on_pool, 6);
}

TYPED_TEST(Adapters, SameBitsAfterFork) {
  TypeParam executor;
  ASSERT_TRUE(same_bits(attended(executor), expected()));  // the parent's threads exist
  const auto child = [&] {
    TypeParam of_the_child;
    return (same_bits(attended(executor), expected()) ? 0 : 1) +
           (same_bits(attended(of_the_child), expected()) ? 0 : 2) +
           (same_bits(attended(default_executor()), expected()) ? 0 : 4);
  };
  EXPECT_EQ(result_in_child(child), 0);
  EXPECT_TRUE(same_bits(attended(executor), expected()));
}

#ifdef FRESNEL_OPENMP
TEST(OpenMp, SameBitsInARegionOfTheCallersOwn) {
  std::atomic<int> right{0};
#pragma omp parallel num_threads(4)
  {
    OpenMpExecutor executor;
    right += same_bits(attended(executor), expected()) ? 1 : 0;
  }
  EXPECT_EQ(right, 4);
}
#endif

}  // namespace
}  // namespace fresnel
