// SPDX-License-Identifier: Apache-2.0
// Does a record still say what its files say? Everything that can be computed from the folder alone is computed again:
// hashes, judgements by the oracle, distances, medians. Times cannot be; they are held to the protocol's counts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "evidence/sources.hpp"

namespace fresnel::evidence {

struct Audit {
  std::vector<std::string> faults;           ///< what does not hold, a sentence each
  std::vector<std::string> changed_sources;  ///< differ from the record's, are gone, or are new
  std::string commit;                        ///< the record's
  std::string manifest_sha256;
  std::size_t files = 0, judged = 0, samples = 0;  ///< looked at
};

/// `sources`: those the record's are compared with, of the running program or of a folder. Refuses only a folder that
/// is no record at all; whatever is wrong with a record is a fault.
[[nodiscard]] Result<Audit> audit(const std::filesystem::path& folder, const Sources& sources);

/// The sources that a record says made it, for finding them elsewhere.
[[nodiscard]] Result<Sources> sources_of_record(const std::filesystem::path& folder);

}  // namespace fresnel::evidence
