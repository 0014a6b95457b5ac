// SPDX-License-Identifier: Apache-2.0
// Reads protocols key by key. Each value is taken by one function that words what it accepts; bounds keep a protocol
// from asking for more samples than a results file may hold.
#include "evidence/protocol.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "fresnel/plan.hpp"
#include "inputs/inputs.hpp"
#include "io/json.hpp"

namespace fresnel::evidence {
namespace {

constexpr std::int64_t most_repeats = 10'000;
constexpr std::int64_t most_threads = 1024;

/// Thrown inside this file, caught at its door: a protocol is read in many small steps, any of which may refuse.
[[noreturn]] void refuse(std::string argument, std::string given, std::string accepted) {
  throw Error(Refusal{Fault::bad_input, "", std::move(argument), std::move(given), std::move(accepted), ""});
}

/// A whole number of at least 0; a document that a program put together may have it as one with a sign.
std::optional<std::int64_t> count_in(const Json& value) {
  if (!value.is_number_integer() || value.is_number_unsigned()) return count_of(value);
  const auto given = value.get<std::int64_t>();
  return given >= 0 ? std::optional(given) : std::nullopt;
}

/// An object of which every key has to be asked for.
class Object {
 public:
  Object(const Json& json, std::string path) : json_(json), path_(std::move(path)) {
    if (!json.is_object()) refuse(path_, describe_json(json), "an object");
  }

