// SPDX-License-Identifier: Apache-2.0
// What this machine can do at best, measured: a list of named figures. One table (ceilings.cpp) drives measuring,
// printing and the saved file. The figures describe and predict; nothing chooses by them how a result is computed.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fresnel/machine.hpp"

namespace fresnel {

/// One ceiling. `name` is its JSON field and ends in its unit: tflops (10^12 operations/s, two per multiply-add), gops
/// (10^9/s), gbps (10^9 bytes/s). Names without `_one_thread` are for all threads of the machine.
struct Figure {
  std::string_view name;
  std::string_view about;       ///< for people
  std::optional<double> value;  ///< nothing where this machine has no such unit or cache
};

struct Ceilings {
  std::string machine;  ///< Machine::name
  Isa isa = Isa::baseline;
  int cores = 1;
  int threads = 1;
  std::vector<Figure> figures;  ///< every row of the table, in its order

  /// How quiet the machine was while its arithmetic was measured; not saved. The share of the processor time asked for
  /// that it got, and the slowest of a figure's repeated medians over the fastest, for the figure that varied most.
  double processor_share = 1;
  double spread = 1;

  /// A figure by name; nothing where it is unknown or was not measured.
  [[nodiscard]] std::optional<double> of(std::string_view name) const;
};

/// The table without values, for this machine.
[[nodiscard]] Ceilings unmeasured(const Machine& machine);

/// Measures all figures (some seconds, all threads busy) and calls `progress` after each. Refuses a machine that is not
/// this host's kind (its device or vector set does not run here).
[[nodiscard]] Result<Ceilings> measure_ceilings(const Machine& machine,
                                                const std::function<void(const Figure&)>& progress = {});

/// The machine with its predicted rates (f32_tflops, f64_tflops, dram_gbps) filled in.
[[nodiscard]] Machine rated(Machine machine, const Ceilings& ceilings);

/// {"name", "isa", "cores", "threads", "peaks": {figure: number or null}} as text; `parse_ceilings` reads it back and
/// gives nothing for anything damaged.
[[nodiscard]] std::string to_json(const Ceilings& ceilings);
[[nodiscard]] std::optional<Ceilings> parse_ceilings(std::string_view text);

/// fresnel/machine.json in the user's cache directory ($XDG_CACHE_HOME or ~/.cache); nothing where there is none.
[[nodiscard]] std::optional<std::filesystem::path> ceilings_path();

/// Writes the file whole or not at all; refuses with Fault::io.
[[nodiscard]] Status save_ceilings(const Ceilings& ceilings);

/// The figures saved last for this machine: nothing when the file is missing, damaged, or for another name or vector
/// set.
[[nodiscard]] std::optional<Ceilings> load_ceilings(const Machine& machine);

}  // namespace fresnel
