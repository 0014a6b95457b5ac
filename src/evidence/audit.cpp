// SPDX-License-Identifier: Apache-2.0
// Reads a record as something that may be wrong anywhere: paths are plain names below the folder, JSON is strict, a
// missing or misplaced field is a fault like any other, and one fault does not hide the next.
//
// Counts, verdicts and medians have to come out exactly. Errors and distances are held to one part in a hundred, since
// they are differences from an oracle that calls the C library's functions, and an audit may run beside another one.
#include "evidence/audit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "evidence/folder.hpp"
#include "evidence/judge.hpp"
#include "evidence/protocol.hpp"
#include "evidence/record.hpp"
#include "evidence/sha256.hpp"
#include "fresnel/fresnel.hpp"
#include "inputs/inputs.hpp"
#include "io/json.hpp"
#include "io/safetensors.hpp"

namespace fresnel::evidence {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_text = std::size_t{64} << 20;

Result<Json> json_of(const fs::path& path, const std::string& argument) {
  const auto text = text_of(path, most_text);
  if (!text) return text.refusal();
  return parse_json(*text, argument);
}

bool is_plain(const std::string& name) {
  const fs::path path(name);
  return !name.empty() && path.is_relative() && path.lexically_normal() == path &&
         std::none_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
}

bool is_close(const Json& recorded, const Json& computed) {
  if (!recorded.is_number() || !computed.is_number()) return recorded == computed;
  const double a = recorded, b = computed;
  return std::fabs(a - b) <= 0.01 * std::max(std::fabs(a), std::fabs(b));
}

/// The arrays of one group and the inputs they were computed from, stored or made again.
struct Arrays {
  SafetensorsFile file;
  std::optional<GeneratedInputs> made;

  [[nodiscard]] const OwnedTensor* find(const std::string& name) const {
    for (const NamedTensor& each : file.tensors)
      if (each.name == name) return &each.tensor;
    return nullptr;
  }
  [[nodiscard]] Inputs inputs() const {
    if (made) return made->inputs();
    Inputs inputs{find("q")->view(), find("k")->view(), find("v")->view(), {}, {}};
    if (const OwnedTensor* slopes = find("alibi_slopes")) inputs.alibi_slopes = slopes->view();
    if (const OwnedTensor* lengths = find("seqlens_k")) inputs.seqlens_k = lengths->view();
    return inputs;
  }
};

class Auditor {
 public:
  Auditor(fs::path folder, Audit& audit) : folder_(std::move(folder)), audit_(audit) {}

  void manifest(const Json& manifest, const std::string& text) {
    expect(file_text(manifest) == text, "manifest.json is not as record writes it");
    expect(manifest.at("format") == 1, "manifest.json has a format that this version does not know");
    expect(manifest.at("digest") == digest_of(manifest), "manifest.json was changed: its digest is another");
    audit_.commit = manifest.at("commit");
    files(manifest.at("files"));
    const auto protocol = read_protocol(manifest.at("protocol"));
    if (!protocol) return fault("protocol: " + protocol.refusal().message());
    const auto results = json_of(folder_ / "results.json", "results");
    if (!results) return fault("results.json: " + results.refusal().message());
    groups(*protocol, *results);
  }

  void fault(const std::string& text) { audit_.faults.push_back(text); }

 private:
  void expect(bool holds, const std::string& text) {
    if (!holds) fault(text);
  }

  void files(const Json& listed) {
    for (const auto& [name, hash] : listed.items()) {
      if (!is_plain(name)) {
        fault("'" + name + "' is no file of a record");
        continue;
      }
      const auto now = sha256_of_file(folder_ / name);
      ++audit_.files;
      if (!now)
        fault(name + " cannot be read: " + now.refusal().message());
      else
        expect(*now == hash, name + " was changed: its SHA-256 is another");
    }
    const auto found = files_below(folder_);
    if (!found) return fault(found.refusal().message());
    for (const std::string& name : *found)
      expect(name == "manifest.json" || listed.contains(name), name + " is not in the manifest");
  }

