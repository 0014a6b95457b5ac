// SPDX-License-Identifier: Apache-2.0
// What a report takes from elsewhere: a record of `fresnel record`, and what bench/peers.py measured of other
// libraries.
#pragma once

#include <cstdint>
#include <string>

#include "cli/json.hpp"
#include "fresnel/problem.hpp"
#include "fresnel/result.hpp"

namespace fresnel::cli {

/// The first run of a record: its longest problem to be drawn, and the medians of all its lengths.
struct Recorded {
  std::string problem;  ///< a problem line
  std::string inputs;   ///< a kind of inputs
  std::uint64_t seed = 0;
  std::string source;  ///< for people
  Json times;          ///< as times_json has them; null where there is one length only
};

/// Reads DIR/results.json; refuses, naming CASE, what `fresnel record` does not write. Audits nothing.
[[nodiscard]] Result<Recorded> recorded(const std::string& folder);

/// Adds to `times` the rows of a document of `bench/peers.py --json` that are `problem` at any length: one series for
/// each library and kernel. Refuses, naming --peers, files without such rows.
[[nodiscard]] Status add_peers(Json& times, const Problem& problem, const std::string& path);

}  // namespace fresnel::cli
