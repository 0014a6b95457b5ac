// SPDX-License-Identifier: Apache-2.0
// What one query row attends to: its largest attention weights, with the tokens they belong to. Weights come from the
// oracle, not from the kernel, which never holds them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/case_run.hpp"
#include "cli/json.hpp"
#include "cli/print.hpp"
#include "cli/usage.hpp"

namespace fresnel::cli {

struct QueryRow {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t query = 0;
};

/// --batch, --head and --query as typed.
struct RowChoice {
  Text batch, head, query;
  void add_to(Usage& usage);
  [[nodiscard]] bool made() const { return batch || head || query; }
};

struct Weight {
  std::int64_t key = 0;
  double weight = 0;
};

struct Attended {
  QueryRow row;
  std::int64_t position = 0;    ///< of the query among the keys; its token is the one there
  std::int64_t visible = 0;     ///< keys the row sees
  std::vector<Weight> largest;  ///< in falling order
};

/// `row` with what was typed in its place; indices outside the problem are refused.
[[nodiscard]] Result<QueryRow> typed_row(const RowChoice& choice, const Problem& problem, QueryRow row);

/// The row to show: what was typed, else the case's `show`, else head 0 and the last query. Nothing where the case has
/// no tokens and nothing was typed. Indices outside the problem are refused.
[[nodiscard]] Result<std::optional<QueryRow>> chosen_row(const RowChoice& choice, const CaseRun& run);

[[nodiscard]] Result<Attended> attended(const CaseRun& run, const QueryRow& row);

[[nodiscard]] std::string bars_of(const Attended& attended, const Case& given, const Paint& paint);
[[nodiscard]] Json to_json(const Attended& attended, const Case& given);

}  // namespace fresnel::cli
