// SPDX-License-Identifier: Apache-2.0
// Files made byte by byte, so that tests can say what no writer would, and a directory that goes away with its content.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "fresnel/result.hpp"
#include "io/safetensors.hpp"

namespace fresnel::test {

using Bytes = std::vector<std::byte>;

inline Bytes bytes_of(std::string_view text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

inline Bytes file_bytes(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return bytes_of(std::string(std::istreambuf_iterator<char>(stream), {}));
}

inline void write_bytes(const std::filesystem::path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// A header as given, its true length before it, and zeros behind it.
inline Bytes raw_safetensors(const std::string& header, std::size_t data_bytes) {
  std::string text;
  for (int byte = 0; byte < 8; ++byte) text += static_cast<char>(header.size() >> (8 * byte) & 0xff);
  return bytes_of(text + header + std::string(data_bytes, '\0'));
}

struct RawTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
};

/// A well formed file of zeros.
Bytes raw_case(const Metadata& metadata, const std::vector<RawTensor>& tensors);

/// A directory of its own for one test.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fresnel_io_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  [[nodiscard]] std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

/// Expects a refusal whose argument is exactly `argument` and whose `given` and `accepted` contain the other two.
template <class T>
void expect_refusal(const Result<T>& result, std::string_view argument, std::string_view given,
                    std::string_view accepted, Fault fault = Fault::bad_input) {
  ASSERT_FALSE(result.ok()) << "nothing was refused, where " << argument << " should have been";
  const Refusal& refusal = result.refusal();
  EXPECT_EQ(refusal.argument, argument) << refusal.message();
  EXPECT_NE(refusal.given.find(given), std::string::npos) << refusal.message() << "\nwanted given: " << given;
  EXPECT_NE(refusal.accepted.find(accepted), std::string::npos)
      << refusal.message() << "\nwanted accepted: " << accepted;
  EXPECT_EQ(refusal.fault, fault) << refusal.message();
}

}  // namespace fresnel::test
