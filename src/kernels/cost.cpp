// SPDX-License-Identifier: Apache-2.0
// Counts from formulas, in doubles: they reach 1e20 and are for people and predictions.
#include "kernels/cost.hpp"

#include "semantics/mask.hpp"

namespace fresnel {
namespace {

double real_bytes(const Problem& problem) { return problem.dtype == DType::f64 ? 8 : 4; }

constexpr std::array<CostSymbol, 11> symbols{{
    {"b", "batch", [](const Problem& problem) { return static_cast<double>(problem.batch); }},
    {"hq", "query heads", [](const Problem& problem) { return static_cast<double>(problem.heads_q); }},
    {"hkv", "key heads", [](const Problem& problem) { return static_cast<double>(problem.heads_kv); }},
    {"sq", "queries", [](const Problem& problem) { return static_cast<double>(problem.queries); }},
    {"sk", "keys, lengths taken as full", [](const Problem& problem) { return static_cast<double>(problem.keys); }},
    {"d", "width of q and k", [](const Problem& problem) { return static_cast<double>(problem.head_dim); }},
    {"dv", "width of v and o", [](const Problem& problem) { return static_cast<double>(problem.value_dim); }},
    {"dtype_bytes", "bytes of an element of q", [](const Problem& problem) { return double(size_of(problem.dtype)); }},
    {"real_bytes", "bytes of an element of lse and of a score: 8 for f64, else 4", real_bytes},
    {"lse", "1 where lse is asked for, else 0", [](const Problem& problem) { return problem.lse ? 1.0 : 0.0; }},
    {"visible_pairs",
     "pairs (query, key) of one head that causal, windows and alignment leave visible; sq * sk without them",
     [](const Problem& problem) { return visible_pairs(mask_of(problem, problem.keys)); }},
}};

}  // namespace

std::span<const CostSymbol> cost_symbols() { return symbols; }

std::array<Symbol, 11> symbols_of(const Problem& problem) {
  std::array<Symbol, symbols.size()> values;
  for (std::size_t i = 0; i < symbols.size(); ++i) values[i] = {symbols[i].name, symbols[i].value(problem)};
  return values;
}

const CostFormulas forward_formulas{
    .operations = "2 * b * hq * visible_pairs * (d + dv)",
    .bytes = "dtype_bytes * b * (hq * sq + hkv * sk) * (d + dv) + lse * real_bytes * b * hq * sq",
    .bytes_unfused =
        "dtype_bytes * b * (hq * sq + hkv * sk) * (d + dv) + lse * real_bytes * b * hq * sq"
        " + 4 * real_bytes * b * hq * sq * sk",
    .score_bytes = "real_bytes * b * hq * sq * sk",
    .unfused_way = "scores and weights, each written and read back",
};

const CostFormulas backward_formulas{
    .operations = "2 * b * hq * visible_pairs * (3 * d + 2 * dv)",
    .bytes = "2 * dtype_bytes * b * (hq * sq + hkv * sk) * (d + dv) + real_bytes * b * hq * sq",
    .bytes_unfused =
        "2 * dtype_bytes * b * (hq * sq + hkv * sk) * (d + dv) + real_bytes * b * hq * sq"
        " + 6 * real_bytes * b * hq * sq * sk",
    .score_bytes = "real_bytes * b * hq * sq * sk",
    .unfused_way = "weights, their gradient and that of the scores, each written and read back",
};

Cost forward_cost(const Problem& problem, const Tile&) {
  const auto count = [](std::int64_t value) { return static_cast<double>(value); };
  const double element = count(size_of(problem.dtype));
  const double real = real_bytes(problem);
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
  const double real = real_bytes(problem);
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
