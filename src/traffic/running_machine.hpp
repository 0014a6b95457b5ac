// SPDX-License-Identifier: Apache-2.0
// The workgroup machine that computes in float32, counts every request as it is made, and watches workgroup memory: a
// word that one thread wrote may be read or written by another only after a barrier, and likewise a word that was read
// may be written by another. Threads of a workgroup run one after the other from barrier to barrier, so a kernel that
// forgets a barrier would still compute the right numbers here; the watch is what makes a barrier real.
//
// A kernel is a template over the machine. It names its workgroup memory and registers, lets threads work between
// barriers, and may branch on sizes and indices but never on numbers.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <list>
#include <optional>
#include <vector>

#include "semantics/softmax.hpp"
#include "traffic/counts.hpp"
#include "traffic/shape.hpp"

namespace fresnel::traffic {

/// Two threads met at a word of workgroup memory without a barrier between them, or a word was read that nobody wrote.
struct Race {
  std::int64_t word = 0;     ///< of the tile that the kernel asked for
  std::int64_t earlier = 0;  ///< thread; -1: nobody
  std::int64_t later = 0;
  bool wrote = false;  ///< the later one wrote
};

[[nodiscard]] inline float larger(float a, float b) { return b > a || std::isnan(b) ? b : a; }

class RunningMachine {
 public:
  using Real = float;

  /// Rows of `width` floats in global memory.
  struct Global {
    float* data = nullptr;
    std::int64_t width = 0;
    [[nodiscard]] float* row(std::int64_t index) const { return data + index * width; }
  };

  /// Registers of all threads, `width` for each.
  struct Bank {
    float* data;
    std::int64_t width;
    [[nodiscard]] float* operator[](std::int64_t thread) const { return data + thread * width; }
  };
  struct Scalars {
    float* data;
    [[nodiscard]] float& operator[](std::int64_t thread) const { return data[thread]; }
  };

  /// Rows of `width` floats in workgroup memory, and who touched each word since which barrier.
  struct Memory {
    struct Mark {
      std::uint32_t written = 0, read = 0;  ///< barriers passed, plus 1; 0: never
      std::int32_t writer = 0, reader = 0;  ///< reader -1: several
    };
    std::vector<float>* words;
    std::vector<Mark>* marks;
    std::int64_t width;
  };

  class Thread {
   public:
    Thread(RunningMachine& machine, std::int64_t id_) : id(id_), machine_(machine) {}
    std::int64_t id;  ///< within the workgroup

    /// A row of global memory into registers, and back.
    void load(const Global& from, std::int64_t row, float* to) {
      machine_.counts_.global_reads += static_cast<Count>(from.width);
      std::copy_n(from.row(row), from.width, to);
    }
    void store(const float* from, const Global& to, std::int64_t row) {
      machine_.counts_.global_writes += static_cast<Count>(to.width);
      std::copy_n(from, to.width, to.row(row));
    }
    /// One word of global memory.
    [[nodiscard]] float read(const Global& from, std::int64_t row, std::int64_t column) {
      ++machine_.counts_.global_reads;
      return from.row(row)[column];
    }
    void write(const Global& to, std::int64_t row, std::int64_t column, float value) {
      ++machine_.counts_.global_writes;
      to.row(row)[column] = value;
    }
    /// One word of workgroup memory.
    [[nodiscard]] float get(const Memory& from, std::int64_t word) { return machine_.get(from, word, id); }
    void put(const Memory& to, std::int64_t word, float value) { machine_.put(to, word, id, value); }
    /// Registers times a row of workgroup memory, summed from the first column on.
    [[nodiscard]] float dot(const float* registers, const Memory& tile, std::int64_t row) {
      float sum = 0;
      for (std::int64_t column = 0; column < tile.width; ++column)
        sum = fma(registers[column], get(tile, row * tile.width + column), sum);
      return sum;
    }
    /// registers += factor times a row of workgroup memory.
    void add_scaled(float* registers, float factor, const Memory& tile, std::int64_t row) {
      for (std::int64_t column = 0; column < tile.width; ++column)
        registers[column] = fma(factor, get(tile, row * tile.width + column), registers[column]);
    }
    /// A product and a sum, each rounded: counted as one operation, as hardware has it.
    [[nodiscard]] float fma(float a, float b, float sum) {
      ++machine_.counts_.fma;
      return a * b + sum;
    }
    /// exp(x - m); 0 while m is that of the empty set.
    [[nodiscard]] float exp(float x, float m) {
      ++machine_.counts_.exps;
      return relative_weight(x, m);
    }
    [[nodiscard]] float log(float x) { return std::log(x); }
    /// A loop whose passes count the same.
    template <class Body>
    void repeat(std::int64_t count, Body&& body) {
      for (std::int64_t index = 0; index < count; ++index) body(index);
    }

   private:
    RunningMachine& machine_;
  };

  class Group;

  /// `idle_barrier`: the barrier, counted from 1, that lets everybody pass; 0: none does.
  explicit RunningMachine(Count idle_barrier = 0) : idle_barrier_(idle_barrier) {}

  /// Global memory of the kernel's own, not initialised to anything useful.
  [[nodiscard]] Global scratch(std::int64_t rows, std::int64_t width) {
    scratch_words_ += static_cast<Count>(rows * width);
    const float junk = std::numeric_limits<float>::quiet_NaN();
    return {scratch_.emplace_back(static_cast<std::size_t>(rows * width), junk).data(), width};
  }

  /// A kernel: calls body(group, tile) for each workgroup of the grid.
  template <class Body>
  void launch(const Grid& grid, std::int64_t threads, Body&& body);

  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] Count scratch_words() const { return scratch_words_; }
  [[nodiscard]] std::int64_t most_shared_words() const { return most_shared_words_; }
  /// The first race that was met.
  [[nodiscard]] const std::optional<Race>& race() const { return race_; }

 private:
  [[nodiscard]] float get(const Memory& from, std::int64_t word, std::int64_t thread) {
    ++counts_.shared_reads;
    Memory::Mark& mark = (*from.marks)[static_cast<std::size_t>(word)];
    const auto id = static_cast<std::int32_t>(thread);
    if (mark.written == 0) report({word, -1, thread, false});
    if (mark.written == epoch_ && mark.writer != id) report({word, mark.writer, thread, false});
    mark.reader = mark.read == epoch_ && mark.reader != id ? -1 : id;
    mark.read = epoch_;
    return (*from.words)[static_cast<std::size_t>(word)];
  }
  void put(const Memory& to, std::int64_t word, std::int64_t thread, float value) {
    ++counts_.shared_writes;
    Memory::Mark& mark = (*to.marks)[static_cast<std::size_t>(word)];
    const auto id = static_cast<std::int32_t>(thread);
    if (mark.written == epoch_ && mark.writer != id) report({word, mark.writer, thread, true});
    if (mark.read == epoch_ && mark.reader != id) report({word, mark.reader, thread, true});
    mark.written = epoch_;
    mark.writer = id;
    (*to.words)[static_cast<std::size_t>(word)] = value;
  }
  void report(const Race& race) {
    if (!race_) race_ = race;
  }

  Counts counts_;
  Count idle_barrier_ = 0;
  Count scratch_words_ = 0;
  std::int64_t most_shared_words_ = 0;
  std::uint32_t epoch_ = 1;
  std::optional<Race> race_;
  std::list<std::vector<float>> scratch_;
};

}  // namespace fresnel::traffic
