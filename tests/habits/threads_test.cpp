// SPDX-License-Identifier: Apache-2.0
// The habits of threads, in a program of their own so that the thread sanitizer can be pointed at it alone.
#include "habits/register.hpp"

namespace fresnel::test {
namespace {

[[maybe_unused]] const bool registered = register_habits("Threads", thread_habits());

}  // namespace
}  // namespace fresnel::test
