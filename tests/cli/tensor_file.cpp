// SPDX-License-Identifier: Apache-2.0
// Files by hand: see tensor_file.hpp. The layout is eight bytes of header length (little endian), the header, the data.
#include "cli/tensor_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace fresnel::test {

TensorFile TensorFile::small_case() {
  TensorFile file;
  file.set_problem("{\"causal\": true}");
  file.set_f32("q", {1, 2, 4, 8});
  file.set_f32("k", {1, 1, 6, 8});
  file.set_f32("v", {1, 1, 6, 8});
  return file;
}

TensorFile TensorFile::read(const std::string& path) {
  const std::string all = read_bytes(path);
  std::uint64_t length = 0;
  std::memcpy(&length, all.data(), sizeof length);
  const auto header = nlohmann::ordered_json::parse(all.substr(8, length));
  TensorFile file;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      file.metadata = entry;
      continue;
    }
    const std::size_t first = entry["data_offsets"][0], last = entry["data_offsets"][1];
    file.set(name, entry["dtype"], entry["shape"].get<std::vector<std::int64_t>>(),
             all.substr(8 + length + first, last - first));
  }
  return file;
}

void TensorFile::set(const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape,
                     std::string bytes) {
  remove(name);
  entries_.push_back({name, dtype, std::move(shape), std::move(bytes)});
}

void TensorFile::set_f32(const std::string& name, const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  std::vector<float> values;
  for (std::int64_t at = 0; at < count; ++at)
    values.push_back(std::sin(0.7f * static_cast<float>(at) + static_cast<float>(name.front())));
  set(name, "F32", shape, std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

void TensorFile::remove(const std::string& name) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.name == name; });
}

std::string& TensorFile::bytes_of(const std::string& name) {
  for (Entry& entry : entries_)
    if (entry.name == name) return entry.bytes;
  throw std::out_of_range(name);
}

std::string TensorFile::bytes() const {
  nlohmann::ordered_json header{{"__metadata__", metadata}};
  std::string data;
  for (const Entry& entry : entries_) {
    const std::size_t first = data.size();
    data += entry.bytes;
    header[entry.name] = {{"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {first, data.size()}}};
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data;
}

void TensorFile::write(const std::string& path) const { write_bytes(path, bytes()); }

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace fresnel::test
