// SPDX-License-Identifier: Apache-2.0
// Intel's tile unit (AMX, bf16): whether this process may use it, and its peak. Everything here is harmless on
// processors without one.
#pragma once

#include <cstdint>

namespace fresnel {

/// True where the processor has AMX with bf16 and the system grants it; asks for the grant on first use.
[[nodiscard]] bool amx_granted();

/// `rounds` rounds of four independent 16 x 16 x 32 tile products; only where `amx_granted`. Returns an element of a
/// result.
float amx_bf16_products(std::int64_t rounds);

/// Operations of one round.
inline constexpr double amx_bf16_flops = 4 * 2.0 * 16 * 16 * 32;

}  // namespace fresnel
