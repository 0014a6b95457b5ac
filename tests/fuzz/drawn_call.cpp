// SPDX-License-Identifier: Apache-2.0
// Lists to choose from: lengths around tiles, widths around vectors, bounds and numbers at the edges of what is legal.
#include "fuzz/drawn_call.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "fresnel/fresnel.hpp"
#include "fuzz/target.hpp"

namespace fresnel::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t most_work =
    8'000;  // multiply-adds of one run: a few milliseconds for all runs and judges, sanitizers included

constexpr std::int64_t lengths[] = {3,  1,  2,  4,  5,  7,  8,  9,  15, 16, 17, 31,  32,  33,  47,
                                    48, 49, 63, 64, 65, 66, 70, 80, 96, 97, 0,  127, 128, 129, 192};
constexpr std::int64_t widths[] = {4,  1,  2,  3,  5,  7,  8,   9,   15,  16,  17,  24,  31,  32,  33,
                                   40, 63, 64, 65, 80, 96, 127, 128, 129, 192, 256, 257, 512, 575, 576};
constexpr std::int64_t bounds[] = {0, 1, 2, 3, 7, 16, 40, 64, 65, 1000, INT64_MAX - 1, INT64_MAX};

/// The list's members that the bounds hold, or the least that they do.
template <std::size_t size>
std::int64_t pick_inside(const std::int64_t (&list)[size], const Bounds& limits, Choices& choices) {
  const std::int64_t picked = choices.pick(list);
  return limits.holds(picked) ? picked : std::clamp(picked, limits.least, limits.most);
}

template <class Member>
Member pick_member(const Set<Member>& set, std::initializer_list<Member> all, Choices& choices) {
  std::vector<Member> members;
  std::copy_if(all.begin(), all.end(), std::back_inserter(members), [&](Member member) { return set.has(member); });
  return choices.pick(members);
}

/// Shortens the longer axis until a run is quick.
void bound_work(const Domain& domain, Problem& problem) {
  const auto work = [&] {
    const std::int64_t rows = std::max<std::int64_t>(problem.batch * problem.heads_q, 1);
    return rows * std::max<std::int64_t>(problem.queries, 1) * std::max<std::int64_t>(problem.keys, 1) *
           (problem.head_dim + problem.value_dim);
  };
  while (work() > most_work) {
    if (problem.queries > domain.queries.least && problem.queries >= problem.keys)
      problem.queries = std::max(problem.queries * 3 / 4, domain.queries.least);
    else if (problem.keys > std::max<std::int64_t>(domain.keys.least, 1))
      problem.keys = std::max(problem.keys * 3 / 4, domain.keys.least);
    else
      problem.heads_q = problem.heads_kv = problem.batch = 1;
    if (problem.batch == 1 && problem.heads_q == 1 && problem.keys <= 1 && problem.queries <= 1) return;
  }
}

void draw_options(const Domain& domain, Problem& problem, Choices& choices) {
  const int wanted = choices.byte();
  int bit = 0;
  const auto asks = [&](Feature feature) { return (wanted >> bit++ & 1) != 0 && domain.features.has(feature); };
  Options& options = problem.options;
  options.causal = asks(Feature::causal);
  if (asks(Feature::top_left)) options.alignment = Alignment::top_left;
  if (asks(Feature::window)) options.window_size_left = choices.pick(bounds);
  if (asks(Feature::window)) options.window_size_right = choices.pick(bounds);
  const bool wide = problem.dtype == DType::f64;
  if (asks(Feature::softcap))
    options.softcap = choices.pick(std::array{5.0, 0.5, 50.0, 1e3, 0x1p-126, wide ? 1e308 : 0x1.fffffep126});
  if (asks(Feature::alibi)) {
    const int form = choices.byte();
    problem.alibi_slopes = form % 2 == 0 ? AlibiSlopes::per_head : AlibiSlopes::per_batch_and_head;
    if (form / 2 % 2 != 0) options.alibi = AlibiForm::distance;
  }
  problem.seqlens_k = asks(Feature::seqlens_k);
  if ((wanted & 0x80) != 0)
    options.softmax_scale =
        choices.pick(std::array{0.1, 1.0, 0.0, -0.125, 17.0, 0x1p-126, wide ? -1e300 : -0x1.fffffep126});
}

