// SPDX-License-Identifier: Apache-2.0
// Temporary, flush, rename. The temporary's name holds the process and a counter, and is created exclusively, so that
// two writers of one file never share it.
#include "io/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "semantics/words.hpp"

namespace fresnel {
namespace {

constexpr std::size_t buffered = std::size_t{1} << 20;

Refusal io_refusal(const std::filesystem::path& target, std::string given) {
  Refusal refusal = refuse(target.string(), std::move(given), "a path that can be written");
  refusal.fault = Fault::io;
  return refusal;
}

/// Renaming would replace a link, not what it points to, and would put a file in place of a device.
Result<std::filesystem::path> resolved(const std::filesystem::path& target) {
  std::error_code error;
  std::filesystem::path path = target;
  if (std::filesystem::is_symlink(target, error)) {
    path = std::filesystem::canonical(target, error);
    if (error) return io_refusal(target, "a link that leads nowhere");
  }
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    return io_refusal(target, "something that is not a regular file");
  if (path.filename().empty()) return io_refusal(target, "a path without a file name");
  return path;
}

}  // namespace

AtomicFile::AtomicFile(int file, std::filesystem::path target, std::filesystem::path temporary)
    : file_(file), target_(std::move(target)), temporary_(std::move(temporary)) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      target_(std::move(other.target_)),
      temporary_(std::move(other.temporary_)),
      buffer_(std::move(other.buffer_)) {}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& target) {
  static std::atomic<unsigned> counter{0};
  Result<std::filesystem::path> path = resolved(target);
  if (!path) return path.refusal();
  for (;;) {
    // The target's own name is left out: it may already be as long as the file system allows.
    const std::filesystem::path temporary =
        path->parent_path() / fmt::format(".fresnel-{}-{}.tmp", ::getpid(), counter.fetch_add(1));
    const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0) return AtomicFile(file, std::move(*path), temporary);
    if (errno != EEXIST && errno != EINTR)
      return io_refusal(target, "create: " + std::generic_category().message(errno));
  }
}

Refusal AtomicFile::failure(std::string_view act, int error) const {
  return io_refusal(target_, fmt::format("{}: {}", act, std::generic_category().message(error)));
}

Status AtomicFile::write_through(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failure("write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return Done{};
}

Status AtomicFile::flush() {
  const Status status = write_through(buffer_);
  buffer_.clear();
  return status;
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > buffered)
    if (const Status status = flush(); !status) return status;
  if (bytes.size() > buffered) return write_through(bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return Done{};
}

Status AtomicFile::write(std::string_view text) { return write(std::as_bytes(std::span(text.data(), text.size()))); }

Status AtomicFile::write_elements(const View& view) {
  if (view.elements() == 0) return Done{};
  const auto rank = static_cast<std::size_t>(view.rank);
  std::array<std::int64_t, View::max_rank> sizes{1, 1, 1, 1}, strides{};  // missing outer axes have length 1
  std::copy_n(view.sizes.begin(), rank, sizes.end() - view.rank);
  std::copy_n(view.strides.begin(), rank, strides.end() - view.rank);
  const auto* base = static_cast<const std::byte*>(view.data);
  const auto width = static_cast<std::size_t>(sizes[3] * size_of(view.dtype));
  for (std::int64_t a = 0; a < sizes[0]; ++a)
    for (std::int64_t b = 0; b < sizes[1]; ++b)
      for (std::int64_t c = 0; c < sizes[2]; ++c) {
        const std::int64_t offset = a * strides[0] + b * strides[1] + c * strides[2];
        if (const Status status = write(std::span(base + offset * size_of(view.dtype), width)); !status) return status;
      }
  return Done{};
}

Status AtomicFile::commit() {
  if (const Status status = flush(); !status) return status;
  if (::fsync(file_) != 0) return failure("flush", errno);
  // From here on the destructor has nothing to close.
  if (::close(std::exchange(file_, -1)) != 0 || ::rename(temporary_.c_str(), target_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    return failure("rename", error);
  }
  return Done{};
}

Status is_writable(const View& view, std::string_view argument) {
  if (view.device != Device::cpu)
    return refuse(std::string(argument), std::string(name(view.device)) + " memory", "host memory");
  const auto last = static_cast<std::size_t>(view.rank > 0 ? view.rank - 1 : 0);
  if (view.rank > 0 && view.sizes[last] > 1 && view.strides[last] != 1)
    return refuse(std::string(argument), fmt::format("a last axis with stride {}", view.strides[last]),
                  "a contiguous last axis");
  return Done{};
}

}  // namespace fresnel
