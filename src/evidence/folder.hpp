// SPDX-License-Identifier: Apache-2.0
// A folder that appears complete or not at all: files are written below a temporary name beside the target, `commit`
// renames. It refuses a target that exists, so that no record is ever written over another.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fresnel/result.hpp"

namespace fresnel::evidence {

class NewFolder {
 public:
  /// Refusals name DIR.
  [[nodiscard]] static Result<NewFolder> create(const std::filesystem::path& given);
  NewFolder(NewFolder&& other) noexcept;
  NewFolder& operator=(NewFolder&&) = delete;
  /// Removes everything unless it was committed.
  ~NewFolder();

  /// Where a file is to be written; folders on the way are made.
  [[nodiscard]] Result<std::filesystem::path> place(const std::string& name) const;
  [[nodiscard]] Status write(const std::string& name, std::string_view text) const;
  [[nodiscard]] Status commit();

 private:
  NewFolder(std::filesystem::path target, std::filesystem::path temporary)
      : target_(std::move(target)), temporary_(std::move(temporary)) {}
  std::filesystem::path target_, temporary_;  ///< no temporary: committed, or moved from
};

/// A whole file of at most `most` bytes.
[[nodiscard]] Result<std::string> text_of(const std::filesystem::path& path, std::size_t most);

/// Paths of all regular files below a folder, relative to it, with /; sorted. Other things than files and folders are
/// listed as well, so that nothing in a record goes unnoticed.
[[nodiscard]] Result<std::vector<std::string>> files_below(const std::filesystem::path& folder);

}  // namespace fresnel::evidence
