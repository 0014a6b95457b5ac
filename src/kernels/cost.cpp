// SPDX-License-Identifier: Apache-2.0
// Counts from formulas, in doubles: they reach 1e20 and are for people and predictions.
#include "kernels/cost.hpp"

#include "semantics/mask.hpp"

namespace fresnel {

Cost forward_cost(const Problem& problem, const Tile&) {
  const auto count = [](std::int64_t value) { return static_cast<double>(value); };
  const double element = count(size_of(problem.dtype));
  const double real = problem.dtype == DType::f64 ? 8 : 4;
  const double heads_q = count(problem.batch) * count(problem.heads_q);
  const double heads_kv = count(problem.batch) * count(problem.heads_kv);
  const double queries = heads_q * count(problem.queries);
  const double pairs = heads_q * visible_pairs(mask_of(problem, problem.keys));
  const double widths = count(problem.head_dim) + count(problem.value_dim);

  Cost cost;
  cost.operations = 2 * pairs * widths;
  cost.bytes = element * (queries * widths + heads_kv * count(problem.keys) * widths);
  if (problem.lse) cost.bytes += real * queries;
  cost.score_bytes = real * queries * count(problem.keys);
  cost.bytes_unfused = cost.bytes + 4 * cost.score_bytes;
  return cost;
}

Cost backward_cost(const Problem& problem, const Tile&) {
  const auto count = [](std::int64_t value) { return static_cast<double>(value); };
  const double element = count(size_of(problem.dtype));
  const double real = problem.dtype == DType::f64 ? 8 : 4;
  const double heads_q = count(problem.batch) * count(problem.heads_q);
  const double queries = heads_q * count(problem.queries);
  const double keys = count(problem.batch) * count(problem.heads_kv) * count(problem.keys);
  const double wide = count(problem.head_dim), deep = count(problem.value_dim);
  const double pairs = heads_q * visible_pairs(mask_of(problem, problem.keys));

  Cost cost;
  cost.operations = 2 * pairs * (3 * wide + 2 * deep);
  cost.bytes = 2 * element * (queries * (wide + deep) + keys * (wide + deep)) + real * queries;
  cost.score_bytes = real * queries * count(problem.keys);
  cost.bytes_unfused = cost.bytes + 6 * cost.score_bytes;  // P and dP written, both read for dS, dS written and read
  return cost;
}

}  // namespace fresnel
