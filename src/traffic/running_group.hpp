// SPDX-License-Identifier: Apache-2.0
// One workgroup of the running machine: its memory, its registers, its threads and its barriers.
#pragma once

#include <cstring>

#include "traffic/running_machine.hpp"

namespace fresnel::traffic {

class RunningMachine::Group {
 public:
  Group(RunningMachine& machine, std::int64_t threads) : machine_(machine), threads_(threads) { machine_.epoch_ = 1; }

  /// `width` registers for each thread.
  [[nodiscard]] Bank registers(std::int64_t width) {
    return {floats_.emplace_back(static_cast<std::size_t>(threads_ * width)).data(), width};
  }
  /// One register for each thread.
  [[nodiscard]] Scalars scalars(float initial) {
    return {floats_.emplace_back(static_cast<std::size_t>(threads_), initial).data()};
  }
  /// Workgroup memory; what it holds before the first write may not be read.
  [[nodiscard]] Memory memory(std::int64_t rows, std::int64_t width) {
    words_ += rows * width;
    machine_.most_shared_words_ = std::max(machine_.most_shared_words_, words_);
    const auto count = static_cast<std::size_t>(rows * width);
    return {&floats_.emplace_back(count), &marks_.emplace_back(count), width};
  }

  /// What was written before it may be read after it by every thread of the workgroup.
  void barrier() {
    if (++machine_.counts_.barriers != machine_.idle_barrier_) ++machine_.epoch_;
  }

  /// Rows [row, row + rows) of global memory into workgroup memory, one word a thread and turn.
  void load(const Global& from, std::int64_t row, std::int64_t rows, const Memory& to) {
    const float* const words = from.row(row);
    machine_.counts_.global_reads += static_cast<Count>(rows * from.width);
    for (std::int64_t word = 0; word < rows * from.width; ++word) machine_.put(to, word, word % threads_, words[word]);
  }

  /// Rows out of one block of a pool into workgroup memory, from its row `at` on. Each thread finds the words that it
  /// reads by the number of the block in its register: row_of(block, row). `in_order` is that number in a pool that was
  /// filled in order, for machines that hold no numbers.
  template <class RowOf>
  void gather(const Global& from, const Scalars& block, std::int64_t /*in_order*/, RowOf&& row_of, std::int64_t rows,
              const Memory& to, std::int64_t at) {
    machine_.counts_.global_reads += static_cast<Count>(rows * from.width);
    for (std::int64_t word = 0; word < rows * from.width; ++word) {
      const std::int64_t thread = word % threads_;
      std::int32_t found;
      std::memcpy(&found, &block[thread], sizeof found);
      const float value = from.row(row_of(found, word / from.width))[word % from.width];
      machine_.put(to, at * from.width + word, thread, value);
    }
  }

  /// The first `count` threads each do the same work: body(thread).
  template <class Body>
  void threads(std::int64_t count, Body&& body) {
    for (std::int64_t id = 0; id < count; ++id) {
      Thread thread(machine_, id);
      body(thread);
    }
  }
  /// A loop of the whole workgroup whose passes count the same: body(index).
  template <class Body>
  void repeat(std::int64_t count, Body&& body) {
    for (std::int64_t index = 0; index < count; ++index) body(index);
  }
  /// `count` elements dealt out to the threads in turn: body(thread, element).
  template <class Body>
  void elements(std::int64_t count, Body&& body) {
    for (std::int64_t id = 0; id < std::min(count, threads_); ++id) {
      Thread thread(machine_, id);
      for (std::int64_t element = id; element < count; element += threads_) body(thread, element);
    }
  }
  /// The tiles of [first, first + count), cut at multiples of `tile` from 0: body(span). The last argument tells
  /// machines that only count whether what the body asks for depends on the length of its tile alone.
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
  RunningMachine& machine_;
  std::int64_t threads_;
  std::int64_t words_ = 0;
  std::list<std::vector<float>> floats_;  // lists: kernels keep pointers to the elements
  std::list<std::vector<Memory::Mark>> marks_;
};

template <class Body>
void RunningMachine::launch(const Grid& grid, std::int64_t threads, Body&& body) {
  for (std::int64_t batch = 0; batch < grid.batch; ++batch)
    for (std::int64_t head = 0; head < grid.heads; ++head)
      for (std::int64_t first = 0; first < grid.extent; first += grid.tile) {
        Group group(*this, threads);
        body(group, QueryTile{batch, head, first, std::min(grid.tile, grid.extent - first)});
      }
}

}  // namespace fresnel::traffic
