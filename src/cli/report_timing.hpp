// SPDX-License-Identifier: Apache-2.0
// The figures of a report that a clock has a part in: kernels under the machine's roofline, and time by length. Every
// kernel is judged on the inputs it is timed with; a wrong result has no time.
#pragma once

#include <functional>

#include "cli/execution.hpp"
#include "cli/json.hpp"
#include "cli/print.hpp"

namespace fresnel::cli {

/// A problem with memory of its own, filled by a case file or from a seed.
struct Bench {
  const Problem& problem;
  Inputs inputs;
  Outputs outputs;
  std::function<void()> spoil;  ///< fills the outputs with NaN, so that no kernel is judged by another's result
};

/// {ceilings, measured, points: [{kernel, ok, median_seconds, runs, flops, intensity}]}: ceilings as measured last by
/// `fresnel machine`, else now.
[[nodiscard]] Result<Json> roofline_json(const Bench& bench, const Session& session, Progress& progress);

/// The problem that `times_json` times, at one length: one sequence and one group of heads, S keys and, unless it
/// decodes, S queries.
[[nodiscard]] Problem of_length(const Problem& problem, std::int64_t length);

/// {problem, series: [{kernel, points: [{s, seconds, runs}]}]}: one group of heads of the problem, S from 64 on.
[[nodiscard]] Result<Json> times_json(const Problem& problem, const Session& session, Progress& progress);

}  // namespace fresnel::cli
