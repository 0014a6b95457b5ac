// SPDX-License-Identifier: Apache-2.0
// What is to be run and kept, as JSON (docs/evidence.md lists the keys). A protocol says everything that can be chosen
// about a record, so that two records of one protocol differ in machine and time alone. Unknown keys are refused by
// name: a misspelt one must not be ignored.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fresnel/problem.hpp"
#include "fresnel/result.hpp"

namespace fresnel::evidence {

using Json = nlohmann::json;

/// A kernel of a run, under a name of the protocol's own.
struct Subject {
  std::string name;
  std::string kernel;
  std::int64_t tile_keys = 0;  ///< keys per tile, for kernels that leave that open; 0: the kernel's own
  bool wrong = false;          ///< there to be judged wrong: never timed
};

/// The largest distance between two results, in units of sum_j p_j |v_j| of each element.
struct Comparison {
  std::string result, with;
  std::optional<double> most;  ///< unset: reported only
};

/// Every problem times every seed, each with every kernel.
struct Run {
  std::string name;
  std::vector<std::string> problems;
  std::vector<std::uint64_t> seeds;
  std::string inputs = "normal";
  std::int64_t warm_ups = 0;
  std::int64_t repeats = 0;  ///< timed rounds, each kernel once in each
  bool keep_inputs = false;  ///< store q, k, v as well; else their hash, and an audit makes them again
  std::vector<Subject> kernels;
  std::vector<Comparison> compare;
};

struct Protocol {
  std::string name;
  int threads = 1;
  std::vector<Run> runs;
};

/// Refusals name the key, e.g. `protocol.runs[0].seeds`. Kernels are not looked up.
[[nodiscard]] Result<Protocol> read_protocol(const Json& document);
[[nodiscard]] Result<Protocol> parse_protocol(std::string_view text);

/// `read_protocol` reads it back.
[[nodiscard]] Json to_json(const Protocol& protocol);

}  // namespace fresnel::evidence
