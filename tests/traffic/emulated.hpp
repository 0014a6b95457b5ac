// SPDX-License-Identifier: Apache-2.0
// One run of an emulated kernel on generated inputs: packed tensors, outputs full of NaN, and the judge's verdict.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fresnel/check.hpp"
#include "traffic/emulate.hpp"

namespace fresnel::test {

/// The problem of the lesson: one head, n queries and keys of width d in float32.
[[nodiscard]] Problem square(std::int64_t n, std::int64_t d, bool lse = false);

class Emulated {
 public:
  Emulated(traffic::Kind kind, const traffic::Shape& shape, std::uint64_t seed = 1, traffic::Count idle_barrier = 0);

  traffic::Emulation emulation;
  std::vector<float> q, k, v, o, lse, dout, dq, dk, dv;

  /// Against the oracle; of a backward the o and lse that it was given are exact to float32.
  [[nodiscard]] Verdict judged() const;

 private:
  traffic::Kind kind_;
  traffic::Shape shape_;
};

}  // namespace fresnel::test
