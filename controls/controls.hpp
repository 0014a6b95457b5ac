// SPDX-License-Identifier: Apache-2.0
// Kernels that are wrong on purpose, kept for ever: one honest tiled kernel and the same text with one mistake each, as
// rows like those of the catalogue. They prove that the judge catches what it is there to catch. The library does not
// know them: a plan for one is made from its row (plan_row), by the command line and by tests alone.
// docs/controls.md says where each is caught and where it does no harm.
#pragma once

#include <span>
#include <string_view>

#include "kernels/kernel.hpp"

namespace fresnel::controls {

/// Extents of the kernel that all rows share; a row of the problem that fits one of them hides some mistakes.
inline constexpr std::int64_t tile_queries = 4;
inline constexpr std::int64_t tile_keys = 16;
inline constexpr std::int64_t split_keys = 2 * tile_keys;  ///< keys whose sums are kept apart until the merge
inline constexpr std::int64_t most_tile_keys = 64;         ///< a plan may ask for tiles of any width up to this

/// What names of controls begin with; no row of the catalogue does.
inline constexpr std::string_view prefix = "control.";

/// "control.none", which is right, and the mistakes.
[[nodiscard]] std::span<const Kernel> rows();

/// A control by name; null when there is none.
[[nodiscard]] const Kernel* find(std::string_view name);

}  // namespace fresnel::controls
