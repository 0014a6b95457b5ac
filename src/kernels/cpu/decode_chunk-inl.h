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
// Source: Dao et al., "Flash-Decoding for long-context inference", 2023.
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

/// A chunk of one kv head for some of the rows that read it.
struct DecodeItem {
  std::int64_t batch, kv_head;
  std::int64_t chunk;
  std::int64_t first, count;  ///< rows of the kv head: heads of a group within a query, queries in order

  [[nodiscard]] std::int64_t query(const Problem& problem, std::int64_t index) const {
    return (first + index) / problem.group();
  }
  [[nodiscard]] std::int64_t head(const Problem& problem, std::int64_t index) const {
    return kv_head * problem.group() + (first + index) % problem.group();
  }
};

/// Chunks of the same rows are neighbours.
[[nodiscard]] inline DecodeItem decode_item(const Problem& problem, const Tile& tile, std::int64_t item) {
  const std::int64_t rows = problem.group() * problem.queries;
  const std::int64_t slabs = tiles_of(rows, tile.queries), chunks = decode_chunks(problem, tile);
  const std::int64_t first = item / chunks % slabs * tile.queries, head = item / chunks / slabs;
  return {head / problem.heads_kv, head % problem.heads_kv, item % chunks, first, std::min(tile.queries, rows - first)};
}

