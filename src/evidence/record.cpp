// SPDX-License-Identifier: Apache-2.0
// One group at a time: inputs from the seed, every kernel once to be judged, then the right ones round after round, so
// that a change of clock speed or a noisy neighbour meets all of them alike. What is expected to be wrong is judged and
// never timed: a wrong result has no time.
#include "evidence/record.hpp"

#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <memory>

#include "evidence/folder.hpp"
#include "evidence/judge.hpp"
#include "evidence/sha256.hpp"
#include "evidence/sources.hpp"
#include "fresnel/fresnel.hpp"
#include "inputs/inputs.hpp"
#include "io/safetensors.hpp"
#include "planner/selection.hpp"

namespace fresnel::evidence {
namespace {

/// A kernel with its plan, its memory and what it computes.
struct Trial {
  const Subject* subject = nullptr;
  Plan plan;
  AlignedBuffer workspace;
  OwnedTensor o, lse;
  Json judgement;
  std::vector<double> samples;

  [[nodiscard]] Outputs outputs() { return {o.mutable_view(), lse.mutable_view()}; }
  [[nodiscard]] bool is_timed() const { return !subject->wrong && judgement["ok"]; }
  [[nodiscard]] std::string hash() const { return sha256(o.bytes.span()) + sha256(lse.bytes.span()); }
};

Result<Plan> plan_of(const Subject& subject, const Problem& problem, const Machine& machine, int threads,
                     const Kernels& kernels) {
  const Kernel* const row = kernels.find(subject.kernel);
  if (row == nullptr)
    return Refusal{Fault::bad_input,
                   "",
                   subject.name + ".kernel",
                   "'" + subject.kernel + "'",
                   "a kernel that `fresnel kernels --controls` lists",
                   ""};
  auto plan = plan_row(*row, problem, machine, {.kernel = "", .lanes = threads});
  if (!plan || subject.tile_keys == 0) return plan;
  const std::int64_t most = kernels.most_tile_keys(*row);
  if (subject.tile_keys > most)
    return Refusal{Fault::bad_input,
                   std::string(row->name),
                   subject.name + ".tile_keys",
                   fmt::format("{}", subject.tile_keys),
                   most == 0 ? "nothing: this kernel chooses its tiles" : fmt::format("1 to {}", most),
                   ""};
  plan->tile.keys = subject.tile_keys;
  plan->lane_bytes = (row->lane_bytes(problem, plan->tile) + 63) / 64 * 64;
  plan->cost = row->cost(problem, plan->tile);
  return plan;
}

/// Outputs lie densely, whatever the problem's line says of o.
Result<Trial> trial_of(const Subject& subject, const Problem& asked, const Inputs& inputs, const Machine& machine,
                       int threads, const Kernels& kernels) {
  auto o = OwnedTensor::zeros(asked.dtype, {asked.batch, asked.heads_q, asked.queries, asked.value_dim});
  if (!o) return o.refusal();
  auto lse = OwnedTensor::zeros(asked.dtype == DType::f64 ? DType::f64 : DType::f32,
                                {asked.batch, asked.heads_q, asked.queries});
  if (!lse) return lse.refusal();
  const auto problem = describe(asked.options, inputs, {o->mutable_view(), lse->mutable_view()});
  if (!problem) return problem.refusal();
  auto plan = plan_of(subject, *problem, machine, threads, kernels);
  if (!plan) return plan.refusal();
  auto workspace = AlignedBuffer::allocate(plan->workspace_bytes(), "workspace");
  if (!workspace) return workspace.refusal();
  return Trial{&subject, std::move(*plan), std::move(*workspace), std::move(*o), std::move(*lse), {}, {}};
}

/// Seconds of one run.
Result<double> timed(Trial& trial, const Inputs& inputs, Executor& executor) {
  using Clock = std::chrono::steady_clock;
  const Outputs outputs = trial.outputs();
  const Clock::time_point start = Clock::now();
  const Status ran = run(trial.plan, inputs, outputs, trial.workspace.span(), executor);
  const std::chrono::duration<double> taken = Clock::now() - start;
  if (!ran) return ran.refusal();
  return taken.count();
}

Json json_of(const Trial& trial, bool same_bits) {
  const Plan& plan = trial.plan;
  Json json = trial.judgement;
  json["name"] = trial.subject->name;
  json["kernel"] = trial.subject->kernel;
  json["isa"] = name(plan.isa);
  json["lanes"] = plan.lanes;
  json["tile"] = {{"queries", plan.tile.queries}, {"keys", plan.tile.keys}};
  json["roundings"] = evidence::json_of(roundings_of(plan));
  json["same_bits"] = same_bits;
  json["samples"] = trial.samples;
  json["median_seconds"] = trial.samples.empty() ? Json(nullptr) : Json(median_of(trial.samples));
  return json;
}

class Recorder {
 public:
  Recorder(const Protocol& protocol, const RecordOptions& options, const Machine& machine, NewFolder& folder)
      : protocol_(protocol),
        options_(options),
        machine_(machine),
        folder_(folder),
        executor_(make_executor(protocol.threads)) {}

