// SPDX-License-Identifier: Apache-2.0
// Where bytes are read from: a regular file, or memory (so that a fuzzer needs no file). Readers ask for ranges they
// have checked against `size`; nothing is read ahead. Pipes, devices and directories are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fresnel/result.hpp"

namespace fresnel {

class Source {
 public:
  virtual ~Source() = default;
  /// What messages call it: the path, or a label.
  [[nodiscard]] virtual const std::string& label() const = 0;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  /// Fills `into` from `offset`; the range must lie within `size`. Refuses when the file has changed or cannot be read.
  [[nodiscard]] virtual Status read(std::uint64_t offset, std::span<std::byte> into) const = 0;
};

/// Opens a regular file.
[[nodiscard]] Result<std::unique_ptr<Source>> open_source(const std::filesystem::path& path);

/// Borrows `bytes`, which must outlive the source.
[[nodiscard]] std::unique_ptr<Source> memory_source(std::span<const std::byte> bytes, std::string_view label);

/// What a reader says when its own bookkeeping finds no memory.
[[nodiscard]] Refusal out_of_memory(std::string_view label);

}  // namespace fresnel
