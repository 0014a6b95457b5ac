// SPDX-License-Identifier: Apache-2.0
// Surroundings a test may change: an environment variable, and a directory of its own. Both are put back at the end.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace fresnel::test {

/// Sets (or, given nothing, unsets) a variable while it lives.
class Environment {
 public:
  Environment(const char* variable, std::optional<std::string> value) : variable_(variable) {
    if (const char* const before = std::getenv(variable)) before_ = before;
    set(value);
  }
  ~Environment() { set(before_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void set(const std::optional<std::string>& value) {
    if (value) {
      setenv(variable_, value->c_str(), 1);
    } else {
      unsetenv(variable_);
    }
  }

  const char* variable_;
  std::optional<std::string> before_;
};

/// A new empty directory, removed with all it holds.
class Directory {
 public:
  Directory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fresnel-runtime-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = pattern;
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace fresnel::test
