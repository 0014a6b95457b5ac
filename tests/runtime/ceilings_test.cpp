// SPDX-License-Identifier: Apache-2.0
// Ceilings: one table from measuring to file and back; a file that is damaged or another machine's is as good as none.
#include "runtime/ceilings.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <set>

#include "runtime/amx.hpp"
#include "runtime/scratch.hpp"

namespace fresnel {
namespace {

using test::Directory;
using test::Environment;

Machine some_machine() {
  Machine machine;
  machine.name = "Imaginary \"CPU\"";
  machine.isa = Isa::avx2;
  machine.cores = 4;
  machine.threads = 8;
  return machine;
}

/// Every figure a different number, every fifth one absent.
Ceilings some_ceilings() {
  Ceilings ceilings = unmeasured(some_machine());
  double value = 0.1;
  for (Figure& figure : ceilings.figures) {
    value *= 1.7;
    if (&figure - ceilings.figures.data() != 4) figure.value = value;
  }
  return ceilings;
}

void expect_equal(const Ceilings& one, const Ceilings& other) {
  EXPECT_EQ(one.machine, other.machine);
  EXPECT_EQ(one.isa, other.isa);
  EXPECT_EQ(one.cores, other.cores);
  EXPECT_EQ(one.threads, other.threads);
  ASSERT_EQ(one.figures.size(), other.figures.size());
  for (std::size_t row = 0; row < one.figures.size(); ++row) {
    EXPECT_EQ(one.figures[row].name, other.figures[row].name);
    EXPECT_EQ(one.figures[row].value, other.figures[row].value);
  }
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

class CeilingsFile : public testing::Test {
 protected:
  Directory cache_;
  Environment xdg_{"XDG_CACHE_HOME", cache_.path().string()};
  std::filesystem::path file_ = cache_.path() / "fresnel" / "machine.json";
};

TEST(Ceilings, NamesAreUniqueAndIncludeThoseOfTheCommandLine) {
  std::set<std::string_view> names;
  for (const Figure& figure : unmeasured(some_machine()).figures) {
    EXPECT_TRUE(names.insert(figure.name).second) << figure.name;
    EXPECT_FALSE(figure.about.empty());
    EXPECT_FALSE(figure.value);
  }
  for (const char* const name :
       {"f32_fma_tflops", "f32_fma_tflops_one_thread", "f64_fma_tflops", "bf16_tile_tflops", "exp_gops", "l1_read_gbps",
        "l2_read_gbps", "l3_read_gbps", "dram_read_gbps", "dram_read_gbps_one_thread"}) {
    EXPECT_TRUE(names.count(name)) << name;
  }
}

TEST(Ceilings, LookUpAndRates) {
  const Ceilings ceilings = some_ceilings();
  EXPECT_EQ(ceilings.of("f32_fma_tflops"), ceilings.figures[0].value);
  EXPECT_EQ(ceilings.of("bf16_tile_tflops"), std::nullopt);
  EXPECT_EQ(ceilings.of("no such figure"), std::nullopt);
  const Machine machine = rated(some_machine(), ceilings);
  EXPECT_EQ(machine.f32_tflops, ceilings.of("f32_fma_tflops"));
  EXPECT_EQ(machine.f64_tflops, ceilings.of("f64_fma_tflops"));
  EXPECT_EQ(machine.dram_gbps, ceilings.of("dram_read_gbps"));
}

TEST(Ceilings, TextReadsBackExactly) {
  const std::string text = to_json(some_ceilings());
  const auto back = parse_ceilings(text);
  ASSERT_TRUE(back);
  expect_equal(*back, some_ceilings());
  EXPECT_EQ(to_json(*back), text);
}

TEST(Ceilings, MissingFiguresAndUnknownFieldsAreAllowed) {
  const auto few = parse_ceilings(
      R"({"name": "x", "isa": "avx3", "cores": 1, "threads": 2, "extra": [1], "peaks": {"exp_gops": 3, "newer": "?"}})");
  ASSERT_TRUE(few);
  EXPECT_EQ(few->of("exp_gops"), 3.0);
  EXPECT_EQ(few->of("f32_fma_tflops"), std::nullopt);
}

TEST(Ceilings, DamagedTextIsNothing) {
  const std::string text = to_json(some_ceilings());
  for (std::size_t cut = 0; cut + 2 < text.size(); cut += 7) EXPECT_FALSE(parse_ceilings(text.substr(0, cut))) << cut;
  for (const auto& [what, with] : {std::pair{"\"avx2\"", "\"avx9\""},
                                   {"\"avx2\"", "2"},
                                   {"\"cores\": 4", "\"cores\": 0"},
                                   {"\"cores\": 4", "\"cores\": 4.5"},
                                   {"\"threads\": 8", "\"threads\": -8"},
                                   {"\"threads\": 8", "\"threads\": 1e99"},
                                   {"\"threads\": 8", "\"threads\": null"},
                                   {"\"name\":", "\"nome\":"},
                                   {"\"peaks\":", "\"peeks\":"},
                                   {"\"f32_fma_tflops\": ", "\"f32_fma_tflops\": -"},
                                   {"\"f32_fma_tflops\": ", "\"f32_fma_tflops\": 1e999"},
                                   {"\"f32_fma_tflops\": ", "\"f32_fma_tflops\": \"much\", \"x\": "},
                                   {"\"f32_fma_tflops\": ", "\"f32_fma_tflops\": 0, \"x\": "},
                                   {"{", "[{"}}) {
    EXPECT_FALSE(parse_ceilings(replaced(text, what, with))) << with;
  }
  for (const char* const other : {"", "null", "[]", "{}", "3", "\"text\"", "\xff\xfe", "{\"peaks\": {}}"}) {
    EXPECT_FALSE(parse_ceilings(other)) << other;
  }
  EXPECT_FALSE(parse_ceilings(std::string(100000, '[')));
}

TEST_F(CeilingsFile, IsSavedAndLoaded) {
  EXPECT_FALSE(load_ceilings(some_machine()));
  ASSERT_EQ(ceilings_path(), file_);
  ASSERT_TRUE(save_ceilings(some_ceilings()));
  const auto loaded = load_ceilings(some_machine());
  ASSERT_TRUE(loaded);
  expect_equal(*loaded, some_ceilings());
  ASSERT_TRUE(save_ceilings(*loaded));  // over the old one
  // Nothing else is left beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(file_.parent_path()), {}), 1);
}

TEST_F(CeilingsFile, OfAnotherMachineIsNothing) {
  ASSERT_TRUE(save_ceilings(some_ceilings()));
  Machine other = some_machine();
  other.name += "2";
  EXPECT_FALSE(load_ceilings(other));
  other = some_machine();
  other.isa = Isa::avx3;
  EXPECT_FALSE(load_ceilings(other));
}

TEST_F(CeilingsFile, DamagedIsNothing) {
  ASSERT_TRUE(save_ceilings(some_ceilings()));
  cache_.write("fresnel/machine.json", to_json(some_ceilings()).substr(40));
  EXPECT_FALSE(load_ceilings(some_machine()));
  cache_.write("fresnel/machine.json", std::string(2 << 20, ' ') + to_json(some_ceilings()));
  EXPECT_FALSE(load_ceilings(some_machine()));
  std::filesystem::remove(file_);
  std::filesystem::create_directory(file_);
  EXPECT_FALSE(load_ceilings(some_machine()));
}

TEST_F(CeilingsFile, AFailedWriteIsRefusedAndLeavesNothing) {
  std::filesystem::create_directories(file_ / "in the way");
  const Status status = save_ceilings(some_ceilings());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.refusal().fault, Fault::io);
  EXPECT_EQ(status.refusal().argument, file_.string());
  EXPECT_FALSE(status.refusal().given.empty());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(file_.parent_path()), {}), 1);
}

