// SPDX-License-Identifier: Apache-2.0
// Inputs from a seed, one call for any problem: random and adversarial kinds shared by tests, timing, checks and
// records. The same (problem, kind, seed) gives the same numbers on every platform, and problems that differ only in
// layout give the same logical values. Knows no kernel and no oracle: what is right is theirs to say.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "fresnel/plan.hpp"
#include "fresnel/result.hpp"
#include "inputs/guarded_tensor.hpp"

namespace fresnel {

struct Recipe;
struct RowPlace;

/// A row of the table of kinds (kinds.cpp).
struct InputKind {
  std::string_view name;
  std::string_view blurb;  ///< one line for people
  void (*q)(const Recipe&, const RowPlace&, std::span<double>);
  void (*k)(const Recipe&, const RowPlace&, std::span<double>);
  void (*v)(const Recipe&, const RowPlace&, std::span<double>);
  bool halves = true;  ///< f16 and bf16 can hold it
};

/// All kinds; the first is the ordinary one.
[[nodiscard]] std::span<const InputKind> input_kinds();

/// Owns the tensors of one problem, inputs filled and outputs full of NaN, each between guard zones and placed as the
/// problem's layout classes say (dout as o, a gradient as its input). Slopes are in (2^-8, 1); lengths are a mix of 0,
/// Sk and random ones; dout is normal for every kind.
class GeneratedInputs {
 public:
  [[nodiscard]] const Problem& problem() const { return problem_; }
  /// Views; valid while this object lives and is not moved from.
  [[nodiscard]] Inputs inputs() const;
  /// lse and gradients only where the problem asks for them.
  [[nodiscard]] Outputs outputs();

  /// Fills the outputs with NaN again.
  void reset_outputs();
  /// True while no byte around or between the rows of any tensor, input or output, has changed.
  [[nodiscard]] bool guards_intact() const;

 private:
  friend Result<GeneratedInputs> make_inputs(const Problem& problem, std::string_view kind, std::uint64_t seed);
  GeneratedInputs(const Problem& problem, GuardedTensor q, GuardedTensor k, GuardedTensor v, GuardedTensor o);

  Problem problem_;
  GuardedTensor q_, k_, v_, o_;
  std::optional<GuardedTensor> lse_, alibi_slopes_, seqlens_k_;
  std::optional<GuardedTensor> dout_, dq_, dk_, dv_, dalibi_slopes_;
};

/// Refuses a problem that `validate` refuses, a kind that does not exist or that the dtype cannot hold (both name
/// `inputs`), and, with Fault::out_of_memory, tensors beyond half of the machine's memory.
[[nodiscard]] Result<GeneratedInputs> make_inputs(const Problem& problem, std::string_view kind, std::uint64_t seed);

}  // namespace fresnel
