// SPDX-License-Identifier: Apache-2.0
// cpu.decode: few queries against many keys, where reading K and V once is all the time there is. All rows that read
// one kv head, queries times grouped heads, go through a chunk of keys together, and chunks are work items of their
// own, so that a single sequence keeps every core busy:
//
//     chunk 0      chunk 1      chunk 2            chunks start at multiples of tile.keys from key 0
//     (m, l, o)    (m, l, o)    (m, l, o)          partial results of a row, in the workspace that lanes share
//            \________ | ________/
//                     o, lse                       merged in ascending key order, whoever made them
//
// Which chunks a row has depends on its own sequence alone, and a row computes the same bits alone as in company.
// Source: Dao et al., "Flash-Decoding for long-context inference", 2023; the merge is semantics/softmax.hpp.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/decode.cpp"
#include "hwy/foreach_target.h"
// clang-format off: foreach_target.h has to come first
#include "kernels/cpu/decode-inl.h"
// clang-format on
#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/isa.hpp"
#include "runtime/parallel.hpp"
#include "walk/walk.hpp"

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

/// Some chunks of one kv head for some of the rows that read it.
struct DecodeItem {
  std::int64_t batch, kv_head;
  std::int64_t chunk, end;    ///< chunks [chunk, end)
  std::int64_t first, count;  ///< rows of the kv head: heads of a group within a query, queries in order
};

[[nodiscard]] inline DecodeItem decode_item(const Problem& problem, const Tile& tile, int lanes, std::int64_t item) {
  const std::int64_t rows = problem.group() * problem.queries;
  const std::int64_t slabs = tiles_of(rows, tile.queries), chunks = decode_chunks(problem, tile);
  const std::int64_t run = decode_run(problem, tile, lanes), runs = tiles_of(chunks, run);
  const std::int64_t first = item % slabs * tile.queries, head = item / slabs / runs, chunk = item / slabs % runs * run;
  return {head / problem.heads_kv,
          head % problem.heads_kv,
          chunk,
          std::min(chunk + run, chunks),
          first,
          std::min(tile.queries, rows - first)};
}

/// o of the state `other` joins that of `mine`, each weighed by its factor.
template <class T>
void add_weighed(T* mine, T factor, const T* other, T other_factor, std::int64_t padded) {
  const Full<T> d;
  const auto a = hn::Set(d, factor), b = hn::Set(d, other_factor);
  for (std::int64_t at = 0; at < padded; at += lanes_of<T>)
    hn::StoreU(hn::MulAdd(load(mine + at), a, hn::Mul(load(other + at), b)), d, mine + at);
}

/// State::merge of semantics/softmax.hpp: the empty set changes no bit, and of a set without weight only NaN remains.
template <class T>
void merge(const Partial<T>& mine, const Partial<T>& other, std::int64_t padded) {
  constexpr T none = -std::numeric_limits<T>::infinity();
  const auto weightless = [=](const Partial<T>& state) { return *state.m == none && *state.l == T(0); };
  const auto factor = [=](T m, T raised) HWY_ATTR {
    return m == none ? T(0) : hn::GetLane(exp_nonpositive<T>(hn::Set(Full<T>(), m - raised)));
  };
  if (weightless(mine) || weightless(other)) {
    for (std::int64_t at = 0; at < padded; ++at) {
      const T kept = weightless(other) ? mine.o[at] : other.o[at], gone = weightless(other) ? other.o[at] : mine.o[at];
      mine.o[at] = gone == T(0) ? kept : gone;
    }
    if (weightless(other)) return;
    *mine.m = *other.m;
    *mine.l = *other.l;
    return;
  }
  const T raised = *other.m > *mine.m ? *other.m : *mine.m;
  const T before = factor(*mine.m, raised), after = factor(*other.m, raised);
  *mine.l = *mine.l * before + *other.l * after;
  *mine.m = raised;
  add_weighed(mine.o, before, other.o, after, padded);
}

/// What chunks [first, last) of one row left, merged in order and stored; none: a query that sees no key.
template <class In, class PartialOf>
void store_decoded(const Launch& launch, std::int64_t batch, std::int64_t head, std::int64_t query, KeyRange chunks,
                   PartialOf&& partial) {
  using T = Real<In>;
  const Problem& problem = launch.plan.problem;
  In* const out = rows_of<In>(launch.outputs.o, batch, head).row(query);
  if (chunks.empty()) {
    std::fill_n(out, problem.value_dim, from_real<In>(T(0)));
    return store_lse<T>(launch.outputs, batch, head, query, -std::numeric_limits<T>::infinity());
  }
  const Partial<T> all = partial(chunks.first);
  for (std::int64_t chunk = chunks.first + 1; chunk < chunks.last; ++chunk)
    merge(all, partial(chunk), padded_width(problem.value_dim));
  const T inverse = T(1) / *all.l;
  for (std::int64_t at = 0; at < problem.value_dim; ++at)
    out[at] = from_real<In>(all.o[place_in_row<In>(at, problem.value_dim)] * inverse);
  store_lse<T>(launch.outputs, batch, head, query, log_sum_exp(*all.m, *all.l));
}

