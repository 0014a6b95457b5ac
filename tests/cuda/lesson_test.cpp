// SPDX-License-Identifier: Apache-2.0
// The lesson's CUDA kernels against the oracle, each output poisoned before: right where they should be, and the
// control wrong wherever a row spans more than one tile. Skipped with the device's own reason where there is no GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "fresnel/check.hpp"
#include "inputs/inputs.hpp"
#include "kernels/cuda/lesson.hpp"
#include "runtime/cuda/device.hpp"

namespace fresnel::test {
namespace {

using cuda::DeviceBuffer;
using cuda::Lesson;

void must(const Status& status) {
  if (!status) throw Error(status.refusal());
}

Problem square(std::int64_t n, std::int64_t width) {
  Problem problem;
  problem.queries = problem.keys = n;
  problem.head_dim = problem.value_dim = width;
  return problem;
}

std::vector<float> packed(const View& view) {
  const auto* const data = static_cast<const float*>(view.data);
  std::vector<float> values;
  for (std::int64_t s = 0; s < view.sizes[2]; ++s)
    for (std::int64_t d = 0; d < view.sizes[3]; ++d) values.push_back(data[s * view.strides[2] + d * view.strides[3]]);
  return values;
}

DeviceBuffer on_device(const std::vector<float>& values) {
  DeviceBuffer buffer = std::move(DeviceBuffer::allocate(values.size() * sizeof(float)).value());
  must(buffer.upload(std::as_bytes(std::span(values))));
  return buffer;
}

/// What the device computes for generated inputs.
struct Trial {
  Problem problem;
  std::vector<float> q, k, v, o;

  Trial(Lesson kind, std::int64_t n, std::int64_t width, const char* inputs, std::uint64_t seed)
      : problem(square(n, width)) {
    const GeneratedInputs generated = make_inputs(problem, inputs, seed).value();
    const Inputs given = generated.inputs();
    q = packed(given.q), k = packed(given.k), v = packed(given.v);
    const DeviceBuffer dq = on_device(q), dk = on_device(k), dv = on_device(v);
    o.resize(q.size());
    DeviceBuffer out = std::move(DeviceBuffer::allocate(o.size() * sizeof(float)).value());
    DeviceBuffer scores = std::move(DeviceBuffer::allocate(static_cast<std::size_t>(n * n) * sizeof(float)).value());
    must(out.fill(0xff));
    must(scores.fill(0xff));
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(width)));
    must(cuda::launch_lesson(kind,
                             {dq.floats(), dk.floats(), dv.floats(), out.floats(), scores.floats(), n, width, scale}));
    must(cuda::synchronize("lesson"));
    must(out.download(std::as_writable_bytes(std::span(o))));
  }

  [[nodiscard]] Verdict judged() {
    const auto view = [&](const std::vector<float>& values) {
      return View(values.data(), DType::f32, {1, 1, problem.queries, problem.head_dim});
    };
    Roundings roundings;
    roundings.name = "cuda.lesson";
    roundings.exp_constant = 4 * 0x1p-24;  // expf: 2 units in the last place (CUDA C++ Programming Guide)
    roundings.exp_slope = 0x1p-24;
    roundings.rescale = roundings.exp_constant;
    roundings.least_exp = 0x1p-126;
    roundings.tile_keys = 16;
    const Outputs outputs{MutableView(o.data(), DType::f32, {1, 1, problem.queries, problem.head_dim}), {}};
    return check(problem, {view(q), view(k), view(v), {}, {}}, outputs, roundings).value();
  }
};

class CudaLesson : public testing::Test {
 protected:
  void SetUp() override {
    const auto device = cuda::use_device();
    if (!device) GTEST_SKIP() << "no GPU: " << device.refusal().message();
  }
};

TEST_F(CudaLesson, ComputesAttentionAtEveryLength) {
  for (const std::int64_t width : {16, 64})
    for (const std::int64_t n : {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 512, 1000, 1024, 2049})
      for (const Lesson kind : {Lesson::unfused, Lesson::fused}) {
        Trial trial(kind, n, width, n % 2 == 0 ? "normal" : "large", static_cast<std::uint64_t>(n));
        const Verdict verdict = trial.judged();
        EXPECT_TRUE(verdict.ok()) << "width " << width << ", n " << n << ", kind " << static_cast<int>(kind) << ": "
                                  << verdict.o.max_share << " of the budget";
        EXPECT_EQ(verdict.o.count, n * width);
      }
}

TEST_F(CudaLesson, TheForgottenRescaleIsCaught) {
  for (const std::int64_t width : {16, 64}) {
    EXPECT_FALSE(Trial(Lesson::broken, 1024, width, "normal", 1).judged().ok()) << "width " << width;
    EXPECT_TRUE(Trial(Lesson::broken, 16, width, "normal", 1).judged().ok()) << "one chunk needs no rescale";
  }
}

TEST_F(CudaLesson, SameBitsFromRunToRun) {
  for (const Lesson kind : {Lesson::unfused, Lesson::fused})
    EXPECT_EQ(Trial(kind, 777, 64, "normal", 3).o, Trial(kind, 777, 64, "normal", 3).o);
}

TEST(CudaLessonCalls, WhatItCannotDoIsRefused) {
  const auto refused = [](std::int64_t n, std::int64_t width) {
    const Status status =
        cuda::launch_lesson(Lesson::unfused, {nullptr, nullptr, nullptr, nullptr, nullptr, n, width, 1});
    return status ? std::string() : status.refusal().argument;
  };
  EXPECT_EQ(refused(0, 16), "n");
  EXPECT_EQ(refused(16385, 16), "n");
  EXPECT_EQ(refused(64, 32), "width");
  EXPECT_EQ(refused(64, 64), "scores");
}

}  // namespace
}  // namespace fresnel::test