  /// Null where the key is absent.
  const Json* find(const char* key) {
    known_.insert(key);
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  const Json& need(const char* key) {
    const Json* const found = find(key);
    if (found == nullptr) refuse(at(key), "nothing", "a value");
    return *found;
  }
  [[nodiscard]] std::string at(const char* key) const { return path_ + "." + key; }

  std::string text(const char* key) {
    const Json& value = need(key);
    if (!value.is_string() || value.get_ref<const std::string&>().empty())
      refuse(at(key), describe_json(value), "a text that is not empty");
    return value;
  }
  /// A name that may be part of a tensor's name in a file.
  std::string word(const char* key) {
    std::string value = text(key);
    for (const char letter : value)
      if (!(letter >= 'a' && letter <= 'z') && !(letter >= '0' && letter <= '9') && letter != '_')
        refuse(at(key), "'" + value + "'", "small letters, digits and _");
    return value;
  }
  std::int64_t count(const char* key, std::int64_t unset, std::int64_t least, std::int64_t most) {
    const Json* const value = find(key);
    if (value == nullptr) return unset;
    const auto given = count_in(*value);
    if (!given || *given < least || *given > most)
      refuse(at(key), describe_json(*value), fmt::format("a whole number from {} to {}", least, most));
    return *given;
  }
  bool flag(const char* key) {
    const Json* const value = find(key);
    if (value != nullptr && !value->is_boolean()) refuse(at(key), describe_json(*value), "true or false");
    return value != nullptr && value->get<bool>();
  }
  const Json& list(const char* key) {
    const Json& value = need(key);
    if (!value.is_array() || value.empty()) refuse(at(key), describe_json(value), "a list that is not empty");
    return value;
  }

  /// To be called last.
  void refuse_other_keys() const {
    for (const auto& [key, unused] : json_.items()) {
      static_cast<void>(unused);
      if (known_.count(key) == 0) refuse(path_ + "." + key, "a key", fmt::format("{}", fmt::join(known_, ", ")));
    }
  }

 private:
  const Json& json_;
  std::string path_;
  std::set<std::string> known_;
};

std::string element(const std::string& path, std::size_t index) { return fmt::format("{}[{}]", path, index); }

Subject subject_of(const Json& json, const std::string& path) {
  Object object(json, path);
  Subject subject;
  subject.name = object.word("name");
  subject.kernel = object.text("kernel");
  subject.tile_keys = object.count("tile_keys", 0, 1, 1 << 20);
  subject.wrong = object.flag("wrong");
  object.refuse_other_keys();
  return subject;
}

Comparison comparison_of(const Json& json, const std::string& path, const std::vector<Subject>& subjects) {
  Object object(json, path);
  Comparison comparison;
  const auto known = [&](const char* key) {
    std::string name = object.text(key);
    for (const Subject& subject : subjects)
      if (subject.name == name) return name;
    refuse(object.at(key), "'" + name + "'", "the name of one of the run's kernels");
  };
  comparison.result = known("result");
  comparison.with = known("with");
  if (const Json* const most = object.find("most")) {
    if (!most->is_number() || !(most->get<double>() >= 0))
      refuse(object.at("most"), describe_json(*most), "at least 0");
    comparison.most = most->get<double>();
  }
  object.refuse_other_keys();
  return comparison;
}

std::string problem_of(const Json& json, const std::string& path) {
  if (!json.is_string()) refuse(path, describe_json(json), "a problem line");
  const auto problem = parse_problem(json.get_ref<const std::string&>());
  if (!problem) throw Error(problem.refusal());
  if (const Status valid = validate(*problem); !valid) throw Error(valid.refusal());
  if (problem->grad || !problem->lse) refuse(path, print(*problem), "a problem without grad and nolse");
  return print(*problem);
}

std::uint64_t seed_of(const Json& json, const std::string& path) {
  if (!json.is_number_unsigned() && !count_in(json)) refuse(path, describe_json(json), "a whole number of at least 0");
  return json.get<std::uint64_t>();
}

Run run_of(const Json& json, const std::string& path) {
  Object object(json, path);
  Run run;
  run.name = object.word("name");
  const Json& problems = object.list("problems");
  for (std::size_t i = 0; i < problems.size(); ++i)
    run.problems.push_back(problem_of(problems[i], element(object.at("problems"), i)));
  const Json& seeds = object.list("seeds");
  for (std::size_t i = 0; i < seeds.size(); ++i) run.seeds.push_back(seed_of(seeds[i], element(object.at("seeds"), i)));
  if (object.find("inputs") != nullptr) run.inputs = object.text("inputs");
  const auto kinds = input_kinds();
  if (std::none_of(kinds.begin(), kinds.end(), [&](const InputKind& kind) { return kind.name == run.inputs; }))
    refuse(object.at("inputs"), "'" + run.inputs + "'", "a kind of inputs");
  run.warm_ups = object.count("warm_ups", 0, 0, most_repeats);
  run.repeats = object.count("repeats", 0, 0, most_repeats);
  run.keep_inputs = object.flag("keep_inputs");
  const Json& kernels = object.list("kernels");
  std::set<std::string> names;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const std::string at = element(object.at("kernels"), i);
    run.kernels.push_back(subject_of(kernels[i], at));
    if (!names.insert(run.kernels.back().name).second) refuse(at + ".name", run.kernels.back().name, "a new name");
  }
  if (object.find("compare") != nullptr) {
    const Json& compare = object.list("compare");
    for (std::size_t i = 0; i < compare.size(); ++i)
      run.compare.push_back(comparison_of(compare[i], element(object.at("compare"), i), run.kernels));
  }
  object.refuse_other_keys();
  return run;
}

Protocol protocol_of(const Json& json) {
  Object object(json, "protocol");
  Protocol protocol;
  protocol.name = object.text("name");
  protocol.threads = static_cast<int>(object.count("threads", 1, 1, most_threads));
  const Json& runs = object.list("runs");
  std::set<std::string> names;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string at = element(object.at("runs"), i);
    protocol.runs.push_back(run_of(runs[i], at));
    if (!names.insert(protocol.runs.back().name).second) refuse(at + ".name", protocol.runs.back().name, "a new name");
  }
  object.refuse_other_keys();
  return protocol;
}

Json to_json(const Subject& subject) {
  Json json{{"name", subject.name}, {"kernel", subject.kernel}};
  if (subject.tile_keys > 0) json["tile_keys"] = subject.tile_keys;
  if (subject.wrong) json["wrong"] = true;
  return json;
}

Json to_json(const Run& run) {
  Json json{{"name", run.name},
            {"problems", run.problems},
            {"seeds", run.seeds},
            {"inputs", run.inputs},
            {"warm_ups", run.warm_ups},
            {"repeats", run.repeats},
            {"keep_inputs", run.keep_inputs}};
  for (const Subject& subject : run.kernels) json["kernels"].push_back(to_json(subject));
  for (const Comparison& comparison : run.compare) {
    Json each{{"result", comparison.result}, {"with", comparison.with}};
    if (comparison.most) each["most"] = *comparison.most;
    json["compare"].push_back(each);
  }
  return json;
}

}  // namespace

Result<Protocol> read_protocol(const Json& document) {
  try {
    return protocol_of(document);
  } catch (const Error& error) {
    return error.refusal();
  }
}

Result<Protocol> parse_protocol(std::string_view text) {
  const auto document = parse_json(text, "protocol");
  if (!document) return document.refusal();
  return read_protocol(*document);
}

Json to_json(const Protocol& protocol) {
  Json json{{"name", protocol.name}, {"threads", protocol.threads}};
  for (const Run& run : protocol.runs) json["runs"].push_back(to_json(run));
  return json;
}

}  // namespace fresnel::evidence
