// SPDX-License-Identifier: Apache-2.0
// cpu.flash: tiled attention with an online softmax. Two shapes share the walk and the workspace: lanes along queries
// (columns-inl.h) for whole vectors of queries, lanes along the head dimension (rows-inl.h) for the few that are left
// over, or for a sequence that has no more. Which queries are which depends on the sequence's own queries alone.
// Source: Dao et al., "FlashAttention", 2022, algorithm 1, with the loops exchanged (keys innermost) and the division
// by l postponed to the end as in Dao, "FlashAttention-2", 2023, section 3.1.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/flash.cpp"
#include "hwy/foreach_target.h"
// clang-format off: foreach_target.h has to come first
#include "kernels/cpu/columns-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/transpose-inl.h"
// clang-format on
#include <array>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/isa.hpp"
#include "runtime/parallel.hpp"
#include "walk/walk.hpp"

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

/// A query without visible keys: o = 0, lse = -inf.
template <class In>
void store_empty(const Launch& launch, const QueryTile& tile, std::int64_t query) {
  using T = Real<In>;
  In* const out = rows_of<In>(launch.outputs.o, tile.batch, tile.head).row(query);
  std::fill_n(out, launch.plan.problem.value_dim, from_real<In>(T(0)));
  store_lse<T>(launch.outputs, tile.batch, tile.head, query, -std::numeric_limits<T>::infinity());
}

// ---------------------------------------------------------------------------------------------- lanes along D

/// What a row sees before and after the keys that all rows of a step see.
[[nodiscard]] inline std::array<KeyRange, 2> ends_of(const KeyRange& seen, const KeyRange& shared) {
  return {KeyRange{seen.first, shared.first}, KeyRange{shared.last, seen.last}};
}

/// One span of keys for `rows` queries: the maximum is raised once for the span, sums run in blocks of the tile's keys.
/// What all queries see is computed together; the ends that only one sees, alone.
template <class In, int rows>
HWY_INLINE void row_step(const Problem& problem, const Mask& mask, const ScoreRule<Real<In>>& rule, std::int64_t block,
                         Rows<const In> k, Rows<const In> v, std::int64_t query, const RowState<Real<In>>* row) {
  using T = Real<In>;
  // Later queries see later keys: the first one's left end and the last one's right end are theirs alone.
  const KeyRange shared{row[rows - 1].seen.first, row[0].seen.last};
  dot_range<In, rows>(row, k, shared, problem.head_dim);
  T alpha[rows];
  for (int index = 0; index < rows; ++index) {
    const RowState<T>& one = row[index];
    if constexpr (rows > 1) {
      for (const KeyRange end : ends_of(one.seen, shared))
        if (!end.empty()) dot_range<In, 1>(&one, k, end, problem.head_dim);
    }
    const T highest = finish_scores(rule, one.seen.first - mask.position(query + index), one.seen.size(), one.scores);
    const T before = one.first ? -std::numeric_limits<T>::infinity() : *one.m;
    const T raised = highest > before || std::isnan(highest) ? highest : before;
    const bool nothing_before = before == -std::numeric_limits<T>::infinity();
    alpha[index] = nothing_before ? T(0) : hn::GetLane(exp_nonpositive<T>(hn::Set(Full<T>(), before - raised)));
    *one.l = one.first ? T(0) : *one.l * alpha[index];
    *one.m = raised;
    for (std::int64_t at = 0; at < one.seen.size(); at += block)
      *one.l += weigh(raised, std::min(block, one.seen.size() - at), one.scores + at);
  }
  T kept[rows];
  std::fill_n(kept, rows, T(1));
  for (std::int64_t first = shared.first; first < shared.last; first += block)
    add_values<In, rows>(row, v, {first, std::min(first + block, shared.last)}, problem.value_dim,
                         first == shared.first ? alpha : kept);
  if constexpr (rows > 1) {
    for (int index = 0; index < rows; ++index)
      for (const KeyRange end : ends_of(row[index].seen, shared))
        if (!end.empty()) add_values<In, 1>(row + index, v, end, problem.value_dim, kept);
  }
}

