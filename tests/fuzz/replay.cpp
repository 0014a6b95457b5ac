// SPDX-License-Identifier: Apache-2.0
// replay FOLDER [COUNT [FIRST]]: runs a target on every file of a folder, in order of their names, so that inputs which
// once found something are tried in every build, without libFuzzer; then on COUNT strings of random bytes, each made
// from its number alone, beginning with number FIRST. An empty folder is a fault: it would test nothing.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz/target.hpp"
#include "inputs/random.hpp"

namespace {

void replay(const std::string& name, std::span<const std::byte> bytes) {
  std::fprintf(stderr, "%s\n", name.c_str());  // the last one named is the one that failed
  fresnel::test::one_input(bytes);
}

std::vector<std::byte> random_bytes(std::int64_t number) {
  const fresnel::RowRandom random(1, fresnel::Role::q, number, 0, 0);
  std::vector<std::byte> bytes(static_cast<std::size_t>(random.below(96)));
  for (std::size_t at = 0; at < bytes.size(); ++at) bytes[at] = static_cast<std::byte>(random.word(at + 1) >> 56);
  return bytes;
}

}  // namespace

int main(int count, char** words) {
  using fresnel::test::demand;
  demand(count >= 2 && count <= 4, "usage: replay FOLDER [COUNT [FIRST]]");
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(words[1])) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  demand(!files.empty(), std::string(words[1]) + ": no files");
  for (const std::filesystem::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    const std::string content(std::istreambuf_iterator<char>(stream), {});
    replay(file.filename().string(), std::as_bytes(std::span(content)));
  }
  const std::int64_t more = count > 2 ? std::atoll(words[2]) : 0, first = count > 3 ? std::atoll(words[3]) : 0;
  for (std::int64_t number = first; number < first + more; ++number)
    replay("random " + std::to_string(number), random_bytes(number));
  std::fprintf(stderr, "%zu files and %lld random inputs\n", files.size(), static_cast<long long>(more));
  return 0;
}
