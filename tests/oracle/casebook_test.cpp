// SPDX-License-Identifier: Apache-2.0
// Reports of what goes wrong in attention, each shrunk to an input whose answer is known by hand. The oracle is asked
// in every dtype that holds the numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "oracle/forward.hpp"
#include "oracle/sample.hpp"

namespace fresnel::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const double ln2 = std::log(2.0), ln3 = std::log(3.0);

using Value = std::function<double(const Index&)>;
Value all(double value) {
  return [=](const Index&) { return value; };
}
/// v_j = values[j], in every column.
Value rows(std::vector<double> values) {
  return [=](const Index& at) { return values[static_cast<std::size_t>(at[2])]; };
}

Truth truth_of(const std::string& line, const Value& q, const Value& k, const Value& v,
               const std::function<void(Sample&)>& change = {}) {
  Sample sample(line);
  sample.q.fill(q);
  sample.k.fill(k);
  sample.v.fill(v);
  if (sample.slopes) sample.slopes->fill(all(1));
  if (change) change(sample);
  return reference(sample.problem, sample.inputs()).value();
}

void expect_near(const std::vector<double>& given, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(given.size(), expected.size());
  for (std::size_t at = 0; at < given.size(); ++at) {
    if (std::isfinite(expected[at])) {
      EXPECT_NEAR(given[at], expected[at], tolerance) << at;
    } else {
      EXPECT_EQ(given[at], expected[at]) << at;
    }
  }
}

TEST(Casebook, MoreQueriesThanKeysUnderCausalSeeNothing) {  // 22
  for (const char* dtype : {"f64", "f32", "f16", "bf16"}) {
    const Truth truth = truth_of("b1 h1 q5 k2 d1 " + std::string(dtype) + " causal", all(0), all(0), rows({0, 1}));
    expect_near(truth.o, {0, 0, 0, 0, 0.5}, 0);
    expect_near(truth.lse, {-infinity, -infinity, -infinity, 0, ln2}, 1e-15);
  }
}

TEST(Casebook, AWindowBoundOfZeroIsABound) {  // 25
  const Truth truth = truth_of("b1 h1 q4 k4 d1 f32 w0,0 scale1", all(2), rows({1, 2, 3, 4}), rows({5, 6, 7, 8}));
  expect_near(truth.o, {5, 6, 7, 8}, 0);
  expect_near(truth.lse, {2, 4, 6, 8}, 1e-15);
}

TEST(Casebook, AHugeWindowIsNotClampedToTheKeys) {  // 26
  for (const char* right : {"2147483647", "9223372036854775806", "-"}) {
    const Truth truth =
        truth_of("b1 h1 q5 k2 d1 f32 w9223372036854775806," + std::string(right), all(0), all(0), rows({0, 1}));
    expect_near(truth.o, {0.5, 0.5, 0.5, 0.5, 0.5}, 0);
    expect_near(truth.lse, {ln2, ln2, ln2, ln2, ln2}, 1e-15);
  }
}

TEST(Casebook, AWindowWithMoreQueriesThanKeysLeavesRowsEmpty) {  // 28
  const Truth truth = truth_of("b1 h1 q5 k2 d1 f32 w1,1", all(0), all(0), rows({0, 1}));
  expect_near(truth.o, {0, 0, 0, 0.5, 0.5}, 0);
  expect_near(truth.lse, {-infinity, -infinity, 0, ln2, ln2}, 1e-15);
}

TEST(Casebook, ScoresFarBelowZeroAreOrdinary) {  // 34, 35
  const Truth truth = truth_of(
      "b1 h1 q1 k128 d64 f32 scale0.125", [](const Index& at) { return at[3] == 0 ? 1 : 0; },
      [](const Index& at) { return at[3] == 0 ? -960 : 0; }, all(3));
  expect_near(truth.lse, {-120 + std::log(128.0)}, 1e-13);
  EXPECT_NEAR(truth.lse[0], -115.148, 5e-4);
  for (const double o : truth.o) EXPECT_NEAR(o, 3, 1e-14);
}

