// SPDX-License-Identifier: Apache-2.0
// Records hold, and what was done to one shows: a flipped byte, a swapped file, a figure changed together with every
// hash above it, a source that is another today.
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "controls/controls.hpp"
#include "evidence/audit.hpp"
#include "evidence/folder.hpp"
#include "evidence/judge.hpp"
#include "evidence/record.hpp"
#include "evidence/sha256.hpp"
#include "runtime/scratch.hpp"

namespace fresnel::evidence {
namespace {

namespace fs = std::filesystem;

class Place : public test::Directory {
 public:
  [[nodiscard]] fs::path operator/(const std::string& name) const { return path() / name; }
  [[nodiscard]] std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path()), fs::directory_iterator()));
  }
};

std::string read(const fs::path& path) { return text_of(path, 1 << 24).value(); }
void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(text.data(), static_cast<std::streamsize>(text.size()));
}
Json json_in(const fs::path& path) { return Json::parse(read(path)); }

Kernels with_controls() {
  return {[](std::string_view name) {
            return name.starts_with(controls::prefix) ? controls::find(name) : find_kernel(name);
          },
          [](const Kernel& kernel) {
            return kernel.name.starts_with(controls::prefix) ? controls::most_tile_keys : std::int64_t{0};
          }};
}

Protocol small_protocol() {
  return parse_protocol(R"({"name": "small", "runs": [
      {"name": "first", "problems": ["b1 h2/1 q3 k40 d8/5 f32 causal", "b2 h1 q4 k9 d8 bf16 alibi lens"], "seeds": [7, 19],
       "warm_ups": 1, "repeats": 4,
       "kernels": [{"name": "dense", "kernel": "cpu.naive"},
                   {"name": "tiled", "kernel": "control.none", "tile_keys": 7}],
       "compare": [{"result": "tiled", "with": "dense", "most": 1e-2}]},
      {"name": "second", "problems": ["b1 h1 q4 k64 d8 f64"], "seeds": [3], "inputs": "large", "keep_inputs": true,
       "kernels": [{"name": "averaged", "kernel": "control.blocks_averaged", "wrong": true}]}]})")
      .value();
}

Recorded recorded_in(const fs::path& folder) {
  return record(folder, small_protocol(), {with_controls(), {"fresnel", "record"}, {}}).value();
}

std::vector<std::string> faults_of(const fs::path& folder) { return audit(folder, own_sources()).value().faults; }

/// Signs whatever now stands in the folder, as somebody would who wants it to pass.
void forge_hashes(const fs::path& folder) {
  Json manifest = json_in(folder / "manifest.json");
  for (auto& file : manifest["files"].items()) file.value() = sha256_of_file(folder / file.key()).value();
  manifest["digest"] = digest_of(manifest);
  write(folder / "manifest.json", file_text(manifest));
}

TEST(Sha256, OfTheStandardsOwnExamples) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string million(1'000'000, 'a');
  EXPECT_EQ(sha256(million), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  const Place place;
  write(place / "million", million);
  EXPECT_EQ(sha256_of_file(place / "million").value(), sha256(million));
}

TEST(Protocol, ReadsWhatItWrites) {
  const Json json = to_json(small_protocol());
  EXPECT_EQ(to_json(read_protocol(json).value()), json);
  EXPECT_EQ(json["runs"][0]["kernels"][1]["tile_keys"], 7);
}

