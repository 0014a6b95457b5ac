// SPDX-License-Identifier: Apache-2.0
// What the functions in the table of kinds are told: the problem, the seed, and which row to write. Rows are written as
// double and rounded to the dtype by the caller, values beyond its range to its largest.
#pragma once

#include <cstdint>
#include <span>

#include "fresnel/problem.hpp"
#include "inputs/random.hpp"

namespace fresnel {

struct Recipe {
  const Problem& problem;
  std::uint64_t seed = 0;
  const std::int32_t* lengths = nullptr;  ///< seqlens_k, where the problem has them

  [[nodiscard]] std::int64_t live_keys(std::int64_t batch) const {
    return lengths != nullptr ? lengths[batch] : problem.keys;
  }
};

struct RowPlace {
  Role role = Role::q;
  std::int64_t batch = 0;
  std::int64_t head = 0;  ///< query head for q and dout, kv head for k and v
  std::int64_t row = 0;   ///< query or key
};

/// Independent, mean 0, variance 1: the ordinary row of any tensor.
void normal_row(const Recipe& recipe, const RowPlace& at, std::span<double> out);

}  // namespace fresnel