TEST(Casebook, AHalfPrecisionSumOfValuesWouldOverflow) {  // 37
  expect_near(truth_of("b1 h1 q1 k8 d1 f16", all(1), all(1), all(60000)).o, {60000}, 1e-10);
}

TEST(Casebook, AHalfPrecisionDotProductWouldOverflow) {  // 38
  const Truth truth = truth_of("b1 h1 q1 k4 d128/1 f16", all(256), all(256), rows({1, 2, 3, 6}));
  expect_near(truth.o, {3}, 1e-14);
  EXPECT_NEAR(truth.lse[0], 256 * 256 * 128 / std::sqrt(128.0) + std::log(4.0), 1e-9);
  EXPECT_NEAR(truth.lse[0], 741455, 2);
}

double q43(const Index& at) { return 0.1 * static_cast<double>(2 * at[2] + at[3] + 1); }
double k43(const Index& at) { return 0.1 * static_cast<double>(2 * at[2] + at[3] + 7); }
double v43(const Index& at) { return static_cast<double>(2 * at[2] + at[3] + 1); }

TEST(Casebook, ANegativeScale) {  // 43
  const Truth truth = truth_of("b1 h1 q3 k3 d2 f64 causal scale-0.7071067811865476", q43, k43, v43);
  expect_near(truth.o, {1, 2, 1.9505429, 2.9505429, 2.7934142, 3.7934142}, 6e-8);
  expect_near(truth.lse, {-0.1626346, 0.2701076, 0.3642006}, 6e-8);
}

TEST(Casebook, AScaleOfZero) {  // 44
  const Truth truth = truth_of("b1 h1 q3 k3 d2 f64 causal scale0", q43, k43, v43);
  expect_near(truth.o, {1, 2, 2, 3, 3, 4}, 1e-15);
  expect_near(truth.lse, {0, ln2, ln3}, 1e-15);
}

TEST(Casebook, LseIsNatural) {  // 46
  expect_near(truth_of("b1 h1 q1 k8 d1 f32", all(0), all(0), all(1)).lse, {2.0794415}, 5e-8);
}

TEST(Casebook, LseOfARowWithoutKeysIsMinusInfinity) {  // 47
  const Truth none = truth_of("b1 h1 q2 k0 d3 f32", all(1), all(1), all(1));
  expect_near(none.o, {0, 0, 0, 0, 0, 0}, 0);
  expect_near(none.lse, {-infinity, -infinity}, 0);
  const Truth hidden =
      truth_of("b1 h1 q2 k4 d1 f32 lens", all(1), all(1), all(1), [](Sample& sample) { sample.lengths->fill(all(0)); });
  expect_near(hidden.o, {0, 0}, 0);
  expect_near(hidden.lse, {-infinity, -infinity}, 0);
}

TEST(Casebook, AlibiUnderCausalInEitherForm) {  // 52
  for (const char* form : {"alibi", "alibi:distance"}) {
    const Truth truth = truth_of("b1 h1 q3 k3 d1 f32 causal " + std::string(form), all(0), all(0), rows({0, 1, 2}));
    expect_near(truth.o, {0, 0.7310586, 1.5752104}, 5e-8);
    // Measured from the query, not from key 0: the absolute form would be larger by the query's position.
    expect_near(truth.lse, {0, 0.3132617, 0.4076060}, 5e-8);
  }
}

TEST(Casebook, AlibiWithoutCausal) {  // 53
  const Truth distance = truth_of("b1 h1 q3 k3 d1 f32 alibi:distance", all(0), all(0), rows({0, 1, 2}));
  expect_near(distance.o, {0.4247896, 1, 1.5752104}, 5e-8);
  expect_near(distance.lse, {0.4076060, 0.5514447, 0.4076060}, 5e-8);
  // The relative form differs only in rows that see keys after the query.
  const double l = 1 + std::exp(1.0) + std::exp(2.0);
  const Truth relative = truth_of("b1 h1 q3 k3 d1 f32 alibi", all(0), all(0), rows({0, 1, 2}));
  expect_near(relative.o, std::vector<double>(3, (std::exp(1.0) + 2 * std::exp(2.0)) / l), 1e-14);
  expect_near(relative.lse, {std::log(l), std::log(l) - 1, std::log(l) - 2}, 1e-14);
}

