// SPDX-License-Identifier: Apache-2.0
// Who runs the work. Pass your own Executor to keep fresnel inside your threads; otherwise one pool is made at first
// use.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)  // what stands below is what a shared library exports

namespace fresnel {

/// A borrowed callable `void(int task)`: two pointers, no allocation. The callable must outlive the call.
class TaskRef {
 public:
  template <class Function>
  requires(!std::is_same_v<std::remove_cvref_t<Function>, TaskRef> && std::is_invocable_v<Function&, int>)
      TaskRef(Function&& function)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* object, int task) { (*static_cast<std::remove_reference_t<Function>*>(object))(task); }) {}

  void operator()(int task) const { call_(object_, task); }

 private:
  void* object_;
  void (*call_)(void*, int);
};

/// Runs `tasks` independent tasks and returns when all are done. Any width is right: tasks may run on one thread in any
/// order, or all at once. An adapter for OpenMP or oneTBB is one function of a few lines (examples/).
class Executor {
 public:
  virtual ~Executor() = default;
  /// How many tasks may run at the same time, at least 1.
  [[nodiscard]] virtual int width() const = 0;
  virtual void run(int tasks, TaskRef task) = 0;
};

/// The process-wide pool of std::thread, as wide as `Machine::host().threads`: threads start with the first job and
/// again after fork; never nested (a call from inside a task runs inline). Several threads may call `run` at once. When
/// a task throws, the others still run, then the first exception goes to the caller. Throws Error where Machine::detect
/// refuses.
[[nodiscard]] Executor& default_executor();

/// A pool of its own with `threads` threads, the caller's included (below 1 counts as 1, and 1 runs everything inline).
/// To be destroyed when no job is running.
[[nodiscard]] std::unique_ptr<Executor> make_executor(int threads);

}  // namespace fresnel

#pragma GCC visibility pop
