// SPDX-License-Identifier: Apache-2.0
// How the oracle reads: any strides give the same bits, keys that nobody sees are not even looked at, offsets are
// 64-bit, and it neither depends on its executor nor on the caller's arithmetic.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "fresnel/executor.hpp"
#include "oracle/forward.hpp"
#include "oracle/sample.hpp"
#include "runtime/float_control.hpp"
#include "support/sparse.hpp"

namespace fresnel::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Truth truth_of(const Sample& sample) { return reference(sample.problem, sample.inputs()).value(); }

bool same_bits(const Truth& a, const Truth& b) {
  const auto same = [](const std::vector<double>& x, const std::vector<double>& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
  };
  return same(a.o, b.o) && same(a.lse, b.lse);
}

void place(HostTensor& tensor, const Placement& placement) {
  HostTensor placed(tensor.dtype(), {tensor.size(0), tensor.size(1), tensor.size(2), tensor.size(3)}, placement);
  placed.fill([&](const Index& at) { return tensor.get(at); });
  tensor = std::move(placed);
}

TEST(Strides, ChangeNoBit) {
  for (const char* dtype : {"f64", "f32", "f16", "bf16"}) {
    const Sample dense = normal_sample("b2 h4/2 q5 k9 d11/3 " + std::string(dtype) + " causal");
    const Truth expected = truth_of(dense);
    for (const Placement& placement :
         {Placement{AxisOrder::bshd, 0, 0, {}, {}}, Placement{AxisOrder::bhsd, 1, 7, {}, {}},
          Placement{AxisOrder::bhsd, 0, 0, {true, true, true, false}, {}}}) {
      Sample sample = dense;
      for (HostTensor* tensor : {&sample.q, &sample.k, &sample.v}) place(*tensor, placement);
      EXPECT_TRUE(same_bits(truth_of(sample), expected)) << dtype;
    }
  }
}

TEST(Strides, OfZeroRepeatAnAxis) {
  Sample sample = normal_sample("b2 h4 q5 k9 d8 f32");
  for (HostTensor* tensor : {&sample.k, &sample.v})
    tensor->fill([&](const Index& at) { return tensor->get({at[0], 0, at[2], at[3]}); });
  const Truth expected = truth_of(sample);
  for (HostTensor* tensor : {&sample.k, &sample.v})
    place(*tensor, {AxisOrder::bhsd, 0, 0, {}, {false, true, false, false}});
  EXPECT_EQ(sample.k.view().strides[1], 0);
  EXPECT_TRUE(same_bits(truth_of(sample), expected));
}

TEST(HiddenKeys, ChangeNoBitWhateverTheyHold) {
  for (const char* options : {"lens", "causal topleft", "w3,2"}) {
    Sample sample = normal_sample("b1 h2 q6 k40 d8 f32 " + std::string(options));
    if (sample.lengths) sample.lengths->fill([](const Index&) { return 17; });
    std::int64_t first = 40, last = 0;
    for (std::int64_t i = 0; i < 6; ++i) {
      const KeyRange seen = mask_of(sample.problem, sample.lengths ? 17 : 40).range(i);
      first = std::min(first, seen.first);
      last = std::max(last, seen.last);
    }
    const Truth expected = truth_of(sample);
    for (const double junk : {0.0, nan, infinity, 3e38}) {
      for (HostTensor* tensor : {&sample.k, &sample.v})
        tensor->fill([&](const Index& at) { return at[2] >= first && at[2] < last ? tensor->get(at) : junk; });
      EXPECT_TRUE(same_bits(truth_of(sample), expected)) << options << " " << junk;
    }
    EXPECT_TRUE(first > 0 || last < 40) << options;
  }
}

TEST(HiddenKeys, OfOneRowReachOnlyTheRowsThatSeeThem) {
  Sample sample = normal_sample("b1 h1 q6 k6 d4 f32 causal");
  const Truth expected = truth_of(sample);
  sample.k.set({0, 0, 4, 1}, nan);
  sample.v.set({0, 0, 3, 2}, infinity);
  const Truth touched = truth_of(sample);
  for (std::size_t i = 0; i < 6; ++i)
    for (std::size_t d = 0; d < 4; ++d) {
      const double before = expected.o[i * 4 + d], after = touched.o[i * 4 + d];
      if (i >= 4 || (i == 3 && d == 2)) {
        EXPECT_FALSE(std::isfinite(after)) << i << " " << d;
      } else {
        EXPECT_EQ(before, after) << i << " " << d;
      }
    }
}