TEST(Casebook, AlibiCountsFromTheDiagonalOfEachSequence) {  // 53, Sq != Sk and lengths
  const Truth truth = truth_of("b2 h1 q1 k4 d1 f32 alibi lens", all(0), all(0), rows({1, 2, 3, 4}), [](Sample& sample) {
    sample.lengths->fill([](const Index& at) { return at[0] ? 2 : 4; });
  });
  const double e = std::exp(1.0);
  expect_near(truth.lse, {std::log(1 + 1 / e + 1 / (e * e) + 1 / (e * e * e)), std::log(1 + 1 / e)}, 1e-14);
  EXPECT_NEAR(truth.o[1], (2 + 1 / e) / (1 + 1 / e), 1e-14);
}

TEST(Casebook, ScoresOf1e17AreOneHot) {  // 56
  const Truth truth = truth_of(
      "b1 h1 q1 k3 d1 f32 scale1", all(5e8), [](const Index& at) { return at[2] == 1 ? 5e8 : -5e8; }, rows({7, 8, 9}));
  expect_near(truth.o, {8}, 0);
  expect_near(truth.lse, {2.5e17}, 64);
}

TEST(Casebook, EmptyAxes) {  // 62
  for (const char* line : {"b0 h2 q3 k4 d5 f32", "b2 h0 q3 k4 d5 f32", "b2 h2 q0 k4 d5 f32"}) {
    const Truth truth = truth_of(line, all(1), all(1), all(1));
    EXPECT_TRUE(truth.o.empty()) << line;
    EXPECT_TRUE(truth.lse.empty()) << line;
  }
}

TEST(Casebook, EveryDimensionCounts) {  // 64
  for (const std::int64_t dims : {1, 2, 7, 8, 33, 63, 64, 65, 80, 96, 128, 192, 256, 257, 512, 576}) {
    const auto last = [=](const Index& at) { return at[3] == dims - 1 ? 2.0 : 0.0; };
    const Truth truth = truth_of(
        "b1 h1 q1 k2 d" + std::to_string(dims) + "/1 f32 scale1", last,
        [=](const Index& at) { return at[2] * last(at); }, rows({0, 1}));
    EXPECT_NEAR(truth.o[0], 1 / (1 + std::exp(-4.0)), 1e-15) << dims;
  }
}

TEST(Casebook, TheTailOfATileDoesNotCount) {  // 17
  for (const char* options : {"cap1", "cap5", "cap50", ""}) {
    const Truth truth = truth_of("b1 h1 q1 k65 d4/1 f32 " + std::string(options), all(0), all(0), all(1));
    expect_near(truth.o, {1}, 1e-14);
    expect_near(truth.lse, {4.1743873}, 5e-8);
  }
}

TEST(Casebook, SoftcapComesBeforeTheMask) {  // 16
  const Truth truth = truth_of("b1 h1 q1 k2 d1 f32 cap1 lens", all(0), all(0), rows({1, 1000}),
                               [](Sample& sample) { sample.lengths->fill(all(1)); });
  expect_near(truth.o, {1}, 0);
}

