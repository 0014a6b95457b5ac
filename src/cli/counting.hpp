// SPDX-License-Identifier: Apache-2.0
// What the two halves of `fresnel count` share: the machine whose roofline stands beside a count, and how it is shown.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/json.hpp"
#include "cli/print.hpp"
#include "cli/usage.hpp"
#include "fresnel/problem.hpp"
#include "traffic/machines.hpp"

namespace fresnel::cli {

/// --machine as typed: a machine of the table, or `cpu`, this one as `fresnel machine` measured it last.
[[nodiscard]] Result<std::optional<traffic::Rates>> rates_for(const Text& machine);

/// {name, arithmetic_seconds, exponentials_seconds, workgroup_memory_seconds, device_memory_seconds, seconds, limit};
/// null where a rate is not known.
[[nodiscard]] Json to_json(const traffic::Rates& rates, const traffic::Roofline& roofline);

/// A table of times: a first column of labels, then each unit, the longest and its name.
class RooflineTable {
 public:
  explicit RooflineTable(const std::string& label);
  void add(const std::string& label, const traffic::Roofline& roofline);
  [[nodiscard]] std::string text(const Paint& paint) const { return table_.text(paint); }

 private:
  Table table_;
};

/// The rows of `fresnel count --kernel NAME PROBLEM...`: catalogue rows replayed by their walk.
[[nodiscard]] Result<int> count_kernels(const std::vector<std::string>& kernels, const std::vector<Problem>& problems,
                                        const std::optional<traffic::Rates>& rates, bool json);

}  // namespace fresnel::cli
