// SPDX-License-Identifier: Apache-2.0
// Runs a protocol and keeps what came out: every sample, the arrays that results rest on, and hashes that bind them to
// each other and to the sources.
//
//     DIR/manifest.json       who, what, where: version, commit, sources, machine, compiler, command, protocol, files
//         results.json        a group for each problem and seed: plans, roundings, judgements, samples, medians
//         arrays/*            what was computed, as safetensors, one file for each group
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "evidence/protocol.hpp"
#include "fresnel/machine.hpp"
#include "kernels/kernel.hpp"

namespace fresnel::evidence {

/// Whose kernels a protocol may name: this room knows none beyond the catalogue.
struct Kernels {
  const Kernel* (*find)(std::string_view name) = find_kernel;
  /// The widest tile of keys that a plan may ask of a kernel; 0: the kernel's own and no other.
  std::int64_t (*most_tile_keys)(const Kernel& kernel) = [](const Kernel&) { return std::int64_t{0}; };
};

struct RecordOptions {
  Kernels kernels;
  std::vector<std::string> command;                       ///< as typed
  std::function<void(const std::string& what)> say = {};  ///< progress
};

struct Recorded {
  bool ok = false;  ///< right where right was expected, wrong where wrong was, and every comparison within its bound
  Json results;
  std::string manifest_sha256;
};

/// Written whole or not at all, whether `ok` or not. Refuses a folder that exists, kernels that are not known or refuse
/// a problem, and tiles that a kernel does not leave open.
[[nodiscard]] Result<Recorded> record(const std::filesystem::path& target, const Protocol& protocol,
                                      const RecordOptions& options);

/// The manifest's digest: SHA-256 of the document as written without its `digest`.
[[nodiscard]] std::string digest_of(Json manifest);

/// As in files: keys sorted, indented by one, a newline at the end.
[[nodiscard]] std::string file_text(const Json& document);

}  // namespace fresnel::evidence
