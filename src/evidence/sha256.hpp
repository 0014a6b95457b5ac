// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4, as Nettle computes it): what binds a record to its files and to the sources that made it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "fresnel/result.hpp"

namespace fresnel::evidence {

/// 64 hexadecimal digits.
[[nodiscard]] std::string sha256(std::span<const std::byte> bytes);
[[nodiscard]] std::string sha256(std::string_view text);

/// Of a regular file's bytes; refuses what cannot be read.
[[nodiscard]] Result<std::string> sha256_of_file(const std::filesystem::path& path);

}  // namespace fresnel::evidence
