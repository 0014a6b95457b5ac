// SPDX-License-Identifier: Apache-2.0
// The workgroup machine that counts and computes nothing: `RunningMachine` without its numbers. It can do so because
// an attention kernel's requests depend on sizes alone. Two walks: `each` goes through every workgroup, pass, thread
// and pair; `closed` goes once through those that are alike and multiplies. Tests hold the two equal, and both to the
// running machine.
#pragma once

#include "traffic/counts.hpp"
#include "traffic/nothing.hpp"
#include "traffic/shape.hpp"

namespace fresnel::traffic {

enum class WalkKind : std::uint8_t { each, closed };

template <WalkKind walk>
class CountingMachine {
 public:
  using Real = Nothing;
  struct Global {
    std::int64_t width = 0;
  };
  struct Bank {  ///< registers of all threads
    NoRow operator[](std::int64_t) const { return {}; }
  };
  struct Scalars {
    Nothing& operator[](std::int64_t) const { return NoRow::element; }
  };
  struct Memory {
    std::int64_t width = 0;
  };

  /// One thread, as a kernel sees it; `RunningMachine::Thread` says what each request means.
  class Thread {
   public:
    explicit Thread(CountingMachine& machine, std::int64_t id_) : id(id_), machine_(machine) {}
    std::int64_t id;  ///< within the workgroup

    void load(const Global& from, std::int64_t, NoRow) { machine_.add(&Counts::global_reads, from.width); }
    void store(NoRow, const Global& to, std::int64_t) { machine_.add(&Counts::global_writes, to.width); }
    [[nodiscard]] Nothing read(const Global&, std::int64_t, std::int64_t) { return one(&Counts::global_reads); }
    void write(const Global&, std::int64_t, std::int64_t, Nothing) { one(&Counts::global_writes); }
    [[nodiscard]] Nothing get(const Memory&, std::int64_t) { return one(&Counts::shared_reads); }
    void put(const Memory&, std::int64_t, Nothing) { one(&Counts::shared_writes); }
    [[nodiscard]] Nothing dot(NoRow, const Memory& tile, std::int64_t) {
      machine_.add(&Counts::shared_reads, tile.width);
      return one(&Counts::fma, tile.width);
    }
    void add_scaled(NoRow, Nothing, const Memory& tile, std::int64_t) {
      machine_.add(&Counts::shared_reads, tile.width);
      machine_.add(&Counts::fma, tile.width);
    }
    [[nodiscard]] Nothing fma(Nothing, Nothing, Nothing) { return one(&Counts::fma); }
    [[nodiscard]] Nothing exp(Nothing, Nothing) { return one(&Counts::exps); }
    [[nodiscard]] Nothing log(Nothing) { return {}; }
    template <class Body>
    void repeat(std::int64_t count, Body&& body) {
      machine_.alike(count, body);
    }

   private:
    Nothing one(Count Counts::*field, std::int64_t words = 1) {
      machine_.add(field, words);
      return {};
    }
    CountingMachine& machine_;
  };

  /// One workgroup.
  class Group {
   public:
    Group(CountingMachine& machine, std::int64_t threads) : machine_(machine), threads_(threads) {}

    [[nodiscard]] Bank registers(std::int64_t) { return {}; }
    [[nodiscard]] Scalars scalars(float) { return {}; }
    [[nodiscard]] Memory memory(std::int64_t rows, std::int64_t width) {
      words_ += rows * width;
      machine_.most_shared_words_ = std::max(machine_.most_shared_words_, words_);
      return {width};
    }
    void barrier() { machine_.add(&Counts::barriers, 1); }
    void load(const Global& from, std::int64_t, std::int64_t rows, const Memory&) {
      machine_.add(&Counts::global_reads, rows * from.width);
      machine_.add(&Counts::shared_writes, rows * from.width);
    }
    template <class RowOf>
    void gather(const Global& from, const Scalars&, std::int64_t, RowOf&&, std::int64_t rows, const Memory& to,
                std::int64_t) {
      load(from, 0, rows, to);
    }
    template <class Body>
    void threads(std::int64_t count, Body&& body) {
      machine_.alike(count, [&](std::int64_t id) {
        Thread thread(machine_, id);
        body(thread);
      });
    }
    template <class Body>
    void repeat(std::int64_t count, Body&& body) {
      machine_.alike(count, body);
    }
    template <class Body>
    void elements(std::int64_t count, Body&& body) {
      machine_.alike(count, [&](std::int64_t index) {
        Thread thread(machine_, index % threads_);
        body(thread, index);
      });
    }
    template <class Body>
    void tiles(const Span& rows, std::int64_t tile, Body&& body, bool alike = true) {
      const std::int64_t last = rows.first + rows.count;
      for (std::int64_t first = rows.first; first < last;) {
        const std::int64_t end = std::min(first / tile * tile + tile, last);
        const bool folds = walk == WalkKind::closed && alike && first % tile == 0;
        const std::int64_t whole = folds ? (last - first) / tile : 0;
        const std::int64_t times = std::max<std::int64_t>(whole, 1);
        machine_.times(times, [&] { body(Span{first, end - first}); });
        first = times > 1 ? first + times * tile : end;
      }
    }

   private:
    CountingMachine& machine_;
    std::int64_t threads_;
    std::int64_t words_ = 0;
  };

  [[nodiscard]] Global scratch(std::int64_t rows, std::int64_t width) {
    scratch_words_ += static_cast<Count>(rows) * static_cast<Count>(width);
    return {width};
  }

  template <class Body>
  void launch(const Grid& grid, std::int64_t threads, Body&& body) {
    const std::int64_t tiles = tiles_of(grid.extent, grid.tile);
    const auto visit = [&](std::int64_t batch, std::int64_t head, std::int64_t tile) {
      const std::int64_t first = tile * grid.tile;
      Group group(*this, threads);
      body(group, QueryTile{batch, head, first, std::min(grid.tile, grid.extent - first)});
    };
    if constexpr (walk == WalkKind::each) {
      for (std::int64_t batch = 0; batch < grid.batch; ++batch)
        for (std::int64_t head = 0; head < grid.heads; ++head)
          for (std::int64_t tile = 0; tile < tiles; ++tile) visit(batch, head, tile);
      return;
    }
    times(grid.batch * grid.heads, [&] {
      if (!grid.alike) {
        for (std::int64_t tile = 0; tile < tiles; ++tile) visit(0, 0, tile);
        return;
      }
      times(grid.extent / grid.tile, [&] { visit(0, 0, 0); });
      times(grid.extent % grid.tile != 0 ? 1 : 0, [&] { visit(0, 0, tiles - 1); });
    });
  }

  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] Count scratch_words() const { return scratch_words_; }
  [[nodiscard]] std::int64_t most_shared_words() const { return most_shared_words_; }

 private:
  void add(Count Counts::*field, std::int64_t words) { counts_.*field += weight_ * static_cast<Count>(words); }

  /// The body once, counted `count` times.
  template <class Body>
  void times(std::int64_t count, Body&& body) {
    if (count <= 0) return;
    const Count before = weight_;
    weight_ *= static_cast<Count>(count);
    body();
    weight_ = before;
  }
  /// Passes that count the same.
  template <class Body>
  void alike(std::int64_t count, Body&& body) {
    if constexpr (walk == WalkKind::each) {
      for (std::int64_t index = 0; index < count; ++index) body(index);
    } else {
      times(count, [&] { body(0); });
    }
  }

  Counts counts_;
  Count weight_ = 1;
  Count scratch_words_ = 0;
  std::int64_t most_shared_words_ = 0;
};

}  // namespace fresnel::traffic
