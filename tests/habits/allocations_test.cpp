// SPDX-License-Identifier: Apache-2.0
// `run` takes no memory, and a call keeps none: malloc and its relatives are replaced in this program and counted, on
// every thread. Only for glibc without sanitizers, which replace malloc themselves; elsewhere the tests are skipped.
#include <gtest/gtest.h>
#include <malloc.h>
#include <stddef.h>

#include <atomic>
#include <memory>
#include <vector>

#include "habits/habits.hpp"
#include "support/toy.hpp"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FRESNEL_SANITIZED 1
#endif
#endif
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(FRESNEL_SANITIZED)
#define FRESNEL_COUNTS_MALLOC 1
#endif

namespace {
std::atomic<bool> counting{false};
std::atomic<int> taken{0};
std::atomic<long> held{0};  ///< bytes taken and not given back

#ifdef FRESNEL_COUNTS_MALLOC
void* note(void* memory) {
  if (counting.load(std::memory_order_relaxed)) ++taken;
  held += static_cast<long>(malloc_usable_size(memory));
  return memory;
}
#endif
}  // namespace

#ifdef FRESNEL_COUNTS_MALLOC
// By their names in the object file, since the C library reserves the ones it declares.
extern "C" {
void* libc_malloc(size_t bytes) __asm__("__libc_malloc");
void* libc_calloc(size_t count, size_t bytes) __asm__("__libc_calloc");
void* libc_realloc(void* memory, size_t bytes) __asm__("__libc_realloc");
void* libc_memalign(size_t alignment, size_t bytes) __asm__("__libc_memalign");
void libc_free(void* memory) __asm__("__libc_free");

void* counted_malloc(size_t bytes) __asm__("malloc");
void* counted_calloc(size_t count, size_t bytes) __asm__("calloc");
void* counted_realloc(void* memory, size_t bytes) __asm__("realloc");
void* counted_aligned_alloc(size_t alignment, size_t bytes) __asm__("aligned_alloc");
int counted_posix_memalign(void** memory, size_t alignment, size_t bytes) __asm__("posix_memalign");
void counted_free(void* memory) __asm__("free");

void* counted_malloc(size_t bytes) { return note(libc_malloc(bytes)); }
void* counted_calloc(size_t count, size_t bytes) { return note(libc_calloc(count, bytes)); }
void* counted_realloc(void* memory, size_t bytes) {
  held -= static_cast<long>(malloc_usable_size(memory));
  return note(libc_realloc(memory, bytes));
}
void* counted_aligned_alloc(size_t alignment, size_t bytes) { return note(libc_memalign(alignment, bytes)); }
int counted_posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = note(libc_memalign(alignment, bytes));
  return *memory == nullptr ? 12 : 0;
}
void counted_free(void* memory) {
  held -= static_cast<long>(malloc_usable_size(memory));
  libc_free(memory);
}
}
#endif

