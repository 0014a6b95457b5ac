// SPDX-License-Identifier: Apache-2.0
// The budget as a function: equal to the formulas of docs/numerics.md written out once more without logarithms,
// monotone in everything a kernel may do worse, and a number whatever it is given. Whether the formulas are a bound is
// tested where there are kernels (tests/checker).
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "semantics/budget.hpp"

namespace fresnel::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Facts that own their arrays: consistent ones for scores s and values v.
struct Row {
  std::vector<double> x, products, key_sizes, uncapped, additive, values, o;
  RowFacts facts;

  Row(const std::vector<double>& scores, const std::vector<double>& products_, const std::vector<double>& v)
      : products(products_), key_sizes(scores.size(), 3), o{0} {
    facts.max = *std::max_element(scores.begin(), scores.end());
    double l = 0;
    for (const double s : scores) l += std::exp(s - facts.max);
    facts.log_sum = std::log(l);
    for (std::size_t key = 0; key < scores.size(); ++key) {
      x.push_back(scores[key] - facts.max);
      o[0] += std::exp(x[key]) / l * v[key];
      values.insert(values.end(), {v[key], 0, 0, 0, 0, 0, 0, 0});
    }
    facts.head_dim = 48;
    facts.scale = 0.5;
    facts.query_size = 5;
    facts.value_pitch = RowFacts::value_block;
  }
  Budget budget(const Roundings& roundings) {
    facts.x = x;
    facts.products = products;
    facts.key_sizes = key_sizes;
    facts.uncapped = uncapped;
    facts.additive = additive;
    facts.o = o;
    facts.values = values.data();
    return budget_of(facts, roundings);
  }
};

Row ordinary_row() { return Row({0.3, -1.2, 2.0, 1.7, -0.4}, {9, 7, 12, 30, 4}, {1.5, -2, 0.25, 1, 3}); }

Roundings typical() {
  Roundings roundings;
  roundings.exp_constant = 0x1p-22;
  roundings.exp_slope = 0x1p-24;
  roundings.rescale = 0x1p-21;
  roundings.tanh = 0x1p-20;
  roundings.log = 0x1p-22;
  roundings.tile_keys = 2;
  roundings.dot_lanes = 8;
  return roundings;
}