TEST(HiddenKeys, AreNotRead) {
  // 2^31 keys of which 3 exist: any other page faults. Strides beyond 32 bits come with it.
  constexpr std::int64_t keys = std::int64_t{1} << 31, width = 4;
  const SparseRegion k_region(keys * width * sizeof(float)), v_region(keys * width * sizeof(float));
  Sample sample("b1 h1 q2 k3 d4 f32 lens");
  sample.q.fill([](const Index& at) { return static_cast<double>(at[3]); });
  sample.lengths->fill([](const Index&) { return 3; });
  Inputs inputs = sample.inputs();
  for (const auto& [view, region] : {std::pair(&inputs.k, &k_region), std::pair(&inputs.v, &v_region)}) {
    region->open(0, 3 * width * sizeof(float));
    auto* numbers = reinterpret_cast<float*>(region->at(0));
    for (int at = 0; at < 12; ++at) numbers[at] = static_cast<float>(at % 5);
    *view = View{numbers, DType::f32, {1, 1, keys, width}};
  }
  Problem problem = sample.problem;
  problem.keys = keys;
  for (const bool causal : {false, true}) {
    problem.options.causal = causal;
    const Result<Truth> truth = reference(problem, inputs);
    ASSERT_TRUE(truth.ok()) << truth.refusal().message();
    EXPECT_TRUE(std::isfinite(truth->lse[1]));
  }
  // The last key of 2^31, and only it, seen through a window: offsets beyond 2^33 bytes.
  problem.seqlens_k = false;
  inputs.seqlens_k.reset();
  problem.options.causal = true;
  problem.options.window_size_left = 0;
  const std::int64_t tail = (keys - 2) * width * static_cast<std::int64_t>(sizeof(float));
  for (const SparseRegion* region : {&k_region, &v_region}) region->open(tail, 2 * width * sizeof(float));
  reinterpret_cast<float*>(v_region.at(tail))[width + 1] = 42;
  const Result<Truth> last = reference(problem, inputs);
  ASSERT_TRUE(last.ok()) << last.refusal().message();
  EXPECT_EQ(last->o[5], 42);
}

TEST(Oracle, GivesTheSameBitsOnAnyExecutorAndInAnyArithmetic) {
  Sample sample = normal_sample("b2 h4/2 q7 k50 d24 f32 causal alibi");
  sample.q.set({0, 1, 6, 0}, 1e-42);
  const Truth expected = truth_of(sample);
  for (const int threads : {1, 2, 7}) {
    const auto executor = make_executor(threads);
    EXPECT_TRUE(same_bits(reference(sample.problem, sample.inputs(), executor.get()).value(), expected));
  }
  const std::uint64_t control = float_control();
  std::fesetround(FE_TOWARDZERO);
  const Truth truncated = truth_of(sample);
  std::fesetround(FE_TONEAREST);
  EXPECT_TRUE(same_bits(truncated, expected));
#if defined(__x86_64__)
  set_float_control(control | 0x8040u);
  const Truth flushed = truth_of(sample);
  set_float_control(control);
  EXPECT_TRUE(same_bits(flushed, expected));
#endif
}

TEST(Oracle, WeightsOfOneRow) {
  const Sample sample = normal_sample("b2 h4/2 q5 k9 d8 f32 causal cap3 alibi");
  const Truth truth = truth_of(sample);
  const TrueWeights row = reference_row(sample.problem, sample.inputs(), 1, 3, 2).value();
  EXPECT_EQ(row.keys, (KeyRange{0, 7}));
  double sum = 0;
  std::vector<double> o(8);
  for (std::size_t key = 0; key < row.weights.size(); ++key) {
    sum += row.weights[key];
    EXPECT_NEAR(std::exp(row.scores[key] - row.lse), row.weights[key], 1e-14);
    for (std::size_t d = 0; d < 8; ++d)
      o[d] += row.weights[key] * sample.v.get({1, 1, static_cast<std::int64_t>(key), static_cast<std::int64_t>(d)});
  }
  EXPECT_NEAR(sum, 1, 1e-14);
  for (std::size_t d = 0; d < 8; ++d) EXPECT_NEAR(o[d], truth.o[((1 * 4 + 3) * 5 + 2) * 8 + d], 1e-14);
  EXPECT_EQ(row.lse, truth.lse[(1 * 4 + 3) * 5 + 2]);

  EXPECT_EQ(reference_row(sample.problem, sample.inputs(), 2, 0, 0).refusal().argument, "batch");
  EXPECT_EQ(reference_row(sample.problem, sample.inputs(), 0, -1, 0).refusal().argument, "head");
  EXPECT_EQ(reference_row(sample.problem, sample.inputs(), 0, 0, 5).refusal().argument, "query");
}

TEST(Oracle, RefusesWhatIsNotTheProblem) {
  const Sample sample = normal_sample("b2 h4/2 q5 k9 d8/4 f32 alibi");
  const auto argument = [&](const Problem& problem, const Inputs& inputs) -> std::string {
    const Result<Truth> truth = reference(problem, inputs);
    return truth ? "nothing" : truth.refusal().argument;
  };
  EXPECT_EQ(argument(sample.problem, sample.inputs()), "nothing");
  Inputs inputs = sample.inputs();
  inputs.q.sizes[1] = 3;
  EXPECT_EQ(argument(sample.problem, inputs), "q");
  inputs = sample.inputs();
  inputs.v.dtype = DType::f16;
  EXPECT_EQ(argument(sample.problem, inputs), "v");
  inputs = sample.inputs();
  inputs.k.data = nullptr;
  EXPECT_EQ(argument(sample.problem, inputs), "k");
  inputs = sample.inputs();
  inputs.alibi_slopes.reset();
  EXPECT_EQ(argument(sample.problem, inputs), "alibi_slopes");
  Problem problem = sample.problem;
  problem.options.softcap = 0;
  EXPECT_EQ(argument(problem, sample.inputs()), "softcap");
}

}  // namespace
}  // namespace fresnel::test