/// Copies a query into zero-padded scratch, in the order in which keys are loaded.
template <class In>
void place_query(const In* from, std::int64_t width, std::int64_t padded, Real<In>* q) {
  for (std::int64_t at = 0; at < width; ++at) q[place_in_row<In>(at, width)] = to_real(from[at]);
  for (std::int64_t at = width; at < padded; ++at) q[at] = 0;
}

/// Scores to weights for one row of a chunk; the sum in blocks, like that of the values.
template <class T>
void weigh_chunk(const ScoreRule<T>& rule, std::int64_t position, const DecodeRow<T>& row, const Partial<T>& state) {
  *state.m = finish_scores(rule, row.seen.first - position, row.seen.size(), row.scores);
  *state.l = 0;
  for (std::int64_t at = 0; at < row.seen.size(); at += decode_block)
    *state.l += weigh(*state.m, std::min(decode_block, row.seen.size() - at), row.scores + at);
}

/// All of K and V. Below some megabytes they may lie in caches, where asking for them costs one or two rows, which do
/// little else, more than it gains.
template <class In>
double bytes_of_keys(const Problem& problem) {
  return static_cast<double>(problem.batch * problem.heads_kv * (problem.head_dim + problem.value_dim)) *
         static_cast<double>(problem.keys) * sizeof(In);
}

template <class In>
void decode_chunk(const Launch& launch, const DecodeItem& item, std::byte* memory) {
  using T = Real<In>;
  const Problem& problem = launch.plan.problem;
  const Tile& tile = launch.plan.tile;
  Carver carver(memory);
  const DecodeScratch<T> scratch(carver, problem, tile);
  const Mask mask = mask_of(problem, live_keys(problem, launch.inputs, item.batch));
  const std::int64_t group = problem.group(), chunks = decode_chunks(problem, tile);
  const KeyRange chunk{item.chunk * tile.keys, std::min((item.chunk + 1) * tile.keys, mask.keys)};
  const std::int64_t q_width = padded_width(problem.head_dim);
  const auto query_of = [&](std::int64_t index) { return (item.first + index) / group; };
  const auto head_of = [&](std::int64_t index) { return item.kv_head * group + (item.first + index) % group; };
  const auto partial_of = [&](std::int64_t index) {
    if (chunks == 1) return scratch.partials(index);
    const std::int64_t row = (item.batch * problem.heads_q + head_of(index)) * problem.queries + query_of(index);
    return Partials<T>(launch.workspace.data(), problem)(row * chunks + item.chunk);
  };

  DecodeRow<T>* const rows = scratch.rows;
  for (std::int64_t index = 0; index < item.count; ++index) {
    const KeyRange all = mask.range(query_of(index));
    rows[index] = {scratch.q + index * q_width, partial_of(index).o, scratch.scores + index * padded_width(tile.keys),
                   KeyRange{std::max(chunk.first, all.first), std::min(chunk.last, all.last)}};
  }
  const KeyRange all = mask.range(query_of(0), query_of(item.count - 1) - query_of(0) + 1);
  const KeyRange any{std::max(chunk.first, all.first), std::min(chunk.last, all.last)};
  if (!any.empty()) {
    for (std::int64_t index = 0; index < item.count; ++index)
      place_query(rows_of<In>(launch.inputs.q, item.batch, head_of(index)).row(query_of(index)), problem.head_dim,
                  q_width, scratch.q + index * q_width);
    const auto k = rows_of<In>(launch.inputs.k, item.batch, item.kv_head);
    const auto v = rows_of<In>(launch.inputs.v, item.batch, item.kv_head);
    const std::int64_t start = chunk.first + (any.first - chunk.first) / decode_block * decode_block;
    const bool far_away = item.count > 2 || bytes_of_keys<In>(problem) >= 16e6;
    const Ahead<In> to_v(k, problem.head_dim, any.last, v, {start, any.last}, far_away);
    for (std::int64_t key = start; key < any.last; key += decode_block)
      score_rows<In>(rows, item.count, k, {key, key + decode_block}, problem.head_dim, to_v);
    for (std::int64_t index = 0; index < item.count; ++index) {
      to_v.ask_share(any.last, index, item.count);
      if (rows[index].seen.empty()) continue;
      const auto rule = score_rule<T>(problem, launch.inputs, item.batch, head_of(index));
      weigh_chunk(rule, mask.position(query_of(index)), rows[index], partial_of(index));
    }
    const std::int64_t goes_on = item.chunk + 1 < item.end ? all.last : 0;
    const Ahead<In> to_k(v, problem.value_dim, any.last, k, {chunk.last, goes_on}, far_away);
    for (std::int64_t key = start; key < any.last; key += decode_block)
      value_rows<In>(rows, item.count, v, {key, key + decode_block}, problem.value_dim, to_k, scratch.sums);
  }
  if (chunks > 1) return;
  for (std::int64_t index = 0; index < item.count; ++index)
    store_decoded<In>(launch, item.batch, head_of(index), query_of(index), {0, rows[index].seen.empty() ? 0 : 1},
                      [&](std::int64_t) { return partial_of(index); });
}

