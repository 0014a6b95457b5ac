// SPDX-License-Identifier: Apache-2.0
// The counting `new`: a file of its own, since the compiler must not see through it.
#include "runtime/counted_allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<long> allocations{0};
}  // namespace

void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace fresnel::test {

long allocation_count() { return allocations.load(); }

}  // namespace fresnel::test
