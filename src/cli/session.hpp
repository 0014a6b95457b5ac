// SPDX-License-Identifier: Apache-2.0
// Where a command runs: the options that say so, the machine, and the threads of their own that it gets.
#pragma once

#include <memory>

#include "cli/usage.hpp"
#include "fresnel/executor.hpp"
#include "fresnel/machine.hpp"
#include "fresnel/plan.hpp"

namespace fresnel::cli {

/// --threads and --device as typed.
struct Placement {
  Text threads;
  Text device;
  void add_to(Usage& usage);
};

struct Session {
  Machine machine;
  int threads = 1;
  std::unique_ptr<Executor> executor;  ///< `threads` wide

  /// Options of a plan for `kernel` (empty: FRESNEL_KERNEL, else the planner's choice).
  [[nodiscard]] PlanOptions plan_options(const std::string& kernel) const { return {kernel, threads}; }
};

/// --inputs KIND, with the kinds there are in its help.
void add_inputs_option(Usage& usage, Text& kind);

/// Refuses a --kernel that no row of the catalogue has.
[[nodiscard]] Status known_kernel(const Text& kernel);

/// The same, but the controls are known as well: for commands that judge what they run.
[[nodiscard]] Status known_kernel_or_control(const Text& kernel);

/// Refuses devices that are not here (exit 3) or not known, and thread counts outside [1, most_threads].
[[nodiscard]] Result<Session> open_session(const Placement& placement);

}  // namespace fresnel::cli