/// The tile's queries in the type sums are kept in, padded to whole vectors: as they lie where that is what they are.
template <class In>
[[nodiscard]] Rows<const Real<In>> padded_queries(Rows<const In> q, const QueryTile& tile, std::int64_t width,
                                                  Real<In>* scratch) {
  if constexpr (reads_in_place<In>)
    if (width % lanes_of<In> == 0) return {q.row(tile.first), q.stride};
  const std::int64_t padded = padded_width(width);
  for (std::int64_t row = 0; row < tile.count; ++row)
    load_query(q.row(tile.first + row), width, padded, scratch + row * padded);
  return {scratch, padded};
}

/// One query of a sequence that has no more, against keys that fit one span: the state stays in registers and there is
/// nothing to walk. To the bit what flash_rows gives.
template <class In>
void flash_one_row(const Launch& launch, const QueryTile& tile, const Mask& mask, const KeyRange& keys,
                   const RowScratch<Real<In>>& s) {
  using T = Real<In>;
  const Problem& problem = launch.plan.problem;
  const std::int64_t kv_head = tile.head / problem.group();
  const auto k = rows_of<In>(launch.inputs.k, tile.batch, kv_head);
  const auto v = rows_of<In>(launch.inputs.v, tile.batch, kv_head);
  const auto rule = score_rule<T>(problem, launch.inputs, tile.batch, tile.head);
  const auto q = padded_queries(rows_of<In>(launch.inputs.q, tile.batch, tile.head), tile, problem.head_dim, s.q);
  In* const out = rows_of<In>(launch.outputs.o, tile.batch, tile.head).row(tile.first);
  const std::int64_t distance = keys.first - mask.position(tile.first);
  T m, l;
  const RowState<T> row{q.row(0), s.o, s.scores, &m, &l, keys, true};
  if (keys.size() > 1) {
    whole_row<In>(problem, rule, distance, launch.plan.tile.keys, k, v, row);
    store_row(s.o, l, problem.value_dim, out);
    return store_lse<T>(launch.outputs, tile.batch, tile.head, tile.first, log_sum_exp(m, l));
  }
  // One key needs no softmax: its weight is exp(0) = 1, so o = v and lse = s. Sums begin at +0, hence the zeros; a
  // score that is not finite makes o a NaN.
  dot_range<In, 1>(&row, k, keys, problem.head_dim);
  m = finish_scores(rule, distance, 1, s.scores);
  const T nothing = std::abs(m) * T(0);
  std::transform(v.row(keys.first), v.row(keys.first) + problem.value_dim, out,
                 [=](In value) { return from_real<In>(to_real(value) + nothing); });
  store_lse<T>(launch.outputs, tile.batch, tile.head, tile.first, m + T(0));
}

