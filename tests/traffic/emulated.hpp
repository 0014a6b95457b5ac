// SPDX-License-Identifier: Apache-2.0
// Shorthands of these tests: the lesson's problem, and runs that are known to be possible.
#pragma once

#include "cli/emulated_run.hpp"

namespace fresnel::test {

/// The problem of the lesson: one head, n queries and keys of width d in float32.
[[nodiscard]] inline Problem square(std::int64_t n, std::int64_t d, bool lse = false) {
  Problem problem;
  problem.queries = problem.keys = n;
  problem.head_dim = problem.value_dim = d;
  problem.lse = lse;
  return problem;
}

[[nodiscard]] inline cli::EmulatedRun emulated(traffic::Kind kind, const traffic::Shape& shape,
                                               traffic::Count idle_barrier = 0) {
  return cli::EmulatedRun::make(kind, shape, 1, idle_barrier).value();
}

}  // namespace fresnel::test
