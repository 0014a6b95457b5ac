// SPDX-License-Identifier: Apache-2.0
// THE table: every kernel with its contract, in order of preference. To add one, add a row here.
#include <algorithm>
#include <array>

#include "kernels/cost.hpp"
#include "kernels/cpu/cpu.hpp"
#include "kernels/kernel.hpp"

namespace fresnel {
namespace {

/// Everything the CPU rows honour: all of docs/semantics.md but the backward.
constexpr Domain cpu_domain = {
    .dtypes = {DType::f64, DType::f32, DType::f16, DType::bf16},
    .head_dim = {1, 576},
    .value_dim = {1, 576},
    .features = {Feature::causal, Feature::top_left, Feature::window, Feature::softcap, Feature::alibi,
                 Feature::seqlens_k, Feature::grouped_heads},
};

/// The backward: the same, where gradients are asked for.
constexpr Domain backward_domain = [] {
  Domain domain = cpu_domain;
  domain.features.bits |= Set<Feature>{Feature::grad}.bits;
  domain.required = {Feature::grad};
  return domain;
}();

/// No soft cap: its hyperbolic tangent would cost more than the tile unit gains.
constexpr Domain tile_domain = [] {
  Domain domain = cpu_domain;
  domain.dtypes = {DType::f16, DType::bf16};
  domain.head_dim = domain.value_dim = {1, 256};
  domain.keys = {0, std::int64_t{1} << 30};
  domain.features.bits &= ~Set<Feature>{Feature::softcap}.bits;
  return domain;
}();

/// Few queries do not repay packing K and V, three products for one less so.
constexpr Domain tile_preferred = [] {
  Domain domain = tile_domain;
  domain.dtypes = {DType::bf16};
  domain.queries.least = 9;
  domain.keys.least = 48;
  return domain;
}();

constexpr Domain split_tile_preferred = [] {
  Domain domain = tile_domain;
  domain.dtypes = {DType::f16};
  domain.queries.least = 64;
  domain.keys.least = 128;
  return domain;
}();

/// Few queries: what reading K and V costs is not hidden behind arithmetic. From about 16 queries on it is, and lanes
/// along queries are ahead.
constexpr Domain decode_domain = [] {
  Domain domain = cpu_domain;
  domain.queries = {0, 32};
  return domain;
}();

constexpr Domain decode_preferred = [] {
  Domain domain = decode_domain;
  domain.queries = {1, 8};
  domain.keys.least = 512;
  return domain;
}();

/// On the tile unit, whose products cost less than widening the keys for vectors. A single row has too little of them.
constexpr Domain tile_decode_domain = [] {
  Domain domain = decode_domain;
  domain.dtypes = {DType::bf16};
  domain.keys = {0, std::int64_t{1} << 30};
  return domain;
}();

constexpr Domain tile_decode_preferred = [] {
  Domain domain = tile_decode_domain;
  domain.queries = {1, 8};
  domain.keys.least = 256;
  domain.required = {Feature::grouped_heads};
  return domain;
}();

constexpr Domain tile_decode_preferred_ungrouped = [] {
  Domain domain = tile_decode_domain;
  domain.queries = {2, 8};
  domain.keys.least = 512;
  return domain;
}();

constexpr std::array rows = {
#if defined(__x86_64__)
    Kernel{
        .name = "cpu.amx_decode",
        .blurb = "few queries against many keys, both products on the tile unit (Intel AMX), K and V read as they lie",
        .device = Device::cpu,
        .domain = tile_decode_domain,
        .prefers = tile_decode_preferred,
        .prefers_also = tile_decode_preferred_ungrouped,
        .determinism = Determinism::bitwise,
        .tile = cpu::decode_tile,
        .needs_tile_unit = true,
        .lane_bytes = cpu::amx_decode_lane_bytes,
        .shared_bytes = cpu::decode_shared_bytes,
        .items = cpu::decode_items,
        .cost = forward_cost,
        .formulas = &forward_formulas,
        .roundings = cpu::amx_decode_roundings,
        .run = cpu::run_amx_decode,
    },
    Kernel{
        .name = "cpu.amx",
        .blurb = "tiled, online softmax, both products on the tile unit (Intel AMX); f16 as two parts",
        .device = Device::cpu,
        .domain = tile_domain,
        .prefers = tile_preferred,
        .prefers_also = split_tile_preferred,
        .determinism = Determinism::bitwise,
        .tile = cpu::amx_tile,
        .needs_tile_unit = true,
        .lane_bytes = cpu::amx_lane_bytes,
        .shared_bytes = cpu::amx_shared_bytes,
        .cost = forward_cost,
        .formulas = &forward_formulas,
        .roundings = cpu::amx_roundings,
        .run = cpu::run_amx,
    },
#endif
    Kernel{
        .name = "cpu.decode",
        .blurb = "few queries against many keys: K and V read once for all grouped queries, keys split over the cores",
        .device = Device::cpu,
        .domain = decode_domain,
        .prefers = decode_preferred,
        .determinism = Determinism::bitwise,
        .tile = cpu::decode_tile,
        .lane_bytes = cpu::decode_lane_bytes,
        .shared_bytes = cpu::decode_shared_bytes,
        .items = cpu::decode_items,
        .cost = forward_cost,
        .formulas = &forward_formulas,
        .roundings = cpu::decode_roundings,
        .run = cpu::run_decode,
    },
    Kernel{
        .name = "cpu.flash",
        .blurb = "tiled, online softmax, queries in vector lanes; never holds more than one tile of scores",
        .device = Device::cpu,
        .domain = cpu_domain,
        .prefers = cpu_domain,
        .determinism = Determinism::bitwise,
        .tile = cpu::flash_tile,
        .lane_bytes = cpu::flash_lane_bytes,
        .cost = forward_cost,
        .formulas = &forward_formulas,
        .roundings = cpu::flash_roundings,
        .run = cpu::run_flash,
    },
    Kernel{
        .name = "cpu.naive",
        .blurb = "one query row at a time, its scores materialised: the unfused peer",
        .device = Device::cpu,
        .domain = cpu_domain,
        .prefers = {},
        .determinism = Determinism::bitwise,
        .tile = cpu::naive_tile,
        .lane_bytes = cpu::naive_lane_bytes,
        .cost = forward_cost,
        .formulas = &forward_formulas,
        .roundings = cpu::naive_roundings,
        .run = cpu::run_naive,
    },
    Kernel{
        .name = "cpu.reference_backward",
        .blurb = "dq, dk, dv and dalibi_slopes from q, k, v, o, lse, dout; plain loops, every sum in a fixed order",
        .device = Device::cpu,
        .domain = backward_domain,
        .prefers = backward_domain,
        .determinism = Determinism::bitwise,
        .tile = cpu::backward_tile,
        .lane_bytes = cpu::backward_lane_bytes,
        .cost = backward_cost,
        .formulas = &backward_formulas,
        .roundings = cpu::backward_roundings,
        .run = cpu::run_backward,
    },
};

}  // namespace

std::span<const Kernel> catalogue() { return rows; }

const Kernel* find_kernel(std::string_view name) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const Kernel& kernel) { return kernel.name == name; });
  return row == rows.end() ? nullptr : &*row;
}

}  // namespace fresnel