/// docs/numerics.md, "The formulas", for one column and a float32 kernel, in the order of the page and without
/// logarithms.
struct Formula {
  double o = 0, lse = 0;
};
Formula formula_of(const Row& row, const Roundings& r) {
  const RowFacts& f = row.facts;
  const auto count = static_cast<double>(row.x.size());
  const double u = r.unit + 8 * f.truth_unit, scale = std::abs(f.scale), dims = static_cast<double>(f.head_dim);
  const auto gamma = [&](double n) { return n * r.unit / (1 - n * r.unit); };
  const double lanes = static_cast<double>(r.dot_lanes), depth = std::min(dims, std::ceil(dims / lanes) + lanes - 1);
  const double tile = static_cast<double>(r.tile_keys), first = static_cast<double>(f.first_key);
  const double tiles = std::floor((first + count - 1) / tile) - std::floor(first / tile) + 1;
  const double rescales = tiles - 1 + 2 * static_cast<double>(r.splits - 1);
  const double n = (r.running_sum ? count : std::min(tile, count)) + 2 * rescales;
  const double flush = r.flushes_inputs ? 0x1p-126 : 0, log2 = r.log2_scores ? 1 : 0;

  std::vector<double> delta, eta, p;
  double worst = 0, l = 0;
  for (std::size_t j = 0; j < row.x.size(); ++j) {
    const double s = f.max + row.x[j];
    double d = (gamma(depth + 2 + 2 * log2) + (dims + 8) * f.truth_unit + r.split) * scale * row.products[j];
    d += scale * ((r.least < 0x1p-126 ? dims : 2 * dims) + 1) * r.least + r.least * row.key_sizes[j];
    d += flush * (scale * (f.query_size + row.key_sizes[j]) + row.key_sizes[j]);
    if (!row.uncapped.empty()) {
      const double c = f.softcap, z = std::abs(row.uncapped[j]) / c;
      const double carried = std::min(1.0, std::exp(2 * d / c) * (1 - std::tanh(z) * std::tanh(z))) * d;
      d = carried + (r.tanh + (5 + 2 * log2) * u) * std::min(c, c * std::tanh(z) + carried) +
          c * r.least * (2 + row.products[j]);
    }
    if (!row.additive.empty()) d += (2 + 2 * log2) * u * std::abs(row.additive[j]) + u * (std::abs(s) + d) + r.least;
    d += log2 * u * (std::abs(s) + std::abs(f.max) + d);
    delta.push_back(d + 4 * r.least);
    worst = std::max(worst, delta.back());
    l += std::exp(row.x[j]);
  }
  double least = 0, most = 0, large = 0, far = 0, moved = 0, size = 0;
  for (std::size_t j = 0; j < row.x.size(); ++j) {
    const double argument = std::abs(row.x[j]) + delta[j] + worst;
    const double e = r.exp_constant + r.exp_slope * argument + rescales * r.rescale + 4 * f.truth_unit;
    eta.push_back(delta[j] + u * argument + e / (1 - e) + (r.sums_rounded_p ? r.unit_p / (1 - r.unit_p) : 0));
    p.push_back(std::exp(row.x[j]) / l);
    least += p[j] * std::exp(-eta[j]);
    most += p[j] * std::exp(eta[j]);
  }
  for (std::size_t j = 0; j < row.x.size(); ++j) {
    const double v = row.values[j * RowFacts::value_block];
    moved += p[j] * std::exp(eta[j]) / least * std::min(eta[j], 1.0) * std::abs(v - row.o[0]);
    size += p[j] * std::exp(eta[j]) / least * std::abs(v);
    large = std::max(large, std::abs(v));
    far = std::max(far, std::abs(v - row.o[0]));
  }
  moved = std::min(moved, far);
  size = std::min(size, large);
  const double unrounded = r.sums_rounded_p ? 0 : r.unit_p, o = std::abs(row.o[0]);
  const auto sums = [&](double more) { return gamma(n + more) + (count + 8) * f.truth_unit; };
  const double numerator = moved + (unrounded + sums(0) * (1 + unrounded)) * size;
  const double quotient = numerator + sums(3) * (o + numerator);
  const double row_sum = std::max(0.25, l * least * std::exp(-worst));
  const double lost = (rescales + 1) * count * r.least_exp * (large + o) +
                      count * r.least_p * (r.sums_rounded_p ? far : large) + 2 * (count + 2 * rescales) * r.least;
  double error = quotient + lost / row_sum + r.least + flush;
  const double unit_o = unit_of(f.dtype);
  if (unit_o > r.unit) error += unit_o * (o + error);
  error += f.dtype == DType::f16 ? 0x1p-25 : f.dtype == DType::bf16 ? 0x1p-134 : 0x1p-150;

  double lse = std::max(std::log(most), -std::log(least)) + sums(0) / (1 - sums(0)) +
               ((rescales + 1) * count * r.least_exp + (r.sums_rounded_p ? count * r.least_p : 0)) / row_sum;
  const double log = std::abs(f.log_sum) + lse + worst;
  lse += r.log * (1 + log);
  lse += u * (std::abs(f.max + f.log_sum) + lse) + 3 * log2 * u * (std::abs(f.max) + log);
  if (r.unit < 0x1p-24) lse += 0x1p-24 * (std::abs(f.max + f.log_sum) + lse);
  return {error, lse + r.least};
}

void expect_formula(Row row, const Roundings& roundings, const char* what) {
  const Budget budget = row.budget(roundings);
  const Formula formula = formula_of(row, roundings);
  EXPECT_NEAR(budget.o[0] / formula.o, 1, 1e-5) << what;
  EXPECT_NEAR(budget.lse / formula.lse, 1, 1e-5) << what;
}

using Change = std::function<void(Roundings&)>;

TEST(Budget, IsTheFormulaOfThePage) {
  expect_formula(ordinary_row(), typical(), "plain");
  const std::pair<const char*, Change> changes[] = {
      {"one tile", [](Roundings& r) { r.tile_keys = 64; }},
      {"running sum", [](Roundings& r) { r.running_sum = true; }},
      {"splits", [](Roundings& r) { r.splits = 4; }},
      {"split", [](Roundings& r) { r.split = 0x1p-10; }},
      {"one lane", [](Roundings& r) { r.dot_lanes = 1; }},
      {"more lanes than dims", [](Roundings& r) { r.dot_lanes = 64; }},
      {"log2", [](Roundings& r) { r.log2_scores = true; }},
      {"P of bf16", [](Roundings& r) { r.unit_p = 0x1p-8; }},
      {"P of f16, summed rounded",
       [](Roundings& r) {
         r.unit_p = 0x1p-11;
         r.least_p = 0x1p-25;
         r.sums_rounded_p = true;
       }},
      {"a flush that matters", [](Roundings& r) { r.least = r.least_exp = 0x1p-30; }},
      {"double sums under float32 outputs", [](Roundings& r) { r.unit = 0x1p-53; }},
  };
  for (const auto& [what, change] : changes) {
    Roundings roundings = typical();
    change(roundings);
    expect_formula(ordinary_row(), roundings, what);
    Row capped = ordinary_row();
    capped.facts.softcap = 2;
    capped.uncapped = {0.3, -1.4, 4, 2.5, -0.5};
    capped.facts.dtype = DType::bf16;
    expect_formula(capped, roundings, what);
    Row biased = ordinary_row();
    biased.additive = {0, -2, 1000, 5, -0.25};
    biased.facts.first_key = 7;
    biased.facts.dtype = DType::f16;
    expect_formula(biased, roundings, what);
  }
}

