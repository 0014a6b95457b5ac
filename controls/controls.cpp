// SPDX-License-Identifier: Apache-2.0
// The controls: a small scalar kernel, one query row at a time over tiles of keys, tiles summed online within a split
// and splits merged in key order, with the mistake chosen at compile time so that all rows share one text. Where a
// mistake can do no harm, the operations left are those of the honest row, bit for bit. It refuses to be fast.
//
//     keys        0       16      32      48      64
//     tiles       [ push  | push  ] [ push | push ] ...    l and o are rescaled when the maximum rises
//     splits      [   (m, l, o)   ] [  (m, l, o)  ] ...    merged in ascending key order
#include "controls/controls.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "kernels/cost.hpp"
#include "kernels/cpu/element.hpp"
#include "runtime/parallel.hpp"
#include "semantics/softmax.hpp"
#include "walk/walk.hpp"

namespace fresnel::controls {
namespace {

enum class Mistake : std::uint8_t {
  none,
  rescale_forgotten,
  blocks_averaged,
  boundary_unmasked,
  causal_off_by_one,
  tail_counted,
  heads_in_tile_order,
  base_two_lse,
  softcap_after_mask,
  stale_maximum,
  short_head_dim,
  splits_unweighted,
  emptiness_by_threshold,
};

/// The accumulators of one query row, one set for the split at hand and one for all before it.
template <class T>
struct Scratch {
  Scratch(cpu::Carver& carver, const Problem& problem)
      : part(carver.take<T>(problem.value_dim)), all(carver.take<T>(problem.value_dim)) {}
  T *part, *all;
};

template <Mistake mistake, class In>
class Row {
 public:
  using T = cpu::Real<In>;

  Row(const Launch& launch, const QueryTile& tile, std::int64_t query, const Scratch<T>& scratch)
      : launch_(launch),
        problem_(launch.plan.problem),
        tile_(tile),
        query_(query),
        tile_keys_(launch.plan.tile.keys),
        mask_(mask_of(problem_, cpu::live_keys(problem_, launch.inputs, tile.batch))),
        rule_(cpu::score_rule<T>(problem_, launch.inputs, tile.batch, tile.head)),
        q_(cpu::rows_of<In>(launch.inputs.q, tile.batch, tile.head).row(query)),
        part_o_(scratch.part, static_cast<std::size_t>(problem_.value_dim)),
        o_(scratch.all, static_cast<std::size_t>(problem_.value_dim)) {
    const std::int64_t group = problem_.group();
    const std::int64_t kv = mistake == Mistake::heads_in_tile_order ? tile.head % problem_.heads_kv : tile.head / group;
    k_ = cpu::rows_of<In>(launch.inputs.k, tile.batch, kv);
    v_ = cpu::rows_of<In>(launch.inputs.v, tile.batch, kv);
    if (mistake == Mistake::causal_off_by_one && problem_.options.causal) ++mask_.right;
  }

  void compute() {
    const std::int64_t part_keys = mistake == Mistake::blocks_averaged ? tile_keys_ : 2 * tile_keys_;
    std::fill(o_.begin(), o_.end(), T(0));
    std::fill(part_o_.begin(), part_o_.end(), T(0));
    std::int64_t part = 0;
    for_each_key_tile(mask_, tile_keys_, tile_, [&](const KeyTile& keys) {
      if (keys.first / part_keys != part) close_part();
      part = keys.first / part_keys;
      push(keys);
    });
    close_part();
    finish();
  }

 private:
  using Scores = std::array<std::optional<T>, most_tile_keys>;
  using Weights = std::array<T, most_tile_keys>;
  static constexpr T none = -std::numeric_limits<T>::infinity();

  [[nodiscard]] std::size_t width() const { return static_cast<std::size_t>(tile_keys_); }

  [[nodiscard]] T score(std::int64_t key) const {
    const In* const k = k_.row(key);
    const std::int64_t width = mistake == Mistake::short_head_dim ? problem_.head_dim / 16 * 16 : problem_.head_dim;
    T dot = 0;
    for (std::int64_t d = 0; d < width; ++d) dot += cpu::to_real(q_[d]) * cpu::to_real(k[d]);
    T s = rule_.scale * dot;
    if (rule_.softcap > T(0)) s = rule_.softcap * std::tanh(s / rule_.softcap);
    if (rule_.alibi) {
      const auto ahead = static_cast<T>(key - mask_.position(query_));
      s += rule_.slope * (rule_.distance ? -std::abs(ahead) : ahead);
    }
    return s;
  }

