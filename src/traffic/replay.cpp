// SPDX-License-Identifier: Apache-2.0
// Walks of the catalogue, by their style: see replay.hpp. Sums are doubles, as in kernels/cost.cpp; below 2^53 they are
// exact.
#include "traffic/replay.hpp"

#include <array>
#include <string>

#include "walk/walk.hpp"

namespace fresnel::traffic {
namespace {

/// How a row goes through its tiles.
enum class Style : std::uint8_t {
  tiles,       ///< a tile of queries of one head, all keys that it sees
  packed,      ///< the same over K and V that were packed once for everybody
  grouped,     ///< all query heads of a kv head together, keys in chunks whose states are merged
  two_sweeps,  ///< the backward by queries, then by keys, a query row loaded again for each key tile
};

struct Described {
  std::string_view name;
  Style style;
};

constexpr std::array described{
    Described{"cpu.amx_decode", Style::grouped}, Described{"cpu.amx", Style::packed},
    Described{"cpu.decode", Style::grouped},     Described{"cpu.flash", Style::tiles},
    Described{"cpu.naive", Style::tiles},        Described{"cpu.reference_backward", Style::two_sweeps}};

/// Rows that are gone through one by one.
constexpr std::int64_t most_rows = std::int64_t{1} << 27;

const Described* description_of(const Kernel& kernel) {
  const auto* const found =
      std::find_if(described.begin(), described.end(), [&](const Described& row) { return row.name == kernel.name; });
  return found == described.end() ? nullptr : found;
}

double real(std::int64_t value) { return static_cast<double>(value); }

/// Sizes in bytes and the mask that all sequences share.
struct Sizes {
  explicit Sizes(const Problem& problem)
      : mask(mask_of(problem, problem.keys)),
        element(real(size_of(problem.dtype))),
        state(problem.dtype == DType::f64 ? 8 : 4),
        wide(real(problem.head_dim)),
        deep(real(problem.value_dim)),
        heads_q(real(problem.batch) * real(problem.heads_q)),
        heads_kv(real(problem.batch) * real(problem.heads_kv)) {}
  Mask mask;
  double element, state, wide, deep, heads_q, heads_kv;
};

void add_tiles(Replay& replay, const Problem& problem, const Tile& tile, const Sizes& s) {
  double rows = 0, keys = 0, pairs = 0;
  for (std::int64_t first = 0; first < problem.queries; first += tile.queries) {
    const std::int64_t count = std::min(tile.queries, problem.queries - first);
    const std::int64_t seen = s.mask.range(first, count).size();
    if (seen == 0) continue;
    rows += real(count);
    keys += real(seen);
    pairs += real(count) * real(seen);
  }
  replay.visited = s.heads_q * pairs;
  replay.cache.reads += s.element * s.heads_q * (rows * s.wide + keys * (s.wide + s.deep));
}

void add_packing(Replay& replay, const Problem& problem, const Sizes& s) {
  const double all = s.element * s.heads_kv * real(problem.keys) * (s.wide + s.deep);
  replay.cache.reads += all;
  replay.cache.writes += all;
}

void add_groups(Replay& replay, const Problem& problem, const Tile& tile, const Sizes& s) {
  const std::int64_t group = problem.group(), members = group * problem.queries;
  double rows = 0, keys = 0, pairs = 0, partials = 0;
  for (std::int64_t first = 0; first < members; first += tile.queries) {
    const std::int64_t last = std::min(first + tile.queries, members), query = first / group;
    const KeyRange seen = s.mask.range(query, (last - 1) / group - query + 1);
    if (seen.empty()) continue;
    const double chunks = real(tiles_of(seen.last, tile.keys) - seen.first / tile.keys);
    rows += real(last - first) * chunks;
    keys += real(seen.size());
    pairs += real(last - first) * real(seen.size());
    if (tile.keys < problem.keys) partials += real(last - first) * chunks;
  }
  replay.visited = s.heads_kv * pairs;
  replay.cache.reads += s.element * s.heads_kv * (rows * s.wide + keys * (s.wide + s.deep));
  const double states = s.state * s.heads_kv * partials * (s.deep + 2);
  replay.cache.reads += states;
  replay.cache.writes += states;
}

void add_sweeps(Replay& replay, const Problem& problem, const Tile& tile, const Sizes& s) {
  add_tiles(replay, problem, tile, s);  // K and V for each tile of queries; its own rows are loaded more often, below
  double touched = 0, rows = 0, pairs = 0;
  for (std::int64_t query = 0; query < problem.queries; ++query) {
    const KeyRange seen = s.mask.range(query);
    pairs += real(seen.size());
    if (!seen.empty()) touched += real(tiles_of(seen.last, tile.keys) - seen.first / tile.keys);
  }
  for (std::int64_t first = 0; first < problem.queries; first += tile.queries) {
    const std::int64_t count = std::min(tile.queries, problem.queries - first);
    if (!s.mask.range(first, count).empty()) rows += real(count);
  }
  replay.visited = s.heads_q * pairs;  // element by element: hidden pairs are never touched
  const double row = s.element * (s.wide + 2 * s.deep) + s.state;
  replay.cache.reads += s.heads_q * (2 * touched * row - s.element * rows * s.wide);
  const double seen = real(s.mask.range(0, problem.queries).size());
  replay.cache.reads += s.element * s.heads_kv * (problem.queries > 0 ? seen : 0) * (s.wide + s.deep);
}

}  // namespace

bool goes_by_tiles(const Kernel& kernel) {
  const Described* const found = description_of(kernel);
  return found != nullptr && found->style == Style::tiles;
}

Result<Replay> replay(const Kernel& kernel, const Problem& problem, const Tile& tile) {
  const Described* const found = description_of(kernel);
  if (found == nullptr)
    return Refusal{Fault::unsupported, {}, "kernel", std::string(kernel.name), "a kernel whose walk is described", {}};
  if (problem.queries > most_rows || problem.queries * problem.group() > most_rows)
    return Refusal{Fault::unsupported, {}, "queries", std::to_string(problem.queries), "at most 2^27 in a replay", {}};
  const Sizes s(problem);
  const double queries = s.heads_q * real(problem.queries), keys = s.heads_kv * real(problem.keys);
  const bool backward = found->style == Style::two_sweeps;

  Replay replay;
  replay.visible = s.heads_q * visible_pairs(s.mask);
  switch (found->style) {
    case Style::tiles: add_tiles(replay, problem, tile, s); break;
    case Style::packed:
      add_packing(replay, problem, s);
      add_tiles(replay, problem, tile, s);
      break;
    case Style::grouped: add_groups(replay, problem, tile, s); break;
    case Style::two_sweeps: add_sweeps(replay, problem, tile, s); break;
  }
  const double written = backward ? s.element * (queries * s.wide + keys * (s.wide + s.deep))
                                  : s.element * queries * s.deep + (problem.lse ? s.state * queries : 0);
  replay.cache.writes += written;
  replay.memory.reads = s.element * (queries * (s.wide + (backward ? 2 * s.deep : 0)) + keys * (s.wide + s.deep)) +
                        (backward ? s.state * queries : 0);
  replay.memory.writes = written;
  replay.fma = replay.visited * (backward ? 4 * s.wide + 3 * s.deep : s.wide + s.deep);
  replay.tile = {s.element * replay.fma, 0};
  replay.working_set = s.element * real(problem.keys) * (s.wide + s.deep);
  replay.score_bytes = s.state * queries * real(problem.keys);
  return replay;
}

}  // namespace fresnel::traffic
