// SPDX-License-Identifier: Apache-2.0
// Samples and the numbers that fill them: see sample.hpp.
#include "oracle/sample.hpp"

#include <cmath>

namespace fresnel::test {

Sample::Sample(const std::string& line)
    : problem(parse_problem(line).value()),
      q(problem.dtype, {problem.batch, problem.heads_q, problem.queries, problem.head_dim}),
      k(problem.dtype, {problem.batch, problem.heads_kv, problem.keys, problem.head_dim}),
      v(problem.dtype, {problem.batch, problem.heads_kv, problem.keys, problem.value_dim}) {
  if (problem.alibi_slopes == AlibiSlopes::per_head) slopes.emplace(DType::f32, std::vector{problem.heads_q});
  if (problem.alibi_slopes == AlibiSlopes::per_batch_and_head)
    slopes.emplace(DType::f32, std::vector{problem.batch, problem.heads_q});
  if (problem.seqlens_k) lengths.emplace(DType::i32, std::vector{problem.batch});
}

Inputs Sample::inputs() const {
  Inputs inputs{q.view(), k.view(), v.view(), {}, {}};
  if (slopes) inputs.alibi_slopes = slopes->view();
  if (lengths) inputs.seqlens_k = lengths->view();
  return inputs;
}

double Numbers::uniform() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t word = state_;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((word ^ (word >> 31)) >> 11) * 0x1p-53;
}

double Numbers::normal() {
  const double radius = std::sqrt(-2 * std::log1p(-uniform()));
  return radius * std::cos(6.283185307179586 * uniform());
}

Sample normal_sample(const std::string& line, std::uint64_t seed) {
  Sample sample(line);
  Numbers numbers(seed);
  for (HostTensor* tensor : {&sample.q, &sample.k, &sample.v})
    tensor->fill([&](const Index&) { return numbers.normal(); });
  if (sample.slopes) sample.slopes->fill([&](const Index&) { return 0.25 * (1 - numbers.uniform()); });
  if (sample.lengths)
    sample.lengths->fill(
        [&](const Index&) { return std::floor(numbers.uniform() * static_cast<double>(sample.problem.keys + 1)); });
  return sample;
}

}  // namespace fresnel::test