template <class In>
void flash_rows(const Launch& launch, const QueryTile& tile, const RowScratch<Real<In>>& s) {
  using T = Real<In>;
  const Problem& problem = launch.plan.problem;
  const Mask mask = mask_of(problem, live_keys(problem, launch.inputs, tile.batch));
  if (const KeyRange keys = mask.range(tile.first);
      tile.count == 1 && !keys.empty() && keys.last <= row_span * launch.plan.tile.keys)
    return flash_one_row<In>(launch, tile, mask, keys, s);
  const std::int64_t o_width = padded_width(problem.value_dim);
  const std::int64_t kv_head = tile.head / problem.group(), tile_keys = launch.plan.tile.keys;
  const auto k = rows_of<In>(launch.inputs.k, tile.batch, kv_head);
  const auto v = rows_of<In>(launch.inputs.v, tile.batch, kv_head);
  const auto o = rows_of<In>(launch.outputs.o, tile.batch, tile.head);
  const auto rule = score_rule<T>(problem, launch.inputs, tile.batch, tile.head);
  const auto q = padded_queries(rows_of<In>(launch.inputs.q, tile.batch, tile.head), tile, problem.head_dim, s.q);

  KeyRange seen[most_rows];
  for (std::int64_t row = 0; row < tile.count; ++row) seen[row] = mask.range(tile.first + row);
  const std::int64_t span = row_span * tile_keys;
  for_each_key_span(mask, span, tile, [&](const KeyRange& keys) HWY_ATTR {
    const auto state = [&](std::int64_t row, std::int64_t slot) HWY_ATTR {
      const KeyRange all = seen[row];
      return RowState<T>{q.row(row),
                         s.o + row * o_width,
                         s.scores + slot * padded_width(span),
                         s.m + row,
                         s.l + row,
                         {std::max(keys.first, all.first), std::min(keys.last, all.last)},
                         all.first >= keys.first};
    };
    for (std::int64_t row = 0; row < tile.count;) {
      RowState<T> two[2] = {state(row, 0)};
      bool together = row + 1 < tile.count;
      if (together) {
        two[1] = state(row + 1, 1);
        together = two[1].seen.first < two[0].seen.last && !two[1].seen.empty();
      }
      if (together) {
        row_step<In, 2>(problem, mask, rule, tile_keys, k, v, tile.first + row, two);
      } else if (!two[0].seen.empty()) {
        row_step<In, 1>(problem, mask, rule, tile_keys, k, v, tile.first + row, two);
      }
      row += together ? 2 : 1;
    }
  });
  for (std::int64_t row = 0; row < tile.count; ++row) {
    const std::int64_t query = tile.first + row;
    if (seen[row].empty()) {
      store_empty<In>(launch, tile, query);
      continue;
    }
    store_row(s.o + row * o_width, s.l[row], problem.value_dim, o.row(query));
    store_lse<T>(launch.outputs, tile.batch, tile.head, query, log_sum_exp(s.m[row], s.l[row]));
  }
}

// ---------------------------------------------------------------------------------------- lanes along queries

/// The part of the scratch that belongs to group `index`; the score tile is shared, groups take turns.
template <class T>
[[nodiscard]] ColumnScratch<T> group_scratch(const ColumnScratch<T>& all, const Problem& problem, std::int64_t index) {
  ColumnScratch<T> group = all;
  const std::int64_t first = index * group_width<T>;
  group.q += first * problem.head_dim;
  group.o += first * problem.value_dim;
  for (T** array : {&group.m, &group.l, &group.alpha, &group.first, &group.last}) *array += first;
  return group;
}

/// Rows [first, first + count) in the type sums are kept in: as they lie, or converted into scratch.
template <class In>
[[nodiscard]] Rows<const Real<In>> real_rows(Rows<const In> from, std::int64_t first, std::int64_t count,
                                             std::int64_t width, Real<In>* scratch) {
  using T = Real<In>;
  if constexpr (reads_in_place<In>) {
    return {from.row(first), from.stride};
  } else {
    constexpr std::int64_t lanes = lanes_of<T>;
    const std::int64_t stride = padded_width(width);
    for (std::int64_t row = 0; row < count; ++row) {
      const In* source = from.row(first + row);
      T* to = scratch + row * stride;
      std::int64_t at = 0;
      for (; at + lanes <= width; at += lanes) hn::Store(load(source + at), Full<T>(), to + at);
      if (at < width) hn::Store(load_first(source + at, width - at), Full<T>(), to + at);
    }
    return {scratch, stride};
  }
}

/// Q^T of one group and the state of an empty set; lanes without a query repeat the last one and are never stored.
template <class T>
void start_group(Rows<const T> q, std::int64_t count, const Problem& problem, const ColumnScratch<T>& group) {
  for (std::int64_t lane = 0; lane < std::min(count, group_width<T>); lane += lanes_of<T>)
    rows_to_lanes(q, lane, count, problem.head_dim, group_width<T>, group.q + lane);
  std::fill_n(group.o, problem.value_dim * group_width<T>, T(0));
  std::fill_n(group.m, group_width<T>, -std::numeric_limits<T>::infinity());
  std::fill_n(group.l, group_width<T>, T(0));
}

[[nodiscard]] inline KeyRange shared(const KeyRange& some, const KeyRange& others) {
  return {std::max(some.first, others.first), std::min(some.last, others.last)};
}