/// Merges one row's partial results: of the chunks that it sees keys of.
template <class In>
void merge_row(const Launch& launch, std::int64_t row) {
  const Problem& problem = launch.plan.problem;
  const Tile& tile = launch.plan.tile;
  const std::int64_t query = row % problem.queries, head = row / problem.queries;
  const std::int64_t batch = head / problem.heads_q, chunks = decode_chunks(problem, tile);
  const KeyRange seen = mask_of(problem, live_keys(problem, launch.inputs, batch)).range(query);
  const KeyRange own = seen.empty() ? KeyRange{} : KeyRange{seen.first / tile.keys, tiles_of(seen.last, tile.keys)};
  const Partials<Real<In>> partials(launch.workspace.data(), problem);
  store_decoded<In>(launch, batch, head % problem.heads_q, query, own,
                    [&](std::int64_t chunk) { return partials(row * chunks + chunk); });
}

template <class In>
void decode(const Launch& launch) {
  const Plan& plan = launch.plan;
  const Problem& problem = plan.problem;
  if (problem.batch * problem.heads_q * problem.queries == 0) return;
  const std::int64_t chunks = decode_chunks(problem, plan.tile);
  std::byte* const lanes = launch.workspace.data() + plan.shared_bytes;
  parallel_for(launch.executor, plan.lanes, decode_items(problem, plan.tile, plan.lanes),
               [&](int lane, std::int64_t item) HWY_ATTR {
                 std::byte* const memory = lanes + static_cast<std::size_t>(lane) * plan.lane_bytes;
                 for (DecodeItem some = decode_item(problem, plan.tile, plan.lanes, item); some.chunk < some.end;
                      ++some.chunk)
                   decode_chunk<In>(launch, some, memory);
               });
  if (chunks == 1) return;
  parallel_for(launch.executor, plan.lanes, problem.batch * problem.heads_q * problem.queries,
               [&](int, std::int64_t row) HWY_ATTR { merge_row<In>(launch, row); });
}

void decode_any(const Launch& launch) {
  switch (launch.plan.problem.dtype) {
    case DType::f64: return decode<double>(launch);
    case DType::f32: return decode<float>(launch);
    case DType::f16: return decode<Float16>(launch);
    default: return decode<BFloat16>(launch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fresnel::cpu {

HWY_EXPORT(decode_any);

void run_decode(const Launch& launch) { version_for(HWY_DISPATCH_TABLE(decode_any), launch.plan.isa)(launch); }

Tile decode_tile(const Problem&, const Machine&) { return {decode_rows, 512}; }

std::int64_t decode_chunks(const Problem& problem, const Tile& tile) {
  return std::max<std::int64_t>(tiles_of(problem.keys, tile.keys), 1);
}

// Four items for every lane, but no more: within an item, the values of one chunk ask for the keys of the next.
std::int64_t decode_run(const Problem& problem, const Tile& tile, int lanes) {
  const std::int64_t heads = std::max<std::int64_t>(problem.batch * problem.heads_kv, 1);
  const std::int64_t chunks = decode_chunks(problem, tile), wanted = std::int64_t{4} * lanes;
  return std::clamp<std::int64_t>(chunks / std::max<std::int64_t>(wanted / heads, 1), 1, 16);
}

// Never zero keys' worth: rows without keys are written by the items of one chunk.
std::int64_t decode_items(const Problem& problem, const Tile& tile, int lanes) {
  if (problem.heads_kv == 0) return 0;
  const std::int64_t slabs = tiles_of(problem.group() * problem.queries, tile.queries);
  const std::int64_t once = problem.batch * problem.heads_kv * slabs;
  const std::int64_t runs = tiles_of(decode_chunks(problem, tile), decode_run(problem, tile, lanes));
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  return once > most / runs ? most : once * runs;
}

// What a machine of 64 cores could take: planning asks before it knows the lanes.
std::int64_t decode_items_at_most(const Problem& problem, const Tile& tile) { return decode_items(problem, tile, 64); }

std::size_t decode_lane_bytes(const Problem& problem, const Tile& tile) {
  Carver carver(nullptr);
  if (problem.dtype == DType::f64) {
    DecodeScratch<double>(carver, problem, tile);
  } else {
    DecodeScratch<float>(carver, problem, tile);
  }
  return carver.used();
}

// A product too large for memory is cut off where no allocation can succeed.
std::size_t decode_shared_bytes(const Problem& problem, const Tile& tile) {
  const std::int64_t chunks = decode_chunks(problem, tile), rows = problem.batch * problem.heads_q * problem.queries;
  if (chunks == 1) return 0;
  constexpr std::size_t most = std::size_t{1} << 60;
  const auto row = static_cast<std::size_t>(chunks) *
                   (problem.dtype == DType::f64 ? Partials<double>::bytes(problem) : Partials<float>::bytes(problem));
  return row > 0 && static_cast<std::size_t>(rows) > most / row ? most : row * static_cast<std::size_t>(rows);
}

}  // namespace fresnel::cpu
#endif  // HWY_ONCE
