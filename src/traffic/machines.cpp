// SPDX-License-Identifier: Apache-2.0
// The table of machines. Rates of the GPUs: NVIDIA's data sheets and architecture white papers (H100 SXM5: 132
// multiprocessors at 1.98 GHz; A100 SXM 80 GB: 108 at 1.41 GHz), and for each multiprocessor and clock 128 (A100: 64)
// float32 multiply-adds, 16 exponentials and 128 bytes of shared memory (CUDA C++ Programming Guide, tables of
// arithmetic throughput and of compute capabilities).
#include "traffic/machines.hpp"

#include <algorithm>

namespace fresnel::traffic {
namespace {

constexpr double hopper_clock = 132 * 1.98e9, ampere_clock = 108 * 1.41e9;  // multiprocessors x clocks a second

constexpr std::array table{
    Rates{"h100", "NVIDIA H100 SXM5", 256 * hopper_clock, 16 * hopper_clock, 128 * hopper_clock, 3.35e12, 50 << 20,
          232448},
    Rates{"h200", "NVIDIA H200 SXM5", 256 * hopper_clock, 16 * hopper_clock, 128 * hopper_clock, 4.8e12, 50 << 20,
          232448},
    Rates{"a100", "NVIDIA A100 SXM 80 GB", 128 * ampere_clock, 16 * ampere_clock, 128 * ampere_clock, 2.039e12,
          40 << 20, 166912},
    Rates{"webgpu", "what WebGPU promises everywhere: limits, and no rates", {}, {}, {}, {}, 0, 16384},
};

std::optional<double> time(double amount, const std::optional<double>& rate) {
  return rate ? std::optional(amount / *rate) : std::nullopt;
}

}  // namespace

std::span<const Rates> machines() { return table; }

const Rates* machine_named(std::string_view name) {
  const auto* const found = std::find_if(table.begin(), table.end(), [&](const Rates& r) { return r.name == name; });
  return found == table.end() ? nullptr : found;
}

const Roofline::Part* Roofline::limit() const {
  const Part* longest = nullptr;
  for (const Part& part : parts)
    if (part.seconds && (longest == nullptr || *part.seconds > *longest->seconds)) longest = &part;
  return longest;
}

Roofline roofline(const Work& work, const Rates& rates) {
  return {{{{"arithmetic", time(work.flops, rates.flops)},
            {"exponentials", time(work.exps, rates.exps)},
            {"workgroup memory", time(work.shared_bytes, rates.shared_bytes)},
            {"device memory", time(work.memory_bytes, rates.memory_bytes)}}}};
}

}  // namespace fresnel::traffic