  /// What the row counts at `key`: its score, or nothing where the key takes no part.
  [[nodiscard]] std::optional<T> entry(const KeyTile& keys, std::int64_t key) const {
    const bool inside = key >= keys.first && key < keys.first + keys.count;
    const bool tested = keys.kind == TileClass::edge && mistake != Mistake::boundary_unmasked;
    if (inside && (!tested || mask_.visible(query_, key))) return score(key);
    if (mistake == Mistake::tail_counted && key >= mask_.keys) return T(0);
    if (mistake == Mistake::softcap_after_mask && inside && rule_.softcap > T(0)) return -rule_.softcap;
    return std::nullopt;
  }

  /// Adds one tile of keys to the part at hand.
  void push(const KeyTile& keys) {
    const std::int64_t start = keys.first / tile_keys_ * tile_keys_;
    Scores scores;
    T raised = part_.m;
    for (std::int64_t lane = 0; lane < tile_keys_; ++lane) {
      const std::optional<T> s = scores[static_cast<std::size_t>(lane)] = entry(keys, start + lane);
      if (s && (*s > raised || std::isnan(*s))) raised = *s;
    }
    const T rescale = mistake == Mistake::rescale_forgotten ? T(1) : relative_weight(part_.m, raised);
    Weights weights{};
    T l = 0;
    for (std::size_t lane = 0; lane < width(); ++lane) {
      if (scores[lane]) weights[lane] = relative_weight(*scores[lane], raised);
      l += weights[lane];
    }
    part_.l = part_.l * rescale + l;
    for (std::size_t d = 0; d < part_o_.size(); ++d)
      part_o_[d] = part_o_[d] * rescale + weighted_value(start, scores, weights, d);
    part_.m = raised;
  }

  /// Padded lanes have no value, whatever they weigh.
  [[nodiscard]] T weighted_value(std::int64_t start, const Scores& scores, const Weights& weights,
                                 std::size_t d) const {
    T sum = 0;
    for (std::size_t lane = 0; lane < width(); ++lane) {
      const std::int64_t key = start + static_cast<std::int64_t>(lane);
      if (scores[lane] && key < mask_.keys) sum += weights[lane] * cpu::to_real(v_.row(key)[d]);
    }
    return sum;
  }

  /// Merges the part at hand into the row and begins the next.
  void close_part() {
    const T before = state_.m;
    const bool merges = before != none && part_.l > T(0);  // else there is nothing to merge with
    if constexpr (mistake == Mistake::blocks_averaged) {
      if (part_.l > T(0)) add_block();
      state_.merge(part_, {}, {});
    } else if (mistake == Mistake::splits_unweighted && merges) {
      state_.m = std::max(state_.m, part_.m);
      state_.l += part_.l;
      for (std::size_t d = 0; d < o_.size(); ++d) o_[d] += part_o_[d];
    } else {
      state_.merge(part_, part_o_, o_);
      if (mistake == Mistake::stale_maximum && merges) state_.m = before;
    }
    part_ = {};
    std::fill(part_o_.begin(), part_o_.end(), T(0));
  }

  void add_block() {
    for (std::size_t d = 0; d < o_.size(); ++d) {
      const T normalised = part_o_[d] / part_.l;
      o_[d] = blocks_ == T(0) ? normalised : o_[d] + normalised;
    }
    blocks_ += 1;
  }

  void finish() {
    bool visible = !mask_.range(query_).empty();
    if (mistake == Mistake::emptiness_by_threshold && state_.m < T(-1e4)) visible = false;
    const State<T> divisor = mistake == Mistake::blocks_averaged ? State<T>{state_.m, blocks_} : state_;
    T lse = fresnel::finish(divisor, o_, visible);
    if (mistake == Mistake::blocks_averaged && visible) lse = state_.lse();
    if constexpr (mistake == Mistake::base_two_lse) lse *= T(1.4426950408889634);
    In* const out = cpu::rows_of<In>(launch_.outputs.o, tile_.batch, tile_.head).row(query_);
    for (std::size_t d = 0; d < o_.size(); ++d) out[d] = cpu::from_real<In>(o_[d]);
    cpu::store_lse<T>(launch_.outputs, tile_.batch, tile_.head, query_, lse);
  }

