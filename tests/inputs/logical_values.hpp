// SPDX-License-Identifier: Apache-2.0
// Generated tensors read back as numbers, by logical index; and scores computed from them in double, straight from the
// written law, for asking whether a kind does what its line says.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fresnel/plan.hpp"
#include "inputs/inputs.hpp"
#include "runtime/half.hpp"

namespace fresnel::test {

inline Problem parsed(std::string_view line) { return parse_problem(line).value(); }

inline GeneratedInputs made(std::string_view line, std::string_view kind, std::uint64_t seed = 1) {
  return make_inputs(parsed(line), kind, seed).value();
}

/// Element [a, b, c, d] of a tensor of four axes.
inline double value_at(const View& view, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  return load_as_double(view.data, view.dtype,
                        a * view.strides[0] + b * view.strides[1] + c * view.strides[2] + d * view.strides[3]);
}

/// All elements in logical order.
inline std::vector<double> values_of(const View& view) {
  std::vector<double> values;
  for (std::int64_t a = 0; a < view.sizes[0]; ++a)
    for (std::int64_t b = 0; b < view.sizes[1]; ++b)
      for (std::int64_t c = 0; c < view.sizes[2]; ++c)
        for (std::int64_t d = 0; d < view.sizes[3]; ++d) values.push_back(value_at(view, a, b, c, d));
  return values;
}

/// softmax_scale * (q . k), before softcap, ALiBi and mask.
inline double score_of(const GeneratedInputs& data, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const Problem& problem = data.problem();
  const Inputs inputs = data.inputs();
  double sum = 0;
  for (std::int64_t d = 0; d < problem.head_dim; ++d)
    sum += value_at(inputs.q, b, h, i, d) * value_at(inputs.k, b, h / problem.group(), j, d);
  return problem.softmax_scale() * sum;
}

}  // namespace fresnel::test
