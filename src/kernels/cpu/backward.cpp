// SPDX-License-Identifier: Apache-2.0
// cpu.reference_backward: the plain backward, the yardstick of every faster one. It recomputes the weights from the
// saved lse, P = exp(s - lse), in two sweeps that share nothing but their arithmetic:
//
//     queries   one task owns a tile of query rows and sums dq over the keys, tile by tile in key order
//     keys      one task owns a tile of keys of one kv head and sums dk, dv over heads, then queries, in order
//     slopes    one task owns one head's slope and sums rows in order
//
// so there are no atomics, the order of every sum is fixed whoever runs it, and memory is one tile per lane. The price
// is that scores are computed once in each sweep: 7 products of matrices instead of 5. exp(-lse) is never formed on its
// own, since it overflows where exp(s - lse) does not. Rows that see no key and hidden pairs are never touched.
//
// Portable loops over whole blocks, left to the compiler's vectoriser; no instruction set of its own.
#include <array>
#include <cmath>

#include "kernels/cpu/cpu.hpp"
#include "runtime/parallel.hpp"
#include "walk/walk.hpp"

namespace fresnel::cpu {
namespace {

constexpr std::int64_t block = 16;  ///< partial sums of a dot product

/// One row in the kernel's type, padded with zeros to whole blocks.
template <class In>
void load_row(const In* from, std::int64_t width, Real<In>* to) {
  for (std::int64_t d = 0; d < width; ++d) to[d] = to_real(from[d]);
  std::fill(to + width, to + padded_width(width), Real<In>(0));
}

template <class T>
T dot(const T* a, const T* b, std::int64_t padded) {
  std::array<T, block> sums{};
  for (std::int64_t d = 0; d < padded; d += block)
    for (std::int64_t lane = 0; lane < block; ++lane) sums[lane] += a[d + lane] * b[d + lane];
  for (std::int64_t half = block / 2; half > 0; half /= 2)
    for (std::int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

template <class T>
void add_scaled(T factor, const T* from, std::int64_t padded, T* to) {
  for (std::int64_t d = 0; d < padded; ++d) to[d] += factor * from[d];
}

/// A tile of rows of two tensors that are indexed alike: k and v, or q and dout.
template <class T>
struct Pair {
  Pair(Carver& carver, const Problem& problem, std::int64_t rows)
      : wide(padded_width(problem.head_dim)),
        deep(padded_width(problem.value_dim)),
        first(carver.take<T>(rows * wide)),
        second(carver.take<T>(rows * deep)) {}
  std::int64_t wide, deep;
  T* first;   ///< [rows][D padded]
  T* second;  ///< [rows][Dv padded]

  template <class In>
  void load(const Rows<const In>& one, const Rows<const In>& other, const Problem& problem, const KeyRange& rows) {
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
      load_row(one.row(row), problem.head_dim, first + (row - rows.first) * wide);
      load_row(other.row(row), problem.value_dim, second + (row - rows.first) * deep);
    }
  }
  void clear(std::int64_t rows) {
    std::fill_n(first, rows * wide, T(0));
    std::fill_n(second, rows * deep, T(0));
  }
};

/// One lane: the keys of a tile, one query row, and sums for either sweep.
template <class T>
struct Scratch {
  Scratch(Carver& carver, const Problem& problem, const Tile& tile)
      : keys(carver, problem, tile.keys),
        row(carver, problem, 1),
        o(carver.take<T>(padded_width(problem.value_dim))),
        sums(carver, problem, std::max(tile.keys, tile.queries)),
        part(carver.take<T>(padded_width(problem.head_dim))) {}
  Pair<T> keys;  ///< k, v
  Pair<T> row;   ///< q, dout
  T* o;
  Pair<T> sums;  ///< dk, dv of a tile of keys; dq of a tile of queries in `first`
  T* part;       ///< dq over one tile of keys
};

/// Everything that stays the same along one query row.
template <class T>
struct Row {
  ScoreRule<T> rule;
  std::int64_t position;
  T lse;
  T delta;  ///< sum_d dout_d o_d
};

/// Derivatives of one (query, key) pair.
template <class T>
struct Slope {
  T p;      ///< weight
  T score;  ///< of the final score
  T dot;    ///< of q . k
};

template <class In>
class Sweep {
 public:
  using T = Real<In>;

  explicit Sweep(const Launch& launch)
      : launch_(launch), problem_(launch.plan.problem), inputs_(launch.inputs), outputs_(launch.outputs) {}

  void queries(std::int64_t item, std::byte* memory) const;
  void keys(std::int64_t item, std::byte* memory) const;
  void slopes(std::int64_t item, std::byte* memory) const;

  [[nodiscard]] std::int64_t query_items() const { return item_count(problem_, launch_.plan.tile); }
  [[nodiscard]] std::int64_t key_tiles() const { return tiles_of(problem_.keys, launch_.plan.tile.keys); }
  [[nodiscard]] std::int64_t key_items() const { return problem_.batch * problem_.heads_kv * key_tiles(); }
  [[nodiscard]] std::int64_t slope_items() const {
    return problem_.heads_q * (problem_.alibi_slopes == AlibiSlopes::per_head ? 1 : problem_.batch);
  }

 private:
  [[nodiscard]] Mask mask(std::int64_t batch) const { return mask_of(problem_, live_keys(problem_, inputs_, batch)); }
  [[nodiscard]] Scratch<T> scratch(std::byte* memory) const {
    Carver carver(memory);
    return Scratch<T>(carver, problem_, launch_.plan.tile);
  }
  void load_keys(const Scratch<T>& s, std::int64_t batch, std::int64_t head_kv, const KeyRange& keys) const {
    Pair<T> pair = s.keys;
    pair.load(rows_of<In>(inputs_.k, batch, head_kv), rows_of<In>(inputs_.v, batch, head_kv), problem_, keys);
  }
  [[nodiscard]] Row<T> load_query(const Scratch<T>& s, const Mask& mask, std::int64_t batch, std::int64_t head,
                                  std::int64_t query) const;
  [[nodiscard]] Slope<T> slope(const Scratch<T>& s, const Row<T>& row, std::int64_t key, std::int64_t place) const;

  const Launch& launch_;
  const Problem& problem_;
  const Inputs& inputs_;
  const Outputs& outputs_;
};

template <class In>
Row<Real<In>> Sweep<In>::load_query(const Scratch<T>& s, const Mask& mask, std::int64_t batch, std::int64_t head,
                                    std::int64_t query) const {
  Pair<T> row = s.row;
  row.load(rows_of<In>(inputs_.q, batch, head), rows_of<In>(*inputs_.dout, batch, head), problem_, {query, query + 1});
  load_row<In>(rows_of<In>(outputs_.o, batch, head).row(query), problem_.value_dim, s.o);
  const MutableView& lse = *outputs_.lse;
  const T saved =
      static_cast<const T*>(lse.data)[batch * lse.strides[0] + head * lse.strides[1] + query * lse.strides[2]];
  return {score_rule<T>(problem_, inputs_, batch, head), mask.position(query), saved, dot(row.second, s.o, row.deep)};
}

/// The pair of the loaded query and key `key`, which is row `place` of the loaded keys.
template <class In>
Slope<Real<In>> Sweep<In>::slope(const Scratch<T>& s, const Row<T>& row, std::int64_t key, std::int64_t place) const {
  const ScoreRule<T>& rule = row.rule;
  T score = rule.scale * dot(s.row.first, s.keys.first + place * s.keys.wide, s.keys.wide);
  T factor = rule.scale;
  if (rule.softcap != T(0)) {
    const T tanh = std::tanh(score / rule.softcap);
    score = rule.softcap * tanh;
    factor *= (1 - tanh) * (1 + tanh);  // 1 - tanh^2 without its cancellation
  }
  if (rule.alibi) {
    const auto away = static_cast<T>(key - row.position);
    score += rule.slope * (rule.distance ? -std::abs(away) : away);
  }
  // No weight is above 1. Scores of 1e8 are rounded to whole numbers, and by millions at 1e14: there the difference
  // from a saved lse may be positive and its exponential infinite. NaN is compared false and stays NaN.
  const T p = score > row.lse ? T(1) : std::exp(score - row.lse);
  const T ds = p * (dot(s.row.second, s.keys.second + place * s.keys.deep, s.keys.deep) - row.delta);
  return {p, ds, factor * ds};
}

template <class In>
void Sweep<In>::queries(std::int64_t item, std::byte* memory) const {
  const Scratch<T> s = scratch(memory);
  const QueryTile tile = item_at(problem_, launch_.plan.tile, item);
  const Mask mask = this->mask(tile.batch);
  Pair<T> sums = s.sums;
  sums.clear(tile.count);
  for_each_key_tile(mask, launch_.plan.tile.keys, tile, [&](const KeyTile& keys) {
    load_keys(s, tile.batch, tile.head / problem_.group(), {keys.first, keys.first + keys.count});
    for (std::int64_t at = 0; at < tile.count; ++at) {
      const KeyRange seen = mask.range(tile.first + at);
      const KeyRange here{std::max(seen.first, keys.first), std::min(seen.last, keys.first + keys.count)};
      if (here.empty()) continue;
      const Row<T> row = load_query(s, mask, tile.batch, tile.head, tile.first + at);
      std::fill_n(s.part, sums.wide, T(0));
      for (std::int64_t key = here.first; key < here.last; ++key) {
        const std::int64_t place = key - keys.first;
        add_scaled(slope(s, row, key, place).dot, s.keys.first + place * s.keys.wide, sums.wide, s.part);
      }
      add_scaled(T(1), s.part, sums.wide, sums.first + at * sums.wide);
    }
  });
  const auto dq = rows_of<In>(*outputs_.dq, tile.batch, tile.head);
  for (std::int64_t at = 0; at < tile.count; ++at)
    for (std::int64_t d = 0; d < problem_.head_dim; ++d)
      dq.row(tile.first + at)[d] = from_real<In>(sums.first[at * sums.wide + d]);
}

template <class In>
void Sweep<In>::keys(std::int64_t item, std::byte* memory) const {
  const Scratch<T> s = scratch(memory);
  const std::int64_t tile_keys = launch_.plan.tile.keys, head = item / key_tiles();
  const std::int64_t batch = head / problem_.heads_kv, head_kv = head % problem_.heads_kv;
  const std::int64_t start = item % key_tiles() * tile_keys, stop = std::min(start + tile_keys, problem_.keys);
  const Mask mask = this->mask(batch);
  const KeyRange seen = mask.range(0, problem_.queries);
  const KeyRange tile{std::max(start, seen.first), std::min(stop, seen.last)};  // keys that nobody sees are not read
  Pair<T> sums = s.sums;
  sums.clear(stop - start);
  if (!tile.empty() && problem_.queries > 0) load_keys(s, batch, head_kv, tile);
  const std::int64_t group = problem_.heads_q > 0 ? problem_.group() : 0;  // key heads may be there on their own
  for (std::int64_t member = 0; member < group && !tile.empty(); ++member) {
    const std::int64_t head_q = head_kv * group + member;
    for (std::int64_t query = 0; query < problem_.queries; ++query) {
      const KeyRange range = mask.range(query);
      const KeyRange here{std::max(range.first, tile.first), std::min(range.last, tile.last)};
      if (here.empty()) continue;
      const Row<T> row = load_query(s, mask, batch, head_q, query);
      for (std::int64_t key = here.first; key < here.last; ++key) {
        const Slope<T> found = slope(s, row, key, key - tile.first);
        add_scaled(found.dot, s.row.first, sums.wide, sums.first + (key - start) * sums.wide);
        add_scaled(found.p, s.row.second, sums.deep, sums.second + (key - start) * sums.deep);
      }
    }
  }
  for (std::int64_t at = 0; at < stop - start; ++at) {
    for (std::int64_t d = 0; outputs_.dk && d < problem_.head_dim; ++d)
      rows_of<In>(*outputs_.dk, batch, head_kv).row(start + at)[d] = from_real<In>(sums.first[at * sums.wide + d]);
    for (std::int64_t d = 0; outputs_.dv && d < problem_.value_dim; ++d)
      rows_of<In>(*outputs_.dv, batch, head_kv).row(start + at)[d] = from_real<In>(sums.second[at * sums.deep + d]);
  }
}

/// The derivative by one slope is the sum over all pairs of ds (j - p), or -ds |j - p|.
template <class In>
void Sweep<In>::slopes(std::int64_t item, std::byte* memory) const {
  const Scratch<T> s = scratch(memory);
  const bool shared = problem_.alibi_slopes == AlibiSlopes::per_head;  // one slope for every batch
  const std::int64_t head = item % problem_.heads_q, first = shared ? 0 : item / problem_.heads_q;
  const std::int64_t last = shared ? problem_.batch : first + 1;
  T sum = 0;
  for (std::int64_t batch = first; batch < last; ++batch) {
    const Mask mask = this->mask(batch);
    for (std::int64_t query = 0; query < problem_.queries; ++query) {
      const QueryTile one{batch, head, query, 1};
      if (mask.range(query).empty()) continue;
      const Row<T> row = load_query(s, mask, batch, head, query);
      T part = 0;
      for_each_key_tile(mask, launch_.plan.tile.keys, one, [&](const KeyTile& keys) {
        load_keys(s, batch, head / problem_.group(), {keys.first, keys.first + keys.count});
        for (std::int64_t place = 0; place < keys.count; ++place) {
          const auto away = static_cast<T>(keys.first + place - row.position);
          part += slope(s, row, keys.first + place, place).score * (row.rule.distance ? -std::abs(away) : away);
        }
      });
      sum += part;
    }
  }
  const MutableView& slopes = *outputs_.dalibi_slopes;
  T* const out = static_cast<T*>(slopes.data);
  out[shared ? head : first * slopes.strides[0] + head] = sum;
}

template <class In>
void backward(const Launch& launch) {
  const Plan& plan = launch.plan;
  const Sweep<In> sweep(launch);
  const auto memory = [&](int lane) {
    return launch.workspace.data() + static_cast<std::size_t>(lane) * plan.lane_bytes;
  };
  if (launch.outputs.dq)
    parallel_for(launch.executor, plan.lanes, sweep.query_items(),
                 [&](int lane, std::int64_t item) { sweep.queries(item, memory(lane)); });
  if (launch.outputs.dk || launch.outputs.dv)
    parallel_for(launch.executor, plan.lanes, sweep.key_items(),
                 [&](int lane, std::int64_t item) { sweep.keys(item, memory(lane)); });
  if (launch.outputs.dalibi_slopes)
    parallel_for(launch.executor, plan.lanes, sweep.slope_items(),
                 [&](int lane, std::int64_t item) { sweep.slopes(item, memory(lane)); });
}

}  // namespace

void run_backward(const Launch& launch) {
  switch (launch.plan.problem.dtype) {
    case DType::f64: return backward<double>(launch);
    case DType::f32: return backward<float>(launch);
    case DType::f16: return backward<Float16>(launch);
    default: return backward<BFloat16>(launch);
  }
}

Tile backward_tile(const Problem&, const Machine&) { return {16, 32}; }

std::size_t backward_lane_bytes(const Problem& problem, const Tile& tile) {
  Carver carver(nullptr);
  if (problem.dtype == DType::f64) {
    Scratch<double>(carver, problem, tile);
  } else {
    Scratch<float>(carver, problem, tile);
  }
  return carver.used();
}

}  // namespace fresnel::cpu