  const Launch& launch_;
  const Problem& problem_;
  const QueryTile& tile_;
  std::int64_t query_;
  std::int64_t tile_keys_;
  Mask mask_;
  cpu::ScoreRule<T> rule_;
  const In* q_;
  cpu::Rows<const In> k_{}, v_{};
  std::span<T> part_o_, o_;
  State<T> part_, state_;
  T blocks_ = 0;
};

template <Mistake mistake, class In>
void run_rows(const Launch& launch) {
  const Plan& plan = launch.plan;
  parallel_for(launch.executor, plan.lanes, item_count(plan.problem, plan.tile), [&](int lane, std::int64_t item) {
    cpu::Carver carver(launch.workspace.data() + static_cast<std::size_t>(lane) * plan.lane_bytes);
    const Scratch<cpu::Real<In>> scratch(carver, plan.problem);
    const QueryTile tile = item_at(plan.problem, plan.tile, item);
    for (std::int64_t query = tile.first; query < tile.first + tile.count; ++query)
      Row<mistake, In>(launch, tile, query, scratch).compute();
  });
}

template <Mistake mistake>
void run(const Launch& launch) {
  switch (launch.plan.problem.dtype) {
    case DType::f64: return run_rows<mistake, double>(launch);
    case DType::f32: return run_rows<mistake, float>(launch);
    case DType::f16: return run_rows<mistake, cpu::Float16>(launch);
    default: return run_rows<mistake, cpu::BFloat16>(launch);
  }
}

std::size_t lane_bytes(const Problem& problem, const Tile&) {
  cpu::Carver carver(nullptr);
  if (problem.dtype == DType::f64)
    static_cast<void>(Scratch<double>(carver, problem));
  else
    static_cast<void>(Scratch<float>(carver, problem));
  return carver.used();
}

/// What the honest row rounds; libm's functions are within one unit in the last place, twice the unit roundoff. A
/// mistake declares no more than that: it is judged as if it were right.
Roundings roundings(const Problem& problem, const Tile& tile) {
  Roundings declared;
  declared.name = "control";
  declared.unit = problem.dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
  declared.least = declared.least_exp = problem.dtype == DType::f64 ? 0x1p-1074 : 0x1p-149;
  declared.exp_constant = declared.rescale = declared.log = 2 * declared.unit;
  declared.tanh = 4 * declared.unit;
  declared.tile_keys = tile.keys;
  declared.splits = std::max<std::int64_t>(tiles_of(problem.keys, 2 * tile.keys), 1);
  return declared;
}

template <Mistake mistake>
constexpr Kernel control(std::string_view name, std::string_view blurb) {
  return {
      .name = name,
      .blurb = blurb,
      .device = Device::cpu,
      .domain = {.dtypes = {DType::f64, DType::f32, DType::f16, DType::bf16},
                 .features = {Feature::causal, Feature::top_left, Feature::window, Feature::softcap, Feature::alibi,
                              Feature::seqlens_k, Feature::grouped_heads}},
      .prefers = {},
      .determinism = Determinism::bitwise,
      .tile =
          [](const Problem&, const Machine&) {
            return Tile{tile_queries, tile_keys};
          },
      .lane_bytes = lane_bytes,
      .cost = forward_cost,
      .formulas = &forward_formulas,
      .roundings = roundings,
      .run = run<mistake>,
  };
}

constexpr std::array table = {
    control<Mistake::none>("control.none", "right: shows that the mistakes of the others are all that is wrong"),
    control<Mistake::rescale_forgotten>("control.rescale_forgotten",
                                        "wrong: l and o keep the scale of the old maximum when it rises"),
    control<Mistake::blocks_averaged>("control.blocks_averaged",
                                      "wrong: every tile of keys is normalised on its own, then averaged"),
    control<Mistake::boundary_unmasked>("control.boundary_unmasked",
                                        "wrong: tiles that a mask cuts are taken for tiles that it does not"),
    control<Mistake::causal_off_by_one>("control.causal_off_by_one", "wrong: causal lets the key after the query in"),
    control<Mistake::tail_counted>("control.tail_counted",
                                   "wrong: lanes of a tile beyond the last key count as keys that score 0"),
    control<Mistake::heads_in_tile_order>("control.heads_in_tile_order", "wrong: query head h reads kv head h mod Hkv"),
    control<Mistake::base_two_lse>("control.base_two_lse", "wrong: lse is a logarithm to base 2"),
    control<Mistake::softcap_after_mask>("control.softcap_after_mask",
                                         "wrong: hidden keys of a visited tile come back as -softcap"),
    control<Mistake::stale_maximum>("control.stale_maximum", "wrong: the merge of splits keeps the first maximum"),
    control<Mistake::short_head_dim>("control.short_head_dim", "wrong: D is cut to a multiple of 16"),
    control<Mistake::splits_unweighted>("control.splits_unweighted",
                                        "wrong: splits are added up without weights for their maxima"),
    control<Mistake::emptiness_by_threshold>("control.emptiness_by_threshold",
                                             "wrong: a row whose scores are below -1e4 is taken for an empty one"),
};

}  // namespace

std::span<const Kernel> rows() { return table; }

const Kernel* find(std::string_view name) {
  const auto row = std::find_if(table.begin(), table.end(), [&](const Kernel& kernel) { return kernel.name == name; });
  return row == table.end() ? nullptr : &*row;
}

}  // namespace fresnel::controls