/// The numbers that are hardest to get right in a dtype.
double extreme(DType dtype, Choices& choices) {
  const double most = largest(dtype);
  const double least = dtype == DType::f64 ? 0x1p-1022 : dtype == DType::f16 ? 0x1p-14 : 0x1p-126;
  return choices.pick(std::array{
      0.0, -0.0, 1.0,   -1.0,   nan,  infinity,        -infinity,        most, -most, least, -least / 2, least / 64,
      1e4, -1e4, 100.0, -100.0, 1e-5, std::sqrt(most), -std::sqrt(most), 88.0, -104.0});
}

/// A tensor's values: ordinary, of one magnitude, all equal, small whole numbers that tie, or extremes anywhere; and
/// then single elements made extreme.
void draw_values(HostTensor& tensor, Choices& choices) {
  const DType dtype = tensor.dtype();
  Random random(static_cast<std::uint64_t>(choices.byte()) + 1);
  switch (choices.byte() % 6) {
    case 1: {
      const int exponent = choices.byte() - 128;
      tensor.fill([&](const Index&) { return std::ldexp(random.real(), exponent); });
      break;
    }
    case 2: {
      const double value = extreme(dtype, choices);
      tensor.fill([&](const Index&) { return value; });
      break;
    }
    case 3: tensor.fill([&](const Index&) { return static_cast<double>(random.between(-2, 2)); }); break;
    case 4: {
      std::array<double, 4> values{};
      for (double& value : values) value = extreme(dtype, choices);
      tensor.fill([&](const Index&) { return random.pick(values); });
      break;
    }
    default: tensor.fill([&](const Index&) { return 2 * random.real(); });
  }
  for (int count = choices.byte() % 4; count > 0 && tensor.elements() > 0; --count) {
    Index at{};
    for (std::size_t axis = 0; axis < at.size(); ++axis)
      at[axis] = choices.below(std::min<std::int64_t>(tensor.size(static_cast<int>(axis)), 65'536));
    tensor.set(at, extreme(dtype, choices));
  }
}

/// Anywhere an input may lie; outputs neither run backwards nor share memory.
Placement draw_placement(const LayoutClass& layout, DType dtype, std::int64_t width, Choices& choices) {
  Placement placement = placement_of(layout, dtype, width);
  const int how = choices.byte();
  if (!layout.aligned) placement.row_padding = 1 + how % 4;
  for (std::size_t axis = 0; axis < 3; ++axis) placement.reversed[axis] = (how >> (2 + axis) & 1) != 0;
  if (how >> 5 != 0) placement.expanded[static_cast<std::size_t>(how >> 5) % 3] = (how >> 5) % 2 != 0;
  return placement;
}

}  // namespace

Problem draw_problem(const Domain& domain, Choices& choices) {
  Problem problem;
  problem.dtype = pick_member(domain.dtypes, {DType::f32, DType::f64, DType::f16, DType::bf16}, choices);
  problem.queries = pick_inside(lengths, domain.queries, choices);
  problem.keys = pick_inside(lengths, domain.keys, choices);
  problem.head_dim = pick_inside(widths, domain.head_dim, choices);
  const int how = choices.byte();
  problem.value_dim = how % 4 != 0 && domain.value_dim.holds(problem.head_dim)
                          ? problem.head_dim
                          : pick_inside(widths, domain.value_dim, choices);
  constexpr std::int64_t counts[] = {1, 1, 2, 3, 1, 2, 1, 0};
  problem.batch = counts[how >> 2 & 7];
  problem.heads_kv = counts[how >> 5 & 7];
  problem.heads_q = problem.heads_kv * (domain.features.has(Feature::grouped_heads) ? 1 + choices.below(3) : 1);
  draw_options(domain, problem, choices);
  const int layouts = choices.byte();
  int bit = 0;
  for (LayoutClass* layout : {&problem.q, &problem.k, &problem.v, &problem.o}) {
    const bool other = (layouts >> bit++ & 1) != 0, unaligned = (layouts >> bit++ & 1) != 0;
    if (!domain.axis_orders.has(AxisOrder::bhsd) || (other && domain.axis_orders.has(AxisOrder::bshd)))
      layout->order = AxisOrder::bshd;
    layout->aligned = !(unaligned && domain.unaligned);
  }
  problem.grad = domain.required.has(Feature::grad);
  problem.lse = problem.grad || choices.byte() % 4 != 1;
  bound_work(domain, problem);
  const Status meaning = validate(problem);
  demand(meaning.ok(), "drew a problem without meaning: " + (meaning ? "" : meaning.refusal().message()));
  return problem;
}

Scenario draw_scenario(const Problem& problem, Choices& choices) {
  Scenario scenario(problem);
  const std::pair<HostTensor Scenario::*, const LayoutClass*> inputs[] = {
      {&Scenario::q, &problem.q}, {&Scenario::k, &problem.k}, {&Scenario::v, &problem.v}};
  for (const auto& [input, layout] : inputs) {
    HostTensor& tensor = scenario.*input;
    const std::vector<std::int64_t> sizes{tensor.size(0), tensor.size(1), tensor.size(2), tensor.size(3)};
    tensor = HostTensor(problem.dtype, sizes, draw_placement(*layout, problem.dtype, sizes[3], choices));
    draw_values(tensor, choices);
  }
  if (scenario.slopes)
    scenario.slopes->fill([&](const Index&) {
      return choices.pick(std::array{0.25, 0.0, -0.5, 1.0, 1e-40, 1e4, -1e10});
    });
  if (problem.seqlens_k) {
    std::vector<std::int64_t> live;
    for (std::int64_t b = 0; b < problem.batch; ++b) live.push_back(problem.keys - choices.below(problem.keys + 1));
    scenario.set_lengths(live);
  }
  return scenario;
}

HostTensor draw_dout(const Problem& problem, Choices& choices) {
  HostTensor dout(problem.dtype, {problem.batch, problem.heads_q, problem.queries, problem.value_dim},
                  draw_placement(problem.o, problem.dtype, problem.value_dim, choices));
  draw_values(dout, choices);
  return dout;
}

bool sees_nothing(const Scenario& scenario, std::int64_t b, std::int64_t i) {
  for (std::int64_t j = 0; j < scenario.problem.keys; ++j)
    if (scenario.sees(b, i, j)) return false;
  return true;
}

Scenario with_junk(const Scenario& scenario, Choices& choices) {
  Scenario spoilt = scenario;
  const double junk = choices.pick(std::array{nan, infinity, -infinity, largest(scenario.problem.dtype), 0.0});
  for (HostTensor Scenario::*const input : {&Scenario::q, &Scenario::k, &Scenario::v}) spoilt.place(input, {});
  const Problem& problem = scenario.problem;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const auto spoil = [&](HostTensor& tensor, std::int64_t row) {
      for (std::int64_t h = 0; h < tensor.size(1); ++h)
        for (std::int64_t d = 0; d < tensor.size(3); ++d) tensor.set({b, h, row, d}, junk);
    };
    for (std::int64_t i = 0; i < problem.queries; ++i)
      if (sees_nothing(scenario, b, i)) spoil(spoilt.q, i);
    for (std::int64_t j = 0; j < problem.keys; ++j)
      if (scenario.dead(b, j)) {
        spoil(spoilt.k, j);
        spoil(spoilt.v, j);
      }
  }
  return spoilt;
}

}  // namespace fresnel::test
