// SPDX-License-Identifier: Apache-2.0
// The simulated kernel: see simulated_kernel.hpp. Compiled with -frounding-math, because some recipes change the
// direction of rounding.
#include "checker/simulated_kernel.hpp"

#include <algorithm>
#include <array>
#include <cfenv>
#include <cmath>
#include <limits>

#include "fresnel/executor.hpp"
#include "runtime/float_control.hpp"
#include "runtime/half.hpp"
#include "semantics/mask.hpp"

namespace fresnel::test {
namespace {

/// Sets the rounding of a recipe for as long as it lives.
class Arithmetic {
 public:
  explicit Arithmetic(const Recipe& recipe) : control_(float_control()), direction_(std::fegetround()) {
    if (recipe.truncates) std::fesetround(FE_TOWARDZERO);
#if defined(__x86_64__)
    if (recipe.flushes) set_float_control(float_control() | 0x8040u);  // flush results, read subnormals as zero
#endif
  }
  ~Arithmetic() {
    std::fesetround(direction_);
    set_float_control(control_);
  }
  Arithmetic(const Arithmetic&) = delete;
  Arithmetic& operator=(const Arithmetic&) = delete;

 private:
  std::uint64_t control_;
  int direction_;
};

template <class Real>
Real rounded_p(Real p, std::optional<DType> type) {
  if (type == DType::bf16) return static_cast<Real>(bf16_to_float(float_to_bf16(static_cast<float>(p))));
  if (type == DType::f16) return static_cast<Real>(f16_to_float(float_to_f16(static_cast<float>(p))));
  return p;
}

/// Partial sums of a dot product that a recipe may ask for.
constexpr std::size_t most_lanes = 8;

template <class Real>
struct RowState {
  Real m = -std::numeric_limits<Real>::infinity();
  Real previous = m;  ///< m before its last rise
  Real l = 0;
  std::vector<Real> o;
};

template <class Real>
class Simulation {
 public:
  Simulation(const Recipe& recipe, const Sample& sample)
      : recipe_(recipe),
        sample_(sample),
        problem_(sample.problem),
        q_(numbers_of(sample.q)),
        k_(numbers_of(sample.k)),
        v_(numbers_of(sample.v)),
        log2_(recipe.roundings.log2_scores),
        units_(log2_ ? static_cast<Real>(1.44269504088896340736L) : Real(1)) {
    double scale = problem_.softmax_scale();
    if (recipe.mistake == Mistake::scale_from_value_dim) scale = 1 / std::sqrt(static_cast<double>(problem_.value_dim));
    scale_ = static_cast<Real>(scale) * units_;
    dims_ = recipe.mistake == Mistake::dims_truncated ? problem_.head_dim / 16 * 16 : problem_.head_dim;
  }

  /// o, then lse, of one row.
  [[nodiscard]] std::vector<double> row(std::int64_t b, std::int64_t h, std::int64_t i) const;

 private:
  /// A dense [B, H, S, D] copy, made before the recipe's arithmetic is set: reading is exact.
  struct Numbers {
    std::vector<Real> values;
    std::int64_t heads, rows, width;
    [[nodiscard]] const Real* row(std::int64_t b, std::int64_t h, std::int64_t row) const {
      return values.data() + ((b * heads + h) * rows + row) * width;
    }
  };
  static Numbers numbers_of(const HostTensor& tensor) {
    Numbers numbers{{}, tensor.size(1), tensor.size(2), tensor.size(3)};
    tensor.for_each_index([&](const Index& at) { numbers.values.push_back(static_cast<Real>(tensor.get(at))); });
    return numbers;
  }

  [[nodiscard]] Real exponential(Real x) const { return log2_ ? std::exp2(x) : std::exp(x); }
  [[nodiscard]] Real dot(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
  [[nodiscard]] Real score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, std::int64_t position) const;
  void rescale(RowState<Real>& state, Real raised) const;
  void tile(RowState<Real>& state, const std::vector<Real>& scores, const std::vector<std::int64_t>& keys, Real extra,
            std::int64_t b, std::int64_t h) const;
  void merge(RowState<Real>& all, RowState<Real> part) const;
  [[nodiscard]] std::vector<double> finish(const RowState<Real>& state) const;