  Status all_groups() {
    for (const Run& run : protocol_.runs)
      for (const std::string& line : run.problems)
        for (const std::uint64_t seed : run.seeds)
          if (const Status done = group(run, line, seed); !done) return done;
    return Done{};
  }

  [[nodiscard]] Json results() const { return {{"groups", groups_}, {"ok", ok_}}; }
  [[nodiscard]] const std::vector<std::string>& files() const { return files_; }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  Status group(const Run& run, const std::string& line, std::uint64_t seed) {
    if (options_.say) options_.say(fmt::format("{}: {}, seed {}", run.name, line, seed));
    const Problem asked = parse_problem(line).value();
    auto data = make_inputs(asked, run.inputs, seed);
    if (!data) return data.refusal();
    const Inputs inputs = data->inputs();
    std::vector<Trial> trials;
    for (const Subject& subject : run.kernels) {
      auto made = trial_of(subject, asked, inputs, machine_, protocol_.threads, options_.kernels);
      if (!made) return made.refusal();
      Trial trial = std::move(made).value();
      if (const auto ran = timed(trial, inputs, *executor_); !ran) return ran.refusal();
      auto judgement =
          judgement_of(trial.plan.problem, inputs, {trial.o.view(), trial.lse.view()}, roundings_of(trial.plan));
      if (!judgement) return judgement.refusal();
      trial.judgement = std::move(*judgement);
      trials.push_back(std::move(trial));
    }
    return keep(run, line, seed, inputs, trials);
  }

  /// Warms up, samples, compares, and writes the arrays.
  Status keep(const Run& run, const std::string& line, std::uint64_t seed, const Inputs& inputs,
              std::vector<Trial>& trials) {
    std::vector<std::string> hashes;
    for (const Trial& trial : trials) hashes.push_back(trial.hash());
    for (std::int64_t round = 0; round < run.warm_ups + run.repeats; ++round)
      for (Trial& trial : trials) {
        if (!trial.is_timed()) continue;
        const auto taken = timed(trial, inputs, *executor_);
        if (!taken) return taken.refusal();
        if (round >= run.warm_ups) trial.samples.push_back(*taken);
      }
    Json group{{"run", run.name}, {"problem", line}, {"inputs", run.inputs}, {"seed", seed}};
    group["inputs_sha256"] = hash_of(inputs);
    group["arrays"] = fmt::format("arrays/{}-{:03}.safetensors", run.name, groups_.size());
    for (std::size_t i = 0; i < trials.size(); ++i) {
      const bool same_bits = trials[i].hash() == hashes[i];
      group["kernels"].push_back(json_of(trials[i], same_bits));
      ok_ = ok_ && same_bits && trials[i].judgement["ok"] == !trials[i].subject->wrong;
    }
    if (const Status compared = compare(run, inputs, trials, group); !compared) return compared;
    if (const Status written = write_arrays(run, inputs, trials, group); !written) return written;
    groups_.push_back(std::move(group));
    return Done{};
  }

