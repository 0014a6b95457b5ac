// SPDX-License-Identifier: Apache-2.0
// Measures the ceilings. A figure is the best of three medians of five samples of about ten milliseconds each: the
// median shrugs off an interruption, the best one that lasted. Work is cut into small chunks that lanes take from a
// counter, so that a thread that wakes late does not count as a slow machine.
#include "runtime/ceilings.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <span>
#include <utility>

#include "runtime/amx.hpp"
#include "runtime/measure.hpp"
#include "runtime/memory.hpp"
#include "runtime/parallel.hpp"

namespace fresnel {
namespace {

constexpr int rounds = 3;
constexpr int samples = 5;
constexpr double sample_seconds = 0.008;

/// Deterministic values that look random (the SplitMix64 sequence: Steele, Lea and Flood, 2014).
class Scramble {
 public:
  explicit Scramble(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// In [0, 1).
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

/// The machine under the stopwatch: its threads, its loops and their data.
class Bench {
 public:
  explicit Bench(const Machine& measured)
      : machine(measured), loops(measure_loops(measured.isa)), team_(make_executor(measured.threads)) {
    Scramble scramble(1);
    for (float& seed : seeds_f32) seed = static_cast<float>(0.5 + 0.499 * scramble.unit());
    for (double& seed : seeds_f64) seed = 0.5 + 0.499 * scramble.unit();
    for (float& exponent : exponents) exponent = static_cast<float>(-20 * scramble.unit());
  }

  /// Units of work per second when chunk(lane, item), worth `amount` units, runs on `lanes` lanes at once.
  template <class Chunk>
  double rate(int lanes, double amount, Chunk chunk) {
    return rate_and_spread(lanes, amount, chunk).first;
  }

  /// The same for chunks of some microseconds that wait for nothing, which tell a busy machine from a quiet one: all
  /// the time they do not get is somebody else's.
  template <class Chunk>
  double arithmetic_rate(int lanes, double amount, Chunk chunk) {
    const double wall = timed_seconds_, processors = processor_seconds();
    const auto [rate, spread] = rate_and_spread(lanes, amount, chunk);
    got_ += processor_seconds() - processors;
    asked_ += lanes * (timed_seconds_ - wall);
    worst_spread_ = std::max(worst_spread_, spread);
    return rate;
  }
  [[nodiscard]] double processor_share() const { return asked_ > 0 ? got_ / asked_ : 1; }
  [[nodiscard]] double spread() const { return worst_spread_; }

  /// Where a chunk leaves its result, so that no work can be dropped.
  void keep(double result) { kept_.store(result, std::memory_order_relaxed); }

  const Machine& machine;
  const MeasureLoops& loops;
  alignas(64) std::array<float, 64> seeds_f32;
  alignas(64) std::array<double, 64> seeds_f64;
  alignas(64) std::array<float, 2048> exponents;

  /// Memory that every reader shares, filled by all threads; grown on demand, empty when there is not enough.
  std::span<const std::byte> shared_bytes(std::int64_t bytes) {
    if (static_cast<std::int64_t>(shared_.size()) < bytes) {
      shared_ = AlignedBuffer();
      auto grown = AlignedBuffer::allocate(static_cast<std::size_t>(bytes), "measured memory", Pages::huge);
      if (!grown) return {};
      shared_ = std::move(*grown);
      fill(shared_.span());
    }
    return std::span<const std::byte>(shared_.span()).first(static_cast<std::size_t>(bytes));
  }

 private:
  /// The rate, and the slowest median over the fastest.
  template <class Chunk>
  std::pair<double, double> rate_and_spread(int lanes, double amount, Chunk& chunk) {
    std::int64_t items = lanes;
    double seconds = time(lanes, items, chunk);
    // Doubling warms up clocks, caches and page tables on the way to a sample of useful length.
    while (seconds < sample_seconds && items < std::int64_t{1} << 40) seconds = time(lanes, items *= 2, chunk);
    std::array<double, rounds> medians;
    for (double& median : medians) {
      std::array<double, samples> all;
      for (double& sample : all) sample = time(lanes, items, chunk);
      std::nth_element(all.begin(), all.begin() + samples / 2, all.end());
      median = all[samples / 2];
    }
    const auto [best, worst] = std::minmax_element(medians.begin(), medians.end());
    return {amount * static_cast<double>(items) / *best, *worst / *best};
  }

  template <class Chunk>
  double time(int lanes, std::int64_t items, Chunk& chunk) {
    const auto start = std::chrono::steady_clock::now();
    parallel_for(*team_, lanes, items, chunk);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    timed_seconds_ += seconds;
    return seconds;
  }

  /// What all threads of this process have used.
  static double processor_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  void fill(std::span<std::byte> bytes) {
    constexpr std::size_t piece = std::size_t{1} << 20;
    parallel_for(*team_, machine.threads, static_cast<std::int64_t>((bytes.size() + piece - 1) / piece),
                 [&](int, std::int64_t item) {
                   Scramble scramble(static_cast<std::uint64_t>(item));
                   const auto first = static_cast<std::size_t>(item) * piece;
                   const auto part = bytes.subspan(first, std::min(piece, bytes.size() - first));
                   for (std::size_t at = 0; at + 8 <= part.size(); at += 8) {
                     const std::uint64_t value = scramble.bits();
                     std::memcpy(part.data() + at, &value, sizeof value);
                   }
                 });
  }

  std::unique_ptr<Executor> team_;
  AlignedBuffer shared_;
  std::atomic<double> kept_{0};
  double timed_seconds_ = 0;
  double got_ = 0, asked_ = 0;  ///< processor seconds of arithmetic
  double worst_spread_ = 1;
};

using Value = std::optional<double>;

Value f32_fma(Bench& bench, int lanes) {
  constexpr std::int64_t turns = 8192;
  return bench.arithmetic_rate(lanes, bench.loops.fma_f32_flops * turns / 1e12, [&](int, std::int64_t) {
    bench.keep(bench.loops.fma_f32(bench.seeds_f32.data(), turns));
  });
}

Value f64_fma(Bench& bench, int lanes) {
  constexpr std::int64_t turns = 8192;
  return bench.arithmetic_rate(lanes, bench.loops.fma_f64_flops * turns / 1e12, [&](int, std::int64_t) {
    bench.keep(bench.loops.fma_f64(bench.seeds_f64.data(), turns));
  });
}

Value bf16_tile(Bench& bench, int lanes) {
  if (!amx_granted()) return std::nullopt;
  constexpr std::int64_t turns = 2048;
  return bench.rate(lanes, amx_bf16_flops * turns / 1e12,
                    [&](int, std::int64_t) { bench.keep(amx_bf16_products(turns)); });
}

Value exponentials(Bench& bench, int lanes) {
  constexpr int turns = 16;
  return bench.arithmetic_rate(
      lanes, static_cast<double>(bench.exponents.size()) * turns / 1e9, [&](int, std::int64_t) {
        double sum = 0;
        for (int turn = 0; turn < turns; ++turn) {
          sum += bench.loops.exp_f32(bench.exponents.data(), static_cast<std::int64_t>(bench.exponents.size()));
        }
        bench.keep(sum);
      });
}

/// Each lane reads its own half a cache again and again.
Value read_private(Bench& bench, int lanes, std::int64_t cache_bytes) {
  const std::int64_t bytes = cache_bytes / 2 / 1024 * 1024;
  if (bytes <= 0) return std::nullopt;
  const auto memory = bench.shared_bytes(bytes * lanes);
  if (memory.empty()) return std::nullopt;
  const std::int64_t passes = std::max<std::int64_t>(1, (4 << 20) / bytes);
  return bench.rate(lanes, static_cast<double>(bytes * passes) / 1e9, [&](int lane, std::int64_t) {
    bench.keep(static_cast<double>(bench.loops.read(memory.data() + lane * bytes, bytes, passes)));
  });
}

/// All lanes read through the same bytes piece by piece, and come back to a piece only after all the others.
Value read_shared(Bench& bench, int lanes, std::int64_t bytes) {
  constexpr std::int64_t pieces = 64;
  const std::int64_t piece = bytes / pieces / 1024 * 1024;
  if (piece <= 0) return std::nullopt;
  const auto memory = bench.shared_bytes(piece * pieces);
  if (memory.empty()) return std::nullopt;
  return bench.rate(lanes, static_cast<double>(piece) / 1e9, [&](int, std::int64_t item) {
    bench.keep(static_cast<double>(bench.loops.read(memory.data() + item % pieces * piece, piece, 1)));
  });
}

Value read_l1(Bench& bench, int lanes) { return read_private(bench, lanes, bench.machine.l1_bytes); }
Value read_l2(Bench& bench, int lanes) { return read_private(bench, lanes, bench.machine.l2_bytes); }
Value read_l3(Bench& bench, int lanes) { return read_shared(bench, lanes, bench.machine.l3_bytes / 2); }

/// Far more than the caches of all sockets hold together, yet no more than a quarter of the memory.
Value read_dram(Bench& bench, int lanes) {
  const std::int64_t least = std::int64_t{256} << 20, most = std::int64_t{2} << 30;
  const std::int64_t wanted = std::max(4 * bench.machine.l3_bytes, bench.machine.threads * (std::int64_t{64} << 20));
  const std::int64_t memory = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return read_shared(bench, lanes, std::min(std::clamp(wanted, least, most), memory / 4));
}

struct Row {
  std::string_view name;
  std::string_view about;
  Value (*measure)(Bench& bench, int lanes);
  bool one_thread;
};

/// THE table of figures. A name that is saved once keeps its meaning.
constexpr std::array<Row, 16> table{{
    {"f32_fma_tflops", "float32 multiply-adds", &f32_fma, false},
    {"f32_fma_tflops_one_thread", "float32 multiply-adds, one thread", &f32_fma, true},
    {"f64_fma_tflops", "float64 multiply-adds", &f64_fma, false},
    {"f64_fma_tflops_one_thread", "float64 multiply-adds, one thread", &f64_fma, true},
    {"bf16_tile_tflops", "bf16 tile unit (AMX)", &bf16_tile, false},
    {"bf16_tile_tflops_one_thread", "bf16 tile unit (AMX), one thread", &bf16_tile, true},
    {"exp_gops", "float32 exponentials", &exponentials, false},
    {"exp_gops_one_thread", "float32 exponentials, one thread", &exponentials, true},
    {"l1_read_gbps", "reading from L1", &read_l1, false},
    {"l1_read_gbps_one_thread", "reading from L1, one thread", &read_l1, true},
    {"l2_read_gbps", "reading from L2", &read_l2, false},
    {"l2_read_gbps_one_thread", "reading from L2, one thread", &read_l2, true},
    {"l3_read_gbps", "reading from L3", &read_l3, false},
    {"l3_read_gbps_one_thread", "reading from L3, one thread", &read_l3, true},
    {"dram_read_gbps", "reading from memory", &read_dram, false},
    {"dram_read_gbps_one_thread", "reading from memory, one thread", &read_dram, true},
}};

}  // namespace

std::optional<double> Ceilings::of(std::string_view name) const {
  for (const Figure& figure : figures) {
    if (figure.name == name) return figure.value;
  }
  return std::nullopt;
}

Ceilings unmeasured(const Machine& machine) {
  Ceilings ceilings{machine.name, machine.isa, machine.cores, machine.threads, {}};
  for (const Row& row : table) ceilings.figures.push_back({row.name, row.about, std::nullopt});
  return ceilings;
}

Result<Ceilings> measure_ceilings(const Machine& machine, const std::function<void(const Figure&)>& progress) {
  if (machine.device != Device::cpu) {
    return Refusal{.fault = Fault::device,
                   .kernel = {},
                   .argument = "machine.device",
                   .given = std::string(name(machine.device)),
                   .accepted = "cpu",
                   .nearest = {}};
  }
  if (!runs_here(machine.isa)) {
    return Refusal{.fault = Fault::device,
                   .kernel = {},
                   .argument = "machine.isa",
                   .given = std::string(name(machine.isa)),
                   .accepted = "a vector set that runs here",
                   .nearest = {}};
  }
  Ceilings ceilings = unmeasured(machine);
  Bench bench(machine);
  for (std::size_t row = 0; row < table.size(); ++row) {
    Figure& figure = ceilings.figures[row];
    figure.value = table[row].measure(bench, table[row].one_thread ? 1 : std::max(1, machine.threads));
    if (progress) progress(figure);
  }
  ceilings.processor_share = bench.processor_share();
  ceilings.spread = bench.spread();
  return ceilings;
}

Machine rated(Machine machine, const Ceilings& ceilings) {
  machine.f32_tflops = ceilings.of("f32_fma_tflops");
  machine.f64_tflops = ceilings.of("f64_fma_tflops");
  machine.dram_gbps = ceilings.of("dram_read_gbps");
  return machine;
}

}  // namespace fresnel
