// SPDX-License-Identifier: Apache-2.0
#include "evidence/sha256.hpp"

#include <nettle/sha2.h>

#include <algorithm>
#include <array>
#include <vector>

#include "io/source.hpp"

namespace fresnel::evidence {
namespace {

class Digest {
 public:
  Digest() { sha256_init(&context_); }
  void add(std::span<const std::byte> bytes) {
    sha256_update(&context_, bytes.size(), reinterpret_cast<const std::uint8_t*>(bytes.data()));
  }
  [[nodiscard]] std::string hexadecimal() {
    std::array<std::uint8_t, SHA256_DIGEST_SIZE> digest{};
    sha256_digest(&context_, digest.size(), digest.data());
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (const std::uint8_t byte : digest) {
      text += digits[byte >> 4];
      text += digits[byte & 15];
    }
    return text;
  }

 private:
  sha256_ctx context_{};
};

}  // namespace

std::string sha256(std::span<const std::byte> bytes) {
  Digest digest;
  digest.add(bytes);
  return digest.hexadecimal();
}

std::string sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text.data(), text.size()))); }

Result<std::string> sha256_of_file(const std::filesystem::path& path) {
  const auto source = open_source(path);
  if (!source) return source.refusal();
  constexpr std::uint64_t most = 1 << 16;
  std::vector<std::byte> block(most);
  Digest digest;
  for (std::uint64_t at = 0; at < (*source)->size(); at += most) {
    const std::span<std::byte> part(block.data(), std::min(most, (*source)->size() - at));
    if (const Status read = (*source)->read(at, part); !read) return read.refusal();
    digest.add(part);
  }
  return digest.hexadecimal();
}

}  // namespace fresnel::evidence