TEST(Protocol, RefusesByTheKey) {
  const std::tuple<const char*, Json, const char*> cases[] = {
      {"/nmae", "x", "protocol.nmae"},
      {"/name", "", "protocol.name"},
      {"/threads", 0, "protocol.threads"},
      {"/runs", Json::array(), "protocol.runs"},
      {"/runs/1/name", "first", "protocol.runs[1].name"},
      {"/runs/0/name", "../up", "protocol.runs[0].name"},
      {"/runs/0/seeds", 7, "protocol.runs[0].seeds"},
      {"/runs/0/seeds/0", -1, "protocol.runs[0].seeds[0]"},
      {"/runs/0/repeats", 1.5, "protocol.runs[0].repeats"},
      {"/runs/0/repeats", 1'000'000, "protocol.runs[0].repeats"},
      {"/runs/0/inputs", "norm", "protocol.runs[0].inputs"},
      {"/runs/0/problems/0", "b1 h1 q4 k4 d8 f32 grad", "protocol.runs[0].problems[0]"},
      {"/runs/0/problems/0", "b1 h1 q4 k4 d8 f32 nolse", "protocol.runs[0].problems[0]"},
      {"/runs/0/problems/0", "b1 h1 q4 k4 d0 f32", "head_dim"},
      {"/runs/0/kernels/0/wrong", "yes", "protocol.runs[0].kernels[0].wrong"},
      {"/runs/0/kernels/0/name", "tiled", "protocol.runs[0].kernels[1].name"},
      {"/runs/0/kernels/0/tile", 3, "protocol.runs[0].kernels[0].tile"},
      {"/runs/0/compare/0/with", "nobody", "protocol.runs[0].compare[0].with"},
      {"/runs/0/compare/0/most", -1, "protocol.runs[0].compare[0].most"},
  };
  for (const auto& [place, value, argument] : cases) {
    Json json = to_json(small_protocol());
    json[Json::json_pointer(place)] = value;
    const auto protocol = read_protocol(json);
    ASSERT_FALSE(protocol) << place;
    EXPECT_EQ(protocol.refusal().argument, argument);
  }
}

TEST(Record, HoldsAndKeepsEverySample) {
  const Place place;
  const Recorded recorded = recorded_in(place / "record");
  EXPECT_TRUE(recorded.ok);
  EXPECT_EQ(place.entries(), 1u) << "something was left behind";
  const Audit audited = audit(place / "record", own_sources()).value();
  EXPECT_EQ(audited.faults, std::vector<std::string>());
  EXPECT_EQ(audited.changed_sources, std::vector<std::string>());
  EXPECT_EQ(audited.files, 6u);
  EXPECT_EQ(audited.judged, 9u);
  EXPECT_EQ(audited.samples, 4u * 2 * 4);
  EXPECT_EQ(audited.manifest_sha256, recorded.manifest_sha256);
  const Json manifest = json_in(place / "record/manifest.json");
  for (const char* field :
       {"version", "commit", "compiler", "machine", "command", "protocol", "recorded_at", "sources"})
    EXPECT_TRUE(manifest.contains(field)) << field;
}

TEST(Record, IsWrittenWholeOrNotAtAll) {
  const Place place;
  const auto attempt = [&](const char* pointer, const Json& value) {
    Json json = to_json(small_protocol());
    json[Json::json_pointer(pointer)] = value;
    const auto recorded = record(place / "record", read_protocol(json).value(), {with_controls(), {}, {}});
    EXPECT_EQ(place.entries(), 0u);
    return recorded ? std::string("recorded") : recorded.refusal().argument;
  };
  EXPECT_EQ(attempt("/runs/1/kernels/0/kernel", "cpu.flush"), "averaged.kernel");
  EXPECT_EQ(attempt("/runs/0/kernels/0/tile_keys", 32), "dense.tile_keys");
  EXPECT_EQ(attempt("/runs/0/kernels/1/tile_keys", 65), "tiled.tile_keys");
}

TEST(Record, IsNeverWrittenOverAnother) {
  const Place place;
  recorded_in(place / "record");
  const std::string before = read(place / "record/manifest.json");
  const auto again = record(place / "record", small_protocol(), {with_controls(), {}, {}});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.refusal().argument, "DIR");
  EXPECT_EQ(read(place / "record/manifest.json"), before);
}

TEST(Record, SaysWhenAWrongKernelIsRight) {
  const Place place;
  Json json = to_json(small_protocol());
  json["runs"][1]["kernels"][0]["kernel"] = "control.none";
  EXPECT_FALSE(record(place / "one", read_protocol(json).value(), {with_controls(), {}, {}}).value().ok);
  json["runs"][0]["compare"][0]["most"] = 0;
  json["runs"].erase(1);
  EXPECT_FALSE(record(place / "two", read_protocol(json).value(), {with_controls(), {}, {}}).value().ok);
  EXPECT_EQ(faults_of(place / "one"), std::vector<std::string>()) << "a record of a surprise is still a record";
  EXPECT_EQ(faults_of(place / "two"), std::vector<std::string>());
}