  const Recipe& recipe_;
  const Sample& sample_;
  const Problem& problem_;
  Numbers q_, k_, v_;
  bool log2_;
  Real units_;
  Real scale_ = 1;
  std::int64_t dims_ = 0;
};

template <class Real>
Real Simulation<Real>::dot(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  const std::int64_t lanes = recipe_.roundings.dot_lanes;
  const Real* const query = q_.row(b, h, i);
  const Real* const key = k_.row(b, h / problem_.group(), j);
  std::array<Real, most_lanes> sums{};
  for (std::int64_t d = 0; d < dims_; ++d) {
    const Real product = (recipe_.folds_scale ? query[d] * scale_ : query[d]) * key[d];
    sums[static_cast<std::size_t>(d % lanes)] += product;
  }
  Real sum = sums[0];
  for (std::size_t lane = 1; lane < static_cast<std::size_t>(lanes); ++lane) sum += sums[lane];
  return sum;
}

template <class Real>
Real Simulation<Real>::score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
                             std::int64_t position) const {
  Real s = dot(b, h, i, j);
  if (!recipe_.folds_scale) s = s * scale_;
  if (problem_.options.softcap) {
    const Real cap = static_cast<Real>(*problem_.options.softcap) * units_;
    s = cap * std::tanh(s / cap);
  }
  if (sample_.slopes) {
    const std::int64_t head = recipe_.mistake == Mistake::slope_of_next_head ? (h + 1) % problem_.heads_q : h;
    const bool per_batch = problem_.alibi_slopes == AlibiSlopes::per_batch_and_head;
    const Real slope = static_cast<Real>(sample_.slopes->get(per_batch ? Index{b, head} : Index{head})) * units_;
    const bool distance = problem_.options.alibi == AlibiForm::distance;
    s = s + slope * static_cast<Real>(distance ? -std::abs(j - position) : j - position);
  }
  return s;
}

template <class Real>
void Simulation<Real>::rescale(RowState<Real>& state, Real raised) const {
  if (state.m != -std::numeric_limits<Real>::infinity() && recipe_.mistake != Mistake::rescale_forgotten) {
    const Real alpha = exponential(state.m - raised);
    state.l = state.l * alpha;
    for (Real& sum : state.o) sum = sum * alpha;
  }
  if (raised > state.m) state.previous = state.m;
  state.m = raised;
}

/// One key tile: maximum, rescale, weights, sums. `extra` is added to the row sum as it is (tail_counted).
template <class Real>
void Simulation<Real>::tile(RowState<Real>& state, const std::vector<Real>& scores,
                            const std::vector<std::int64_t>& keys, Real extra, std::int64_t b, std::int64_t h) const {
  Real raised = state.m;
  for (const Real s : scores) raised = std::max(raised, s);
  rescale(state, raised);
  const bool running = recipe_.roundings.running_sum;
  RowState<Real> fresh;
  fresh.o.resize(state.o.size());
  RowState<Real>& sums = running ? state : fresh;
  for (std::size_t at = 0; at < scores.size(); ++at) {
    const Real p = exponential(scores[at] - raised), stored = rounded_p(p, recipe_.p);
    sums.l += recipe_.roundings.sums_rounded_p ? stored : p;
    const Real* const value = v_.row(b, h / problem_.group(), keys[at]);
    for (std::size_t d = 0; d < sums.o.size(); ++d) sums.o[d] += stored * value[d];
  }
  if (extra > 0) state.l += extra * exponential(-raised);
  if (running) return;
  state.l += fresh.l;
  for (std::size_t d = 0; d < state.o.size(); ++d) state.o[d] += fresh.o[d];
}

template <class Real>
void Simulation<Real>::merge(RowState<Real>& all, RowState<Real> part) const {
  if (part.m == -std::numeric_limits<Real>::infinity() && part.l == 0) return;
  if (recipe_.mistake == Mistake::stale_maximum && std::isfinite(part.previous)) part.m = part.previous;
  const Real raised = std::max(all.m, part.m);
  if (recipe_.mistake != Mistake::splits_unweighted) {
    rescale(all, raised);
    rescale(part, raised);
  }
  all.m = raised;
  all.l += part.l;
  for (std::size_t d = 0; d < all.o.size(); ++d) all.o[d] += part.o[d];
}

template <class Real>
std::vector<double> Simulation<Real>::finish(const RowState<Real>& state) const {
  constexpr Real none = -std::numeric_limits<Real>::infinity();
  const bool empty = state.m == none && state.l == 0;
  std::vector<double> results;
  for (const Real sum : state.o) {
    const Real quotient = recipe_.reciprocal ? sum * (1 / state.l) : sum / state.l;
    results.push_back(empty ? 0 : static_cast<double>(quotient));
  }
  Real lse = empty ? none : state.m / units_ + std::log(state.l);
  if (log2_ && !empty) lse = (state.m + std::log2(state.l)) * static_cast<Real>(0.693147180559945309417L);
  if (recipe_.mistake == Mistake::lse_in_base_2) lse = lse * static_cast<Real>(1.44269504088896340736L);
  results.push_back(static_cast<double>(lse));
  return results;
}

template <class Real>
std::vector<double> Simulation<Real>::row(std::int64_t b, std::int64_t h, std::int64_t i) const {
  const Arithmetic arithmetic(recipe_);
  const std::int64_t live = sample_.lengths ? static_cast<std::int64_t>(sample_.lengths->get({b})) : problem_.keys;
  const Mask mask = mask_of(problem_, live);
  KeyRange keys = mask.range(i);
  if (recipe_.mistake == Mistake::causal_off_by_one) keys.last = std::min(keys.last + 1, live);
  const std::int64_t tile_keys = recipe_.roundings.tile_keys, splits = recipe_.roundings.splits;
  RowState<Real> all;
  all.o.resize(static_cast<std::size_t>(problem_.value_dim));
  const std::int64_t tiles = keys.empty() ? 0 : (keys.last - 1) / tile_keys + 1;
  for (std::int64_t split = 0; split < splits; ++split) {
    RowState<Real> state;
    state.o.resize(all.o.size());
    for (std::int64_t t = tiles * split / splits; t < tiles * (split + 1) / splits; ++t) {
      std::vector<Real> scores;
      std::vector<std::int64_t> visited;
      Real extra = 0;
      for (std::int64_t j = t * tile_keys; j < (t + 1) * tile_keys; ++j) {
        const bool visible = j >= keys.first && j < keys.last;
        if (visible) scores.push_back(score(b, h, i, j, mask.position(i)));
        if (!visible && j < live && recipe_.mistake == Mistake::softcap_after_mask)
          scores.push_back(-static_cast<Real>(*problem_.options.softcap) * units_);
        if (scores.size() > visited.size()) visited.push_back(j);
        if (j >= keys.last && recipe_.mistake == Mistake::tail_counted) extra += 1;
      }
      if (!scores.empty()) tile(state, scores, visited, extra, b, h);
    }
    if (splits == 1)
      all = std::move(state);
    else
      merge(all, std::move(state));
  }
  return finish(all);
}

template <class Real>
void compute_all(const Recipe& recipe, const Sample& sample, Answer& answer) {
  const Simulation<Real> simulation(recipe, sample);
  const std::int64_t width = sample.problem.value_dim;
  answer.lse.for_each_index([&](const Index& at) {
    const std::vector<double> results = simulation.row(at[0], at[1], at[2]);
    for (std::int64_t d = 0; d < width; ++d)
      answer.o.set({at[0], at[1], at[2], d}, results[static_cast<std::size_t>(d)]);
    answer.lse.set(at, results.back());
  });
}

}  // namespace