/// What `chunks` of a row left, in one state, which takes the first one's place: all are weighed relative to the
/// largest score of any, and added in order. States without keys or without weight have factors of 0, which leave their
/// NaN.
template <class T, class PartialOf>
[[nodiscard]] Partial<T> merge(KeyRange chunks, std::int64_t padded, PartialOf&& partial) {
  const Full<T> d;
  const Partial<T> all = partial(chunks.first);
  if (chunks.size() == 1) return all;
  T m = *all.m, l = 0;
  for (std::int64_t chunk = chunks.first + 1; chunk < chunks.last; ++chunk) {
    if (const T other = *partial(chunk).m; other > m) m = other;  // a NaN on either side makes factors NaN
  }
  constexpr T none = -std::numeric_limits<T>::infinity();
  constexpr std::int64_t at_once = 16;
  HWY_ALIGN T factors[at_once];
  for (std::int64_t first = chunks.first; first < chunks.last; first += at_once) {
    const std::int64_t count = std::min(at_once, chunks.last - first);
    for (std::int64_t at = 0; at < at_once; ++at) factors[at] = at < count ? *partial(first + at).m : none;
    for (std::int64_t at = 0; at < at_once; at += lanes_of<T>)
      hn::Store(exp_nonpositive<T>(hn::Sub(hn::Load(d, factors + at), hn::Set(d, m == none ? T(0) : m))), d,
                factors + at);
    for (std::int64_t at = 0; at < count; ++at) l += factors[at] * *partial(first + at).l;
    for (std::int64_t column = 0; column < padded; column += lanes_of<T>) {
      auto sum = first == chunks.first ? hn::Zero(d) : load(all.o + column);
      for (std::int64_t at = 0; at < count; ++at)
        sum = hn::MulAdd(hn::Set(d, factors[at]), load(partial(first + at).o + column), sum);
      hn::StoreU(sum, d, all.o + column);
    }
  }
  *all.m = m;
  *all.l = l;
  return all;
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
  // They come from the caches of other cores, which takes longer than to merge them.
  for (std::int64_t chunk = chunks.first; chunk < chunks.last; ++chunk)
    ask(partial(chunk).o, Partials<T>::width(problem));
  const Partial<T> all = merge<T>(chunks, Products::o_width(problem.value_dim), partial);
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

/// What is visible of one sequence.
[[nodiscard]] inline Mask mask_of_item(const Launch& launch, const DecodeItem& item) {
  return mask_of(launch.plan.problem, live_keys(launch.plan.problem, launch.inputs, item.batch));
}

/// The keys of an item's chunk that any of its rows sees.
[[nodiscard]] inline KeyRange keys_of_item(const Launch& launch, const DecodeItem& item) {
  const Problem& problem = launch.plan.problem;
  const Mask mask = mask_of_item(launch, item);
  const std::int64_t first = item.query(problem, 0), last = item.query(problem, item.count - 1);
  const KeyRange all = mask.range(first, last - first + 1);
  const std::int64_t keys = launch.plan.tile.keys, chunk = item.chunk * keys;
  return {std::max(chunk, all.first), std::min(chunk + keys, all.last)};
}

/// One chunk: its rows and what they see of it, then their products, while memory is asked for the keys of `next`.
template <class Products>
void decode_chunk(const Launch& launch, const DecodeItem& item, const std::optional<DecodeItem>& next,
                  const ItemRows<Products>& of) {
  using In = typename Products::Element;
  using T = Real<In>;
  const Problem& problem = launch.plan.problem;
  const std::int64_t chunks = decode_chunks(problem, launch.plan.tile);
  const KeyRange keys = keys_of_item(launch, item);
  const Mask mask = mask_of_item(launch, item);
  const auto partial_of = [&](std::int64_t index) {
    if (chunks == 1) return of.scratch.partials(index);
    const std::int64_t head = item.batch * problem.heads_q + item.head(problem, index);
    const std::int64_t row = head * problem.queries + item.query(problem, index);
    return Partials<T>(launch.workspace.data(), problem)(row * chunks + item.chunk);
  };

  DecodeRow<T>* const rows = of.scratch.rows;
  for (std::int64_t index = 0; index < item.count; ++index) {
    const std::int64_t query = item.query(problem, index);
    const KeyRange all = mask.range(query);
    rows[index] = {KeyRange{std::max(keys.first, all.first), std::min(keys.last, all.last)}, partial_of(index),
                   score_rule<T>(problem, launch.inputs, item.batch, item.head(problem, index)), mask.position(query)};
  }
  if (!keys.empty()) {
    const auto k_of = [&](const DecodeItem& one) { return rows_of<In>(launch.inputs.k, one.batch, one.kv_head); };
    const auto v = rows_of<In>(launch.inputs.v, item.batch, item.kv_head);
    const Upcoming<In> upcoming = next ? Upcoming<In>{k_of(*next), keys_of_item(launch, *next)} : Upcoming<In>{};
    of.products.attend(rows, item.count, k_of(item), v, {keys.first / decode_block * decode_block, keys.last},
                       upcoming);
  }
  if (chunks > 1) return;
  for (std::int64_t index = 0; index < item.count; ++index)
    store_decoded<Products>(launch, item.batch, item.head(problem, index), item.query(problem, index),
                            {0, rows[index].seen.empty() ? 0 : 1}, [&](std::int64_t) { return partial_of(index); });
}

/// What a lane does: the items that next() hands out, until it says that there are no more. Those of the same rows that
/// follow each other are taken in one go. Up to a multiple of `run` the next item is likely to be the lane's, too.
template <class Products, class Next>
void decode_lane(const Launch& launch, std::int64_t run, std::byte* memory, Next&& next) {
  using In = typename Products::Element;
  const Problem& problem = launch.plan.problem;
  const Tile& tile = launch.plan.tile;
  const std::int64_t items = decode_items(problem, tile), chunks = decode_chunks(problem, tile);
  const auto item_at = [&](std::int64_t at) { return decode_item(problem, tile, at); };
  std::int64_t at = next();
  while (at < items) {
    DecodeItem item = item_at(at);
    Carver carver(memory);
    const DecodeScratch<Real<In>> scratch(carver, problem, tile);
    Products products(carver, launch, item.count);
    for (std::int64_t index = 0; index < item.count; ++index)
      products.place(
          index, rows_of<In>(launch.inputs.q, item.batch, item.head(problem, index)).row(item.query(problem, index)));
    for (std::int64_t before = at - 1; at == before + 1 && item.chunk < chunks; ++item.chunk) {
      const bool goes_on = (at + 1) % run != 0 && at + 1 < items;
      decode_chunk<Products>(launch, item, goes_on ? std::optional(item_at(at + 1)) : std::nullopt,
                             {scratch, products});
      before = std::exchange(at, next());
    }
  }
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

/// Every lane begins with a run of chunks of its own and then helps others, a chunk at a time: that they all end at the
/// same time matters more than what the last chunks do not ask for ahead.
template <class Products>
void decode(const Launch& launch) {
  const Plan& plan = launch.plan;
  const Problem& problem = plan.problem;
  const std::int64_t chunks = decode_chunks(problem, plan.tile), items = decode_items(problem, plan.tile);
  if (items == 0) return;
  const std::int64_t runs = std::min<std::int64_t>(items, plan.lanes), run = tiles_of(items, runs);
  const auto memory_of = [&](std::int64_t lane) {
    return launch.workspace.data() + plan.shared_bytes + static_cast<std::size_t>(lane) * plan.lane_bytes;
  };
  const auto taken = [&](std::int64_t of) -> std::int64_t& {
    Carver carver(memory_of(of));
    return *DecodeScratch<Real<typename Products::Element>>(carver, problem, plan.tile).taken;
  };
  parallel_lanes(launch.executor, plan.lanes, runs, run, taken, [&](int lane, auto&& next) HWY_ATTR {
    decode_lane<Products>(launch, run, memory_of(lane), [&] {
      while (const std::optional<GroupItem> one = next()) {
        const std::int64_t item = one->group * run + one->item;
        if (item < items) return item;  // the last run may be shorter
      }
      return items;
    });
  });
  if (chunks == 1) return;
  // Rows lie in the order of their chunks: a lane begins with those whose states lie in its own caches.
  const std::int64_t rows = problem.batch * problem.heads_q * problem.queries;
  const std::int64_t shares = std::min<std::int64_t>(rows, plan.lanes), share = tiles_of(rows, shares);
  parallel_for_groups(launch.executor, plan.lanes, shares, share, taken,
                      [&](int, std::int64_t of, std::int64_t at) HWY_ATTR {
                        if (of * share + at < rows) merge_row<Products>(launch, of * share + at);
                      });
}

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard toggled per target
