// SPDX-License-Identifier: Apache-2.0
// A problem with its numbers, owned by a test: what oracle, budget and checker are tried on. Numbers are rounded to the
// problem's dtype when they are stored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fresnel/plan.hpp"
#include "support/host_tensor.hpp"

namespace fresnel::test {

struct Sample {
  Problem problem;
  HostTensor q, k, v;
  std::optional<HostTensor> slopes, lengths;

  /// Unset numbers (NaN) for a line of the problem grammar.
  explicit Sample(const std::string& line);
  [[nodiscard]] Inputs inputs() const;
};

/// Reproducible numbers: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed) {}
  /// Uniform in [0, 1).
  double uniform();
  /// Standard normal (Box and Muller, 1958).
  double normal();
  /// +1 or -1.
  double sign() { return uniform() < 0.5 ? -1 : 1; }

 private:
  std::uint64_t state_;
};

/// q, k and v standard normal, slopes in (0, 1/4], lengths anywhere from 0 to Sk.
[[nodiscard]] Sample normal_sample(const std::string& line, std::uint64_t seed = 1);

}  // namespace fresnel::test
