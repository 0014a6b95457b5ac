// SPDX-License-Identifier: Apache-2.0
// The toy kernel: online softmax over tiles of 8 keys, one row at a time, every product and sum in the accumulator's
// type (float, or double for float64), the mistake chosen at compile time so that all rows share one text.
#include "support/toy.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "runtime/half.hpp"
#include "semantics/mask.hpp"
#include "semantics/softmax.hpp"
#include "support/host_tensor.hpp"

namespace fresnel::test {
namespace {

constexpr std::int64_t tile_keys = 8;
constexpr std::array<std::string_view, static_cast<std::size_t>(Mistake::count)> names{
    "none",
    "rescale_forgotten",
    "stale_maximum",
    "causal_off_by_one",
    "tail_counted",
    "softcap_after_mask",
    "heads_in_tile_order",
    "base_two_lse",
    "short_head_dim",
    "scale_of_value_dim",
    "emptiness_by_threshold",
    "hidden_times_zero",
    "nan_hidden",
    "half_scores",
    "half_accumulator",
    "alibi_dropped",
    "alibi_distance_dropped",
    "window_zero_is_absent",
    "window_clamped",
    "top_left_dropped",
    "lengths_of_the_first",
    "lengths_of_the_longest_tile",
    "sums_by_layout",
    "tile_by_lanes",
    "offsets_in_32_bits",
    "empty_rows_unwritten",
    "writes_past_the_row",
    "writes_past_the_slice",
    "allocates",
    "hungry",
};

template <class Real>
Real half_rounded(Real value) {
  return static_cast<Real>(f16_to_float(float_to_f16(static_cast<float>(value))));
}

/// The problem as the mistaken row reads it.
template <Mistake mistake>
Problem misread(Problem problem) {
  Options& options = problem.options;
  const auto forget = [](std::optional<std::int64_t>& bound) {
    if (bound == 0) bound.reset();
  };
  if constexpr (mistake == Mistake::window_zero_is_absent) {
    forget(options.window_size_left);
    forget(options.window_size_right);
  }
  if constexpr (mistake == Mistake::window_clamped) {
    for (auto* bound : {&options.window_size_left, &options.window_size_right})
      if (*bound) *bound = std::min(**bound, problem.keys);
  }
  if constexpr (mistake == Mistake::top_left_dropped) options.alignment = Alignment::bottom_right;
  if constexpr (mistake == Mistake::alibi_dropped) problem.alibi_slopes = AlibiSlopes::none;
  if constexpr (mistake == Mistake::alibi_distance_dropped) options.alibi = AlibiForm::relative;
  if constexpr (mistake == Mistake::scale_of_value_dim) {
    if (!options.softmax_scale) options.softmax_scale = 1 / std::sqrt(static_cast<double>(problem.value_dim));
  }
  return problem;
}

template <Mistake mistake, class Real>
class Row {
 public:
  Row(const Launch& launch, const Problem& problem, std::int64_t item, std::span<Real> sums)
      : launch_(launch),
        problem_(problem),
        b_(item / problem.queries / problem.heads_q),
        h_(item / problem.queries % problem.heads_q),
        i_(item % problem.queries),
        kv_(mistake == Mistake::heads_in_tile_order ? h_ % problem.heads_kv : h_ / problem.group()),
        mask_(mask_of(problem, live_keys(mistake == Mistake::lengths_of_the_first ? 0 : b_))),
        o_(sums) {}

  void compute() {
    std::fill(o_.begin(), o_.end(), Real(0));
    const KeyRange range = mask_.range(i_);
    const std::int64_t tile = tile_length();
    for (std::int64_t start = range.first / tile * tile; !range.empty() && start < range.last; start += tile)
      add_tile(start, tile);
    finish(range.empty());
  }

 private:
  [[nodiscard]] std::int64_t live_keys(std::int64_t b) const {
    if (!problem_.seqlens_k) return problem_.keys;
    const View& lengths = *launch_.inputs.seqlens_k;
    return static_cast<const std::int32_t*>(lengths.data)[b * lengths.strides[0]];
  }

  [[nodiscard]] std::int64_t tile_length() const {
    if constexpr (mistake == Mistake::tile_by_lanes) return launch_.plan.lanes > 1 ? tile_keys * 2 : tile_keys;
    if constexpr (mistake == Mistake::lengths_of_the_longest_tile) {
      std::int64_t longest = 0;
      for (std::int64_t b = 0; b < problem_.batch; ++b) longest = std::max(longest, live_keys(b));
      return longest > 16 ? 16 : 8;
    }
    return tile_keys;
  }

  template <class AnyView>
  [[nodiscard]] static std::int64_t offset(const AnyView& view, std::int64_t b, std::int64_t h, std::int64_t s,
                                           std::int64_t d) {
    const std::int64_t place = b * view.strides[0] + h * view.strides[1] + s * view.strides[2] + d;
    return mistake == Mistake::offsets_in_32_bits ? static_cast<std::int64_t>(static_cast<std::int32_t>(place)) : place;
  }