/// Of `keys` those that every query sees, counted from the first; the last query's first to the first one's last.
[[nodiscard]] inline KeyRange seen_by_all(const Mask& mask, const QueryTile& rows, const KeyRange& keys) {
  const KeyRange top = mask.range(rows.first), bottom = mask.range(rows.first + rows.count - 1);
  if (top.empty() || bottom.empty()) return {};
  const KeyRange all = shared({bottom.first, top.last}, keys);
  return all.empty() ? KeyRange{} : KeyRange{all.first - keys.first, all.last - keys.first};
}

/// Per query of a group: its visible keys relative to the tile; unused lanes copy the last query.
template <class T>
void mark_visible(const Mask& mask, std::int64_t query, std::int64_t count, const KeyRange& keys, T* first, T* last) {
  for (std::int64_t column = 0; column < group_width<T>; ++column) {
    const KeyRange seen = mask.range(query + std::min(column, count - 1));
    first[column] = static_cast<T>(std::clamp<std::int64_t>(seen.first - keys.first, 0, keys.size()));
    last[column] = static_cast<T>(std::clamp<std::int64_t>(seen.last - keys.first, 0, keys.size()));
  }
}

template <class T>
HWY_INLINE void copy_row(const T* HWY_RESTRICT from, std::int64_t width, T* HWY_RESTRICT to) {
  std::int64_t at = 0;
  for (; at + lanes_of<T> <= width; at += lanes_of<T>) hn::StoreU(hn::Load(Full<T>(), from + at), Full<T>(), to + at);
  for (; at < width; ++at) to[at] = from[at];
}

/// O^T of one group, divided by l, goes out row by row, whole vectors at a time: transposed straight to its place it
/// would go in 16-byte pieces, which on an Intel server took longer than all the rest of a short call.
template <class In>
void finish_group(const Launch& launch, const QueryTile& rows, const Mask& mask, const ColumnScratch<Real<In>>& group) {
  using T = Real<In>;
  const Full<T> d;
  const std::int64_t width = launch.plan.problem.value_dim;
  const auto all = rows_of<In>(launch.outputs.o, rows.batch, rows.head);
  const Rows<In> out{all.row(rows.first), all.stride};
  const Rows<T> wide{group.v, padded_width(width)};
  for (std::int64_t lane = 0; lane < rows.count; lane += lanes_of<T>) {
    const auto inverse = hn::Div(hn::Set(d, T(1)), hn::Load(d, group.l + lane));
    lanes_to_rows(group.o + lane, group_width<T>, inverse, lane, rows.count, width, wide);
  }
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const std::int64_t query = rows.first + row;
    if (mask.range(query).empty()) {
      store_empty<In>(launch, rows, query);
      continue;
    }
    if constexpr (reads_in_place<In>) {
      copy_row(wide.row(row), width, out.row(row));
    } else {
      std::transform(wide.row(row), wide.row(row) + width, out.row(row), [](T value) { return from_real<In>(value); });
    }
    store_lse<T>(launch.outputs, rows.batch, rows.head, query, log_sum_exp(group.m[row], group.l[row]));
  }
}

/// Whether to ask for K and V: unless all of them may lie in a cache. The processor's own prefetchers do not keep up
/// where few queries leave little arithmetic between two loads, and lose some time elsewhere.
[[nodiscard]] inline bool asks_ahead(const Plan& plan) { return bytes_of_keys(plan.problem) >= 4e6; }

/// What to ask for while `keys` are met, of a head's keys up to `last`. Where K and V are read as they lie, the values
/// come just before their turn; where they are converted, a tile of both before any product, the next tile's.
template <class In>
[[nodiscard]] TileAhead ahead_of(const Plan& plan, const KeyRange& keys, std::int64_t last, Rows<const In> k,
                                 Rows<const In> v) {
  const std::int64_t count = std::min(plan.tile.keys, last - keys.last);
  const auto next = [&](Rows<const In> rows, std::int64_t width) {
    return count > 0 ? LinesAhead(rows.row(keys.last), rows.stride, width, count) : LinesAhead();
  };
  const LinesAhead next_k = next(k, plan.problem.head_dim);
  if constexpr (!reads_in_place<In>) return {next_k, next(v, plan.problem.value_dim)};
  return {LinesAhead(v.row(keys.first), v.stride, plan.problem.value_dim, keys.size()), next_k};
}

