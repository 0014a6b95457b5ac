// SPDX-License-Identifier: Apache-2.0
// All or nothing: whatever goes wrong while writing, the old file stays as it was and no temporary stays behind.
#include "io/atomic_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <string>

#include "io/raw_file.hpp"

namespace fresnel {
namespace {

using test::expect_refusal;
using test::file_bytes;
using test::TemporaryDirectory;

/// While it lives, no file may grow beyond `bytes`: a full disk that needs no disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_limit_);
    const rlimit limit{bytes, old_limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_limit_{};
  void (*old_handler_)(int);
};

TEST(AtomicFile, AppearsOnlyWhenCommitted) {
  const TemporaryDirectory directory;
  test::write_bytes(directory / "a", "old");
  auto file = AtomicFile::create(directory / "a");
  ASSERT_TRUE(file) << file.refusal().message();
  ASSERT_TRUE(file->write("new"));
  EXPECT_EQ(file_bytes(directory / "a"), test::bytes_of("old"));
  EXPECT_EQ(directory.entries(), 2u) << "the temporary lies beside the target";
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(file_bytes(directory / "a"), test::bytes_of("new"));
  EXPECT_EQ(directory.entries(), 1u);
}

TEST(AtomicFile, DroppedWithoutCommitLeavesNothing) {
  const TemporaryDirectory directory;
  test::write_bytes(directory / "a", "old");
  {
    auto file = AtomicFile::create(directory / "a");
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write("new"));
  }
  EXPECT_EQ(file_bytes(directory / "a"), test::bytes_of("old"));
  EXPECT_EQ(directory.entries(), 1u);
}

TEST(AtomicFile, AFullDiskLeavesTheOldFileAndNoTemporary) {
  const TemporaryDirectory directory;
  test::write_bytes(directory / "a", "old");
  const std::vector<float> values(1 << 20);
  const View view(values.data(), DType::f32, {1 << 20});
  for (const rlim_t limit : {rlim_t{0}, rlim_t{100}, rlim_t{1 << 20}}) {
    const FileSizeLimit full(limit);
    const Status status = write_safetensors(directory / "a", {}, std::vector<NamedView>{{"x", view}});
    expect_refusal(status, (directory / "a").string(), "write: File too large", "can be written", Fault::io);
    EXPECT_EQ(file_bytes(directory / "a"), test::bytes_of("old"));
    EXPECT_EQ(directory.entries(), 1u);
  }
  EXPECT_TRUE(write_safetensors(directory / "a", {}, std::vector<NamedView>{{"x", view}}));
}

TEST(AtomicFile, RefusesTargetsThatAreNoFiles) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "d");
  const auto refused = [&](const std::filesystem::path& path, std::string_view given) {
    expect_refusal(AtomicFile::create(path), path.string(), given, "can be written", Fault::io);
  };
  refused(directory / "d", "not a regular file");
  refused(directory / "none/a", "create: No such file or directory");
  refused("/dev/null", "not a regular file");
  refused("", "without a file name");
  std::filesystem::create_symlink("nowhere", directory / "dangling");
  refused(directory / "dangling", "a link that leads nowhere");
  EXPECT_EQ(directory.entries(), 2u);
}

TEST(AtomicFile, WritesThroughALink) {
  const TemporaryDirectory directory;
  test::write_bytes(directory / "a", "old");
  std::filesystem::create_symlink(directory / "a", directory / "link");
  auto file = AtomicFile::create(directory / "link");
  ASSERT_TRUE(file) << file.refusal().message();
  ASSERT_TRUE(file->write("new"));
  ASSERT_TRUE(file->commit());
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "link"));
  EXPECT_EQ(file_bytes(directory / "a"), test::bytes_of("new"));
}

TEST(AtomicFile, ATargetThatBecomesADirectoryIsRefusedAtTheEnd) {
  const TemporaryDirectory directory;
  auto file = AtomicFile::create(directory / "a");
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->write("new"));
  std::filesystem::create_directory(directory / "a");
  expect_refusal(file->commit(), (directory / "a").string(), "rename: Is a directory", "can be written", Fault::io);
  EXPECT_EQ(directory.entries(), 1u);
}

TEST(AtomicFile, TakesNamesAsLongAsTheFileSystemAllowsAndContentBeyondItsBuffer) {
  const TemporaryDirectory directory;
  const std::string name(255, 'n');
  auto file = AtomicFile::create(directory / name);
  ASSERT_TRUE(file) << file.refusal().message();
  std::string wanted;
  for (std::size_t size :
       {std::size_t{3}, std::size_t{700'000}, std::size_t{700'000}, std::size_t{3'000'000}, std::size_t{5}}) {
    const std::string piece(size, static_cast<char>('a' + wanted.size() % 26));
    ASSERT_TRUE(file->write(piece));
    wanted += piece;
  }
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(file_bytes(directory / name), test::bytes_of(wanted));
}

}  // namespace
}  // namespace fresnel
