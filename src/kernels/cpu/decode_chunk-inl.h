// SPDX-License-Identifier: Apache-2.0
// Few queries against many keys, where reading K and V once is all the time there is. All rows that read
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
//
// What a chunk does to its rows comes as a class: VectorProducts (decode-inl.h) or TileProducts (tile_decode-inl.h).

#if defined(FRESNEL_KERNELS_CPU_DECODE_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FRESNEL_KERNELS_CPU_DECODE_CHUNK_INL_H_
#undef FRESNEL_KERNELS_CPU_DECODE_CHUNK_INL_H_
#else
#define FRESNEL_KERNELS_CPU_DECODE_CHUNK_INL_H_
#endif

#include "kernels/cpu/read_ahead-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "runtime/parallel.hpp"

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

/// Some chunks of one kv head for some of the rows that read it.
struct DecodeItem {
  std::int64_t batch, kv_head;
  std::int64_t chunk, end;    ///< chunks [chunk, end)
  std::int64_t first, count;  ///< rows of the kv head: heads of a group within a query, queries in order

  [[nodiscard]] std::int64_t query(const Problem& problem, std::int64_t index) const {
    return (first + index) / problem.group();
  }
  [[nodiscard]] std::int64_t head(const Problem& problem, std::int64_t index) const {
    return kv_head * problem.group() + (first + index) % problem.group();
  }
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
template <class Products, class PartialOf>
void store_decoded(const Launch& launch, std::int64_t batch, std::int64_t head, std::int64_t query, KeyRange chunks,
                   PartialOf&& partial) {
  using In = typename Products::Element;
  using T = Real<In>;
  const Problem& problem = launch.plan.problem;
  In* const out = rows_of<In>(launch.outputs.o, batch, head).row(query);
  if (chunks.empty()) {
    std::fill_n(out, problem.value_dim, from_real<In>(T(0)));
    return store_lse<T>(launch.outputs, batch, head, query, -std::numeric_limits<T>::infinity());
  }
  const Partial<T> all = partial(chunks.first);
  for (std::int64_t chunk = chunks.first + 1; chunk < chunks.last; ++chunk)
    merge(all, partial(chunk), Products::o_width(problem.value_dim));
  const T inverse = T(1) / *all.l;
  for (std::int64_t at = 0; at < problem.value_dim; ++at)
    out[at] = from_real<In>(all.o[Products::place_in_o(at, problem.value_dim)] * inverse);
  store_lse<T>(launch.outputs, batch, head, query, log_sum_exp(*all.m, *all.l));
}

/// The rows of an item and their products: what its chunks have in common.
template <class Products>
struct ItemRows {
  using T = Real<typename Products::Element>;
  const DecodeScratch<T>& scratch;
  Products& products;
};

/// One chunk: its rows and what they see of it, then their products.
template <class Products>
void decode_chunk(const Launch& launch, const DecodeItem& item, const ItemRows<Products>& of) {
  using In = typename Products::Element;
  using T = Real<In>;
  const Problem& problem = launch.plan.problem;
  const Tile& tile = launch.plan.tile;
  const DecodeScratch<T>& scratch = of.scratch;
  Products& products = of.products;
  const Mask mask = mask_of(problem, live_keys(problem, launch.inputs, item.batch));
  const std::int64_t chunks = decode_chunks(problem, tile);
  const KeyRange chunk{item.chunk * tile.keys, std::min((item.chunk + 1) * tile.keys, mask.keys)};
  const auto query_of = [&](std::int64_t index) { return item.query(problem, index); };
  const auto head_of = [&](std::int64_t index) { return item.head(problem, index); };
  const auto partial_of = [&](std::int64_t index) {
    if (chunks == 1) return scratch.partials(index);
    const std::int64_t row = (item.batch * problem.heads_q + head_of(index)) * problem.queries + query_of(index);
    return Partials<T>(launch.workspace.data(), problem)(row * chunks + item.chunk);
  };

  DecodeRow<T>* const rows = scratch.rows[item.chunk % 2];
  for (std::int64_t index = 0; index < item.count; ++index) {
    const KeyRange all = mask.range(query_of(index));
    rows[index] = {KeyRange{std::max(chunk.first, all.first), std::min(chunk.last, all.last)}, partial_of(index),
                   score_rule<T>(problem, launch.inputs, item.batch, head_of(index)), mask.position(query_of(index))};
  }
  const KeyRange all = mask.range(query_of(0), query_of(item.count - 1) - query_of(0) + 1);
  const KeyRange any{std::max(chunk.first, all.first), std::min(chunk.last, all.last)};
  if (!any.empty()) {
    const auto k = rows_of<In>(launch.inputs.k, item.batch, item.kv_head);
    const auto v = rows_of<In>(launch.inputs.v, item.batch, item.kv_head);
    const std::int64_t start = chunk.first + (any.first - chunk.first) / decode_block * decode_block;
    const std::int64_t goes_on = item.chunk + 1 < item.end ? all.last : 0;
    products.attend(rows, item.count, k, v, {start, any.last}, {chunk.last, goes_on});
  } else {
    products.finish();  // the chunk after this one takes the rows of the one before
  }
  if (chunks > 1) return;
  products.finish();
  for (std::int64_t index = 0; index < item.count; ++index)
    store_decoded<Products>(launch, item.batch, head_of(index), query_of(index), {0, rows[index].seen.empty() ? 0 : 1},
                            [&](std::int64_t) { return partial_of(index); });
}

/// All chunks of an item.
template <class Products>
void decode_chunks_of(const Launch& launch, DecodeItem item, std::byte* memory) {
  using In = typename Products::Element;
  const Problem& problem = launch.plan.problem;
  Carver carver(memory);
  const DecodeScratch<Real<In>> scratch(carver, problem, launch.plan.tile);
  Products products(carver, launch, item.count);
  for (std::int64_t index = 0; index < item.count; ++index)
    products.place(index,
                   rows_of<In>(launch.inputs.q, item.batch, item.head(problem, index)).row(item.query(problem, index)));
  for (; item.chunk < item.end; ++item.chunk) decode_chunk<Products>(launch, item, {scratch, products});
  products.finish();
}

/// Merges one row's partial results: of the chunks that it sees keys of.
template <class Products>
void merge_row(const Launch& launch, std::int64_t row) {
  using T = Real<typename Products::Element>;
  const Problem& problem = launch.plan.problem;
  const Tile& tile = launch.plan.tile;
  const std::int64_t query = row % problem.queries, head = row / problem.queries;
  const std::int64_t batch = head / problem.heads_q, chunks = decode_chunks(problem, tile);
  const KeyRange seen = mask_of(problem, live_keys(problem, launch.inputs, batch)).range(query);
  const KeyRange own = seen.empty() ? KeyRange{} : KeyRange{seen.first / tile.keys, tiles_of(seen.last, tile.keys)};
  const Partials<T> partials(launch.workspace.data(), problem);
  store_decoded<Products>(launch, batch, head % problem.heads_q, query, own,
                          [&](std::int64_t chunk) { return partials(row * chunks + chunk); });
}

template <class Products>
void decode(const Launch& launch) {
  const Plan& plan = launch.plan;
  const Problem& problem = plan.problem;
  if (problem.batch * problem.heads_q * problem.queries == 0) return;
  const std::int64_t chunks = decode_chunks(problem, plan.tile);
  std::byte* const lanes = launch.workspace.data() + plan.shared_bytes;
  parallel_for(launch.executor, plan.lanes, decode_items(problem, plan.tile, plan.lanes),
               [&](int lane, std::int64_t item) HWY_ATTR {
                 std::byte* const memory = lanes + static_cast<std::size_t>(lane) * plan.lane_bytes;
                 decode_chunks_of<Products>(launch, decode_item(problem, plan.tile, plan.lanes, item), memory);
               });
  if (chunks == 1) return;
  parallel_for(launch.executor, plan.lanes, problem.batch * problem.heads_q * problem.queries,
               [&](int, std::int64_t row) HWY_ATTR { merge_row<Products>(launch, row); });
}

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard toggled per target
