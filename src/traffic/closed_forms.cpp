// SPDX-License-Identifier: Apache-2.0
// The counts as formulas. They were derived from the kernels by hand and check the walk; nothing is computed by them.
// For a head of M queries and N keys of widths D and Dv in tiles of B, with G = ceil(N / B) and H = ceil(M / B):
//
//     kind       global reads                        global writes         barriers     shared reads
//     unfused    M D + H N (D + Dv) + 2 M N          2 M N + M Dv          4 H G + 19 M M N (D + Dv) + 1532 M
//     fused      M D + H N (D + Dv)                  M Dv                  2 H G        M N (D + Dv)
//     outer_k    N (D + Dv) + G M (D + Dv + 2)       (G + 1) M (Dv + 2)    2 G          M N (D + Dv)
//     backward   M (D + 3 Dv + 2) + N (D + Dv)       M + N (D + Dv) + M D  4 H G        M N (4 D + 3 Dv + 2)
//                + H N (D + Dv) + G M (D + Dv + 2)
//
//     kind       shared writes                              fma                            exps
//     unfused    H N (D + Dv) + 1022 M                      M N (D + Dv)                   M N
//     fused      H N (D + Dv)                               M N (D + Dv)                   M N + G M
//     outer_k    N (D + Dv)                                 M N (D + Dv) + G M Dv          M N + 2 G M
//     backward   H N (D + Dv) + G M (D + Dv + 2)            M N (4 D + 3 Dv) + M Dv        2 M N
//
// lse adds M writes (outer_k: and 2 M reads); for the backward it is an input. Pages of P keys, of which a tile touches
// one more for every page that begins within it, add to fused E = G + ceil(N / P) - ceil(N / lcm(B, P)) entries for
// each tile of queries: H E global reads, H E shared writes and, B threads reading each, H E B shared reads. The
// barrier that they need takes the place of one.
#include <numeric>

#include "traffic/emulate.hpp"