  void groups(const Protocol& protocol, const Json& results) {
    const Json& groups = results.at("groups");
    std::size_t at = 0;
    ok_ = true;
    for (const Run& run : protocol.runs)
      for (const std::string& problem : run.problems)
        for (const std::uint64_t seed : run.seeds) {
          if (at >= groups.size()) return fault("results.json has fewer groups than the protocol");
          label_ = fmt::format("{}, {}, seed {}", run.name, problem, seed);
          const Json& group = groups[at++];
          expect(group.at("run") == run.name && group.at("problem") == problem && group.at("seed") == seed &&
                     group.at("inputs") == run.inputs,
                 label_ + ": another group stands here");
          one_group(run, problem, seed, group);
        }
    expect(at == groups.size(), "results.json has more groups than the protocol");
    expect(results.at("ok") == ok_, "results.json: ok does not follow from its groups");
  }

  std::optional<Arrays> arrays_of(const Run& run, const Problem& problem, std::uint64_t seed, const Json& group) {
    const std::string name = group.at("arrays");
    if (!is_plain(name)) return fault(label_ + ": arrays lie elsewhere"), std::nullopt;
    auto file = read_safetensors(folder_ / name);
    if (!file) return fault(label_ + ": " + file.refusal().message()), std::nullopt;
    Arrays arrays{std::move(*file), std::nullopt};
    if (run.keep_inputs) {
      if (arrays.find("q") && arrays.find("k") && arrays.find("v")) return arrays;
      return fault(label_ + ": the inputs are not there"), std::nullopt;
    }
    auto made = make_inputs(problem, run.inputs, seed);
    if (!made) return fault(label_ + ": " + made.refusal().message()), std::nullopt;
    arrays.made.emplace(std::move(*made));
    return arrays;
  }

  void one_group(const Run& run, const std::string& line, std::uint64_t seed, const Json& group) {
    const Problem problem = parse_problem(line).value();  // read_protocol has parsed it
    const auto arrays = arrays_of(run, problem, seed, group);
    if (!arrays) return;
    const Inputs inputs = arrays->inputs();
    const Json& kernels = group.at("kernels");
    if (kernels.size() != run.kernels.size()) return fault(label_ + ": not the kernels of the protocol");
    for (std::size_t i = 0; i < kernels.size(); ++i) kernel(run, run.kernels[i], problem, inputs, *arrays, kernels[i]);
    expect(group.at("inputs_sha256") == hash_of(inputs), label_ + ": the inputs are others than those recorded");
    comparisons(run, problem, inputs, *arrays, group.at("comparisons"));
  }

  void kernel(const Run& run, const Subject& subject, const Problem& asked, const Inputs& inputs, const Arrays& arrays,
              const Json& recorded) {
    const std::string label = label_ + ", " + subject.name;
    expect(recorded.at("name") == subject.name && recorded.at("kernel") == subject.kernel,
           label + ": another kernel stands here");
    const OwnedTensor* const o = arrays.find(subject.name + ".o");
    const OwnedTensor* const lse = arrays.find(subject.name + ".lse");
    if (o == nullptr || lse == nullptr) return fault(label + ": its outputs are not there");
    const auto roundings = roundings_from(recorded.at("roundings"), "roundings");
    if (!roundings) return fault(label + ": " + roundings.refusal().message());
    const auto judged = judgement_of(asked, inputs, {o->view(), lse->view()}, *roundings);
    if (!judged) return fault(label + ": " + judged.refusal().message());
    ++audit_.judged;
    expect(recorded.at("ok") == judged->at("ok"), label + ": the verdict is another");
    for (const char* output : {"o", "lse"})
      for (const auto& [field, value] : judged->at(output).items()) {
        const bool exact = field == "count" || field == "mismatches";
        if (field == "at") continue;  // of equals, which is first may hang on a last bit
        const Json& said = recorded.at(output).at(field);
        expect(exact ? said == value : is_close(said, value),
               fmt::format("{}: {}.{} is {}, recorded is {}", label, output, field, value.dump(), said.dump()));
      }
    times(run, subject, recorded, label);
    ok_ = ok_ && judged->at("ok") == !subject.wrong && recorded.at("same_bits") == true;
  }

