// SPDX-License-Identifier: Apache-2.0
// A row of the catalogue: one kernel with its contract. Validation, dispatch, tests, documents and benchmarks are loops
// over rows; a row and its formulas always compile, only `run` may be absent.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "fresnel/check.hpp"
#include "fresnel/plan.hpp"
#include "semantics/domain.hpp"

namespace fresnel {

struct CostFormulas;  // kernels/cost.hpp

/// What a kernel promises about equal bits (docs/semantics.md, "Same bits").
enum class Determinism : std::uint8_t { bitwise };

/// Everything `run` gets: a checked plan, views that fit it, and 64-byte aligned scratch: what lanes share, then a
/// slice for each.
struct Launch {
  const Plan& plan;
  const Inputs& inputs;
  const Outputs& outputs;
  std::span<std::byte> workspace;
  Executor& executor;
};

struct Kernel {
  std::string_view name;   ///< words with dots, e.g. "cpu.flash"
  std::string_view blurb;  ///< one line for people
  Device device = Device::cpu;
  Domain domain;   ///< where it is right
  Domain prefers;  ///< where it is chosen, whatever keys where lengths are given; no dtypes: only when forced or alone
  Domain prefers_also = {};  ///< and here, where one domain does not say it; no dtypes: nowhere else
  Determinism determinism = Determinism::bitwise;
  Tile (*tile)(const Problem&, const Machine&) = nullptr;
  bool needs_tile_unit = false;  ///< runs on Machine::tile_unit, with 512-bit vectors beside it
  std::size_t (*lane_bytes)(const Problem&, const Tile&) = nullptr;
  std::size_t (*shared_bytes)(const Problem&, const Tile&) = nullptr;  ///< workspace of all lanes; null: none
  std::int64_t (*items)(const Problem&, const Tile&) = nullptr;        ///< work items; null: those of the walk
  Cost (*cost)(const Problem&, const Tile&) = nullptr;
  const CostFormulas* formulas = nullptr;  ///< the same as text, for contracts
  Roundings (*roundings)(const Problem&, const Tile&) = nullptr;
  void (*run)(const Launch&) = nullptr;  ///< null: not built here
};

/// THE table, in order of preference.
[[nodiscard]] std::span<const Kernel> catalogue();

/// A row by name; null when there is none.
[[nodiscard]] const Kernel* find_kernel(std::string_view name);

}  // namespace fresnel
