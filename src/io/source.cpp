// SPDX-License-Identifier: Apache-2.0
// Regular files through the system's own calls: opening must not wait for a pipe's other end, and the size must be that
// of the file which was opened.
#include "io/source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "semantics/words.hpp"

namespace fresnel {
namespace {

std::string system_text(int error) { return std::generic_category().message(error); }

class FileSource final : public Source {
 public:
  FileSource(int file, std::uint64_t size, std::string label) : file_(file), size_(size), label_(std::move(label)) {}
  ~FileSource() override { ::close(file_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  [[nodiscard]] const std::string& label() const override { return label_; }
  [[nodiscard]] std::uint64_t size() const override { return size_; }

  [[nodiscard]] Status read(std::uint64_t offset, std::span<std::byte> into) const override {
    while (!into.empty()) {
      const ssize_t count = ::pread(file_, into.data(), into.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return refuse(label_, system_text(errno), "a file that can be read");
      if (count == 0)
        return refuse(label_, fmt::format("fewer than {} bytes", size_), "a file that nobody is changing");
      into = into.subspan(static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    }
    return Done{};
  }

 private:
  int file_;
  std::uint64_t size_;
  std::string label_;
};

class MemorySource final : public Source {
 public:
  MemorySource(std::span<const std::byte> bytes, std::string_view label) : bytes_(bytes), label_(label) {}

  [[nodiscard]] const std::string& label() const override { return label_; }
  [[nodiscard]] std::uint64_t size() const override { return bytes_.size(); }

  [[nodiscard]] Status read(std::uint64_t offset, std::span<std::byte> into) const override {
    if (!into.empty()) std::memcpy(into.data(), bytes_.data() + offset, into.size());
    return Done{};
  }

 private:
  std::span<const std::byte> bytes_;
  std::string label_;
};

}  // namespace

Result<std::unique_ptr<Source>> open_source(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return refuse(path.string(), system_text(errno), "a file that can be read");
  struct stat status {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(file);
    return refuse(path.string(), "something that is not a regular file", "a regular file");
  }
  return std::unique_ptr<Source>(std::make_unique<FileSource>(file, static_cast<std::uint64_t>(status.st_size), path));
}

std::unique_ptr<Source> memory_source(std::span<const std::byte> bytes, std::string_view label) {
  return std::make_unique<MemorySource>(bytes, label);
}

Refusal out_of_memory(std::string_view label) {
  Refusal refusal = refuse(std::string(label), "more than fits in memory", "a file that fits in memory");
  refusal.fault = Fault::out_of_memory;
  return refusal;
}

}  // namespace fresnel
