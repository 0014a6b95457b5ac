// SPDX-License-Identifier: Apache-2.0
// How much of their budgets the rows of the catalogue use, in numbers: honest runs on random and adversarial inputs,
// every output judged, medians and extremes kept. Knows no row by name: a new row gets its lines by being in the table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checker/shares.hpp"
#include "fresnel/executor.hpp"

namespace fresnel::test {

/// One output of one row in one dtype.
struct Tightness {
  std::string row, dtype, output;
  ShareCounts normal;         ///< inputs `normal`
  ShareCounts adversarial;    ///< every other kind of inputs
  double largest_normal = 0;  ///< share
  double largest_adversarial = 0;
  std::string worst_kind;     ///< of the largest adversarial share
  std::string worst_command;  ///< that shows the largest share of all
  std::int64_t mismatches = 0;

  [[nodiscard]] std::int64_t values() const { return normal.count() + adversarial.count(); }
};

/// Judges at least `values` outputs of every built row of the host and every dtype of its domain, all kinds of inputs
/// among them.
[[nodiscard]] std::vector<Tightness> measure_tightness(std::int64_t values, Executor& executor);

/// The lines of the table, in Markdown.
[[nodiscard]] std::string table_of(const std::vector<Tightness>& measured);

/// "cpu.flash, bf16, o" of each line of a table that table_of made, in order.
[[nodiscard]] std::vector<std::string> lines_of(const std::string& table);

/// What lines_of finds in the table of these rows, whatever was measured.
[[nodiscard]] std::vector<std::string> lines_for(const std::vector<const Kernel*>& rows);

}  // namespace fresnel::test
