// SPDX-License-Identifier: Apache-2.0
#include "evidence/sources.hpp"

#include <algorithm>
#include <system_error>

#include "evidence/own_sources.inc"
#include "evidence/sha256.hpp"

namespace fresnel::evidence {

const Sources& own_sources() {
  static const Sources sources = [] {
    Sources all;
    for (const auto& [path, hash] : own_source_hashes) all.emplace(path, hash);
    return all;
  }();
  return sources;
}

std::string own_commit() { return own_commit_text; }

Result<Sources> sources_below(const std::filesystem::path& root, const Sources& paths) {
  std::error_code error;
  if (!std::filesystem::is_directory(root, error))
    return Refusal{Fault::bad_input, "", "--sources", "'" + root.string() + "'", "a folder that holds the sources", ""};
  Sources found;
  for (const auto& [path, unused] : paths) {
    static_cast<void>(unused);
    if (!std::filesystem::exists(root / path, error)) continue;
    const auto hash = sha256_of_file(root / path);
    if (!hash) return hash.refusal();
    found.emplace(path, *hash);
  }
  return found;
}

}  // namespace fresnel::evidence
