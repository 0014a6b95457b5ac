// SPDX-License-Identifier: Apache-2.0
// A call with gradients, owned by a test: inputs with dout, every output pre-filled with NaN between guards, and how it
// is judged. Shared by the tests of backward rows; it refuses to know which row runs.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fresnel/fresnel.hpp"
#include "oracle/sample.hpp"

namespace fresnel::test {

/// A call with dout: inputs, and every output pre-filled with NaN between guards.
struct Call {
  Sample sample;
  HostTensor dout, o, lse, dq, dk, dv;
  std::optional<HostTensor> dslopes;

  explicit Call(const std::string& line, std::uint64_t seed = 3)
      : sample(normal_sample(line, seed)),
        dout(like_o()),
        o(like_o()),
        lse(wide(), {sample.problem.batch, sample.problem.heads_q, sample.problem.queries}),
        dq(sample.problem.dtype,
           {sample.problem.batch, sample.problem.heads_q, sample.problem.queries, sample.problem.head_dim}),
        dk(like_key(sample.problem.head_dim)),
        dv(like_key(sample.problem.value_dim)) {
    Numbers numbers(seed + 100);
    dout.fill([&](const Index&) { return numbers.normal(); });
    if (sample.problem.alibi_slopes == AlibiSlopes::per_head)
      dslopes.emplace(wide(), std::vector{sample.problem.heads_q});
    if (sample.problem.alibi_slopes == AlibiSlopes::per_batch_and_head)
      dslopes.emplace(wide(), std::vector{sample.problem.batch, sample.problem.heads_q});
  }

  [[nodiscard]] DType wide() const { return sample.problem.dtype == DType::f64 ? DType::f64 : DType::f32; }
  [[nodiscard]] HostTensor like_o() const {
    const Problem& p = sample.problem;
    return {p.dtype, {p.batch, p.heads_q, p.queries, p.value_dim}, {.row_padding = 3}};
  }
  [[nodiscard]] HostTensor like_key(std::int64_t width) const {
    const Problem& p = sample.problem;
    return {p.dtype, {p.batch, p.heads_kv, p.keys, width}, {.order = AxisOrder::bshd}};
  }
  [[nodiscard]] Inputs inputs() const {
    Inputs inputs = sample.inputs();
    inputs.dout = dout.view();
    return inputs;
  }
  [[nodiscard]] Outputs outputs() {
    Outputs outputs{o.mutable_view(), lse.mutable_view(), dq.mutable_view(), dk.mutable_view(), dv.mutable_view(), {}};
    if (dslopes) outputs.dalibi_slopes = dslopes->mutable_view();
    return outputs;
  }
  [[nodiscard]] Result<Report> attend(Executor* executor = nullptr, const std::string& kernel = {}) {
    return fresnel::attend(sample.problem.options, inputs(), outputs(),
                           {.executor = executor, .workspace = {}, .options = {.kernel = kernel, .lanes = 0}});
  }
  [[nodiscard]] Result<Verdict> judged(const Report& report) {
    return check(report.plan.problem, inputs(), outputs(), roundings_of(report.plan), roundings_of(*report.backward));
  }
  [[nodiscard]] std::vector<const HostTensor*> gradients() const {
    std::vector<const HostTensor*> all{&dq, &dk, &dv};
    if (dslopes) all.push_back(&*dslopes);
    return all;
  }
  [[nodiscard]] std::vector<std::uint64_t> bits() const {
    std::vector<std::uint64_t> all;
    for (const HostTensor* tensor : gradients())
      tensor->for_each_index([&](const Index& at) { all.push_back(tensor->bits(at)); });
    return all;
  }
};

inline void expect_right(const std::optional<Judgement>& judgement, const HostTensor& tensor, const char* name) {
  ASSERT_TRUE(judgement.has_value()) << name;
  EXPECT_EQ(judgement->count, tensor.elements()) << name;
  EXPECT_EQ(judgement->mismatches, 0) << name << ": share " << judgement->max_share << " at "
                                      << print(Index(judgement->at));
  EXPECT_EQ(judgement->mismatches_probable, 0) << name << ": share " << judgement->max_share_probable;
  EXPECT_TRUE(tensor.guards_intact()) << name;
  testing::Test::RecordProperty(name, std::to_string(judgement->max_share));
}

/// The line with a dtype after its widths.
[[nodiscard]] inline std::string with_dtype(const std::string& line, const std::string& dtype) {
  const std::size_t widths = line.find(" d");
  const std::size_t end = line.find(' ', widths + 1);
  return end == std::string::npos ? line + " " + dtype : line.substr(0, end) + " " + dtype + line.substr(end);
}

}  // namespace fresnel::test
