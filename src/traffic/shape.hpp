// SPDX-License-Identifier: Apache-2.0
// What an emulated kernel is asked for: a Problem, the rows of a tile, and from them the grids that workgroups and
// passes run over. Tensors are contiguous [B, H, S, width] float32 and are addressed by row; paged K and V lie in pools
// [blocks, page_size, Hkv, width] where a block table [B, pages] says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "semantics/mask.hpp"
#include "walk/walk.hpp"

namespace fresnel::traffic {

/// The emulated kernels.
enum class Kind : std::uint8_t {
  unfused,   ///< three kernels, the scores written and read back
  fused,     ///< query tiles outermost (FlashAttention-2)
  broken,    ///< fused, and l is not rescaled when the maximum rises
  outer_k,   ///< key tiles outermost, o, l and m read and written in each pass (FlashAttention, algorithm 1)
  backward,  ///< P recomputed; dk and dv by key tiles, dq by query tiles, no atomic additions
};

/// Rows of some tensor.
struct Span {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Workgroups of a launch: one for each tile of `extent` rows, for each of batch x heads. `alike`: all that are as long
/// count the same, which a mask may spoil.
struct Grid {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t extent = 0;
  std::int64_t tile = 1;
  bool alike = true;
};

/// Queries that see any of the keys [key, key + count): rows are monotone, so they are an interval.
[[nodiscard]] constexpr Span queries_of(const Mask& mask, std::int64_t key, std::int64_t count) {
  const auto sees = [&](std::int64_t query, bool first) {
    const KeyRange range = mask.range(query);
    return first ? range.last > key : range.first < key + count;
  };
  // The first query whose range ends beyond the keys' start, and the first whose range starts beyond their end.
  const auto search = [&](auto&& before) {
    std::int64_t low = 0, high = mask.queries;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      (before(middle) ? low : high) = before(middle) ? middle + 1 : middle;
    }
    return low;
  };
  const std::int64_t first = search([&](std::int64_t query) { return !sees(query, true); });
  const std::int64_t last = search([&](std::int64_t query) { return sees(query, false); });
  return {first, std::max<std::int64_t>(last - first, 0)};
}

struct Shape {
  Problem problem;
  std::int64_t tile = 1;     ///< rows of a tile: B
  std::int64_t threads = 1;  ///< of a workgroup that works on tiles
  Mask mask;
  bool masked = false;  ///< some pair is hidden
  float scale = 1;
  std::int64_t page_size = 0;  ///< keys of a page; 0: K and V lie in one piece

  [[nodiscard]] std::int64_t width() const { return problem.head_dim; }
  [[nodiscard]] std::int64_t value_width() const { return problem.value_dim; }
  [[nodiscard]] Grid query_tiles(std::int64_t rows) const {
    return {problem.batch, problem.heads_q, problem.queries, rows, true};
  }
  [[nodiscard]] Grid masked_query_tiles() const {
    return {problem.batch, problem.heads_q, problem.queries, tile, !masked};
  }
  [[nodiscard]] Grid masked_key_tiles() const { return {problem.batch, problem.heads_kv, problem.keys, tile, !masked}; }
  [[nodiscard]] bool hidden(std::int64_t query, std::int64_t key) const { return masked && !mask.visible(query, key); }
  /// Row of query `query` in q, o, lse, dout and dq.
  [[nodiscard]] std::int64_t query_row(std::int64_t batch, std::int64_t head, std::int64_t query) const {
    return (batch * problem.heads_q + head) * problem.queries + query;
  }
  /// Row of key `key` in k, v, dk and dv, for a query head.
  [[nodiscard]] std::int64_t key_row(std::int64_t batch, std::int64_t head, std::int64_t key) const {
    return (batch * problem.heads_kv + head / problem.group()) * problem.keys + key;
  }
  [[nodiscard]] bool paged() const { return page_size > 0; }
  /// Pages of a sequence; the last one may be partly used.
  [[nodiscard]] std::int64_t pages() const { return tiles_of(problem.keys, page_size); }
  /// Row of a pool: key `slot` of block `block`, for a query head.
  [[nodiscard]] std::int64_t pool_row(std::int64_t block, std::int64_t slot, std::int64_t head) const {
    return (block * page_size + slot) * problem.heads_kv + head / problem.group();
  }
  /// Every whole tile touches as many pages.
  [[nodiscard]] bool pages_align() const { return !paged() || tile % page_size == 0 || page_size % tile == 0; }
};

/// Pages that a tile of `tile` rows touches, at most.
[[nodiscard]] constexpr std::int64_t most_pages(std::int64_t tile, std::int64_t page_size) {
  return (page_size - std::gcd(tile, page_size) + tile - 1) / page_size + 1;
}

/// The tensors of a call in the machine's own view of global memory. Of a paged call k and v are the pools.
template <class Global>
struct Tensors {
  Global q, k, v, o, lse, dout, dq, dk, dv;
  Global block_table = {};  ///< row b: the blocks of sequence b, numbers as bits
};

}  // namespace fresnel::traffic
