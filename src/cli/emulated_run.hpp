// SPDX-License-Identifier: Apache-2.0
// One run of an emulated kernel: inputs from a seed, float32 arithmetic on the emulated machine, and the judge's
// verdict on what it computed. A count is worth what the kernel is worth that was counted.
#pragma once

#include <cstdint>
#include <vector>

#include "fresnel/check.hpp"
#include "traffic/emulate.hpp"

namespace fresnel::cli {

class EmulatedRun {
 public:
  /// Outputs are full of NaN before the run; a backward is given the o and lse of a fused run. `idle_barrier`: see
  /// traffic::run.
  [[nodiscard]] static Result<EmulatedRun> make(traffic::Kind kind, const traffic::Shape& shape, std::uint64_t seed = 1,
                                                traffic::Count idle_barrier = 0);

  traffic::Emulation emulation;
  std::vector<float> q, k, v, o, lse, dout, dq, dk, dv;  ///< packed [B, H, S, width]
  /// Of a paged run: K and V in blocks out of order, and where they are. Block 0 is nobody's; it and what a last page
  /// leaves unused hold NaN.
  std::vector<float> k_pool, v_pool, block_table;

  /// Every output against the oracle and the budget of what the kernel rounds.
  [[nodiscard]] Result<Verdict> judged() const;

 private:
  EmulatedRun(traffic::Kind kind, const traffic::Shape& shape) : kind_(kind), shape_(shape) {}
  void fill_pools();
  void run(traffic::Count idle_barrier);

  traffic::Kind kind_;
  traffic::Shape shape_;
};

}  // namespace fresnel::cli
