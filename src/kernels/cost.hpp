// SPDX-License-Identifier: Apache-2.0
// Cost formulas shared by rows: operations and bytes that follow from the Problem alone. Each is here twice, as the
// function that plans call and as the text that contracts print; a test holds one to the other on random problems.
#pragma once

#include <array>
#include <string_view>

#include "fresnel/plan.hpp"
#include "kernels/expression.hpp"

namespace fresnel {

/// The fields of Cost as formulas (expression.hpp) over cost_symbols.
struct CostFormulas {
  std::string_view operations;
  std::string_view bytes;
  std::string_view bytes_unfused;
  std::string_view score_bytes;
  std::string_view unfused_way;  ///< what bytes_unfused adds to bytes, in words
};

/// A name in cost formulas.
struct CostSymbol {
  std::string_view name;
  std::string_view meaning;
  double (*value)(const Problem&);
};

/// Every name there is, with what it stands for.
[[nodiscard]] std::span<const CostSymbol> cost_symbols();

/// Their values for a problem, ready for evaluate().
[[nodiscard]] std::array<Symbol, 11> symbols_of(const Problem& problem);

extern const CostFormulas forward_formulas;
extern const CostFormulas backward_formulas;

/// Operations of the visible pairs; every input read once, every output written once; and beside them what the unfused
/// way adds: scores and weights written and read back. Lengths are taken as full (seqlens_k is data).
[[nodiscard]] Cost forward_cost(const Problem& problem, const Tile& tile);

/// What the backward computes, five products of matrices, and moves: q, k, v, o, dO and lse read, dq, dk, dv written.
[[nodiscard]] Cost backward_cost(const Problem& problem, const Tile& tile);

}  // namespace fresnel