TEST_F(CeilingsFile, ADirectoryThatCannotBeMadeIsRefused) {
  cache_.write("fresnel", "a file");
  const Status status = save_ceilings(some_ceilings());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.refusal().fault, Fault::io);
}

TEST_F(CeilingsFile, LiesInTheHomeDirectoryWhereXdgIsUnsetOrRelative) {
  for (const auto& xdg : {std::optional<std::string>(), std::optional<std::string>("relative")}) {
    const Environment unset("XDG_CACHE_HOME", xdg);
    const Environment home("HOME", cache_.path().string());
    EXPECT_EQ(ceilings_path(), cache_.path() / ".cache" / "fresnel" / "machine.json");
    const Environment homeless("HOME", std::nullopt);
    EXPECT_FALSE(ceilings_path());
    EXPECT_FALSE(load_ceilings(some_machine()));
    const Status status = save_ceilings(some_ceilings());
    ASSERT_FALSE(status);
    EXPECT_EQ(status.refusal().fault, Fault::io);
  }
}

TEST(Ceilings, AMachineThatIsNotHereIsRefused) {
  Machine machine = Machine::host();
  machine.device = Device::cuda;
  EXPECT_EQ(measure_ceilings(machine).refusal().argument, "machine.device");
  machine = Machine::host();
  machine.isa = runs_here(Isa::neon) ? Isa::avx2 : Isa::neon;
  const auto refused = measure_ceilings(machine);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.refusal().fault, Fault::device);
  EXPECT_EQ(refused.refusal().argument, "machine.isa");
}

TEST(Ceilings, EveryFigureThatTheHostHasIsMeasured) {
  std::vector<std::string_view> seen;
  const Machine& machine = Machine::host();
  const auto ceilings = measure_ceilings(machine, [&](const Figure& figure) { seen.push_back(figure.name); });
  ASSERT_TRUE(ceilings);
  ASSERT_EQ(seen.size(), ceilings->figures.size());
  for (std::size_t row = 0; row < seen.size(); ++row) {
    const Figure& figure = ceilings->figures[row];
    EXPECT_EQ(seen[row], figure.name);
    const bool has = figure.name.find("tile") != std::string_view::npos ? amx_granted()
                     : figure.name.find("l3_") == 0                     ? machine.l3_bytes > 0
                                                                        : true;
    ASSERT_EQ(figure.value.has_value(), has) << figure.name;
    EXPECT_TRUE(!has || (std::isfinite(*figure.value) && *figure.value > 0)) << figure.name;
  }
}

}  // namespace
}  // namespace fresnel
