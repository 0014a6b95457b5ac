// SPDX-License-Identifier: Apache-2.0
#include "evidence/folder.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "io/atomic_file.hpp"
#include "io/source.hpp"

namespace fresnel::evidence {
namespace {

namespace fs = std::filesystem;

Refusal unwritable(const fs::path& path, const std::error_code& error) {
  return {Fault::io, "", "DIR", "'" + path.string() + "': " + error.message(), "a place that can be written to", ""};
}

}  // namespace

Result<NewFolder> NewFolder::create(const fs::path& given) {
  std::error_code error;
  fs::path target = given;
  while (!target.has_filename() && target.has_parent_path() && target != target.parent_path())
    target = target.parent_path();  // a trailing slash
  if (!target.has_filename()) return Refusal{Fault::bad_input, "", "DIR", "'" + given.string() + "'", "a name", ""};
  if (fs::symlink_status(target, error).type() != fs::file_type::not_found)
    return Refusal{Fault::bad_input,           "", "DIR", "'" + target.string() + "', which exists",
                   "the name of a new folder", ""};
  fs::path temporary = target;
  temporary += fmt::format(".partial-{}", getpid());
  if (!fs::create_directory(temporary, error)) {
    if (!error) error = std::make_error_code(std::errc::file_exists);
    return unwritable(temporary, error);
  }
  return NewFolder(std::move(target), std::move(temporary));
}

NewFolder::NewFolder(NewFolder&& other) noexcept
    : target_(std::move(other.target_)), temporary_(std::exchange(other.temporary_, {})) {}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

Result<fs::path> NewFolder::place(const std::string& name) const {
  std::error_code error;
  const fs::path path = temporary_ / name;
  fs::create_directories(path.parent_path(), error);
  if (error) return unwritable(path, error);
  return path;
}

Status NewFolder::write(const std::string& name, std::string_view text) const {
  const auto path = place(name);
  if (!path) return path.refusal();
  auto file = AtomicFile::create(*path);
  if (!file) return file.refusal();
  if (const Status written = file->write(text); !written) return written;
  return file->commit();
}

Status NewFolder::commit() {
  std::error_code error;
  // An empty folder may have come to stand there since; rename would replace it.
  if (fs::symlink_status(target_, error).type() != fs::file_type::not_found)
    return unwritable(target_, std::make_error_code(std::errc::file_exists));
  fs::rename(temporary_, target_, error);
  if (error) return unwritable(target_, error);
  temporary_.clear();
  return Done{};
}

Result<std::string> text_of(const fs::path& path, std::size_t most) {
  const auto source = open_source(path);
  if (!source) return source.refusal();
  if ((*source)->size() > most)
    return Refusal{Fault::bad_input,
                   "",
                   path.string(),
                   fmt::format("{} bytes", (*source)->size()),
                   fmt::format("at most {} bytes", most),
                   ""};
  std::string text((*source)->size(), '\0');
  if (const Status read = (*source)->read(0, std::as_writable_bytes(std::span(text))); !read) return read.refusal();
  return text;
}

Result<std::vector<std::string>> files_below(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    return Refusal{Fault::bad_input, "", "DIR", "'" + folder.string() + "'", "the folder of a record", ""};
  std::vector<std::string> files;
  for (fs::recursive_directory_iterator each(folder, error), end; !error && each != end; each.increment(error))
    if (each->symlink_status(error).type() != fs::file_type::directory)
      files.push_back(each->path().lexically_relative(folder).generic_string());
  if (error) return Refusal{Fault::io, "", "DIR", error.message(), "a folder that can be read", ""};
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace fresnel::evidence
