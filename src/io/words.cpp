// SPDX-License-Identifier: Apache-2.0
// Escaping and cutting; nothing here knows what a file is.
#include "io/words.hpp"

#include <fmt/format.h>

namespace fresnel {
namespace {

std::string escaped(std::string_view text) {
  constexpr std::size_t longest = 64;
  std::string result;
  for (const char character : text.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte >= 0x20 && byte < 0x7f)
      result += character;
    else
      result += fmt::format("\\x{:02x}", byte);
  }
  if (text.size() > longest) result += "...";
  return result;
}

}  // namespace

std::string readable(std::string_view text) { return text.empty() ? "(empty)" : escaped(text); }

std::string in_quotes(std::string_view text) { return '"' + escaped(text) + '"'; }

std::string print_shape(std::span<const std::int64_t> shape) {
  constexpr std::size_t most_axes = 16;
  std::string text = fmt::format("[{}", fmt::join(shape.first(std::min(shape.size(), most_axes)), ","));
  return text + (shape.size() > most_axes ? ",...]" : "]");
}

}  // namespace fresnel
