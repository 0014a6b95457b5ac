// SPDX-License-Identifier: Apache-2.0
// Random valid problems for the property tests of this room, every field and corner included. Small extents and huge
// ones alike; nothing here is ever computed.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "fresnel/plan.hpp"

namespace fresnel::test {

class RandomProblems {
 public:
  explicit RandomProblems(std::uint64_t seed) : bits_(seed) {}

  Problem next() {
    Problem problem;
    problem.dtype = static_cast<DType>(below(4));
    problem.batch = extent();
    problem.heads_kv = 1 + below(8);
    problem.heads_q = problem.heads_kv * below(5);
    if (chance(16)) problem.heads_q = problem.heads_kv = 0;
    problem.queries = extent();
    problem.keys = extent();
    problem.head_dim = 1 + below(600);
    problem.value_dim = chance(2) ? problem.head_dim : 1 + below(600);
    options(problem);
    for (LayoutClass* layout : {&problem.q, &problem.k, &problem.v, &problem.o})
      *layout = {chance(2) ? AxisOrder::bshd : AxisOrder::bhsd, !chance(2)};
    if (chance(4)) problem.q = problem.k = problem.v = problem.o = {AxisOrder::bshd, false};
    problem.lse = chance(2);
    problem.grad = chance(4);
    return problem;
  }

 private:
  void options(Problem& problem) {
    Options& options = problem.options;
    options.causal = chance(2);
    if (chance(2)) options.alignment = Alignment::top_left;
    if (chance(2)) options.window_size_left = extent();
    if (chance(2)) options.window_size_right = chance(8) ? std::numeric_limits<std::int64_t>::max() : extent();
    if (chance(2)) options.softcap = std::fabs(number(problem.dtype));
    if (chance(2)) options.softmax_scale = chance(8) ? 0.0 : number(problem.dtype);
    if (chance(2)) {
      problem.alibi_slopes = chance(2) ? AlibiSlopes::per_head : AlibiSlopes::per_batch_and_head;
      options.alibi = chance(2) ? AlibiForm::relative : AlibiForm::distance;
    }
    problem.seqlens_k = chance(2);
  }

  std::int64_t extent() { return chance(8) ? 0 : chance(4) ? below(1 << 20) : below(300); }

  /// Any magnitude that the dtype's options may have, all digits in use.
  double number(DType dtype) {
    const int most = dtype == DType::f64 ? 1022 : 126;
    const int exponent = static_cast<int>(below(2 * most + 1)) - most;
    const double fraction = chance(4) ? 1.0 : 1.0 + std::ldexp(static_cast<double>(bits_() >> 12), -52);
    return std::ldexp(chance(2) ? fraction : -fraction, exponent);
  }

  bool chance(std::uint64_t one_in) { return bits_() % one_in == 0; }
  std::int64_t below(std::int64_t most) {
    return static_cast<std::int64_t>(bits_() % static_cast<std::uint64_t>(most));
  }

  std::mt19937_64 bits_;
};

}  // namespace fresnel::test