namespace fresnel::test {
namespace {

bool can_count() {
#ifdef FRESNEL_COUNTS_MALLOC
  return true;
#else
  return false;
#endif
}

/// How often memory was taken by run itself, on this executor.
int memory_taken(const Runner& runner, const Problem& problem, Executor& executor) {
  const Scenario scenario(problem, 31);
  Answer answer = compute(runner, scenario, {4, &executor});  // pools and tables of first use are made here
  AlignedBytes workspace(answer.plan.workspace_bytes());
  const Inputs inputs = scenario.inputs();
  const Outputs outputs = answer.outputs();
  taken = 0;
  counting = true;
  const Status status = run(answer.plan, inputs, outputs, workspace, executor);
  counting = false;
  if (!status) throw BrokenRun(status.refusal().message());
  return taken;
}

const std::vector<std::string> lines{"b2 h4/2 q70 k150 d64 f32 causal", "b1 h2 q1 k300 d33/20 f32 cap5 alibi:batch",
                                     "b2 h2 q9 k9 d8 f32 w2,0 lens bshd unaligned", "b1 h1 q3 k0 d8 f32"};

TEST(Allocations, RunTakesNoMemory) {
  if (!can_count()) GTEST_SKIP() << "malloc is not ours to replace here";
  SerialExecutor serial;
  for (const Runner& runner : catalogue_runners())
    for (const Problem& problem : problems_for(runner, lines))
      for (Executor* executor : {static_cast<Executor*>(&serial), &default_executor()})
        EXPECT_EQ(memory_taken(runner, problem, *executor), 0) << runner.name() << ": " << print(problem);
}

/// Bytes held after `calls` calls of work(length), each with another length, beyond what the longest and the first ten
/// left: threads are started by the first call that has work for them.
template <class Work>
long memory_kept(int calls, const Work& work) {
  long before = 0;
  work(calls);
  for (int length = 1; length <= calls; ++length) {
    work(length);
    if (length == 10) before = held;
  }
  return held - before;
}

/// A plan, a table or a workspace cached per length would grow with each of them. The tensors are made once.
TEST(Allocations, Row109_five_hundred_lengths_keep_no_memory) {
  if (!can_count()) GTEST_SKIP() << "malloc is not ours to replace here";
  constexpr std::int64_t most = 500, width = 8;
  HostTensor zeros(DType::bf16, {1, 1, most, width}), o = zeros, dq = zeros, dk = zeros, dv = zeros;
  HostTensor lse(DType::f32, {1, 1, most});
  zeros.fill([](const Index&) { return 0.0; });
  for (const Kernel& row : catalogue()) {
    Problem problem = problem_of("b1 h1 q1 k1 d8 bf16");
    problem.grad = row.domain.required.has(Feature::grad);
    if (row.run == nullptr || !plan(problem, Machine::host(), {.kernel = std::string(row.name), .lanes = 1})) continue;
    const auto call = [&](int length) {
      const auto in = [&] { return View(zeros.view().data, DType::bf16, {1, 1, length, width}); };
      const auto out = [&](HostTensor& to) {
        return MutableView(to.mutable_view().data, DType::bf16, {1, 1, length, width});
      };
      Inputs inputs{in(), in(), in(), {}, {}};
      Outputs outputs{out(o), MutableView(lse.mutable_view().data, DType::f32, {1, 1, length})};
      if (problem.grad) {
        inputs.dout = in();
        outputs.dq = out(dq), outputs.dk = out(dk), outputs.dv = out(dv);
      }
      Options options;
      options.causal = true;
      const auto report =
          attend(options, inputs, outputs,
                 {.executor = nullptr, .workspace = {}, .options = {.kernel = std::string(row.name), .lanes = 4}});
      ASSERT_TRUE(report.ok()) << report.refusal().message();
    };
    const auto lengths = static_cast<int>(std::min(most, row.domain.queries.most));
    EXPECT_LE(memory_kept(lengths, call), 0) << row.name;
  }
}

TEST(Allocations, MemoryKeptPerLengthIsCaught) {
  if (!can_count()) GTEST_SKIP() << "malloc is not ours to replace here";
  std::vector<std::unique_ptr<Plan>> cache;
  EXPECT_GT(memory_kept(50, [&](int) { cache.push_back(std::make_unique<Plan>()); }), 0);
}

TEST(Allocations, ARowThatTakesMemoryIsCaught) {
  if (!can_count()) GTEST_SKIP() << "malloc is not ours to replace here";
  SerialExecutor serial;
  const Runner honest(toy_row(Mistake::none), Isa::baseline, false),
      greedy(toy_row(Mistake::allocates), Isa::baseline, false);
  for (const Problem& problem : problems_for(honest, lines)) {
    EXPECT_EQ(memory_taken(honest, problem, serial), 0) << print(problem);
    EXPECT_GT(memory_taken(greedy, problem, serial), 0) << print(problem);
  }
}

}  // namespace
}  // namespace fresnel::test
