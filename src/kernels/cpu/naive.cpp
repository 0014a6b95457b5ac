// SPDX-License-Identifier: Apache-2.0
// cpu.naive: the honest unfused peer. One query row at a time, its scores materialised, vectorised along the head
// dimension, no reuse of K or V across queries. It promises every option and serves as the yardstick of cpu.flash.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/naive.cpp"
#include "hwy/foreach_target.h"
// clang-format off: foreach_target.h has to come first
#include "kernels/cpu/rows-inl.h"
// clang-format on
#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/isa.hpp"
#include "runtime/parallel.hpp"

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

template <class In>
void naive_row(const Launch& launch, std::int64_t batch, std::int64_t head, std::int64_t query, std::byte* scratch) {
  using T = Real<In>;
  const Problem& problem = launch.plan.problem;
  Carver carver(scratch);
  const NaiveScratch<T> s(carver, problem);
  const Mask mask = mask_of(problem, live_keys(problem, launch.inputs, batch));
  const KeyRange keys = mask.range(query);
  In* const out = rows_of<In>(launch.outputs.o, batch, head).row(query);
  if (keys.empty()) {
    for (std::int64_t column = 0; column < problem.value_dim; ++column) out[column] = from_real<In>(T(0));
    store_lse<T>(launch.outputs, batch, head, query, -std::numeric_limits<T>::infinity());
    return;
  }

  const std::int64_t kv_head = head / problem.group();
  const auto k = rows_of<In>(launch.inputs.k, batch, kv_head);
  const auto v = rows_of<In>(launch.inputs.v, batch, kv_head);
  load_query(rows_of<In>(launch.inputs.q, batch, head).row(query), problem.head_dim, padded_width(problem.head_dim),
             s.q);
  T m, l;
  const RowState<T> row{s.q, s.o, s.scores, &m, &l, keys, true};
  const auto rule = score_rule<T>(problem, launch.inputs, batch, head);
  whole_row<In>(problem, rule, keys.first - mask.position(query), launch.plan.tile.keys, k, v, row);
  store_row(s.o, l, problem.value_dim, out);
  store_lse<T>(launch.outputs, batch, head, query, log_sum_exp(m, l));
}

template <class In>
void naive(const Launch& launch) {
  const Plan& plan = launch.plan;
  const Problem& problem = plan.problem;
  const std::int64_t rows = problem.batch * problem.heads_q * problem.queries;
  parallel_for(launch.executor, plan.lanes, rows, [&](int lane, std::int64_t row) HWY_ATTR {
    const std::int64_t head = row / problem.queries;
    naive_row<In>(launch, head / problem.heads_q, head % problem.heads_q, row % problem.queries,
                  launch.workspace.data() + static_cast<std::size_t>(lane) * plan.lane_bytes);
  });
}

void naive_any(const Launch& launch) {
  switch (launch.plan.problem.dtype) {
    case DType::f64: return naive<double>(launch);
    case DType::f32: return naive<float>(launch);
    case DType::f16: return naive<Float16>(launch);
    default: return naive<BFloat16>(launch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fresnel::cpu {

HWY_EXPORT(naive_any);

void run_naive(const Launch& launch) { version_for(HWY_DISPATCH_TABLE(naive_any), launch.plan.isa)(launch); }

Tile naive_tile(const Problem&, const Machine&) { return {1, 64}; }

std::size_t naive_lane_bytes(const Problem& problem, const Tile&) {
  Carver carver(nullptr);
  if (problem.dtype == DType::f64) {
    NaiveScratch<double>(carver, problem);
  } else {
    NaiveScratch<float>(carver, problem);
  }
  return carver.used();
}

}  // namespace fresnel::cpu
#endif  // HWY_ONCE