Answer::Answer(const Problem& problem)
    : o(problem.dtype, {problem.batch, problem.heads_q, problem.queries, problem.value_dim}),
      lse(problem.dtype == DType::f64 ? DType::f64 : DType::f32, {problem.batch, problem.heads_q, problem.queries}) {}

Outputs Answer::outputs() { return {o.mutable_view(), lse.mutable_view()}; }

Recipe honest(DType dtype) {
  Recipe recipe;
  Roundings& roundings = recipe.roundings;
  roundings.name = "nearest";
  const bool wide = dtype == DType::f64;
  roundings.unit = wide ? 0x1p-53 : 0x1p-24;
  roundings.least = roundings.least_exp = wide ? 0x1p-1074 : 0x1p-149;
  roundings.exp_constant = roundings.rescale = roundings.log = 2 * roundings.unit;
  roundings.tanh = 6 * roundings.unit;
  return recipe;
}

std::vector<Recipe> recipes(DType dtype) {
  std::vector<Recipe> all;
  const auto add = [&](const char* name, auto&& change) {
    Recipe recipe = honest(dtype);
    recipe.roundings.name = name;
    change(recipe, recipe.roundings);
    all.push_back(recipe);
  };
  add("nearest", [](Recipe&, Roundings&) {});
  add("tile 16, 4 lanes, division", [](Recipe& recipe, Roundings& r) {
    r.tile_keys = 16;
    r.dot_lanes = 4;
    recipe.reciprocal = false;
  });
  add("scale folded into q, running sum", [](Recipe& recipe, Roundings& r) {
    recipe.folds_scale = true;
    r.running_sum = true;
    r.tile_keys = 32;
  });
  add("log2 scores", [](Recipe&, Roundings& r) { r.log2_scores = true; });
  add("3 splits of tile 16", [](Recipe&, Roundings& r) {
    r.tile_keys = 16;
    r.splits = 3;
  });
  for (const bool running : {false, true})
    add(running ? "truncating, running sum" : "truncating", [&](Recipe& recipe, Roundings& r) {
      recipe.truncates = true;
      r.running_sum = running;
      r.unit *= 2;
      r.exp_constant = r.rescale = r.log = 4 * r.unit;
      r.tanh = 8 * r.unit;
    });
#if defined(__x86_64__)
  add("flushing", [&](Recipe& recipe, Roundings& r) {
    recipe.flushes = true;
    r.flushes_inputs = true;
    r.least = r.least_exp = dtype == DType::f64 ? 0x1p-1022 : 0x1p-126;
  });
#endif
  if (dtype == DType::f64) return all;
  for (const bool sums_rounded : {false, true}) {
    add(sums_rounded ? "bf16 P, summed rounded" : "bf16 P", [&](Recipe& recipe, Roundings& r) {
      recipe.p = DType::bf16;
      r.unit_p = 0x1p-8;
      r.least_p = 0x1p-134;
      r.sums_rounded_p = sums_rounded;
    });
    add(sums_rounded ? "f16 P, summed rounded" : "f16 P", [&](Recipe& recipe, Roundings& r) {
      recipe.p = DType::f16;
      r.unit_p = 0x1p-11;
      r.least_p = 0x1p-25;
      r.sums_rounded_p = sums_rounded;
    });
  }
  return all;
}

Answer compute(const Recipe& recipe, const Sample& sample) {
  Answer answer(sample.problem);
  if (sample.problem.dtype == DType::f64)
    compute_all<double>(recipe, sample, answer);
  else
    compute_all<float>(recipe, sample, answer);
  return answer;
}

Verdict judge(const Recipe& recipe, const Sample& sample, Answer& answer) {
  static const auto executor = make_executor(1);  // samples are small: waking a pool takes longer than judging
  return check(sample.problem, sample.inputs(), answer.outputs(), recipe.roundings, executor.get()).value();
}

Verdict judge(const Recipe& recipe, const Sample& sample) {
  Answer answer = compute(recipe, sample);
  return judge(recipe, sample, answer);
}

}  // namespace fresnel::test
