// SPDX-License-Identifier: Apache-2.0
// Runs the fresnel binary as a user would, with standard output and standard error caught in files, and gives each test
// a folder of its own that is gone afterwards. A run that does not end by itself is ended and counts as a failure.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fresnel::test {

using Json = nlohmann::json;

struct Outcome {
  int code = -1;  ///< exit code; 128 + signal where a signal ended it
  std::string out, err;
  /// The one document on standard output; a discarded value where it is not exactly one. A reference into the outcome,
  /// so that a loop over `outcome.json()["rows"]` does not walk a document that is gone (by value from an outcome that
  /// ends), and a mutable one, since asking a const document for a field that is missing is undefined.
  [[nodiscard]] Json& json() const&;
  [[nodiscard]] Json json() &&;

 private:
  mutable std::optional<Json> document_;
};

/// An empty folder for one test.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Names of what is in it, sorted.
  [[nodiscard]] std::vector<std::string> contents() const;

 private:
  std::filesystem::path path_;
};

/// Runs `fresnel words...`; `environment` adds to a small fixed environment (no colours, an empty cache directory).
[[nodiscard]] Outcome fresnel(const std::vector<std::string>& words,
                              const std::map<std::string, std::string>& environment = {});

/// The same with standard output sent to `out`, which is not read back.
[[nodiscard]] Outcome fresnel_into(const std::string& out, const std::vector<std::string>& words,
                                   const std::map<std::string, std::string>& environment = {});

/// The same with a terminal for standard output; for short texts only, since nobody reads while the program runs.
[[nodiscard]] Outcome fresnel_on_terminal(const std::vector<std::string>& words,
                                          const std::map<std::string, std::string>& environment);

/// A case among the repository's test data.
[[nodiscard]] std::string data_case(const std::string& name);

/// What a failed expectation should show.
[[nodiscard]] std::string shown(const Outcome& run);

}  // namespace fresnel::test