  void times(const Run& run, const Subject& subject, const Json& recorded, const std::string& label) {
    const std::vector<double> samples = recorded.at("samples");
    const bool timed = !subject.wrong && recorded.at("ok") == true;
    expect(samples.size() == (timed ? static_cast<std::size_t>(run.repeats) : 0), label + ": samples are missing");
    expect(std::all_of(samples.begin(), samples.end(), [](double sample) { return sample > 0; }),
           label + ": a sample is no time");
    const Json median = samples.empty() ? Json(nullptr) : Json(median_of(samples));
    expect(recorded.at("median_seconds") == median, label + ": the median of the samples is another");
    audit_.samples += samples.size();
  }

  void comparisons(const Run& run, const Problem& problem, const Inputs& inputs, const Arrays& arrays,
                   const Json& recorded) {
    if (recorded.size() != run.compare.size()) return fault(label_ + ": not the comparisons of the protocol");
    for (std::size_t i = 0; i < run.compare.size(); ++i) {
      const Comparison& comparison = run.compare[i];
      const std::string label = fmt::format("{}, {} with {}", label_, comparison.result, comparison.with);
      const OwnedTensor* const a = arrays.find(comparison.result + ".o");
      const OwnedTensor* const b = arrays.find(comparison.with + ".o");
      if (a == nullptr || b == nullptr) return fault(label + ": its outputs are not there");
      const auto distance = distance_of(problem, inputs, a->view(), b->view());
      if (!distance) return fault(label + ": " + distance.refusal().message());
      const bool within = !comparison.most || *distance <= *comparison.most;
      expect(recorded[i].at("result") == comparison.result && recorded[i].at("with") == comparison.with,
             label + ": another comparison stands here");
      expect(is_close(recorded[i].at("largest"), number(*distance)),
             fmt::format("{}: the distance is {}, recorded is {}", label, *distance, recorded[i].at("largest").dump()));
      expect(recorded[i].at("ok") == within, label + ": the verdict is another");
      ok_ = ok_ && within;
    }
  }

  fs::path folder_;
  Audit& audit_;
  std::string label_;
  bool ok_ = true;
};

std::vector<std::string> differences(const Sources& recorded, const Sources& now) {
  std::vector<std::string> changed;
  for (const auto& [path, hash] : recorded) {
    const auto found = now.find(path);
    if (found == now.end())
      changed.push_back(path + " (gone)");
    else if (found->second != hash)
      changed.push_back(path);
  }
  for (const auto& [path, unused] : now) {
    static_cast<void>(unused);
    if (recorded.count(path) == 0) changed.push_back(path + " (new)");
  }
  return changed;
}

Refusal no_record(const std::string& why) {
  return {Fault::bad_input, "", "DIR", why, "a folder that `fresnel record` has written", ""};
}

}  // namespace

Result<Sources> sources_of_record(const fs::path& folder) {
  const auto manifest = json_of(folder / "manifest.json", "manifest");
  if (!manifest) return manifest.refusal();
  try {
    return manifest->at("sources").get<Sources>();
  } catch (const Json::exception&) {
    return no_record("a manifest without sources");
  }
}

Result<Audit> audit(const fs::path& folder, const Sources& sources) {
  const auto text = text_of(folder / "manifest.json", most_text);
  if (!text) return text.refusal();
  const auto manifest = parse_json(*text, "manifest");
  if (!manifest) return manifest.refusal();
  if (!manifest->is_object()) return no_record("a manifest that is no object");
  Audit audit;
  audit.manifest_sha256 = sha256(*text);
  Auditor auditor(folder, audit);
  try {
    audit.changed_sources = differences(manifest->at("sources").get<Sources>(), sources);
    auditor.manifest(*manifest, *text);
  } catch (const Json::exception& error) {
    auditor.fault(std::string("a field is missing or of another kind: ") + error.what());
  } catch (const Error& error) {
    auditor.fault(error.what());
  }
  return audit;
}

}  // namespace fresnel::evidence
