// SPDX-License-Identifier: Apache-2.0
// A problem with its numbers: inputs that tests own and may change one by one, a run that pre-fills every output and
// the workspace with NaN between guard zones, and answers that are compared bit by bit. Visibility and the textbook are
// worded here once more, from the written law alone, so that an error shared by the library's own mask and oracle still
// shows.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "fresnel/plan.hpp"
#include "support/host_tensor.hpp"
#include "support/runner.hpp"

namespace fresnel::test {

/// Small reproducible numbers: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  /// Uniform in [least, most].
  std::int64_t between(std::int64_t least, std::int64_t most);
  /// Uniform in [-1, 1).
  double real();
  bool chance(int one_in) { return between(1, one_in) == 1; }
  template <class Choices>
  auto pick(const Choices& choices) {
    return choices[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(std::size(choices)) - 1))];
  }

 private:
  std::uint64_t state_;
};

/// A line of the problem grammar that must parse.
[[nodiscard]] Problem problem_of(const std::string& line);

class Scenario {
 public:
  Problem problem;  ///< layout classes decide how q, k, v and o are placed
  HostTensor q, k, v;
  std::optional<HostTensor> slopes, lengths;

  /// Values uniform in [-1, 1) (queries 4 times that, so that weights differ), slopes in (0, 1/4], lengths full.
  explicit Scenario(const Problem& problem, std::uint64_t seed = 1);
  explicit Scenario(const std::string& line, std::uint64_t seed = 1) : Scenario(problem_of(line), seed) {}

  [[nodiscard]] Inputs inputs() const;
  void set_lengths(const std::vector<std::int64_t>& values);
  /// Replaces the storage of one input by another placement of the same values.
  void place(HostTensor Scenario::*which, const Placement& placement);

  [[nodiscard]] std::int64_t live_keys(std::int64_t b) const;
  [[nodiscard]] std::int64_t kv_head(std::int64_t h) const { return h / problem.group(); }
  /// Does query i of sequence b see key j? Positions, lengths, causal and windows as written in docs/semantics.md.
  [[nodiscard]] bool sees(std::int64_t b, std::int64_t i, std::int64_t j) const;
  /// Is key j hidden from every query of sequence b?
  [[nodiscard]] bool dead(std::int64_t b, std::int64_t j) const;
};

/// A run that did not come back clean: a refusal, a broken guard zone, another kernel than the one asked for.
class BrokenRun : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Answer {
  Plan plan;
  HostTensor o;
  std::optional<HostTensor> lse;
  Outputs outputs();
};

struct How {
  int lanes = 1;
  Executor* executor = nullptr;  ///< default: the calling thread
};

/// Plans with `runner`, runs on NaN-filled guarded outputs and workspace, checks every guard. Throws BrokenRun.
[[nodiscard]] Answer compute(const Runner& runner, const Scenario& scenario, const How& how = {});
/// The same on outputs, inputs and a problem of the caller's own.
void run_guarded(const Runner& runner, const Plan& plan, const Inputs& inputs, const Outputs& outputs, const How& how);

/// Which budget an answer must keep: the proven one always, the probable one where inputs are independent and random.
enum class Budgets : std::uint8_t { proven, proven_and_probable };

/// Judges an answer by the oracle and the row's declared roundings; "" when every element is within its budget.
[[nodiscard]] std::string judged(const Runner& runner, const Plan& plan, const Inputs& inputs, const Outputs& outputs,
                                 Budgets budgets = Budgets::proven);
/// compute, then judged; throws BrokenRun with the verdict when an element is wrong.
[[nodiscard]] Answer compute_and_judge(const Runner& runner, const Scenario& scenario, const How& how = {});

/// Are row (b, h, i) of `answer` and row (b2, h2, i2) of `other` equal, bit for bit, lse included?
[[nodiscard]] bool same_row(const Answer& answer, std::int64_t b, std::int64_t h, std::int64_t i, const Answer& other,
                            std::int64_t b2, std::int64_t h2, std::int64_t i2);
/// "" when all rows are equal, else where the first differs.
[[nodiscard]] std::string difference(const Answer& answer, const Answer& other);

/// o and lse in double by the two-pass textbook, one row at a time.
struct Textbook {
  std::vector<double> o;    ///< [B, Hq, Sq, Dv]
  std::vector<double> lse;  ///< [B, Hq, Sq]
};
[[nodiscard]] Textbook textbook(const Scenario& scenario);

}  // namespace fresnel::test
