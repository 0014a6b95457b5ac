// SPDX-License-Identifier: Apache-2.0
// What the page draws, as data: the walk of tiles with the running maximum and sum, attention of chosen rows, traffic
// by length, and how errors lie in their budgets. Everything comes from the room that the other commands ask; nothing
// here times or prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checker/shares.hpp"
#include "fresnel/plan.hpp"
#include "report/page.hpp"

namespace fresnel::report {

/// A query row of a problem.
struct Row {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t query = 0;
  bool operator==(const Row&) const = default;
};

/// `first`, then other queries of its head and its query in other heads: a handful that differ.
[[nodiscard]] std::vector<Row> rows_beside(const Problem& problem, const Row& first);

/// For the kernel's tile and, where that leaves little to see, for a smaller one: the class of every pair of tiles of
/// the rows' sequence, and for each row the key tiles it visits with m, l and the rescale after each.
[[nodiscard]] Result<Json> walks(const Problem& problem, const Inputs& inputs, const Tile& tile,
                                 const std::vector<Row>& rows);

/// Weights of each row: all of them, or the largest where there are too many to look at.
[[nodiscard]] Result<Json> attention(const Problem& problem, const Inputs& inputs, const std::vector<Row>& rows,
                                     const std::vector<std::string>& tokens);

/// What `fresnel count` counts for heads of this width, fused and unfused, N from 64 to 65,536.
[[nodiscard]] Result<Json> traffic_by_length(std::int64_t width);

/// Verdict and histogram of the shares of o and lse.
[[nodiscard]] Json budgets(const Verdict& verdict, const Shares& shares);

}  // namespace fresnel::report