TEST(Budget, OfOneKeyIsAFewRoundings) {
  Row row({2.5}, {6}, {3});
  row.facts.values_bound = 3;
  const Budget budget = row.budget(Roundings{});
  // One product, then l's sum, the reciprocal and the last product: the score cancels.
  EXPECT_NEAR(budget.o[0], 3 * 5 * 0x1p-24, 1e-3 * budget.o[0]);
  // (48 + 2) roundings of a score of size 3, one of the logarithm's argument, one of lse = 2.5; exp and log are exact.
  EXPECT_NEAR(budget.lse, (50 * 3 + 1 + 2.5) * 0x1p-24, 1e-2 * budget.lse);
}

TEST(Budget, NeverShrinksWhereAKernelDoesWorse) {
  const std::pair<const char*, Change> worse[] = {
      {"unit", [](Roundings& r) { r.unit *= 2; }},
      {"unit_p", [](Roundings& r) { r.unit_p = 0x1p-11; }},
      {"least_p", [](Roundings& r) { r.least_p = 0x1p-25; }},
      {"least", [](Roundings& r) { r.least = 0x1p-40; }},
      {"least_exp", [](Roundings& r) { r.least_exp = 0x1p-40; }},
      {"exp_constant", [](Roundings& r) { r.exp_constant *= 2; }},
      {"exp_slope", [](Roundings& r) { r.exp_slope *= 2; }},
      {"rescale", [](Roundings& r) { r.rescale *= 2; }},
      {"tanh", [](Roundings& r) { r.tanh *= 2; }},
      {"log", [](Roundings& r) { r.log *= 2; }},
      {"log2_scores", [](Roundings& r) { r.log2_scores = true; }},
      {"splits", [](Roundings& r) { r.splits = 3; }},
      {"running_sum", [](Roundings& r) { r.running_sum = true; }},
      {"split", [](Roundings& r) { r.split = 0x1p-16; }},
      {"dot_lanes", [](Roundings& r) { r.dot_lanes = 1; }},
  };
  Row row = ordinary_row();
  row.facts.softcap = 2;
  row.uncapped = {0.3, -1.4, 4, 2.5, -0.5};
  const Budget before = row.budget(typical());
  for (const auto& [what, change] : worse) {
    Roundings roundings = typical();
    change(roundings);
    const Budget after = row.budget(roundings);
    const bool only_lse = std::string(what) == "log",
               only_o = std::string(what) == "unit_p" || std::string(what) == "least_p";
    EXPECT_TRUE(only_lse ? after.o[0] == before.o[0] : after.o[0] > before.o[0]) << what;
    EXPECT_TRUE(only_o ? after.lse == before.lse : after.lse > before.lse) << what;
  }
  Roundings flushing = typical();
  flushing.flushes_inputs = true;
  row.facts.query_size = 1e35;
  const Budget kept = row.budget(typical());
  EXPECT_GT(row.budget(flushing).o[0], kept.o[0]);
}

TEST(Budget, OfARowWithoutKeysIsZero) {
  RowFacts facts;
  const std::vector<double> o(3, 0.0);
  facts.o = o;
  const Budget budget = budget_of(facts, typical());
  EXPECT_EQ(budget.o, std::vector<double>(3, 0.0));
  EXPECT_EQ(budget.o_probable, std::vector<double>(3, 0.0));
  EXPECT_EQ(budget.lse, 0);
  EXPECT_EQ(budget.o_overflow, std::vector<Overflow>(3, Overflow::never));
}

TEST(Budget, ProbableIsSmallerWhereSumsAreLong) {
  Row few({1, 2}, {3, 4}, {1, 2});
  Roundings roundings = typical();
  roundings.dot_lanes = 1;
  roundings.tile_keys = 1024;
  few.facts.head_dim = 20;  // 6 sqrt(22) > 22: nothing to gain
  EXPECT_EQ(few.budget(roundings).o_probable, few.budget(roundings).o);
  Row many(std::vector<double>(1000, 0.5), std::vector<double>(1000, 3), std::vector<double>(1000, 1));
  many.facts.head_dim = 256;
  const Budget budget = many.budget(roundings);
  EXPECT_LT(budget.o_probable[0], 0.5 * budget.o[0]);
  EXPECT_LT(budget.lse_probable, 0.5 * budget.lse);
}

