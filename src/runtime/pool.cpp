// SPDX-License-Identifier: Apache-2.0
// The pool: threads that wait for jobs and help whoever calls `run`. The caller always takes part, so a job needs no
// helper to finish: a helper that is late, busy or could not be started costs time, never progress.
//
// A job is a slot. Tasks are claimed by counting `unclaimed` down and reported by counting `unfinished` down:
//
//     caller   fill slot | unclaimed = tasks | claim, run, ... | wait for unfinished == 0 | free slot
//     helper                    see signal   | claim, run, ...   unfinished - 1
//
// A helper reads a slot only between a claim and its report, and while a claimed task is not reported the slot cannot
// be reused; so slots need no lock. Several threads may call `run` at once: each has a slot of its own and helpers join
// any; when all slots are taken, the caller runs its tasks inline. Nothing here allocates once the threads exist.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "fresnel/executor.hpp"
#include "fresnel/machine.hpp"
#include "runtime/float_control.hpp"
#include "runtime/host.hpp"

namespace fresnel {
namespace {

/// How long a thread looks for work, or for the end of its job, before it sleeps: longer than the gap between the calls
/// of a tight loop, shorter than anybody would notice on an idle machine.
constexpr std::chrono::microseconds patience{30};

/// True while this thread runs a task: a call of `run` from inside one is run inline.
thread_local bool inside_task = false;

inline void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits for `condition` without sleeping, no longer than `limit`; whether it came true.
template <class Condition>
bool spin_until(std::chrono::microseconds limit, Condition condition) {
  if (condition()) return true;
  if (limit.count() == 0) return false;
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    for (int turn = 0; turn < 16; ++turn) {
      if (condition()) return true;
      pause_processor();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

/// Runs tasks and keeps the first exception until all have ended.
class Attempts {
 public:
  void run(const TaskRef& task, int index) {
    try {
      task(index);
    } catch (...) {
      if (!failed_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
    }
  }
  /// The exception, if any, and a clean slate.
  [[nodiscard]] std::exception_ptr take() {
    failed_.store(false, std::memory_order_relaxed);
    return std::exchange(error_, nullptr);
  }

 private:
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

class InsideTask {
 public:
  InsideTask() : before_(std::exchange(inside_task, true)) {}
  ~InsideTask() { inside_task = before_; }
  InsideTask(const InsideTask&) = delete;
  InsideTask& operator=(const InsideTask&) = delete;

 private:
  bool before_;
};

void run_inline(int tasks, const TaskRef& task) {
  Attempts attempts;
  {
    const InsideTask inside;
    for (int index = 0; index < tasks; ++index) attempts.run(task, index);
  }
  if (const std::exception_ptr error = attempts.take()) std::rethrow_exception(error);
}

struct alignas(64) Slot {
  std::atomic<bool> taken{false};
  int tasks = 0;
  const TaskRef* task = nullptr;
  std::uint64_t float_control = 0;
  Attempts attempts;
  alignas(64) std::atomic<int> unclaimed{0};  ///< may run below 0 when several helpers come too late
  alignas(64) std::atomic<int> unfinished{0};

  /// Claims and runs tasks until there are none left; whether there was any.
  bool help() {
    bool helped = false;
    while (unclaimed.load(std::memory_order_relaxed) > 0) {
      const int left = unclaimed.fetch_sub(1, std::memory_order_acquire);
      if (left <= 0) break;
      if (fresnel::float_control() != float_control) set_float_control(float_control);
      attempts.run(*task, tasks - left);
      helped = true;
      // Sequentially consistent, like the caller's wait: one of the two sees the other.
      if (unfinished.fetch_sub(1) == 1) unfinished.notify_one();
    }
    return helped;
  }
};

/// The threads of one pool in one process, and the slots of the jobs they help with.
class Team {
 public:
  /// Starts up to `helpers` threads; fewer when the system refuses more. `abandoned` is the team of the process this
  /// one was forked from: its threads do not exist here, its memory is left alone.
  Team(int helpers, int generation, Team* abandoned);
  ~Team();

  [[nodiscard]] int generation() const { return generation_; }
  /// Runs the job; nothing has happened when it returns false (every slot is taken).
  [[nodiscard]] bool run(int tasks, const TaskRef& task, std::exception_ptr& error);

 private:
  void work(std::size_t helper);
  void announce(int wanted);
  Slot* take_slot();

  std::array<Slot, 8> slots_;
  alignas(64) std::atomic<std::uint32_t> signal_{0};  ///< changes with every job
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stopping_{false};
  std::chrono::microseconds patience_;
  int generation_;
  [[maybe_unused]] Team* abandoned_;  ///< kept reachable, never used
  std::vector<std::thread> threads_;
};

/// Blocks the signals that a program handles on its own threads; faults stay with the thread that causes them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

Team::Team(int helpers, int generation, Team* abandoned) : generation_(generation), abandoned_(abandoned) {
  // More threads than processors would only spin in each other's way.
  patience_ = helpers < static_cast<int>(usable_processors().size()) ? patience : std::chrono::microseconds{0};
  threads_.reserve(static_cast<std::size_t>(helpers));
  const SignalsBlocked blocked;  // new threads inherit the mask
  try {
    for (int helper = 0; helper < helpers; ++helper) {
      threads_.emplace_back(&Team::work, this, static_cast<std::size_t>(helper));
    }
  } catch (const std::exception&) {
    // No more threads or no more memory for them: any width is right, jobs run on those that started.
  }
}

Team::~Team() {
  stopping_.store(true);
  signal_.fetch_add(1);
  signal_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Team::work(std::size_t helper) {
  inside_task = true;  // this thread never does anything else
  while (true) {
    const std::uint32_t seen = signal_.load();
    bool helped = false;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      helped |= slots_[(helper + slot) % slots_.size()].help();  // starting apart, helpers spread over concurrent jobs
    }
    if (helped) continue;
    if (stopping_.load()) return;
    if (spin_until(patience_, [&] { return signal_.load(std::memory_order_relaxed) != seen; })) continue;
    sleepers_.fetch_add(1);
    signal_.wait(seen);
    sleepers_.fetch_sub(1);
  }
}

void Team::announce(int wanted) {
  signal_.fetch_add(1);
  const int sleepers = sleepers_.load();
  if (sleepers <= wanted) {
    if (sleepers > 0) signal_.notify_all();
  } else {
    for (int woken = 0; woken < wanted; ++woken) signal_.notify_one();
  }
}

Slot* Team::take_slot() {
  for (Slot& slot : slots_) {
    if (!slot.taken.load(std::memory_order_relaxed) && !slot.taken.exchange(true, std::memory_order_acquire))
      return &slot;
  }
  return nullptr;
}

bool Team::run(int tasks, const TaskRef& task, std::exception_ptr& error) {
  Slot* const slot = take_slot();
  if (slot == nullptr) return false;
  slot->tasks = tasks;
  slot->task = &task;
  slot->float_control = float_control();
  slot->unfinished.store(tasks, std::memory_order_relaxed);
  slot->unclaimed.store(tasks, std::memory_order_release);
  announce(tasks - 1);
  {
    const InsideTask inside;
    slot->help();
  }
  spin_until(patience_, [&] { return slot->unfinished.load(std::memory_order_acquire) == 0; });
  for (int left; (left = slot->unfinished.load()) != 0;) slot->unfinished.wait(left);
  error = slot->attempts.take();
  slot->taken.store(false, std::memory_order_release);
  return true;
}

/// Counts the forks between the first process and this one; a team of another generation has no threads here.
constinit std::atomic<int> fork_generation{0};

/// Guards the making of teams and pools; held across fork so that a child never inherits it half way.
constinit std::mutex creation;

[[maybe_unused]] const int fork_handlers = pthread_atfork([] { creation.lock(); }, [] { creation.unlock(); },
                                                          [] {
                                                            fork_generation.fetch_add(1);
                                                            creation.unlock();
                                                          });

class Pool final : public Executor {
 public:
  explicit Pool(int threads) : threads_(std::clamp(threads, 1, most_threads)) {}
  ~Pool() override {
    Team* const team = team_.load();
    if (is_current(team)) delete team;
  }

  [[nodiscard]] int width() const override { return threads_; }

  void run(int tasks, TaskRef task) override {
    if (tasks <= 0) return;
    Team* const team = tasks == 1 || threads_ == 1 || inside_task ? nullptr : current_team();
    std::exception_ptr error;
    if (team == nullptr || !team->run(tasks, task, error)) return run_inline(tasks, task);
    if (error) std::rethrow_exception(error);
  }

 private:
  static bool is_current(const Team* team) {
    return team != nullptr && team->generation() == fork_generation.load(std::memory_order_relaxed);
  }

  /// The team of this process, made at its first job; null when there is no memory for one.
  Team* current_team() {
    Team* team = team_.load(std::memory_order_acquire);
    if (is_current(team)) return team;
    const std::lock_guard lock(creation);
    team = team_.load(std::memory_order_relaxed);
    if (is_current(team)) return team;
    try {
      team = new Team(threads_ - 1, fork_generation.load(std::memory_order_relaxed), team);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    team_.store(team, std::memory_order_release);
    return team;
  }

  int threads_;
  std::atomic<Team*> team_{nullptr};
};

/// Never destroyed: its threads may outlive every static object, and a forked child must not join them.
constinit std::atomic<Pool*> default_pool{nullptr};

}  // namespace

Executor& default_executor() {
  if (Pool* const pool = default_pool.load(std::memory_order_acquire)) return *pool;
  const int threads = Machine::host().threads;
  const std::lock_guard lock(creation);
  Pool* pool = default_pool.load(std::memory_order_relaxed);
  if (pool == nullptr) {
    pool = new Pool(threads);
    default_pool.store(pool, std::memory_order_release);
  }
  return *pool;
}

std::unique_ptr<Executor> make_executor(int threads) { return std::make_unique<Pool>(threads); }

}  // namespace fresnel
