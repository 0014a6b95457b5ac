// SPDX-License-Identifier: Apache-2.0
// Rows that exist only in tests: one honest scalar kernel, and the same kernel with one mistake each. The habits are
// run on them to prove that a habit can fail: for every mistake a habit is named that must catch it. Never in the
// catalogue.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/kernel.hpp"

namespace fresnel::test {

enum class Mistake : std::uint8_t {
  none,
  rescale_forgotten,            ///< l and o are not rescaled when the maximum rises
  stale_maximum,                ///< weights of a tile are taken against the maximum before it
  causal_off_by_one,            ///< sees one key too many
  tail_counted,                 ///< lanes past the last key count as score 0
  softcap_after_mask,           ///< hidden keys of a visited tile come back as -cap
  heads_in_tile_order,          ///< kv head h mod Hkv
  base_two_lse,                 ///< lse in base 2
  short_head_dim,               ///< D cut to a multiple of 16
  scale_of_value_dim,           ///< default scale from Dv
  emptiness_by_threshold,       ///< rows with a maximum below -1e4 become 0
  hidden_times_zero,            ///< hidden keys of a visited tile enter as 0 * v
  nan_hidden,                   ///< a NaN result is written as 0
  half_scores,                  ///< q . k rounded to f16 before scaling
  half_accumulator,             ///< the sum of P V kept in f16
  alibi_dropped,                ///< slopes accepted and ignored
  alibi_distance_dropped,       ///< always the relative form
  window_zero_is_absent,        ///< a bound of 0 taken for no bound
  window_clamped,               ///< window bounds clamped to the number of keys
  top_left_dropped,             ///< always bottom right
  lengths_of_the_first,         ///< seqlens_k[0] for every sequence
  lengths_of_the_longest_tile,  ///< the key tile follows the longest sequence of the batch
  sums_by_layout,               ///< dot products run backwards in [B, S, H, D] memory
  tile_by_lanes,                ///< the key tile follows the number of lanes
  offsets_in_32_bits,           ///< element offsets wrap at 2^32
  empty_rows_unwritten,         ///< rows that see nothing keep what the buffer held
  writes_past_the_row,          ///< one element after each row of o
  writes_past_the_slice,        ///< one byte after the workspace
  allocates,                    ///< takes memory inside run
  hungry,                       ///< a whole score matrix of workspace
  count                         ///< not a mistake: how many there are
};

[[nodiscard]] std::string_view name(Mistake mistake);

/// The row with one mistake; Mistake::none is the honest one.
[[nodiscard]] const Kernel& toy_row(Mistake mistake);

}  // namespace fresnel::test
