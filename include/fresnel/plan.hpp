// SPDX-License-Identifier: Apache-2.0
// The corridor: describe -> validate -> plan -> run. A Plan is the proof that one kernel fits one Problem on one
// Machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fresnel/executor.hpp"
#include "fresnel/machine.hpp"
#include "fresnel/problem.hpp"
#include "fresnel/result.hpp"
#include "fresnel/view.hpp"

#pragma GCC visibility push(default)  // what stands below is what a shared library exports

namespace fresnel {

struct Kernel;  // a row of the table in src/kernels/catalogue.cpp

/// q [B, Hq, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk, Dv]; optional alibi_slopes f32 [Hq] or [B, Hq] and
/// seqlens_k i32 [B], each in [0, Sk]. `dout`, the gradient of o and shaped like it, asks for the backward.
struct Inputs {
  View q, k, v;
  std::optional<View> alibi_slopes;
  std::optional<View> seqlens_k;
  std::optional<View> dout = std::nullopt;
};

/// o [B, Hq, Sq, Dv] in q's dtype; lse [B, Hq, Sq] float32 (float64 for float64 problems), natural log. With `dout` at
/// least one of dq, dk, dv (shapes and dtype of q, k, v) and dalibi_slopes (lse's dtype, shape of alibi_slopes), and
/// lse, which they are computed from.
struct Outputs {
  MutableView o;
  std::optional<MutableView> lse;
  std::optional<MutableView> dq = std::nullopt;
  std::optional<MutableView> dk = std::nullopt;
  std::optional<MutableView> dv = std::nullopt;
  std::optional<MutableView> dalibi_slopes = std::nullopt;
};

/// Reads shapes, strides and addresses, never data, and words every fault of the views.
[[nodiscard]] Result<Problem> describe(const Options& options, const Inputs& inputs, const Outputs& outputs);

/// Words every fault of a Problem; `Done` when it means something.
[[nodiscard]] Status validate(const Problem& problem);

/// Words every fault of the index arrays (reads them; host memory only).
[[nodiscard]] Status check_indices(const Problem& problem, const Inputs& inputs);

/// Rows and keys per tile.
struct Tile {
  std::int64_t queries = 1;
  std::int64_t keys = 1;
  bool operator==(const Tile&) const = default;
};

/// What a call moves and computes, from the row's formulas.
struct Cost {
  double operations = 0;     ///< 4 B Hq D per visible (query, key) pair (2 D + 2 Dv)
  double bytes = 0;          ///< inputs read once and outputs written once, beyond the caches
  double bytes_unfused = 0;  ///< the same with scores and probabilities written and read back
  double score_bytes = 0;    ///< the score matrix that is never written
};

struct PlanOptions {
  std::string kernel;  ///< force a row by name; empty: FRESNEL_KERNEL, else the first row that admits and prefers
  int lanes = 0;       ///< tasks `run` starts at most; 0: the machine's threads
};

/// Immutable, printable, reusable and shared between threads (a workspace is not).
struct Plan {
  Problem problem;
  const Kernel* kernel = nullptr;
  Isa isa = Isa::baseline;
  Tile tile;
  std::int64_t splits = 1;
  int lanes = 1;
  std::size_t lane_bytes = 0;    ///< workspace of one lane; a multiple of 64
  std::size_t shared_bytes = 0;  ///< workspace that lanes share, before theirs; a multiple of 64
  Cost cost;

  /// Bytes `run` wants, 64-byte aligned.
  [[nodiscard]] std::size_t workspace_bytes() const {
    return shared_bytes + lane_bytes * static_cast<std::size_t>(lanes);
  }
  [[nodiscard]] std::string_view kernel_name() const;
};

/// The first row that admits the problem, prefers it and is built; a refusal when every row says no. A problem with
/// `grad` is served by a backward row, the same problem without it by a forward row.
[[nodiscard]] Result<Plan> plan(const Problem& problem, const Machine& machine, const PlanOptions& options = {});

/// One line per row: chosen, or why not.
struct Explanation {
  std::string kernel;
  bool chosen = false;
  std::optional<Refusal> refusal;
};
[[nodiscard]] std::vector<Explanation> explain(const Problem& problem, const Machine& machine,
                                               const PlanOptions& options = {});

/// The plan as one line for people.
[[nodiscard]] std::string print(const Plan& plan);

/// Computes. Allocates nothing and checks only that the workspace is large enough and the views fit the plan's problem.
/// Same bits for any executor and any number of lanes. A backward plan reads the o and lse that a forward plan wrote.
[[nodiscard]] Status run(const Plan& plan, const Inputs& inputs, const Outputs& outputs, std::span<std::byte> workspace,
                         Executor& executor);

/// Where to run; everything has a default.
struct Context {
  Executor* executor = nullptr;    ///< default: default_executor()
  std::span<std::byte> workspace;  ///< default: allocated for the call
  PlanOptions options;
};

/// Which kernels ran and what they cost by their formulas.
struct Report {
  std::string kernel;
  Plan plan;
  std::string backward_kernel = {};  ///< empty where no gradients were asked for
  std::optional<Plan> backward = std::nullopt;
};

/// All steps at once, on this host: the forward and, with `dout`, the backward after it. A kernel forced by name is
/// forced on the pass that it serves.
[[nodiscard]] Result<Report> attend(const Problem& problem, const Inputs& inputs, const Outputs& outputs,
                                    const Context& context = {});
[[nodiscard]] Result<Report> attend(const Options& options, const Inputs& inputs, const Outputs& outputs,
                                    const Context& context = {});

/// Names of all rows, in order of preference.
[[nodiscard]] std::vector<std::string> kernel_names();

}  // namespace fresnel

#pragma GCC visibility pop
