// SPDX-License-Identifier: Apache-2.0
// Numbers to judge kernels on: independent normal ones, and the inputs that break simpler error bounds. Each
// adversarial sample names the formula it is aimed at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checker/simulated_kernel.hpp"

namespace fresnel::test {

struct NamedSample {
  std::string name;
  Sample sample;
};

/// Random problems of every option, small.
[[nodiscard]] std::vector<NamedSample> random_samples(DType dtype);

/// Scores of 1e17, underflowing products, tight caps, values near overflow and near the subnormals, biases of 1e5, ...
[[nodiscard]] std::vector<NamedSample> adversarial_samples(DType dtype);

/// Sums and scores that leave the accumulator's range, where nothing finite is promised.
[[nodiscard]] std::vector<NamedSample> overflowing_samples(DType dtype);

/// 131,072 keys.
[[nodiscard]] std::vector<NamedSample> long_samples(DType dtype);

}  // namespace fresnel::test