TEST(Budget, OfHopelessScoresIsTheSpreadOfValues) {
  // Scores of 1e17 say nothing in float32: any weighted mean of the values may come out, and no other number.
  Row row({1e17, -1e17, 1e17 - 1e6}, {2e17, 2e17, 2e17}, {1, 5, 2});
  const Budget budget = row.budget(typical());
  EXPECT_GT(budget.o[0], 4);
  EXPECT_LT(budget.o[0], 4.001);
  EXPECT_GT(budget.lse, 1e10);
  EXPECT_LT(budget.lse, 1e13);
  EXPECT_EQ(budget.o_overflow[0], Overflow::never);
}

TEST(Budget, SaysWhereNothingFiniteIsPromised) {
  const auto overflow_of = [](double product, double value, DType dtype) {
    Row row({1, 1}, {product, 1}, {value, 1});
    row.facts.dtype = dtype;
    return row.budget(typical());
  };
  EXPECT_EQ(overflow_of(0x1p125, 1, DType::f32).o_overflow[0], Overflow::never);
  EXPECT_EQ(overflow_of(0x1p126, 1, DType::f32).o_overflow[0], Overflow::free);
  EXPECT_EQ(overflow_of(0x1p126, 1, DType::f32).lse_overflow, Overflow::free);
  EXPECT_EQ(overflow_of(0x1p126, 1, DType::f64).o_overflow[0], Overflow::never);
  EXPECT_EQ(overflow_of(1, 0x1.fp125, DType::f32).o_overflow[0], Overflow::never);
  EXPECT_EQ(overflow_of(1, 0x1p126, DType::f32).o_overflow[0], Overflow::free);
  EXPECT_EQ(overflow_of(1, 0x1p126, DType::f32).lse_overflow, Overflow::never);
  EXPECT_EQ(overflow_of(1, 65504, DType::f16).o_overflow[0], Overflow::never);
  Row row({1, 1}, {1, 1}, {65519.99, 65519.99});
  row.facts.dtype = DType::f16;
  EXPECT_EQ(row.budget(typical()).o_overflow[0], Overflow::outward);
}

TEST(Budget, IsANumberWhateverItIsGiven) {
  const double sizes[] = {0, 0x1p-1074, 1e-300, 1e-40, 1, 1e17, 1e38, 1e300, infinity};
  const double exponents[] = {-infinity, -1e300, -1e17, -800, -1, 0};
  for (const double product : sizes)
    for (const double value : sizes)
      for (const double x : exponents)
        for (const double unit : {0x1p-53, 0x1p-24, 0.25})
          for (const DType dtype : {DType::f64, DType::f32, DType::f16}) {
            Row row({0, 0}, {product, 1}, {std::min(value, 1e308), 0.5});
            row.x[1] = x;
            row.facts.max = std::min(product, 1e308);
            row.facts.dtype = dtype;
            row.facts.softcap = 1e30;
            row.uncapped = {-1e300, 5};
            row.additive = {1e300, 0};
            Roundings roundings = typical();
            roundings.unit = unit;
            roundings.flushes_inputs = true;
            for (const double bound : {infinity, 1e308}) {
              row.facts.values_bound = bound;
              const Budget budget = row.budget(roundings);
              for (const double b : {budget.o[0], budget.o_probable[0], budget.lse, budget.lse_probable})
                EXPECT_GE(b, 0) << product << " " << value << " " << x << " " << unit;  // false for NaN
            }
          }
}

TEST(DefaultRoundings, FollowTheDtype) {
  Problem problem;
  for (const auto& [dtype, unit, unit_p, least_p] :
       {std::tuple(DType::f64, 0x1p-53, 0.0, 0.0), std::tuple(DType::f32, 0x1p-23, 0.0, 0.0),
        std::tuple(DType::f16, 0x1p-23, 0x1p-11, 0x1p-25), std::tuple(DType::bf16, 0x1p-23, 0x1p-8, 0x1p-126)}) {
    problem.dtype = dtype;
    const Roundings roundings = default_roundings(problem);
    EXPECT_EQ(roundings.name, "default");
    EXPECT_EQ(roundings.unit, unit);
    EXPECT_EQ(roundings.unit_p, unit_p);
    EXPECT_EQ(roundings.least_p, least_p);
    EXPECT_EQ(roundings.tile_keys, 64);
  }
}

}  // namespace
}  // namespace fresnel::test