  [[nodiscard]] Real load(const View& view, std::int64_t h, std::int64_t s, std::int64_t d) const {
    return static_cast<Real>(load_as_double(view.data, view.dtype, offset(view, b_, h, s, d)));
  }

  [[nodiscard]] Real score(std::int64_t j) const {
    std::int64_t width = problem_.head_dim;
    if constexpr (mistake == Mistake::short_head_dim) width = width > 16 ? width / 16 * 16 : width;
    const bool backwards = mistake == Mistake::sums_by_layout && problem_.k.order == AxisOrder::bshd;
    Real dot = 0;
    for (std::int64_t step = 0; step < width; ++step) {
      const std::int64_t d = backwards ? width - 1 - step : step;
      dot += load(launch_.inputs.q, h_, i_, d) * load(launch_.inputs.k, kv_, j, d);
    }
    if constexpr (mistake == Mistake::half_scores) dot = half_rounded(dot);
    Real s = static_cast<Real>(problem_.softmax_scale()) * dot;
    if (problem_.options.softcap) {
      const auto cap = static_cast<Real>(*problem_.options.softcap);
      s = cap * std::tanh(s / cap);
    }
    if (problem_.alibi_slopes != AlibiSlopes::none) s += alibi(j);
    return s;
  }

  [[nodiscard]] Real alibi(std::int64_t j) const {
    const View& slopes = *launch_.inputs.alibi_slopes;
    const std::int64_t place = problem_.alibi_slopes == AlibiSlopes::per_head
                                   ? h_ * slopes.strides[0]
                                   : b_ * slopes.strides[0] + h_ * slopes.strides[1];
    const auto slope = static_cast<Real>(static_cast<const float*>(slopes.data)[place]);
    const auto ahead = static_cast<Real>(j - mask_.position(i_));
    return problem_.options.alibi == AlibiForm::distance ? -slope * std::abs(ahead) : slope * ahead;
  }

  [[nodiscard]] bool visible(std::int64_t j) const {
    if (mistake == Mistake::causal_off_by_one && problem_.options.causal)
      return mask_.visible(i_, j) || mask_.visible(i_ + 1, j);
    return mask_.visible(i_, j);
  }

  /// What the tile knows of key j: its score, or nothing where the key takes no part.
  [[nodiscard]] std::optional<Real> entry(std::int64_t j) const {
    if (visible(j)) return score(j);
    if (mistake == Mistake::tail_counted && j >= problem_.keys) return Real(0);
    if (mistake == Mistake::softcap_after_mask && problem_.options.softcap && j < problem_.keys)
      return static_cast<Real>(-*problem_.options.softcap);
    return std::nullopt;
  }

  void add_tile(std::int64_t start, std::int64_t tile) {
    std::array<std::optional<Real>, 2 * tile_keys> scores;
    Real raised = m_;
    for (std::int64_t j = start; j < start + tile; ++j) {
      auto& s = scores[static_cast<std::size_t>(j - start)] = entry(j);
      if (s && (*s > raised || std::isnan(*s))) raised = *s;
    }
    const Real rescale = mistake == Mistake::rescale_forgotten ? Real(1) : relative_weight(m_, raised);
    const bool stale = mistake == Mistake::stale_maximum && std::isfinite(m_);
    Real l = 0;
    std::array<Real, 2 * tile_keys> weights{};
    for (std::size_t lane = 0; lane < static_cast<std::size_t>(tile); ++lane) {
      if (scores[lane]) weights[lane] = relative_weight(*scores[lane], stale ? m_ : raised);
      l += weights[lane];
    }
    l_ = l_ * rescale + l;
    for (std::size_t d = 0; d < o_.size(); ++d) o_[d] = sum_of(d, start, scores, weights, o_[d] * rescale);
    m_ = raised;
  }

  template <class Scores, class Weights>
  [[nodiscard]] Real sum_of(std::size_t d, std::int64_t start, const Scores& scores, const Weights& weights,
                            Real rescaled) const {
    Real sum = 0;
    for (std::size_t lane = 0; lane < scores.size(); ++lane) {
      const std::int64_t j = start + static_cast<std::int64_t>(lane);
      const bool takes_part = scores[lane] || mistake == Mistake::hidden_times_zero;
      if (j < problem_.keys && takes_part)
        sum += weights[lane] * load(launch_.inputs.v, kv_, j, static_cast<std::int64_t>(d));
    }
    return mistake == Mistake::half_accumulator ? half_rounded(rescaled + sum) : rescaled + sum;
  }

