// SPDX-License-Identifier: Apache-2.0
// A file that appears complete or not at all: bytes go to a temporary name in the target's directory, `commit` flushes
// them to the disk and renames. Until then the old file is untouched; on any failure the temporary is removed. It
// writes regular files only and refuses to replace a device, a pipe or a directory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "fresnel/result.hpp"
#include "fresnel/view.hpp"

namespace fresnel {

class AtomicFile {
 public:
  /// Opens a temporary beside `target`. All refusals of this class are Fault::io and name the target.
  [[nodiscard]] static Result<AtomicFile> create(const std::filesystem::path& target);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  /// Removes the temporary unless it was committed.
  ~AtomicFile();

  [[nodiscard]] Status write(std::span<const std::byte> bytes);
  [[nodiscard]] Status write(std::string_view text);
  /// The view's elements in C order, whatever its strides. `is_writable` must hold.
  [[nodiscard]] Status write_elements(const View& view);

  /// Flushes and renames; nothing may be written afterwards.
  [[nodiscard]] Status commit();

 private:
  AtomicFile(int file, std::filesystem::path target, std::filesystem::path temporary);
  [[nodiscard]] Status flush();
  [[nodiscard]] Status write_through(std::span<const std::byte> bytes);
  [[nodiscard]] Refusal failure(std::string_view act, int error) const;

  int file_ = -1;
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  std::vector<std::byte> buffer_;
};

/// Refuses, naming `argument`, a view that no writer can take: not in host memory, or with a last axis that is not
/// contiguous.
[[nodiscard]] Status is_writable(const View& view, std::string_view argument);

}  // namespace fresnel
