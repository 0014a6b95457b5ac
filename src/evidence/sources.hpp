// SPDX-License-Identifier: Apache-2.0
// Which sources this program was made of: paths below the repository's root with their SHA-256, and the commit, both
// written into the program by cmake/sources.cmake when it is built.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "fresnel/result.hpp"

namespace fresnel::evidence {

/// SHA-256 by path.
using Sources = std::map<std::string, std::string>;

/// Those of the running program.
[[nodiscard]] const Sources& own_sources();
/// The commit they were taken from, "" where there was no repository; an edited tree shows in the hashes alone.
[[nodiscard]] std::string own_commit();

/// The same paths below another root; a file that is not there has no entry.
[[nodiscard]] Result<Sources> sources_below(const std::filesystem::path& root, const Sources& paths);

}  // namespace fresnel::evidence