  void finish(bool sees_nothing) {
    if (sees_nothing && mistake == Mistake::empty_rows_unwritten) return;
    const bool zero = sees_nothing || (mistake == Mistake::emptiness_by_threshold && m_ < Real(-1e4));
    const Real lse = fresnel::finish(State<Real>{m_, l_}, o_, !zero);
    const MutableView& o = launch_.outputs.o;
    for (std::int64_t d = 0; d < problem_.value_dim; ++d) {
      const Real value = o_[static_cast<std::size_t>(d)];
      write(o, offset(o, b_, h_, i_, d), mistake == Mistake::nan_hidden && std::isnan(value) ? Real(0) : value);
    }
    if constexpr (mistake == Mistake::writes_past_the_row) write(o, offset(o, b_, h_, i_, problem_.value_dim), Real(0));
    if (!launch_.outputs.lse) return;
    const MutableView& lse_view = *launch_.outputs.lse;
    const std::int64_t place = b_ * lse_view.strides[0] + h_ * lse_view.strides[1] + i_ * lse_view.strides[2];
    write(lse_view, place, mistake == Mistake::base_two_lse ? lse * static_cast<Real>(1.4426950408889634) : lse);
  }

  static void write(const MutableView& view, std::int64_t place, Real value) {
    store_element(static_cast<std::byte*>(view.data) + place * size_of(view.dtype), view.dtype,
                  static_cast<double>(value));
  }

  const Launch& launch_;
  const Problem& problem_;
  std::int64_t b_, h_, i_, kv_;
  Mask mask_;
  std::span<Real> o_;
  Real m_ = -std::numeric_limits<Real>::infinity();
  Real l_ = 0;
};

template <Mistake mistake, class Real>
void run_rows(const Launch& launch) {
  const Problem problem = misread<mistake>(launch.plan.problem);
  const std::int64_t items = problem.batch * problem.heads_q * problem.queries;
  std::atomic<std::int64_t> next{0};
  const auto task = [&](int lane) {
    std::byte* slice = launch.workspace.data() + static_cast<std::size_t>(lane) * launch.plan.lane_bytes;
    const std::span<Real> sums(reinterpret_cast<Real*>(slice), static_cast<std::size_t>(problem.value_dim));
    for (std::int64_t item = next++; item < items; item = next++)
      Row<mistake, Real>(launch, problem, item, sums).compute();
  };
  launch.executor.run(launch.plan.lanes, task);
}

/// Where a pointer escapes to, so that the compiler has to make what it points to.
void* volatile escaped = nullptr;

template <Mistake mistake>
void run_toy(const Launch& launch) {
  if constexpr (mistake == Mistake::allocates) {
    const auto memory = std::make_unique<std::array<char, 100>>();
    escaped = memory.get();
  }
  if constexpr (mistake == Mistake::writes_past_the_slice)
    launch.workspace.data()[launch.plan.workspace_bytes()] = std::byte{0};
  launch.plan.problem.dtype == DType::f64 ? run_rows<mistake, double>(launch) : run_rows<mistake, float>(launch);
}

template <Mistake mistake>
std::size_t lane_bytes(const Problem& problem, const Tile&) {
  const std::int64_t rows = mistake == Mistake::hungry ? problem.keys * problem.queries : problem.value_dim;
  return static_cast<std::size_t>(rows) * sizeof(double);
}

/// libm's functions are within one unit in the last place: twice the unit roundoff.
Roundings toy_roundings(const Problem& problem, const Tile&) {
  Roundings roundings;
  roundings.name = "toy";
  roundings.unit = problem.dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
  roundings.least = problem.dtype == DType::f64 ? 0x1p-1074 : 0x1p-149;
  roundings.least_exp = roundings.least;
  roundings.exp_constant = roundings.rescale = roundings.log = 2 * roundings.unit;
  roundings.tanh = 4 * roundings.unit;
  roundings.tile_keys = 2 * tile_keys;
  return roundings;
}

template <Mistake mistake>
constexpr Kernel make_row() {
  Kernel row;
  row.name = names[static_cast<std::size_t>(mistake)];
  row.blurb = "a row for tests only";
  row.domain.dtypes = {DType::f64, DType::f32, DType::f16, DType::bf16};
  row.domain.features = {Feature::causal, Feature::top_left,  Feature::window,       Feature::softcap,
                         Feature::alibi,  Feature::seqlens_k, Feature::grouped_heads};
  row.tile = [](const Problem&, const Machine&) { return Tile{1, tile_keys}; };
  row.lane_bytes = lane_bytes<mistake>;
  row.cost = [](const Problem&, const Tile&) { return Cost{}; };
  row.roundings = toy_roundings;
  row.run = run_toy<mistake>;
  return row;
}

template <std::size_t... indices>
constexpr auto make_rows(std::index_sequence<indices...>) {
  return std::array{make_row<static_cast<Mistake>(indices)>()...};
}

const auto rows = make_rows(std::make_index_sequence<static_cast<std::size_t>(Mistake::count)>());

}  // namespace

std::string_view name(Mistake mistake) { return names[static_cast<std::size_t>(mistake)]; }

const Kernel& toy_row(Mistake mistake) { return rows[static_cast<std::size_t>(mistake)]; }

}  // namespace fresnel::test
