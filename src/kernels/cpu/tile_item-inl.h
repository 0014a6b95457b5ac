// SPDX-License-Identifier: Apache-2.0
// What both orders of tiles share: the work item, a block of its keys weighed again, and memory asked for ahead.
#pragma once

#include <algorithm>

#include "kernels/cpu/tile_softmax-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")
namespace fresnel::cpu {

/// What a work item is, once for all of its blocks.
struct TileItem {
  TileRule rule;
  Mask mask;
  std::int64_t first_query = 0, count = 0;

  /// Scores of `keys`, some of the stage's, where a plain scale is not all there is to them.
  void finish(const TileShape& shape, const TileStage& stage, const TileScratch& scratch, const KeyRange& keys,
              float* scores) const {
    if (rule.plain() && stage.whole.first <= keys.first && keys.last <= stage.whole.last) return;
    const std::int64_t group = stage.queries - scratch.queries;
    finish_scores(shape, rule, first_query + group * shape.lanes, *stage.queries, keys, scores);
  }
};

/// Lanes whose weights of a block do not hold.
template <int parts, int lanes>
HWY_INLINE std::uint32_t stale_lanes(const TileWeights& weights, std::uint32_t fresh) {
  std::uint32_t stale = 0;
  for_halves<lanes>([&]<int half>() HWY_ATTR {
    stale |= unsettled(weights.sum[half], fresh, half) | (parts == 1 ? off_the_table(weights, half) : 0);
  });
  return stale;
}

/// A block weighed again where a lane's base turned out to be stale; `weights.s` has its scores, finished.
template <int parts, int lanes>
void weigh_stale(const TileShape& shape, const TileStage& stage, std::uint32_t fresh, TileWeights& weights) {
  for (int half = 0; half < lanes / 16; ++half) {
    const __mmask16 off = parts == 1 ? off_the_table(weights, half) : 0;
    const auto stale = static_cast<__mmask16>(unsettled(weights.sum[half], fresh, half) & ~off);
    if ((stale | off) != 0) weigh_again<parts, lanes>(shape, weights, stage, half, stale, off);
    add_sums(*stage.queries, weights.sum[half], half);
  }
}

/// Lines of packed K and V that the second-level cache is asked for beside a block's products, from here on.
struct LaterLines {
  const std::byte* k = nullptr;  ///< null: none
  const std::byte* v = nullptr;
};

/// Asks for `count` lines at each stop.
template <int count>
struct LinesBeside {
  const std::byte* line = nullptr;
  HWY_INLINE void some() {
    for (int turn = 0; turn < count; ++turn, line += tile_width)
      _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T1);
  }
};

/// Keys that the queries of an item meet after this stretch of blocks. They may have left the second-level cache, so
/// that is asked for a share of them with every block: for all while 256 queries meet the stretch.
struct LaterBlocks {
  const std::byte* k = nullptr;  ///< packed; null: nothing to ask for
  const std::byte* v = nullptr;
  std::int64_t first_share = 0;  ///< the share of `block` is first_share + block
  std::int64_t shares = 0;

  /// Groups of queries in an item of 256: each asks for its share.
  static constexpr std::int64_t groups(const TileShape& shape) { return 256 / shape.lanes; }

  [[nodiscard]] HWY_INLINE LaterLines of_block(const TileShape& shape, std::int64_t block) const {
    const std::int64_t share = std::min(first_share + block, shares - 1);
    return {k + share * (shape.k_bytes() / groups(shape)), v + share * (shape.v_bytes() / groups(shape))};
  }
  /// Asks for a block's share in one go.
  void ask(const TileShape& shape, std::int64_t block) const {
    if (k == nullptr) return;
    const LaterLines share = of_block(shape, block);
    for (std::int64_t at = 0; at < shape.k_bytes() / groups(shape); at += tile_width)
      _mm_prefetch(reinterpret_cast<const char*>(share.k + at), _MM_HINT_T1);
    for (std::int64_t at = 0; at < shape.v_bytes() / groups(shape); at += tile_width)
      _mm_prefetch(reinterpret_cast<const char*>(share.v + at), _MM_HINT_T1);
  }
};

struct NothingBeside {
  HWY_INLINE void some() {}
};

}  // namespace fresnel::cpu
HWY_POP_ATTRIBUTES