TEST(Casebook, ValuesMayBeWiderOrNarrowerThanKeys) {  // 68
  for (const char* dims : {"d128/64", "d8/16", "d32/24", "d192/128", "d576/512", "d16/33"}) {
    Sample sample("b1 h1 q1 k2 " + std::string(dims) + " f32");
    const auto head_dim = static_cast<double>(sample.problem.head_dim);
    const Truth truth = truth_of(
        "b1 h1 q1 k2 " + std::string(dims) + " f32", all(1), [](const Index& at) { return at[2]; },
        [](const Index& at) { return static_cast<double>(at[2] * (at[3] + 1)); });
    ASSERT_EQ(truth.o.size(), static_cast<std::size_t>(sample.problem.value_dim)) << dims;
    const double weight = 1 / (1 + std::exp(-std::sqrt(head_dim)));  // the default scale is 1 / sqrt(D), not of Dv
    for (std::size_t d = 0; d < truth.o.size(); ++d)
      EXPECT_NEAR(truth.o[d], weight * static_cast<double>(d + 1), 1e-12) << dims;
  }
}

TEST(Casebook, BothWaysRoundOfUnequalLengths) {  // 67
  for (const char* line : {"b1 h1 q3 k11 d1 f32", "b1 h1 q11 k3 d1 f32"}) {
    Sample sample(line);
    const auto keys = static_cast<double>(sample.problem.keys);
    const Truth truth = truth_of(line, all(0), all(0), [](const Index& at) { return static_cast<double>(at[2]); });
    for (const double o : truth.o) EXPECT_NEAR(o, (keys - 1) / 2, 1e-14);
    for (const double lse : truth.lse) EXPECT_NEAR(lse, std::log(keys), 1e-14);
  }
}

TEST(Casebook, EveryRatioOfHeads) {  // 85: v = kv head, so a wrong head shows
  for (const auto& [heads_q, heads_kv] :
       {std::pair(6, 1), std::pair(12, 1), std::pair(9, 3), std::pair(7, 1), std::pair(40, 8)}) {
    const Truth truth =
        truth_of("b2 h" + std::to_string(heads_q) + "/" + std::to_string(heads_kv) + " q1 k2 d1 f32", all(0), all(0),
                 [](const Index& at) { return static_cast<double>(at[0] * 100 + at[1]); });
    for (int head = 0; head < 2 * heads_q; ++head)
      EXPECT_EQ(truth.o[static_cast<std::size_t>(head)], head / heads_q * 100 + head % heads_q / (heads_q / heads_kv));
  }
}

TEST(Casebook, MoreThan65535Heads) {  // 70
  for (const char* line : {"b65536 h1 q1 k1 d2 f32", "b1 h65536 q1 k1 d2 f32"}) {
    const Truth truth =
        truth_of(line, all(0), all(0), [](const Index& at) { return static_cast<double>(at[0] + at[1]); });
    EXPECT_EQ(truth.o[2 * 65535], 65535);
    EXPECT_EQ(truth.o[2 * 12345 + 1], 12345);
  }
}

TEST(Casebook, ALiveNanIsNotHidden) {  // 14
  const Truth truth = truth_of(
      "b1 h1 q2 k3 d1 f32", [](const Index& at) { return at[2] == 0 ? std::nan("") : 1; }, all(1), all(1));
  EXPECT_TRUE(std::isnan(truth.o[0]));
  EXPECT_FALSE(std::isfinite(truth.lse[0]));
  EXPECT_NEAR(truth.o[1], 1, 1e-15);
}

TEST(Casebook, EveryOptionActs) {  // 113
  const std::string shape = "b2 h2 q5 k9 d8 f32 ";
  const Truth plain = reference(normal_sample(shape).problem, normal_sample(shape).inputs()).value();
  for (const char* option :
       {"causal", "w3,1", "cap5", "cap50", "scale0.1", "alibi", "alibi:distance", "alibi:batch", "lens"}) {
    const Sample sample = normal_sample(shape + option);
    const Truth truth = reference(sample.problem, sample.inputs()).value();
    EXPECT_NE(truth.o, plain.o) << option;
    EXPECT_NE(truth.lse, plain.lse) << option;
  }
  const Sample left = normal_sample(shape + "causal topleft"), right = normal_sample(shape + "causal");
  EXPECT_NE(reference(left.problem, left.inputs())->lse, reference(right.problem, right.inputs())->lse);
}

}  // namespace
}  // namespace fresnel::test