  Status compare(const Run& run, const Inputs& inputs, std::vector<Trial>& trials, Json& group) {
    const auto named = [&](const std::string& name) -> Trial& {
      return *std::find_if(trials.begin(), trials.end(),
                           [&](const Trial& trial) { return trial.subject->name == name; });
    };
    group["comparisons"] = Json::array();
    for (const Comparison& comparison : run.compare) {
      const Trial& result = named(comparison.result);
      const auto distance = distance_of(result.plan.problem, inputs, result.o.view(), named(comparison.with).o.view());
      if (!distance) return distance.refusal();
      const bool within = !comparison.most || *distance <= *comparison.most;
      group["comparisons"].push_back({{"result", comparison.result},
                                      {"with", comparison.with},
                                      {"largest", number(*distance)},
                                      {"most", comparison.most ? Json(*comparison.most) : Json(nullptr)},
                                      {"ok", within}});
      ok_ = ok_ && within;
    }
    return Done{};
  }

  Status write_arrays(const Run& run, const Inputs& inputs, std::vector<Trial>& trials, const Json& group) {
    std::vector<NamedView> views;
    if (run.keep_inputs) {
      views = {{"q", inputs.q}, {"k", inputs.k}, {"v", inputs.v}};
      if (inputs.alibi_slopes) views.push_back({"alibi_slopes", *inputs.alibi_slopes});
      if (inputs.seqlens_k) views.push_back({"seqlens_k", *inputs.seqlens_k});
    }
    for (const Trial& trial : trials) {
      views.push_back({trial.subject->name + ".o", trial.o.view()});
      views.push_back({trial.subject->name + ".lse", trial.lse.view()});
    }
    files_.push_back(group["arrays"]);
    const auto path = folder_.place(files_.back());
    if (!path) return path.refusal();
    return write_safetensors(*path, {{"problem", group["problem"]}}, views);
  }

  const Protocol& protocol_;
  const RecordOptions& options_;
  const Machine& machine_;
  NewFolder& folder_;
  std::unique_ptr<Executor> executor_;
  Json groups_ = Json::array();
  std::vector<std::string> files_;
  bool ok_ = true;
};

std::string now() {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

Json json_of(const Machine& machine) {
  return {{"name", machine.name},         {"isa", name(machine.isa)},    {"tile_unit", name(machine.tile_unit)},
          {"cores", machine.cores},       {"threads", machine.threads},  {"l1_bytes", machine.l1_bytes},
          {"l2_bytes", machine.l2_bytes}, {"l3_bytes", machine.l3_bytes}};
}

Result<Json> files_of(const NewFolder& folder, const std::vector<std::string>& names) {
  Json files = Json::object();
  for (const std::string& name : names) {
    const auto path = folder.place(name);
    if (!path) return path.refusal();
    const auto hash = sha256_of_file(*path);
    if (!hash) return hash.refusal();
    files[name] = *hash;
  }
  return files;
}

}  // namespace

std::string file_text(const Json& document) {
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string digest_of(Json manifest) {
  manifest.erase("digest");
  return sha256(file_text(manifest));
}

Result<Recorded> record(const std::filesystem::path& target, const Protocol& protocol, const RecordOptions& options) {
  const auto machine = Machine::detect();
  if (!machine) return machine.refusal();
  auto folder = NewFolder::create(target);
  if (!folder) return folder.refusal();
  Recorder recorder(protocol, options, *machine, *folder);
  if (const Status done = recorder.all_groups(); !done) return done.refusal();
  const Json results = recorder.results();
  if (const Status written = folder->write("results.json", file_text(results)); !written) return written.refusal();
  std::vector<std::string> names = recorder.files();
  names.emplace_back("results.json");
  const auto files = files_of(*folder, names);
  if (!files) return files.refusal();
  Json manifest{{"format", 1},
                {"project", "fresnel"},
                {"version", FRESNEL_VERSION},
                {"commit", own_commit()},
                {"compiler", FRESNEL_COMPILER},
                {"sources", own_sources()},
                {"machine", json_of(*machine)},
                {"recorded_at", now()},
                {"command", options.command},
                {"protocol", to_json(protocol)},
                {"files", *files}};
  manifest["digest"] = digest_of(manifest);
  const std::string text = file_text(manifest);
  if (const Status written = folder->write("manifest.json", text); !written) return written.refusal();
  if (const Status committed = folder->commit(); !committed) return committed.refusal();
  return Recorded{recorder.ok(), results, sha256(text)};
}

}  // namespace fresnel::evidence
