// SPDX-License-Identifier: Apache-2.0
// Tiles, refusals and the dispatch from a kind to its kernel: see emulate.hpp.
#include "traffic/emulate.hpp"

#include <string>

#include "fresnel/plan.hpp"
#include "traffic/backward_kernels.hpp"
#include "traffic/outer_k_kernel.hpp"
#include "traffic/running_group.hpp"

namespace fresnel::traffic {
namespace {

constexpr std::array<std::string_view, all_kinds.size()> names{"unfused", "fused", "broken", "outer_k", "backward"};

/// Threads of a workgroup, at most, whoever chooses the tile.
constexpr std::int64_t most_threads = 1024;

Refusal refuse(std::string argument, std::string given, std::string accepted, std::string nearest = {}) {
  return {Fault::unsupported, {}, std::move(argument), std::move(given), std::move(accepted), std::move(nearest)};
}

/// Words of workgroup memory for each row of a tile.
std::int64_t words_per_row(Kind kind, const Problem& problem) {
  return problem.head_dim + problem.value_dim + (kind == Kind::backward ? 2 : 0);
}

Status supported(Kind kind, const Problem& problem) {
  const std::string who = "what the emulated kernels know: ";
  const bool backward = kind == Kind::backward;
  if (problem.dtype != DType::f32)
    return refuse("dtype", std::string(fresnel::name(problem.dtype)), who + "f32", "f32");
  if (problem.options.softcap) return refuse("softcap", "a soft cap", who + "none");
  if (problem.alibi_slopes != AlibiSlopes::none) return refuse("alibi", "slopes", who + "none");
  if (problem.seqlens_k) return refuse("seqlens_k", "lengths", who + "sequences of one length");
  if (problem.grad && !backward) return refuse("grad", "with " + std::string(name(kind)), "with backward");
  return Done{};
}

/// An upper bound of every count, in doubles.
double bound_of(const Problem& problem) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double heads = real(problem.batch) * std::max(real(problem.heads_q), real(problem.heads_kv));
  const double pairs = (real(problem.queries) + 1) * (real(problem.keys) + 1);
  return heads * (8 * pairs * (real(problem.head_dim) + real(problem.value_dim) + 4) + 4096 * real(problem.queries));
}

template <class Machine>
void execute(Machine& machine, Kind kind, const Shape& shape, const Tensors<typename Machine::Global>& tensors) {
  switch (kind) {
    case Kind::unfused: return unfused(machine, shape, tensors);
    case Kind::fused: return fused(machine, shape, tensors);
    case Kind::broken: return fused(machine, shape, tensors, /*rescales_l=*/false);
    case Kind::outer_k: return outer_k(machine, shape, tensors);
    case Kind::backward: return backward(machine, shape, tensors);
  }
}

template <class Machine>
Emulation facts_of(const Machine& machine) {
  return {machine.counts(), machine.scratch_words() * word_bytes, machine.most_shared_words() * word_bytes};
}

template <WalkKind walk>
Emulation counted(Kind kind, const Shape& shape) {
  const std::int64_t wide = shape.width(), deep = shape.value_width();
  CountingMachine<walk> machine;
  execute(machine, kind, shape, {{wide}, {wide}, {deep}, {deep}, {1}, {deep}, {wide}, {wide}, {deep}});
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
  if (const Status known = supported(kind, problem); !known) return known.refusal();
  if (bound_of(problem) >= 0x1p61)
    return refuse("queries", std::to_string(problem.queries) + " with " + std::to_string(problem.keys) + " keys",
                  "sizes whose counts fit 64 bits");
  const std::int64_t row = words_per_row(kind, problem);
  Shape shape;
  shape.problem = problem;
  if (choice.rows) {
    if (*choice.rows < 1 || *choice.rows > most_threads)
      return refuse("tile", std::to_string(*choice.rows), "from 1 to " + std::to_string(most_threads) + " rows");
    shape.tile = *choice.rows;
  } else {
    const std::int64_t least = std::max(row, kind == Kind::unfused ? softmax_threads : 1) * word_bytes;
    if (choice.memory_bytes < least)
      return refuse(
          "memory", std::to_string(choice.memory_bytes) + " bytes of workgroup memory",
          "at least " + std::to_string(least) + ", for tiles of one row of width " + std::to_string(problem.head_dim),
          std::to_string(least));
    shape.tile = std::min(choice.memory_bytes / (row * word_bytes), most_tile_rows);
  }
  shape.threads = shape.tile;
  shape.mask = mask_of(problem, problem.keys);
  const bool any = problem.queries > 0 && problem.keys > 0;
  shape.masked = any && classify(shape.mask, 0, problem.queries, 0, problem.keys) != TileClass::full;
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