/// The form of tile_step for a group.
template <class T>
[[nodiscard]] auto step_for(std::int64_t count, bool asks) {
  const bool few = count <= lanes_of<T>;
  if (asks) return few ? tile_step<T, 1, true> : tile_step<T, max_vectors, true>;
  return few ? tile_step<T, 1, false> : tile_step<T, max_vectors, false>;
}

template <class In>
void flash_columns(const Launch& launch, const QueryTile& tile, const ColumnScratch<Real<In>>& scratch) {
  using T = Real<In>;
  const Problem& problem = launch.plan.problem;
  const Mask mask = mask_of(problem, live_keys(problem, launch.inputs, tile.batch));
  const std::int64_t kv_head = tile.head / problem.group();
  const auto q = rows_of<In>(launch.inputs.q, tile.batch, tile.head);
  const auto k = rows_of<In>(launch.inputs.k, tile.batch, kv_head);
  const auto v = rows_of<In>(launch.inputs.v, tile.batch, kv_head);
  TileRule<T> rule;
  rule.scores = score_rule<T>(problem, launch.inputs, tile.batch, tile.head);

  const std::int64_t groups = tiles_of(tile.count, group_width<T>);
  const auto rows_in = [&](std::int64_t group) {
    const std::int64_t before = group * group_width<T>;
    return QueryTile{tile.batch, tile.head, tile.first + before, std::min(group_width<T>, tile.count - before)};
  };
  for (std::int64_t index = 0; index < groups; ++index) {
    const QueryTile rows = rows_in(index);
    start_group<T>(real_rows(q, rows.first, rows.count, problem.head_dim, scratch.k), rows.count, problem,
                   group_scratch(scratch, problem, index));
  }
  const bool asks = asks_ahead(launch.plan);
  const std::int64_t last = mask.range(tile.first, tile.count).last;
  for_each_key_span(mask, launch.plan.tile.keys, tile, [&](const KeyRange& keys) HWY_ATTR {
    TileAhead ahead = asks ? ahead_of(launch.plan, keys, last, k, v) : TileAhead();
    const auto k_tile = real_rows(k, keys.first, keys.size(), problem.head_dim, scratch.k);
    const auto v_tile = real_rows(v, keys.first, keys.size(), problem.value_dim, scratch.v);
    for (std::int64_t index = 0; index < groups; ++index) {
      const QueryTile rows = rows_in(index);
      // What no query of the group sees is left out: under a causal mask half of a small tile.
      const KeyRange seen = shared(mask.range(rows.first, rows.count), keys);
      if (seen.empty()) continue;
      const auto group = group_scratch(scratch, problem, index);
      rule.whole = seen_by_all(mask, rows, seen);
      rule.distance = seen.first - mask.position(rows.first);
      rule.first = group.first;
      rule.last = group.last;
      if (rule.edge(seen.size())) mark_visible(mask, rows.first, rows.count, seen, group.first, group.last);
      const auto step = step_for<T>(rows.count, asks);
      const std::int64_t before = seen.first - keys.first;
      step(rule, group, {k_tile.row(before), k_tile.stride}, {v_tile.row(before), v_tile.stride}, seen.size(),
           problem.head_dim, problem.value_dim, ahead);
      ahead = {};  // the other groups find all of it there
    }
  });
  for (std::int64_t index = 0; index < groups; ++index)
    finish_group<In>(launch, rows_in(index), mask, group_scratch(scratch, problem, index));
}

// --------------------------------------------------------------------------------------------------- entry

