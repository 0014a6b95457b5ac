// SPDX-License-Identifier: Apache-2.0
// A Machine is a value: it can be read off the host or typed in, so that a plan for any machine is made on any other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fresnel/result.hpp"
#include "fresnel/view.hpp"

#pragma GCC visibility push(default)  // what stands below is what a shared library exports

namespace fresnel {

/// Vector instruction sets the CPU kernels are compiled for, weakest first within an architecture.
enum class Isa : std::uint8_t { baseline, avx2, avx3, neon };

/// A matrix unit beside the vector units (Intel AMX, bf16), and why it is not used where it is not.
enum class TileUnit : std::uint8_t {
  absent,    ///< the processor has none, or FRESNEL_ISA asks for less than avx3
  denied,    ///< the operating system does not grant it to this process
  amx_bf16,  ///< 16 x 16 x 32 products of bf16 with float32 sums
};

/// "baseline", "avx2", "avx3" (AVX-512 F/BW/DQ/VL/CD), "neon".
[[nodiscard]] std::string_view name(Isa isa);
/// "none", "denied by the operating system", "amx_bf16".
[[nodiscard]] std::string_view name(TileUnit unit);
[[nodiscard]] Result<Isa> parse_isa(std::string_view text);

struct Machine {
  std::string name;  ///< for people, e.g. the processor's brand string
  Device device = Device::cpu;
  Isa isa = Isa::baseline;                ///< the widest vector set in use
  TileUnit tile_unit = TileUnit::absent;  ///< a matrix unit that kernels may use
  int cores = 1;                          ///< CPU cores or streaming multiprocessors
  int threads = 1;                        ///< hardware threads this process may use
  std::int64_t l1_bytes = 32 << 10;       ///< data cache per core
  std::int64_t l2_bytes = 1 << 20;        ///< per core
  std::int64_t l3_bytes = 0;              ///< shared

  /// Rates in TFLOP/s and GB/s; used for predictions only, never to choose how a result is computed.
  std::optional<double> f32_tflops, f64_tflops, dram_gbps;

  /// This host. `FRESNEL_ISA` (a name of `Isa`) narrows the vector set; a set the host lacks is refused.
  [[nodiscard]] static Result<Machine> detect();
  /// As `detect`, once per process; throws Error where detect refuses.
  [[nodiscard]] static const Machine& host();
};

/// True where the host can execute `isa` and the library holds code for it.
[[nodiscard]] bool runs_here(Isa isa);

}  // namespace fresnel

#pragma GCC visibility pop
