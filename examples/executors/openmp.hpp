// SPDX-License-Identifier: Apache-2.0
// fresnel on OpenMP's threads. Inside a parallel region of the caller's own, OpenMP makes a team of one unless nesting
// was asked for. A forked child has none of its parent's OpenMP threads and may not wait for them (libgomp would, for
// ever), so there tasks run one after another. No exception may leave a parallel region: the first is carried out.
#pragma once

#include <omp.h>
#include <unistd.h>

#include <exception>

#include "fresnel/executor.hpp"

class OpenMpExecutor final : public fresnel::Executor {
 public:
  [[nodiscard]] int width() const override { return omp_get_max_threads(); }

  void run(int tasks, fresnel::TaskRef task) override {
    std::exception_ptr first;
#pragma omp parallel for schedule(dynamic, 1) if (getpid() == home)
    for (int index = 0; index < tasks; ++index) {
      try {
        task(index);
      } catch (...) {
#pragma omp critical(fresnel_exception)
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
  }

 private:
  static inline const pid_t home = getpid();  // the process whose threads they are
};
