// SPDX-License-Identifier: Apache-2.0
// Intel's tile unit (AMX, bf16): whether this process may use it, and its peak. Everything here is harmless on
// processors without one.
#pragma once

#include <cstdint>

#include "fresnel/machine.hpp"

namespace fresnel {

/// Whether this process may use it; asks the system for the grant on first use.
[[nodiscard]] TileUnit tile_unit_here();
[[nodiscard]] inline bool amx_granted() { return tile_unit_here() == TileUnit::amx_bf16; }

/// Gives the calling thread eight tiles of 16 rows of 64 bytes, and takes them back; only where `amx_granted`.
void amx_configure();
void amx_release();

/// `rounds` rounds of four independent 16 x 16 x 32 tile products; only where `amx_granted`. Returns an element of a
/// result.
float amx_bf16_products(std::int64_t rounds);

/// Operations of one round.
inline constexpr double amx_bf16_flops = 4 * 2.0 * 16 * 16 * 32;

}  // namespace fresnel
