// SPDX-License-Identifier: Apache-2.0
// fresnel on oneTBB's threads: in the arena that the caller is in, as wide as that is. When a task throws, oneTBB gives
// up those that have not begun and hands the exception on. A forked child has none of its parent's threads, so there
// tasks run one after another.
#pragma once

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <unistd.h>

#include "fresnel/executor.hpp"

class TbbExecutor final : public fresnel::Executor {
 public:
  [[nodiscard]] int width() const override { return oneapi::tbb::this_task_arena::max_concurrency(); }

  void run(int tasks, fresnel::TaskRef task) override {
    if (getpid() == home)
      oneapi::tbb::parallel_for(0, tasks, task, oneapi::tbb::simple_partitioner());
    else
      for (int index = 0; index < tasks; ++index) task(index);
  }

 private:
  static inline const pid_t home = getpid();  // the process whose threads they are
};
