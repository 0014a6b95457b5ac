// SPDX-License-Identifier: Apache-2.0
// A kernel to judge before any real one exists: scalar loops, tile by tile, online softmax, every rounding of the model
// in docs/numerics.md made where the model makes it. A recipe says how it rounds and which mistake, if any, it makes.
// It shares with the library only the meaning of the options, and it refuses to be fast.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fresnel/check.hpp"
#include "oracle/sample.hpp"

namespace fresnel::test {

/// Mistakes that a judge must see.
enum class Mistake {
  none,
  rescale_forgotten,    ///< l and o keep their old scale when m rises
  causal_off_by_one,    ///< key p + 1 is visible
  tail_counted,         ///< the keys that fill up the last tile enter l with score 0
  lse_in_base_2,        ///< lse / ln 2
  softcap_after_mask,   ///< hidden keys of a visited tile are capped to -c
  splits_unweighted,    ///< split states are averaged
  stale_maximum,        ///< the state of a split keeps the m of its last but one rise
  dims_truncated,       ///< D rounded down to a multiple of 16
  slope_of_next_head,   ///< ALiBi's slope of the wrong head
  scale_from_value_dim  ///< 1 / sqrt(Dv)
};

/// How a kernel rounds, and what it declares about that.
struct Recipe {
  Roundings roundings;
  std::optional<DType> p;    ///< type that P is rounded to
  bool folds_scale = false;  ///< scale q before the dot product
  bool reciprocal = true;    ///< o (1 / l) instead of o / l
  bool truncates = false;    ///< every operation rounds towards zero
  bool flushes = false;      ///< subnormals are flushed, in and out
  Mistake mistake = Mistake::none;
};

struct Answer {
  HostTensor o, lse;
  explicit Answer(const Problem& problem);
  [[nodiscard]] Outputs outputs();
};

/// An honest kernel that rounds to nearest and declares what the C library promises.
[[nodiscard]] Recipe honest(DType dtype);

/// All the ways of rounding that a budget has to hold for, each with its name in `roundings`.
[[nodiscard]] std::vector<Recipe> recipes(DType dtype);

[[nodiscard]] Answer compute(const Recipe& recipe, const Sample& sample);

/// compute, then judged by the recipe's own roundings.
[[nodiscard]] Verdict judge(const Recipe& recipe, const Sample& sample);
[[nodiscard]] Verdict judge(const Recipe& recipe, const Sample& sample, Answer& answer);

}  // namespace fresnel::test
