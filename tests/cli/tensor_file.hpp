// SPDX-License-Identifier: Apache-2.0
// A safetensors file put together by hand, byte by byte, so that tests can write files that the library's own writer
// refuses to write: wrong ranks, misspelt options, truncated data.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fresnel::test {

/// A file as a list of named float32 (or other) tensors and the case's options.
class TensorFile {
 public:
  /// A small valid case: q [1, 2, 4, 8], k and v [1, 1, 6, 8], float32.
  [[nodiscard]] static TensorFile small_case();
  /// Reads an existing file.
  [[nodiscard]] static TensorFile read(const std::string& path);

  void set(const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape, std::string bytes);
  /// float32 values that follow a fixed pattern.
  void set_f32(const std::string& name, const std::vector<std::int64_t>& shape);
  void remove(const std::string& name);
  [[nodiscard]] std::string& bytes_of(const std::string& name);
  /// The text of metadata key `problem`.
  void set_problem(const std::string& json) { metadata["problem"] = json; }

  [[nodiscard]] std::string bytes() const;
  void write(const std::string& path) const;

  nlohmann::ordered_json metadata = nlohmann::ordered_json::object();

 private:
  struct Entry {
    std::string name, dtype;
    std::vector<std::int64_t> shape;
    std::string bytes;
  };
  std::vector<Entry> entries_;
};

/// Writes bytes as they are.
void write_bytes(const std::string& path, const std::string& bytes);
[[nodiscard]] std::string read_bytes(const std::string& path);

}  // namespace fresnel::test
