// SPDX-License-Identifier: Apache-2.0
// Running a plan over and over and saying how fast that was: scratch, repeats, medians, and the floor below which no
// correct program on this machine can go. Computes nothing of attention itself and prints nothing.
#pragma once

#include <optional>
#include <vector>

#include "cli/session.hpp"
#include "fresnel/plan.hpp"
#include "runtime/ceilings.hpp"
#include "runtime/memory.hpp"

namespace fresnel::cli {

/// A plan and its scratch; runs any number of times.
class Runner {
 public:
  [[nodiscard]] static Result<Runner> make(const Problem& problem, const Session& session, const std::string& kernel);

  /// The same for a plan that is there already.
  [[nodiscard]] static Result<Runner> of(Plan plan);

  [[nodiscard]] const Plan& plan() const { return plan_; }
  /// Runs once and returns how many seconds it took.
  [[nodiscard]] Result<double> run(const Inputs& inputs, const Outputs& outputs, Executor& executor);

 private:
  Runner(Plan plan, AlignedBuffer scratch) : plan_(std::move(plan)), scratch_(std::move(scratch)) {}

  Plan plan_;
  AlignedBuffer scratch_;
};

/// The passes of a problem: the forward and, where it asks for gradients, the backward, which needs what the forward
/// wrote.
struct PassRunners {
  Runner forward;
  std::optional<Runner> backward;
  [[nodiscard]] static Result<PassRunners> make(const Problem& problem, const Session& session,
                                                const std::string& kernel);
};

/// Seconds of single runs.
struct Timing {
  std::vector<double> samples;
  bool warmed = false;  ///< an untimed run came first
  [[nodiscard]] double median() const;
};

/// Runs at least once, and repeats for about `budget` seconds. A first run of a second or more is its own timing; a
/// shorter one counts as the warm-up.
[[nodiscard]] Result<Timing> run_repeatedly(Runner& runner, const Inputs& inputs, const Outputs& outputs,
                                            Executor& executor, double budget);

/// 2 (D + Dv) per (query, key) pair that is visible, lengths included.
[[nodiscard]] double visible_operations(const Problem& problem, const Inputs& inputs);

/// The backward's, given the forward's: five products of matrices for each two, widths D and Dv as they fall.
[[nodiscard]] double backward_operations(const Problem& problem, double forward);

/// A measured ceiling for the threads in use: what all threads reached together, or less where fewer run.
[[nodiscard]] std::optional<double> ceiling_of(const Ceilings& ceilings, const std::string& figure, int threads);

/// The least time the machine's measured ceilings allow.
struct Floor {
  double seconds = 0;
  bool arithmetic = false;  ///< set by the multiply-add peak, else by the memory bandwidth
  /// floor / time: 1 is as fast as this machine can.
  [[nodiscard]] double share(double measured_seconds) const { return seconds / measured_seconds; }
};

/// Nothing where the ceilings of this machine have not been measured.
[[nodiscard]] std::optional<Floor> floor_of(const Plan& plan, double operations, const Session& session);

}  // namespace fresnel::cli
