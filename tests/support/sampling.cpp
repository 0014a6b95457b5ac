// SPDX-License-Identifier: Apache-2.0
// Random and bordering problems. Sizes are kept small on purpose: a fault of tiling shows at lengths around a tile, and
// small problems leave time for thousands of them.
#include "support/sampling.hpp"

#include <algorithm>

namespace fresnel::test {
namespace {

constexpr std::array<std::int64_t, 18> short_lengths{1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 64, 65, 96};
constexpr std::array<std::int64_t, 7> window_bounds{0, 1, 2, 7, 16, 40, INT64_MAX};
constexpr std::array<double, 5> scales{0.0, -0.125, 0.1, 1.0, 0.5};
constexpr std::array<double, 4> caps{0.5, 5.0, 50.0, 1e3};

std::int64_t pick_inside(const Bounds& bounds, const std::vector<std::int64_t>& values, Random& random) {
  return random.pick(values_inside(bounds, values, 1 << 20));
}

template <std::size_t size>
std::vector<std::int64_t> listed(const std::array<std::int64_t, size>& values, std::int64_t most) {
  std::vector<std::int64_t> list;
  std::copy_if(values.begin(), values.end(), std::back_inserter(list),
               [&](std::int64_t value) { return value <= most; });
  return list;
}

LayoutClass random_layout(const Domain& domain, Random& random) {
  LayoutClass layout;
  if (!domain.axis_orders.has(layout.order) || (domain.axis_orders.has(AxisOrder::bshd) && random.chance(3)))
    layout.order = AxisOrder::bshd;
  layout.aligned = !(domain.unaligned && random.chance(3));
  return layout;
}

void choose_options(const Domain& domain, Random& random, Problem& problem) {
  const auto wanted = [&](Feature feature) { return domain.features.has(feature) && random.chance(3); };
  Options& options = problem.options;
  options.causal = wanted(Feature::causal);
  if (wanted(Feature::top_left)) options.alignment = Alignment::top_left;
  if (wanted(Feature::window)) options.window_size_left = random.pick(window_bounds);
  if (wanted(Feature::window)) options.window_size_right = random.pick(window_bounds);
  if (wanted(Feature::softcap)) options.softcap = random.pick(caps);
  if (random.chance(3)) options.softmax_scale = random.pick(scales);
  if (wanted(Feature::alibi)) {
    problem.alibi_slopes = random.chance(2) ? AlibiSlopes::per_head : AlibiSlopes::per_batch_and_head;
    options.alibi = random.chance(2) ? AlibiForm::relative : AlibiForm::distance;
  }
  problem.seqlens_k = wanted(Feature::seqlens_k);
}

}  // namespace

std::vector<std::int64_t> values_inside(const Bounds& bounds, const std::vector<std::int64_t>& values,
                                        std::int64_t most) {
  std::vector<std::int64_t> inside;
  std::copy_if(values.begin(), values.end(), std::back_inserter(inside),
               [&](std::int64_t value) { return bounds.holds(value); });
  for (const std::int64_t edge : {bounds.least, bounds.most})
    if (edge <= most && std::find(inside.begin(), inside.end(), edge) == inside.end()) inside.push_back(edge);
  return inside;
}

Problem random_problem(const Domain& domain, Random& random) {
  std::vector<DType> dtypes;
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    if (domain.dtypes.has(dtype)) dtypes.push_back(dtype);
  Problem problem;
  problem.dtype = random.pick(dtypes);
  const std::int64_t widest = random.chance(8) ? 576 : 128;
  problem.head_dim = pick_inside(domain.head_dim, listed(head_dims, widest), random);
  problem.value_dim = domain.value_dim.holds(problem.head_dim) && !random.chance(4)
                          ? problem.head_dim
                          : pick_inside(domain.value_dim, listed(head_dims, widest), random);
  const std::int64_t longest = problem.head_dim > 128 || problem.dtype == DType::f64 ? 33 : 96;
  problem.queries = std::max<std::int64_t>(pick_inside(domain.queries, listed(short_lengths, longest), random), 1);
  problem.keys = std::max<std::int64_t>(pick_inside(domain.keys, listed(short_lengths, longest), random), 1);
  problem.batch = random.between(1, 2);
  problem.heads_kv = random.between(1, 2);
  problem.heads_q = problem.heads_kv * (domain.features.has(Feature::grouped_heads) ? random.between(1, 3) : 1);
  choose_options(domain, random, problem);
  for (LayoutClass* layout : {&problem.q, &problem.k, &problem.v, &problem.o}) *layout = random_layout(domain, random);
  problem.lse = !random.chance(5);
  return problem;
}

Problem with_feature(Problem problem, Feature feature) {
  switch (feature) {
    case Feature::causal: problem.options.causal = true; break;
    case Feature::top_left: problem.options.alignment = Alignment::top_left; break;
    case Feature::window: problem.options.window_size_left = 3; break;
    case Feature::softcap: problem.options.softcap = 5; break;
    case Feature::alibi: problem.alibi_slopes = AlibiSlopes::per_head; break;
    case Feature::seqlens_k: problem.seqlens_k = true; break;
    case Feature::grouped_heads: problem.heads_q = 2 * problem.heads_kv; break;
    case Feature::grad: problem.grad = true; break;
  }
  return problem;
}

namespace {

std::vector<std::string> fields_of(Feature feature) {
  switch (feature) {
    case Feature::causal: return {"causal"};
    case Feature::top_left: return {"alignment", "top_left"};
    case Feature::window: return {"window", "window_size_left", "window_size_right"};
    case Feature::softcap: return {"softcap"};
    case Feature::alibi: return {"alibi", "alibi_slopes"};
    case Feature::seqlens_k: return {"seqlens_k"};
    case Feature::grouped_heads: return {"heads_q", "heads_kv", "grouped_heads"};
    case Feature::grad: return {"grad"};
  }
  return {};
}

void step_outside(const Bounds& bounds, std::int64_t Problem::*extent, const char* field, const Problem& inside,
                  std::vector<Outsider>& out) {
  const auto add = [&](std::int64_t value) {
    out.push_back({inside, {field}});
    out.back().problem.*extent = value;
  };
  if (bounds.least > 0) add(bounds.least - 1);
  if (bounds.most != INT64_MAX) add(bounds.most + 1);
}

}  // namespace

std::vector<Outsider> outsiders(const Domain& domain, const Problem& inside) {
  std::vector<Outsider> out;
  step_outside(domain.head_dim, &Problem::head_dim, "head_dim", inside, out);
  step_outside(domain.value_dim, &Problem::value_dim, "value_dim", inside, out);
  step_outside(domain.queries, &Problem::queries, "queries", inside, out);
  step_outside(domain.keys, &Problem::keys, "keys", inside, out);
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    if (domain.dtypes.has(dtype)) continue;
    out.push_back({inside, {"dtype"}});
    out.back().problem.dtype = dtype;
  }
  for (const Feature feature : all_features)
    if (!domain.features.has(feature)) out.push_back({with_feature(inside, feature), fields_of(feature)});
  for (const AxisOrder order : {AxisOrder::bhsd, AxisOrder::bshd}) {
    if (domain.axis_orders.has(order)) continue;
    out.push_back({inside, {"q", "axis_order", "layout"}});
    out.back().problem.q.order = order;
  }
  if (!domain.unaligned) {
    out.push_back({inside, {"q", "unaligned", "layout"}});
    out.back().problem.q.aligned = false;
  }
  return out;
}

}  // namespace fresnel::test
