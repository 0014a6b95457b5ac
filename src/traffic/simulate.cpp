// SPDX-License-Identifier: Apache-2.0
// Kernels through caches: see simulate.hpp.
#include "traffic/simulate.hpp"

#include <string>

#include "traffic/dispatch.hpp"
#include "traffic/replay.hpp"
#include "traffic/tracing_machine.hpp"

namespace fresnel::traffic {
namespace {

/// Lines that a simulation may touch: some ten seconds of work.
constexpr double most_lines = 0x1p28;

Status feasible(double bytes, const HierarchyShape& caches) {
  if (bytes / static_cast<double>(caches.line_bytes) <= most_lines) return Done{};
  return Refusal{Fault::unsupported,
                 {},
                 "caches",
                 std::to_string(bytes / 1e9) + " GB of requests",
                 "at most 2^28 cache lines of requests",
                 {}};
}

Simulation facts_of(Hierarchy& hierarchy) {
  hierarchy.flush();
  return {hierarchy.shape(), hierarchy.levels(), hierarchy.memory_reads(), hierarchy.memory_writes()};
}

/// Tensors of packed rows, one after the other, each on pages of its own.
class Layout {
 public:
  struct Tensor {
    std::uint64_t base;
    std::int64_t row_bytes;
    [[nodiscard]] Block rows(std::int64_t row, std::int64_t count, bool write) const {
      return {base + static_cast<std::uint64_t>(row * row_bytes), count * row_bytes, 1, 0, write};
    }
  };
  [[nodiscard]] Tensor tensor(std::int64_t rows, std::int64_t row_bytes) {
    const Tensor made{end_, row_bytes};
    end_ += (static_cast<std::uint64_t>(rows * row_bytes) + 4095) / 4096 * 4096;
    return made;
  }

 private:
  std::uint64_t end_ = 0;
};

}  // namespace

Result<HierarchyShape> caches_of(const Rates& rates, const Shape& shape, std::int64_t shared_bytes) {
  if (!rates.multiprocessors)
    return Refusal{Fault::unsupported, {}, "machine", std::string(rates.name), "a machine whose caches are known", {}};
  const Multiprocessors& each = *rates.multiprocessors;
  constexpr std::int64_t reserved = 1024;  // workgroup memory that each workgroup costs beyond its own
  const std::int64_t taken = shared_bytes + reserved;
  const std::int64_t threads = (shape.threads + 31) / 32 * 32;
  const std::int64_t resident =
      std::max<std::int64_t>(std::min({each.workgroups, each.threads / threads, each.shared_bytes / taken}), 1);
  const std::int64_t first_level = std::max<std::int64_t>(each.storage_bytes - resident * taken, 0);
  HierarchyShape caches;
  caches.line_bytes = 128;
  caches.own = {{"L1", first_level, 4, /*write_through=*/true}};
  // Each part of the second level caches what its own multiprocessors use ("NVIDIA A100 Tensor Core GPU Architecture",
  // 2020, L2 cache), so that what all of them use lies in every part.
  caches.shared = {{"L2", rates.cache_bytes / each.cache_parts, 16, false}};
  caches.in_flight = each.count * resident;
  caches.multiprocessors = each.count;
  caches.own_end_with_kernel = true;
  return caches;
}

HierarchyShape caches_of(const Machine& machine, std::int64_t tasks) {
  HierarchyShape caches;
  caches.line_bytes = 64;
  caches.own = {{"L1", machine.l1_bytes, 8, false}, {"L2", machine.l2_bytes, 8, false}};
  if (machine.l3_bytes > 0) caches.shared = {{"L3", machine.l3_bytes, 16, false}};
  caches.in_flight = std::max<std::int64_t>(tasks, 1);
  caches.fetches_on_write = true;
  return caches;
}

Result<Simulation> simulate(Kind kind, const Shape& shape, const HierarchyShape& caches) {
  const auto bytes = static_cast<double>(count(kind, shape).counts.global_bytes());
  if (const Status fits = feasible(bytes, caches); !fits) return fits.refusal();
  Hierarchy hierarchy(caches);
  TracingMachine machine(hierarchy);
  const Problem& problem = shape.problem;
  const std::int64_t queries = problem.batch * problem.heads_q * problem.queries;
  const std::int64_t keys = problem.batch * problem.heads_kv * problem.keys;
  const std::int64_t wide = shape.width(), deep = shape.value_width();
  Tensors<TracingMachine::Global> t;
  // Pages of pools that were filled in order.
  const std::int64_t stored = shape.paged() ? problem.batch * shape.pages() * shape.page_size * problem.heads_kv : keys;
  t.q = machine.scratch(queries, wide), t.k = machine.scratch(stored, wide), t.v = machine.scratch(stored, deep);
  t.o = machine.scratch(queries, deep), t.lse = machine.scratch(queries, 1);
  t.dout = machine.scratch(queries, deep), t.dq = machine.scratch(queries, wide);
  t.dk = machine.scratch(keys, wide), t.dv = machine.scratch(keys, deep);
  if (shape.paged()) t.block_table = machine.scratch(problem.batch, shape.pages());
  execute(machine, kind, shape, t);
  return facts_of(hierarchy);
}

Result<Simulation> simulate(const Kernel& kernel, const Problem& problem, const Tile& tile,
                            const HierarchyShape& caches) {
  if (!goes_by_tiles(kernel))
    return Refusal{
        Fault::unsupported, {}, "caches", std::string(kernel.name), "a kernel that goes by tiles of one head", {}};
  const auto asked = replay(kernel, problem, tile);
  if (!asked) return asked.refusal();
  if (const Status fits = feasible(asked->cache.bytes(), caches); !fits) return fits.refusal();
  Hierarchy hierarchy(caches);
  Layout layout;
  const std::int64_t element = size_of(problem.dtype), queries = problem.batch * problem.heads_q * problem.queries;
  const std::int64_t keys = problem.batch * problem.heads_kv * problem.keys;
  const auto q = layout.tensor(queries, element * problem.head_dim);
  const auto k = layout.tensor(keys, element * problem.head_dim);
  const auto v = layout.tensor(keys, element * problem.value_dim);
  const auto o = layout.tensor(queries, element * problem.value_dim);
  const auto lse = layout.tensor(queries, problem.dtype == DType::f64 ? 8 : 4);
  const Mask mask = mask_of(problem, problem.keys);
  take_turns(hierarchy, item_count(problem, tile), [&](std::int64_t item, Stream& stream) {
    const QueryTile rows = item_at(problem, tile, item);
    const std::int64_t row = (rows.batch * problem.heads_q + rows.head) * problem.queries + rows.first;
    const std::int64_t key = (rows.batch * problem.heads_kv + rows.head / problem.group()) * problem.keys;
    stream.blocks.push_back(q.rows(row, rows.count, false));
    for_each_key_span(mask, tile.keys, rows, [&](const KeyRange& span) {
      stream.blocks.push_back(k.rows(key + span.first, span.size(), false));
      stream.blocks.push_back(v.rows(key + span.first, span.size(), false));
    });
    stream.blocks.push_back(o.rows(row, rows.count, true));
    if (problem.lse) stream.blocks.push_back(lse.rows(row, rows.count, true));
  });
  return facts_of(hierarchy);
}

}  // namespace fresnel::traffic
