// SPDX-License-Identifier: Apache-2.0
// Who is under test: one row of a table on one instruction set. Tests loop over runners, so a new kernel or a new
// instruction set is tested without a new line. It refuses to choose: every plan is forced, and every plan is asked
// whether it is the one that was forced.
#pragma once

#include <string>
#include <vector>

#include "fresnel/executor.hpp"
#include "fresnel/plan.hpp"
#include "kernels/kernel.hpp"

namespace fresnel::test {

/// What went wrong, in words; empty when nothing did. Keeps the first few.
class Faults {
 public:
  void add(const std::string& text) {
    ++count_;
    if (texts_.size() < most_texts) texts_.push_back(text);
  }
  void expect(bool right, const std::string& text) {
    if (!right) add(text);
  }
  [[nodiscard]] bool none() const { return count_ == 0; }
  /// No more will be kept: what takes long to look for another may stop.
  [[nodiscard]] bool enough() const { return texts_.size() == most_texts; }
  /// "" or the count and the first faults, one a line.
  [[nodiscard]] std::string message() const;

 private:
  static constexpr std::size_t most_texts = 4;
  std::size_t count_ = 0;
  std::vector<std::string> texts_;
};

class Runner {
 public:
  /// `listed`: the row is in the catalogue and is planned through its name; else the plan is made here from the row
  /// alone.
  Runner(const Kernel& row, Isa isa, bool listed) : row_(&row), isa_(isa), listed_(listed) {}

  /// "cpu.flash on avx2".
  [[nodiscard]] std::string name() const;
  [[nodiscard]] const Kernel& row() const { return *row_; }
  [[nodiscard]] const Domain& domain() const { return row_->domain; }
  [[nodiscard]] bool has(Feature feature) const { return row_->domain.features.has(feature); }
  [[nodiscard]] bool has(DType dtype) const { return row_->domain.dtypes.has(dtype); }
  [[nodiscard]] bool listed() const { return listed_; }
  /// This host, narrowed to the runner's instruction set.
  [[nodiscard]] Machine machine() const;
  /// A plan by this row on this instruction set, whatever the environment says.
  [[nodiscard]] Result<Plan> plan(const Problem& problem, int lanes = 1) const;
  [[nodiscard]] Roundings roundings(const Plan& plan) const;

 private:
  const Kernel* row_;
  Isa isa_;
  bool listed_;
};

/// Every forward row of the catalogue that can run here (rows_here), on every instruction set that it runs on.
[[nodiscard]] std::vector<Runner> catalogue_runners();

/// The instruction sets that run here, weakest first.
[[nodiscard]] std::vector<Isa> isas_here();

/// Runs every task on the calling thread, first to last or last to first; claims any width.
class SerialExecutor final : public Executor {
 public:
  explicit SerialExecutor(int width = 1, bool backwards = false) : width_(width), backwards_(backwards) {}
  [[nodiscard]] int width() const override { return width_; }
  void run(int tasks, TaskRef task) override {
    for (int turn = 0; turn < tasks; ++turn) task(backwards_ ? tasks - 1 - turn : turn);
  }

 private:
  int width_;
  bool backwards_;
};

/// The float dtypes a runner computes, widest first.
[[nodiscard]] std::vector<DType> dtypes_of(const Runner& runner);

}  // namespace fresnel::test
