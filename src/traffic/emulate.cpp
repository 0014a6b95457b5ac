// SPDX-License-Identifier: Apache-2.0
// Tiles, refusals and the dispatch from a kind to its kernel: see emulate.hpp.
#include "traffic/emulate.hpp"

#include <string>

#include "fresnel/plan.hpp"
#include "traffic/dispatch.hpp"
#include "traffic/running_group.hpp"

namespace fresnel::traffic {
namespace {

constexpr std::array<std::string_view, all_kinds.size()> names{"unfused", "fused", "broken", "outer_k", "backward"};

/// Threads of a workgroup, at most, whoever chooses the tile.
constexpr std::int64_t most_threads = 1024;

Refusal refuse(std::string argument, std::string given, std::string accepted, std::string nearest = {}) {
  return {Fault::unsupported, {}, std::move(argument), std::move(given), std::move(accepted), std::move(nearest)};
}

/// Tiles of a masked problem, whose walk cannot be folded.
constexpr std::int64_t most_masked_tiles = std::int64_t{1} << 26;

/// Words of workgroup memory that a tile takes.
std::int64_t words_of(Kind kind, const Problem& problem, std::int64_t rows, std::int64_t page_size) {
  const std::int64_t row = problem.head_dim + problem.value_dim + (kind == Kind::backward ? 2 : 0);
  return rows * row + (page_size > 0 ? most_pages(rows, page_size) : 0);
}

/// Every tile of a sequence is walked, and not once each that is alike.
bool walks_each_tile(const Shape& shape) { return shape.masked || !shape.pages_align(); }

Status supported(Kind kind, const Problem& problem, std::int64_t page_size) {
  const std::string who = "what the emulated kernels know: ";
  const bool backward = kind == Kind::backward;
  if (problem.dtype != DType::f32)
    return refuse("dtype", std::string(fresnel::name(problem.dtype)), who + "f32", "f32");
  if (problem.options.softcap) return refuse("softcap", "a soft cap", who + "none");
  if (problem.alibi_slopes != AlibiSlopes::none) return refuse("alibi", "slopes", who + "none");
  if (problem.seqlens_k) return refuse("seqlens_k", "lengths", who + "sequences of one length");
  if (problem.grad && !backward) return refuse("grad", "with " + std::string(name(kind)), "with backward");
  if (page_size < 0) return refuse("page_size", std::to_string(page_size), "pages of 1 key or more");
  if (page_size > 0 && kind != Kind::fused && kind != Kind::broken)
    return refuse("paged", "with " + std::string(name(kind)), "with fused or broken", "fused");
  return Done{};
}

/// An upper bound of every count, in doubles.
double bound_of(const Problem& problem, std::int64_t page_size) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double heads = real(problem.batch) * std::max(real(problem.heads_q), real(problem.heads_kv));
  const double pairs = (real(problem.queries) + 1) * (real(problem.keys) + 1);
  // Of the entries of a block table every thread of a workgroup reads each, and there are no more of them than keys.
  const double entries = (real(problem.queries) + static_cast<double>(most_threads)) * (real(problem.keys) + 1);
  return heads * (8 * pairs * (real(problem.head_dim) + real(problem.value_dim) + 4) + 4096 * real(problem.queries) +
                  (page_size > 0 ? entries : 0));
}

template <class Machine>
Emulation facts_of(const Machine& machine) {
  return {machine.counts(), machine.scratch_words() * word_bytes, machine.most_shared_words() * word_bytes};
}

template <WalkKind walk>
Emulation counted(Kind kind, const Shape& shape) {
  const std::int64_t wide = shape.width(), deep = shape.value_width();
  CountingMachine<walk> machine;
  execute(machine, kind, shape,
          {{wide}, {wide}, {deep}, {deep}, {1}, {deep}, {wide}, {wide}, {deep}, {shape.paged() ? shape.pages() : 0}});
  return facts_of(machine);
}

}  // namespace

std::string_view name(Kind kind) { return names[static_cast<std::size_t>(kind)]; }

std::optional<Kind> kind_named(std::string_view name_) {
  for (const Kind kind : all_kinds)
    if (name(kind) == name_) return kind;
  return std::nullopt;
}

Result<Shape> shape_of(Kind kind, const Problem& problem, const TileChoice& choice) {
  if (const Status valid = validate(problem); !valid) return valid.refusal();
  if (const Status known = supported(kind, problem, choice.page_size); !known) return known.refusal();
  if (bound_of(problem, choice.page_size) >= 0x1p61)
    return refuse("queries", std::to_string(problem.queries) + " with " + std::to_string(problem.keys) + " keys",
                  "sizes whose counts fit 64 bits");
  Shape shape;
  shape.problem = problem;
  shape.page_size = choice.page_size;
  if (choice.rows) {
    if (*choice.rows < 1 || *choice.rows > most_threads)
      return refuse("tile", std::to_string(*choice.rows), "from 1 to " + std::to_string(most_threads) + " rows");
    shape.tile = *choice.rows;
  } else {
    const auto words = [&](std::int64_t rows) { return words_of(kind, problem, rows, choice.page_size); };
    const std::int64_t least = std::max(words(1), kind == Kind::unfused ? softmax_threads : 1) * word_bytes;
    if (choice.memory_bytes < least)
      return refuse(
          "memory", std::to_string(choice.memory_bytes) + " bytes of workgroup memory",
          "at least " + std::to_string(least) + ", for tiles of one row of width " + std::to_string(problem.head_dim),
          std::to_string(least));
    shape.tile = most_tile_rows;
    while (words(shape.tile) > choice.memory_bytes / word_bytes) --shape.tile;
  }
  shape.threads = shape.tile;
  shape.mask = mask_of(problem, problem.keys);
  const bool any = problem.queries > 0 && problem.keys > 0;
  shape.masked = any && classify(shape.mask, 0, problem.queries, 0, problem.keys) != TileClass::full;
  if (walks_each_tile(shape) && std::max(problem.queries, problem.keys) / shape.tile > most_masked_tiles)
    return refuse("queries", std::to_string(problem.queries) + " with " + std::to_string(problem.keys) + " keys",
                  "at most 2^26 tiles under a mask or across pages, which are walked one by one");
  shape.scale = static_cast<float>(problem.softmax_scale());
  return shape;
}

Emulation count(Kind kind, const Shape& shape, WalkKind walk) {
  return walk == WalkKind::each ? counted<WalkKind::each>(kind, shape) : counted<WalkKind::closed>(kind, shape);
}

Emulation run(Kind kind, const Shape& shape, const Tensors<RunningMachine::Global>& tensors, Count idle_barrier) {
  RunningMachine machine(idle_barrier);
  execute(machine, kind, shape, tensors);
  Emulation emulation = facts_of(machine);
  emulation.race = machine.race();
  return emulation;
}

}  // namespace fresnel::traffic
