// SPDX-License-Identifier: Apache-2.0
// The counters of the lesson's CUDA kernels, recorded on a GPU: the files are the ones that the manifest binds, and
// what the hardware saw asked for is what the emulation counts, today's emulation, word for word.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "evidence/sha256.hpp"
#include "traffic/emulate.hpp"

namespace fresnel::test {
namespace {

using Json = nlohmann::json;

const std::filesystem::path source = FRESNEL_SOURCE_DIR;
const std::filesystem::path folder = source / "docs/evidence/h200_lesson";

Json read(const std::filesystem::path& path) { return Json::parse(std::ifstream(path)); }

TEST(DeviceRecord, FilesAreThoseOfTheManifest) {
  const Json manifest = read(folder / "manifest.json");
  ASSERT_FALSE(manifest["files"].empty());
  for (const auto& [file, hash] : manifest["files"].items())
    EXPECT_EQ(evidence::sha256_of_file(folder / file).value(), hash.get<std::string>()) << file;
  ASSERT_FALSE(manifest["sources"].empty());
  for (const auto& [file, hash] : manifest["sources"].items())
    EXPECT_TRUE(std::filesystem::exists(source / file)) << file << " made the record and is gone";
}

TEST(DeviceRecord, TheHardwareWasAskedForWhatIsCounted) {
  const Json rows = read(folder / "results.json")["rows"];
  ASSERT_EQ(rows.size(), 30u);
  for (const Json& row : rows) {
    SCOPED_TRACE(row["kind"].dump() + " n " + row["n"].dump() + " width " + row["d"].dump());
    Problem problem;
    problem.queries = problem.keys = row["n"];
    problem.head_dim = problem.value_dim = row["d"];
    problem.lse = false;
    const traffic::Kind kind = *traffic::kind_named(row["kind"].get<std::string>());
    const traffic::Counts counts = traffic::count(kind, traffic::shape_of(kind, problem).value()).counts;
    EXPECT_EQ(row["asked_read"], 4 * counts.global_reads);
    EXPECT_EQ(row["asked_write"], 4 * counts.global_writes);
    EXPECT_EQ(row["workgroup_write"], 4 * counts.shared_writes);
    // Words that a whole warp reads at once count once there; the softmax's trees read no such words.
    if (kind == traffic::Kind::unfused) continue;
    EXPECT_EQ(row["workgroup_read"], 4 * counts.shared_reads / 32);
  }
}

}  // namespace
}  // namespace fresnel::test