/// Queries at the end of a tile that go along D: those that would fill at most half a vector, the point where lanes
/// along queries begin to win; where keys are many, an eighth, because these queries read them again. How many keys
/// there are is not asked where lengths say who sees them.
template <class T>
[[nodiscard]] inline std::int64_t rows_at_end(const Problem& problem, std::int64_t count) {
  static_assert(lanes_of<T> / 2 <= most_rows);
  const std::int64_t over = count % lanes_of<T>;
  const bool many_keys = problem.keys >= 2048 && !problem.seqlens_k;
  const std::int64_t few = lanes_of<T> / (many_keys && count > lanes_of<T> ? 8 : 2);
  return over <= std::max<std::int64_t>(few, 1) ? over : 0;
}

template <class In>
void flash(const Launch& launch) {
  using T = Real<In>;
  const Plan& plan = launch.plan;
  parallel_for(launch.executor, plan.lanes, item_count(plan.problem, plan.tile),
               [&](int lane, std::int64_t item) HWY_ATTR {
                 const QueryTile tile = item_at(plan.problem, plan.tile, item);
                 const std::int64_t rows = rows_at_end<T>(plan.problem, tile.count), columns = tile.count - rows;
                 std::byte* const scratch = launch.workspace.data() + static_cast<std::size_t>(lane) * plan.lane_bytes;
                 Carver for_columns(scratch), for_rows(scratch);
                 if (columns > 0)
                   flash_columns<In>(launch, {tile.batch, tile.head, tile.first, columns},
                                     ColumnScratch<T>(for_columns, plan.problem, plan.tile));
                 if (rows > 0)
                   flash_rows<In>(launch, {tile.batch, tile.head, tile.first + columns, rows},
                                  RowScratch<T>(for_rows, plan.problem, plan.tile));
               });
}

void flash_any(const Launch& launch) {
  switch (launch.plan.problem.dtype) {
    case DType::f64: return flash<double>(launch);
    case DType::f32: return flash<float>(launch);
    case DType::f16: return flash<Float16>(launch);
    default: return flash<BFloat16>(launch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fresnel::cpu {

HWY_EXPORT(flash_any);

void run_flash(const Launch& launch) { version_for(HWY_DISPATCH_TABLE(flash_any), launch.plan.isa)(launch); }

// 64 float queries are two groups of two 64-byte vectors, or more groups of narrower ones: half types are converted
// once for all of them.
/// K and V of half types are converted once for all queries of a tile, so there are more of these: as long as their Q
/// and O take no more than 128 KB, and a sequence has four tiles of 128 or eight of 256, since threads may have nothing
/// else.
Tile flash_tile(const Problem& problem, const Machine& /*machine*/) {
  const auto real = static_cast<std::int64_t>(real_bytes(problem));
  Tile tile{256 / real, 64};
  if (size_of(problem.dtype) == real) return tile;
  const std::int64_t row_bytes = (problem.head_dim + problem.value_dim) * real;
  for (const std::int64_t queries : {128, 256}) {
    const bool fits = queries * row_bytes <= 128 << 10;
    if (fits && problem.queries >= queries * queries / 32) tile.queries = queries;
  }
  return tile;
}

std::size_t flash_lane_bytes(const Problem& problem, const Tile& tile) {
  // Columns and rows of a tile take turns in the same scratch.
  const auto measure = [&](auto zero) {
    using T = decltype(zero);
    Carver rows(nullptr), columns(nullptr);
    RowScratch<T>(rows, problem, tile);
    ColumnScratch<T>(columns, problem, tile);
    return std::max(rows.used(), columns.used());
  };
  return problem.dtype == DType::f64 ? measure(0.0) : measure(0.0f);
}

}  // namespace fresnel::cpu
#endif  // HWY_ONCE

// Notebook (S 2048, D 64, float32, one thread of a Zen 4 server, g++ 12, November 2026; docs/performance.md has the
// rest):
//   queries in lanes, 4 x 6 accumulators                81% of the multiply-add peak, cpu.naive 35%
//   4 x 4, 2 x 8, 2 x 12 accumulators                   within 3% of it; 2 x 8 kept for its footprint
//   query vectors pinned in registers                   no gain, 6% slower on AVX2: dropped
//   Q and O transposed in blocks, ends of tiles along D S 17: 15.7 to 9.8 microseconds for 4 heads
//   rows along D, 16 key tiles per maximum              one query, 1024 keys: 15% slower than a naive row to equal
