// SPDX-License-Identifier: Apache-2.0
// How this room words what it found in a file. Names come from strangers: whatever is quoted here is short and plain
// ASCII, so that no message can be flooded or carry control characters.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace fresnel {

/// A name with everything but printable ASCII escaped, cut after 64 characters; "(empty)" for none.
[[nodiscard]] std::string readable(std::string_view text);

/// A text, escaped and cut alike, between double quotes.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// "[2,8,128,64]".
[[nodiscard]] std::string print_shape(std::span<const std::int64_t> shape);

}  // namespace fresnel
