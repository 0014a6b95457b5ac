// SPDX-License-Identifier: Apache-2.0
// The count of an emulated kernel: choose the tile that fits workgroup memory, then walk the kernel with or without its
// arithmetic. Whatever cannot be counted is refused before anything is allocated or walked.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "fresnel/check.hpp"
#include "fresnel/result.hpp"
#include "traffic/counting_machine.hpp"
#include "traffic/running_machine.hpp"

namespace fresnel::traffic {

/// What WebGPU promises a workgroup at least, and the most rows a tile gets: one thread each.
inline constexpr std::int64_t default_memory_bytes = 16384;
inline constexpr std::int64_t most_tile_rows = 128;

/// "unfused", "fused", "broken", "outer_k", "backward".
[[nodiscard]] std::string_view name(Kind kind);
[[nodiscard]] std::optional<Kind> kind_named(std::string_view name);
inline constexpr std::array all_kinds{Kind::unfused, Kind::fused, Kind::broken, Kind::outer_k, Kind::backward};

/// Rows of a tile by hand, or the most that fit `memory_bytes`, at most `most_tile_rows`: one K and one V tile; for the
/// backward one q and one dout tile with lse and delta beside them, for paged K and V the entries of the block table.
struct TileChoice {
  std::int64_t memory_bytes = default_memory_bytes;
  std::optional<std::int64_t> rows = std::nullopt;
  std::int64_t page_size = 0;  ///< keys of a page of K and V; 0: in one piece
};

/// Refuses problems that mean nothing, options that the emulated kernels do not have, tiles that do not fit, and sizes
/// whose counts would not fit 64 bits.
[[nodiscard]] Result<Shape> shape_of(Kind kind, const Problem& problem, const TileChoice& choice = {});

struct Emulation {
  Counts counts;
  Count extra_memory_bytes = 0;   ///< global memory that the kernels allocate between them
  std::int64_t shared_bytes = 0;  ///< workgroup memory of the workgroup that takes most
  std::optional<Race> race = {};  ///< of a run: never of a kernel that is right
  bool operator==(const Emulation& other) const {
    return counts == other.counts && extra_memory_bytes == other.extra_memory_bytes &&
           shared_bytes == other.shared_bytes;
  }
};

/// Counts without computing.
[[nodiscard]] Emulation count(Kind kind, const Shape& shape, WalkKind walk = WalkKind::closed);

/// Computes in float32 and counts. `idle_barrier`: the barrier, counted from 1, that lets everybody pass, for tests of
/// the watch.
[[nodiscard]] Emulation run(Kind kind, const Shape& shape, const Tensors<RunningMachine::Global>& tensors,
                            Count idle_barrier = 0);

/// What a run rounds, for the judge.
[[nodiscard]] Roundings roundings_of(Kind kind, const Shape& shape);

/// The same counts from formulas, where there are any: for every kind unless a mask skips tiles.
[[nodiscard]] std::optional<Counts> closed_form(Kind kind, const Shape& shape);

/// What the paper's theorems let global traffic grow with, in words: N d + N^2 for the unfused way, N^2 d^2 / M for the
/// others, M = tile (D + Dv) words of workgroup memory. Masks are not looked at.
[[nodiscard]] double theta(Kind kind, const Shape& shape);

/// Bytes of q, k, v read once and o (and lse) written once; of the backward likewise.
[[nodiscard]] double compulsory_bytes(Kind kind, const Shape& shape);

}  // namespace fresnel::traffic