TEST(Audit, FindsAnyFlippedByte) {
  const Place place;
  recorded_in(place / "record");
  const std::vector<std::string> names = files_below(place / "record").value();
  for (const std::string& name : names) {
    const fs::path path = place / ("record/" + name);
    const std::string whole = read(path);
    for (std::size_t at = 0; at < whole.size(); at += std::max<std::size_t>(whole.size() / 40, 1)) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 1);
      write(path, changed);
      const auto audited = audit(place / "record", own_sources());
      EXPECT_TRUE(!audited || !audited->faults.empty()) << name << " at " << at;
    }
    write(path, whole);
  }
  EXPECT_EQ(faults_of(place / "record"), std::vector<std::string>());
}

TEST(Audit, FindsSwappedFilesWhateverTheHashesSay) {
  const Place place;
  recorded_in(place / "record");
  const fs::path first = place / "record/arrays/first-000.safetensors",
                 second = place / "record/arrays/first-001.safetensors";
  const std::string one = read(first), other = read(second);
  write(first, other);
  write(second, one);
  EXPECT_GE(faults_of(place / "record").size(), 2u);
  forge_hashes(place / "record");
  EXPECT_GE(faults_of(place / "record").size(), 4u) << "outputs of another seed pass for these";
}

TEST(Audit, FindsFiguresThatDoNotFollow) {
  const Place place;
  recorded_in(place / "record");
  const std::string whole = read(place / "record/results.json");
  const std::pair<const char*, Json> changes[] = {
      {"/ok", false},
      {"/groups/0/seed", 8},
      {"/groups/0/inputs_sha256", std::string(64, '0')},
      {"/groups/0/kernels/0/ok", false},
      {"/groups/0/kernels/0/kernel", "cpu.flash"},
      {"/groups/0/kernels/0/o/max_share", 0.001},
      {"/groups/0/kernels/0/o/count", 3},
      {"/groups/0/kernels/1/lse/max_error", 0.0},
      {"/groups/0/kernels/0/median_seconds", 1e-9},
      {"/groups/0/kernels/0/samples/2", -1.0},
      {"/groups/0/kernels/0/samples", {1.0}},
      {"/groups/0/kernels/0/same_bits", false},
      {"/groups/0/kernels/0/roundings/unit", 0.5},
      {"/groups/0/kernels/0/roundings/speed", 0.5},
      {"/groups/0/comparisons/0/largest", 0.5},
      {"/groups/0/comparisons/0/ok", false},
      {"/groups/4/kernels/0/ok", true},
      {"/groups/4/arrays", "../../elsewhere"},
      {"/groups/1", nullptr},
      {"/groups", Json::array()},
  };
  for (const auto& [place_of_change, value] : changes) {
    Json results = Json::parse(whole);
    results[Json::json_pointer(place_of_change)] = value;
    write(place / "record/results.json", file_text(results));
    forge_hashes(place / "record");
    EXPECT_FALSE(faults_of(place / "record").empty()) << place_of_change;
  }
  write(place / "record/results.json", whole);
  forge_hashes(place / "record");
  EXPECT_EQ(faults_of(place / "record"), std::vector<std::string>());
}

TEST(Audit, FindsFilesThatComeAndGo) {
  const Place place;
  recorded_in(place / "record");
  write(place / "record/arrays/more", "x");
  EXPECT_EQ(faults_of(place / "record"), std::vector<std::string>{"arrays/more is not in the manifest"});
  fs::remove(place / "record/arrays/more");
  fs::remove(place / "record/arrays/second-004.safetensors");
  EXPECT_FALSE(faults_of(place / "record").empty());
}

TEST(Audit, TakesManifestsThatAreNone) {
  const Place place;
  recorded_in(place / "record");
  const Json whole = json_in(place / "record/manifest.json");
  for (const char* field : {"format", "digest", "files", "protocol", "sources", "commit"})
    for (const Json& value : {Json(nullptr), Json(7), Json::array({1}), Json{{"../up", "x"}}}) {
      Json manifest = whole;
      manifest[field] = value;
      write(place / "record/manifest.json", file_text(manifest));
      const auto audited = audit(place / "record", own_sources());
      EXPECT_TRUE(!audited || !audited->faults.empty()) << field << " " << value.dump();
    }
  for (const char* text : {"", "[]", "{}", "{", "7"}) {
    write(place / "record/manifest.json", text);
    const auto audited = audit(place / "record", own_sources());
    EXPECT_TRUE(!audited || !audited->faults.empty()) << text;
  }
  EXPECT_FALSE(audit(place / "nothing", own_sources()));
}