namespace fresnel::traffic {
namespace {

/// Sizes of one head.
struct Head {
  Count queries, keys, wide, deep, query_tiles, key_tiles, lse, entries, tile;
  [[nodiscard]] Count widths() const { return wide + deep; }
  [[nodiscard]] Count pairs() const { return queries * keys; }
};

/// Pages that the key tiles of a head touch, each counted for each tile.
std::int64_t entries_of(const Shape& shape) {
  const std::int64_t keys = shape.problem.keys, common = std::lcm(shape.tile, shape.page_size);
  return tiles_of(keys, shape.tile) + tiles_of(keys, shape.page_size) - tiles_of(keys, common);
}

Head head_of(const Shape& shape) {
  const auto count = [](std::int64_t value) { return static_cast<Count>(value); };
  const Problem& problem = shape.problem;
  return {count(problem.queries),
          count(problem.keys),
          count(shape.width()),
          count(shape.value_width()),
          count(tiles_of(problem.queries, shape.tile)),
          count(tiles_of(problem.keys, shape.tile)),
          problem.lse ? count(problem.queries) : 0,
          count(shape.paged() ? entries_of(shape) : 0),
          count(shape.tile)};
}

Counts unfused_head(const Head& h) {
  const Count tiles = h.query_tiles * h.keys * h.widths();
  return {.global_reads = h.queries * h.wide + tiles + 2 * h.pairs(),
          .global_writes = 2 * h.pairs() + h.queries * h.deep + h.lse,
          .shared_reads = h.pairs() * h.widths() + 1532 * h.queries,
          .shared_writes = tiles + 1022 * h.queries,
          .barriers = 4 * h.query_tiles * h.key_tiles + 19 * h.queries,
          .fma = h.pairs() * h.widths(),
          .exps = h.pairs()};
}

Counts fused_head(const Head& h) {
  const Count tiles = h.query_tiles * h.keys * h.widths();
  const Count entries = h.query_tiles * h.entries;
  return {.global_reads = h.queries * h.wide + tiles + entries,
          .global_writes = h.queries * h.deep + h.lse,
          .shared_reads = h.pairs() * h.widths() + entries * h.tile,
          .shared_writes = tiles + entries,
          .barriers = 2 * h.query_tiles * h.key_tiles,
          .fma = h.pairs() * h.widths(),
          .exps = h.pairs() + h.key_tiles * h.queries};
}

Counts outer_k_head(const Head& h) {
  const Count passes = h.key_tiles * h.queries;
  return {.global_reads = h.keys * h.widths() + passes * (h.widths() + 2) + 2 * h.lse,
          .global_writes = (passes + h.queries) * (h.deep + 2) + h.lse,
          .shared_reads = h.pairs() * h.widths(),
          .shared_writes = h.keys * h.widths(),
          .barriers = 2 * h.key_tiles,
          .fma = h.pairs() * h.widths() + passes * h.deep,
          .exps = h.pairs() + 2 * passes};
}

/// The part of the backward that runs once for each query head.
Counts backward_head(const Head& h) {
  const Count by_queries = h.query_tiles * h.keys * h.widths(), by_keys = h.key_tiles * h.queries * (h.widths() + 2);
  return {.global_reads = h.queries * (h.wide + 3 * h.deep + 2) + by_queries + by_keys,
          .global_writes = h.queries + h.queries * h.wide,
          .shared_reads = h.pairs() * (4 * h.wide + 3 * h.deep + 2),
          .shared_writes = by_queries + by_keys,
          .barriers = 4 * h.query_tiles * h.key_tiles,
          .fma = h.pairs() * (4 * h.wide + 3 * h.deep) + h.queries * h.deep,
          .exps = 2 * h.pairs()};
}

Counts times(Counts counts, Count heads) {
  for (Count Counts::*field : {&Counts::global_reads, &Counts::global_writes, &Counts::shared_reads,
                               &Counts::shared_writes, &Counts::barriers, &Counts::fma, &Counts::exps})
    counts.*field *= heads;
  return counts;
}

}  // namespace

std::optional<Counts> closed_form(Kind kind, const Shape& shape) {
  if (shape.masked && kind != Kind::unfused) return std::nullopt;
  const Head h = head_of(shape);
  const auto heads = static_cast<Count>(shape.problem.batch * shape.problem.heads_q);
  switch (kind) {
    case Kind::unfused: return times(unfused_head(h), heads);
    case Kind::fused:
    case Kind::broken: return times(fused_head(h), heads);
    case Kind::outer_k: return times(outer_k_head(h), heads);
    case Kind::backward: break;
  }
  Counts counts = times(backward_head(h), heads);
  const Count own = static_cast<Count>(shape.problem.batch * shape.problem.heads_kv) * h.keys * h.widths();
  counts.global_reads += own;  // k and v of a key tile, for all query heads of its group
  counts.global_writes += own;
  return counts;
}

double theta(Kind kind, const Shape& shape) {
  const Problem& problem = shape.problem;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double heads = real(problem.batch) * real(problem.heads_q);
  const double queries = real(problem.queries), keys = real(problem.keys);
  const double width = (real(shape.width()) + real(shape.value_width())) / 2;
  if (kind == Kind::unfused) return heads * ((queries + keys) / 2 * width + queries * keys);
  return heads * queries * keys * width * width / (real(shape.tile) * 2 * width);
}

double compulsory_bytes(Kind kind, const Shape& shape) {
  const Problem& problem = shape.problem;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double queries = real(problem.batch) * real(problem.heads_q) * real(problem.queries);
  const double keys = real(problem.batch) * real(problem.heads_kv) * real(problem.keys);
  const double wide = real(shape.width()), deep = real(shape.value_width());
  if (kind == Kind::backward) return word_bytes * (2 * (queries + keys) * (wide + deep) + queries);
  return word_bytes * ((queries + keys) * (wide + deep) + (problem.lse ? queries : 0));
}

}  // namespace fresnel::traffic
