// SPDX-License-Identifier: Apache-2.0
// The workgroup machine that computes nothing and knows where everything lies: it writes down the addresses of each
// workgroup and sends them, workgroups in flight taking turns, through a hierarchy of caches. Threads of a workgroup do
// the same at neighbouring places, so the first two tell where all of them go.
#pragma once

#include "traffic/counting_machine.hpp"
#include "traffic/stream.hpp"

namespace fresnel::traffic {

class TracingMachine {
 public:
  using Real = Nothing;
  struct Global {
    std::uint64_t base = 0;
    std::int64_t width = 0;
  };
  using Bank = CountingMachine<WalkKind::each>::Bank;
  using Scalars = CountingMachine<WalkKind::each>::Scalars;
  struct Memory {};

  explicit TracingMachine(Hierarchy& hierarchy) : hierarchy_(hierarchy) {}

  /// One thread, as a kernel sees it; workgroup memory is not traced.
  class Thread {
   public:
    Thread(std::vector<Block>& blocks, std::int64_t id_) : id(id_), begin_(blocks.size()), blocks_(blocks) {}
    std::int64_t id;

    void load(const Global& from, std::int64_t row, NoRow) { add(from, row, 0, from.width, false); }
    void store(NoRow, const Global& to, std::int64_t row) { add(to, row, 0, to.width, true); }
    [[nodiscard]] Nothing read(const Global& from, std::int64_t row, std::int64_t column) {
      return add(from, row, column, 1, false);
    }
    void write(const Global& to, std::int64_t row, std::int64_t column, Nothing) { add(to, row, column, 1, true); }
    [[nodiscard]] Nothing get(const Memory&, std::int64_t) { return {}; }
    void put(const Memory&, std::int64_t, Nothing) {}
    [[nodiscard]] Nothing dot(NoRow, const Memory&, std::int64_t) { return {}; }
    void add_scaled(NoRow, Nothing, const Memory&, std::int64_t) {}
    [[nodiscard]] Nothing fma(Nothing, Nothing, Nothing) { return {}; }
    [[nodiscard]] Nothing exp(Nothing, Nothing) { return {}; }
    [[nodiscard]] Nothing log(Nothing) { return {}; }
    template <class Body>
    void repeat(std::int64_t count, Body&& body) {
      for (std::int64_t index = 0; index < count; ++index) body(index);
    }

   private:
    Nothing add(const Global& global, std::int64_t row, std::int64_t column, std::int64_t words, bool write) {
      const auto address = global.base + static_cast<std::uint64_t>((row * global.width + column) * word_bytes);
      // What continues the thread's run before it is part of that run.
      if (blocks_.size() > begin_) {
        Block& before = blocks_.back();
        if (before.write == write && before.address + static_cast<std::uint64_t>(before.bytes) == address) {
          before.bytes += words * word_bytes;
          return {};
        }
      }
      blocks_.push_back({address, words * word_bytes, 1, 0, write});
      return {};
    }
    std::size_t begin_;
    std::vector<Block>& blocks_;
  };

  class Group {
   public:
    explicit Group(std::vector<Block>& blocks, std::int64_t threads) : blocks_(blocks), threads_(threads) {}

    [[nodiscard]] Bank registers(std::int64_t) { return {}; }
    [[nodiscard]] Scalars scalars(float) { return {}; }
    [[nodiscard]] Memory memory(std::int64_t, std::int64_t) { return {}; }
    void barrier() {}
    void load(const Global& from, std::int64_t row, std::int64_t rows, const Memory&) {
      const auto address = from.base + static_cast<std::uint64_t>(row * from.width * word_bytes);
      blocks_.push_back({address, rows * from.width * word_bytes, 1, 0, false});
    }
    template <class RowOf>
    void gather(const Global& from, const Scalars&, std::int64_t in_order, RowOf&& row_of, std::int64_t rows,
                const Memory&, std::int64_t) {
      const std::int64_t row = row_of(in_order, 0), bytes = from.width * word_bytes;
      const std::int64_t stride = (row_of(in_order, 1) - row) * bytes;
      const auto address = from.base + static_cast<std::uint64_t>(row * bytes);
      if (stride == bytes)
        blocks_.push_back({address, bytes * rows, 1, 0, false});
      else
        blocks_.push_back({address, bytes, rows, stride, false});
    }
    template <class Body>
    void threads(std::int64_t count, Body&& body) {
      in_step(count, [&](std::int64_t id) {
        Thread thread(blocks_, id);
        body(thread);
      });
    }
    template <class Body>
    void repeat(std::int64_t count, Body&& body) {
      for (std::int64_t index = 0; index < count; ++index) body(index);
    }
    template <class Body>
    void elements(std::int64_t count, Body&& body) {
      in_step(count, [&](std::int64_t element) {
        Thread thread(blocks_, element % threads_);
        body(thread, element);
      });
    }
    template <class Body>
    void tiles(const Span& rows, std::int64_t tile, Body&& body, bool = true) {
      const std::int64_t last = rows.first + rows.count;
      for (std::int64_t first = rows.first; first < last;) {
        const std::int64_t end = std::min(first / tile * tile + tile, last);
        body(Span{first, end - first});
        first = end;
      }
    }

   private:
    /// The blocks of the first of `count` threads, each `count` runs as far apart as the second thread's are.
    template <class Body>
    void in_step(std::int64_t count, Body&& body) {
      if (count <= 0) return;
      const std::size_t begin = blocks_.size();
      body(0);
      if (count == 1) return;
      const std::size_t middle = blocks_.size();
      body(1);
      for (std::size_t at = begin; at < middle; ++at) {
        Block& block = blocks_[at];
        block.stride = static_cast<std::int64_t>(blocks_[middle + at - begin].address - block.address);
        block.runs = count;
        if (block.stride == block.bytes) block = {block.address, block.bytes * count, 1, 0, block.write};
      }
      blocks_.resize(middle);
    }

    std::vector<Block>& blocks_;
    std::int64_t threads_;
  };

  /// Global memory, each tensor on lines of its own.
  [[nodiscard]] Global scratch(std::int64_t rows, std::int64_t width) {
    constexpr std::uint64_t alignment = 4096;
    const Global global{end_, width};
    end_ += (static_cast<std::uint64_t>(rows * width * word_bytes) + alignment - 1) / alignment * alignment;
    return global;
  }

  template <class Body>
  void launch(const Grid& grid, std::int64_t threads, Body&& body) {
    const std::int64_t tiles = tiles_of(grid.extent, grid.tile);
    take_turns(hierarchy_, grid.batch * grid.heads * tiles, [&](std::int64_t index, Stream& stream) {
      const std::int64_t first = index % tiles * grid.tile, head = index / tiles;
      Group group(stream.blocks, threads);
      body(group, QueryTile{head / grid.heads, head % grid.heads, first, std::min(grid.tile, grid.extent - first)});
    });
  }

 private:
  Hierarchy& hierarchy_;
  std::uint64_t end_ = 0;
};

}  // namespace fresnel::traffic