TEST(Sources, AreThoseOfThisTree) {
  const Sources& own = own_sources();
  EXPECT_GT(own.size(), 100u);
  EXPECT_EQ(own.count("src/kernels/catalogue.cpp"), 1u);
  EXPECT_EQ(sources_below(FRESNEL_SOURCE_DIR, own).value(), own);
}

TEST(Sources, ThatChangedAreNamed) {
  const Place place;
  recorded_in(place / "record");
  Sources sources = own_sources();
  sources["src/kernels/cost.cpp"] = std::string(64, '0');
  sources.erase("src/walk/walk.hpp");
  sources["src/kernels/new.cpp"] = std::string(64, '1');
  const Audit audited = audit(place / "record", sources).value();
  EXPECT_EQ(audited.changed_sources, (std::vector<std::string>{"src/kernels/cost.cpp", "src/walk/walk.hpp (gone)",
                                                               "src/kernels/new.cpp (new)"}));
  EXPECT_TRUE(audited.faults.empty()) << "a record stays right when sources move on";
}

/// The record that is part of the repository (docs/evidence.md): nine groups of a run, 31 samples of two kernels in
/// each.
TEST(TiledAttention, KeepsTheResultAndAveragingDoesNot) {
  const fs::path folder = fs::path(FRESNEL_SOURCE_DIR) / "docs/evidence/tiled_attention";
  const Audit audited = audit(folder, own_sources()).value();
  EXPECT_EQ(audited.faults, std::vector<std::string>());
  EXPECT_EQ(audited.samples, 558u);
  EXPECT_EQ(
      json_in(folder / "manifest.json")["protocol"],
      to_json(parse_protocol(read(fs::path(FRESNEL_SOURCE_DIR) / "bench/protocols/tiled_attention.json")).value()));
  const Json results = json_in(folder / "results.json");
  EXPECT_EQ(results["ok"], true);
  std::map<std::string, double> least, largest;
  for (const Json& group : results["groups"])
    for (const Json& each : group["comparisons"]) {
      const std::string what = group["run"].get<std::string>() + " " + each["result"].get<std::string>();
      const double distance = each["largest"];
      least.try_emplace(what, distance);
      least[what] = std::min(least[what], distance);
      largest[what] = std::max(largest[what], distance);
    }
  EXPECT_LE(largest.at("blocks_of_32 tiled"), 1e-15);
  EXPECT_LE(largest.at("blocks_of_7 tiled"), 1e-15);
  EXPECT_GT(least.at("blocks_of_32 averaged"), 1e-3);
  EXPECT_GT(least.at("rescale_forgotten forgetful"), 1e-3);
}

/// Two keys of equal weight, values 1 and -1: o is 0 and sum p |v| is 1.
TEST(Distance, IsInUnitsOfWeighedMagnitudes) {
  const double q[] = {1}, k[] = {0, 0}, v[] = {1, -1}, a[] = {0.25}, b[] = {0};
  const Inputs inputs{
      {q, DType::f64, {1, 1, 1, 1}}, {k, DType::f64, {1, 1, 2, 1}}, {v, DType::f64, {1, 1, 2, 1}}, {}, {}};
  const View left(a, DType::f64, {1, 1, 1, 1}), right(b, DType::f64, {1, 1, 1, 1});
  const Problem problem = parse_problem("b1 h1 q1 k2 d1 f64").value();
  EXPECT_EQ(distance_of(problem, inputs, left, right).value(), 0.25);
  EXPECT_EQ(distance_of(problem, inputs, left, left).value(), 0);
  const auto other = distance_of(parse_problem("b1 h1 q1 k3 d1 f64").value(), inputs, left, right);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.refusal().argument, "arrays");
}

TEST(Median, IsTheMiddle) {
  EXPECT_EQ(median_of({}), 0);
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 3, 2}), 2.5);
}

}  // namespace
}  // namespace fresnel::evidence
