// SPDX-License-Identifier: Apache-2.0
// What the sanitizers must allow for these tests: allocations that are refused and return null, as they do without a
// sanitizer. Harmless in ordinary builds.

extern "C" {
__attribute__((visibility("default"))) const char* __asan_default_options();
__attribute__((visibility("default"))) const char* __tsan_default_options();

const char* __asan_default_options() { return "allocator_may_return_null=1"; }
const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
}
