// SPDX-License-Identifier: Apache-2.0
// UTF-8 by hand, in the few places where a terminal needs it: see text.hpp. Widths follow the blocks of Unicode's East
// Asian Width that occur in practice; a character outside them may misalign a column and do no other harm.
#include "cli/text.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace fresnel::cli {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t length = 1;  ///< bytes
  bool valid = false;
};

/// Decodes one character as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
Character decode(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<std::uint8_t>(text[at]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return {lead, 1, false};
  std::uint32_t code = lead & (0x7fu >> length);
  for (std::size_t at = 1; at < length; ++at) {
    if ((byte(at) & 0xc0) != 0x80) return {lead, 1, false};
    code = (code << 6) | (byte(at) & 0x3fu);
  }
  constexpr std::array<std::uint32_t, 5> least{0, 0, 0x80, 0x800, 0x10000};
  const bool valid = code >= least[length] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
  return valid ? Character{code, length, true} : Character{lead, 1, false};
}

struct Block {
  std::uint32_t first, last;
};

template <std::size_t N>
bool in(const std::array<Block, N>& blocks, std::uint32_t code) {
  for (const Block& block : blocks)
    if (code >= block.first && code <= block.last) return true;
  return false;
}

/// Control characters, line separators, direction marks and the invisible byte order mark.
constexpr std::array<Block, 6> acted_upon{
    {{0, 0x1f}, {0x7f, 0x9f}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}}};
constexpr std::array<Block, 4> zero_width{{{0x300, 0x36f}, {0x1ab0, 0x1aff}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}}};
constexpr std::array<Block, 8> double_width{{{0x1100, 0x115f},
                                             {0x2e80, 0xa4cf},
                                             {0xac00, 0xd7a3},
                                             {0xf900, 0xfaff},
                                             {0xfe30, 0xfe6f},
                                             {0xff00, 0xff60},
                                             {0x1f300, 0x1faff},
                                             {0x20000, 0x3fffd}}};

std::string escape(std::uint32_t code, bool valid) {
  switch (code) {
    case '\n': return "\\n";
    case '\t': return "\\t";
    case '\r': return "\\r";
    default: return valid && code > 0xff ? fmt::format("\\u{:04x}", code) : fmt::format("\\x{:02x}", code);
  }
}

/// Bytes of a colour sequence at the start of the text; 0 where there is none.
std::size_t colour_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const std::size_t end = text.find('m');
  return end == std::string_view::npos ? 0 : end + 1;
}

int width_of(const Character& character) {
  if (in(zero_width, character.code)) return 0;
  return in(double_width, character.code) ? 2 : 1;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Character character = decode(text);
    const bool plain = character.valid && !in(acted_upon, character.code);
    out += plain ? std::string(text.substr(0, character.length)) : escape(character.code, character.valid);
    text.remove_prefix(character.length);
  }
  return out;
}

std::string quoted(std::string_view text, int width) {
  return fmt::format("\"{}\"", fitted(printable(text), width - 2));
}

int columns(std::string_view text) {
  int total = 0;
  while (!text.empty()) {
    if (const std::size_t colour = colour_length(text)) {
      text.remove_prefix(colour);
      continue;
    }
    const Character character = decode(text);
    total += width_of(character);
    text.remove_prefix(character.length);
  }
  return total;
}

std::string fitted(std::string_view text, int width) {
  if (columns(text) <= width) return std::string(text);
  std::string out;
  int used = 0;
  while (!text.empty()) {
    const Character character = decode(text);
    used += width_of(character);
    if (used > width - 1) break;
    out += text.substr(0, character.length);
    text.remove_prefix(character.length);
  }
  return out + "…";
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(safe) == std::string_view::npos) return std::string(text);
  std::string out;
  for (const char character : text) {
    if (character == '\'')
      out += "'\\''";
    else
      out += character;
  }
  return fmt::format("'{}'", out);
}

}  // namespace fresnel::cli
