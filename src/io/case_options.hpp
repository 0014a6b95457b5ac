// SPDX-License-Identifier: Apache-2.0
// The words a case file speaks in its metadata: `problem`, `tokens` and `show`, each a piece of JSON. Keys and types
// are exactly those of docs/semantics.md; a key that is unknown, given twice or of the wrong type is refused by name,
// since a misspelt option must not be ignored. Ranges are validate's to judge.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fresnel/problem.hpp"
#include "fresnel/result.hpp"

namespace fresnel {

/// What metadata key `problem` says.
struct CaseOptions {
  Options options;
  bool alibi_given = false;                ///< key `alibi` is present and not null
  std::optional<std::int64_t> block_size;  ///< tokens per block of a paged cache
};

/// softmax_scale, causal, alignment, window_size_left, window_size_right, softcap, alibi, block_size; absent or null
/// means default. Refusals name `problem.KEY`.
[[nodiscard]] Result<CaseOptions> parse_case_options(std::string_view text);

/// Is this the name of one of those keys?
[[nodiscard]] bool is_case_option(std::string_view name);

/// A list of strings. Refusals name `tokens`.
[[nodiscard]] Result<std::vector<std::string>> parse_tokens(std::string_view text);

/// The query row that a person wants to see.
struct Show {
  std::int64_t batch = 0;
  std::int64_t head = 0;  ///< query head
  std::int64_t query = 0;
  bool operator==(const Show&) const = default;
};

/// An object with batch, head and query. Refusals name `show` or `show.KEY`.
[[nodiscard]] Result<Show> parse_show(std::string_view text);

}  // namespace fresnel
