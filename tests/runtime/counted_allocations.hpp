// SPDX-License-Identifier: Apache-2.0
// Counts every `new` of the test program, on all threads.
#pragma once

namespace fresnel::test {

/// Allocations since the program began.
[[nodiscard]] long allocation_count();

}  // namespace fresnel::test
