// SPDX-License-Identifier: Apache-2.0
// Reads the host for Machine::detect: Highway for the vector set, the affinity mask and the cgroup quota for threads,
// /sys for cores and caches, /proc for the name. What cannot be read keeps the Machine's defaults; only the environment
// variables can be wrong, and then detect refuses.
#include "runtime/host.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#ifdef __linux__
#include <sched.h>
#include <sys/utsname.h>
#endif

#include "hwy/targets.h"
#include "runtime/amx.hpp"

namespace fresnel {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<Isa, std::string_view>, 4> isa_names{
    {{Isa::baseline, "baseline"}, {Isa::avx2, "avx2"}, {Isa::avx3, "avx3"}, {Isa::neon, "neon"}}};

/// The first line of a small file; nothing when it cannot be read.
std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

/// A whole number that is all of `text`.
std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> number_in(const fs::path& path) {
  const auto line = first_line(path);
  return line ? whole_number(*line) : std::nullopt;
}

/// A size as the kernel writes it: "32K", "1M" or plain bytes.
std::optional<std::int64_t> size_in(const fs::path& path) {
  auto line = first_line(path);
  if (!line || line->empty()) return std::nullopt;
  std::int64_t unit = 1;
  if (line->back() == 'K') unit = 1 << 10;
  if (line->back() == 'M') unit = 1 << 20;
  if (unit != 1) line->pop_back();
  const auto value = whole_number(*line);
  if (!value || *value <= 0 || *value > (std::int64_t{1} << 40)) return std::nullopt;
  return *value * unit;
}

/// Printable ASCII without blanks at the ends, so that names compare and print the same everywhere.
std::string cleaned(std::string_view text) {
  std::string name;
  for (const char c : text.substr(0, 128)) {
    if (c > ' ' && c < 0x7f) name += c;
    if (c == ' ' && !name.empty() && name.back() != ' ') name += c;
  }
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return name;
}

std::string processor_name(const fs::path& root) {
  std::ifstream file(root / "proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (line.rfind("model name", 0) != 0 || colon == std::string::npos) continue;
    std::string name = cleaned(std::string_view(line).substr(colon + 1));
    if (!name.empty()) return name;
  }
#ifdef __linux__
  utsname system{};
  if (uname(&system) == 0) return cleaned(system.machine);  // processors without a brand string: "aarch64"
#endif
  return "unknown processor";
}

/// Physical cores among `processors`; as many as processors where the topology is not told.
int core_count(const fs::path& root, const std::vector<int>& processors) {
  std::set<std::pair<std::int64_t, std::int64_t>> cores;
  for (const int processor : processors) {
    const fs::path topology = root / "sys/devices/system/cpu" / ("cpu" + std::to_string(processor)) / "topology";
    const auto package = number_in(topology / "physical_package_id");
    const auto core = number_in(topology / "core_id");
    if (!package || !core) return static_cast<int>(processors.size());
    cores.emplace(*package, *core);
  }
  return static_cast<int>(cores.size());
}

void read_caches(const fs::path& root, int processor, Machine& machine) {
  const fs::path caches = root / "sys/devices/system/cpu" / ("cpu" + std::to_string(processor)) / "cache";
  for (int index = 0; index < 16; ++index) {
    const fs::path cache = caches / ("index" + std::to_string(index));
    const auto level = number_in(cache / "level");
    const auto type = first_line(cache / "type");
    const auto size = size_in(cache / "size");
    if (!level || !type || !size || *type == "Instruction") continue;
    if (*level == 1) machine.l1_bytes = *size;
    if (*level == 2) machine.l2_bytes = *size;
    if (*level == 3) machine.l3_bytes = *size;
  }
}

/// Processors' worth of time that "QUOTA PERIOD" grants, rounded up; nothing where it is unlimited or unreadable.
std::optional<int> granted(std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  const std::int64_t whole = *quota / *period + (*quota % *period != 0 ? 1 : 0);
  return static_cast<int>(std::min<std::int64_t>(whole, most_threads));
}

/// The quota of one control group, version 2 ("cpu.max": QUOTA PERIOD, or max) or 1 (a file each).
std::optional<int> quota_of(const fs::path& group) {
  if (const auto line = first_line(group / "cpu.max")) {
    const std::size_t blank = line->find(' ');
    if (blank == std::string::npos) return std::nullopt;
    return granted(whole_number(line->substr(0, blank)), whole_number(line->substr(blank + 1)));
  }
  return granted(number_in(group / "cpu.cfs_quota_us"), number_in(group / "cpu.cfs_period_us"));
}

/// The tightest quota of this process's control group and those above it.
std::optional<int> cgroup_quota(const fs::path& root) {
  std::optional<int> tightest;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // HIERARCHY:CONTROLLERS:PATH
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const bool unified = second == first + 1;
    std::string controllers(1, ',');
    controllers.append(line, first + 1, second - first - 1).append(1, ',');
    if (!unified && controllers.find(",cpu,") == std::string::npos) continue;
    const fs::path mount = root / "sys/fs/cgroup" / (unified ? "" : "cpu");
    fs::path group = fs::path(line.substr(second + 1)).relative_path().lexically_normal();
    while (true) {
      const auto quota = quota_of(mount / group);
      if (quota && (!tightest || *quota < *tightest)) tightest = quota;
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
  return tightest;
}

/// The widest set that both the host and the library have.
Isa widest_isa() {
  for (const Isa isa : {Isa::avx3, Isa::avx2, Isa::neon}) {
    if (runs_here(isa)) return isa;
  }
  return Isa::baseline;
}

/// An environment variable that is set and not empty.
std::optional<std::string> environment(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::string(text);
}

std::string names_of_runnable() {
  std::string names;
  for (const auto& [isa, text] : isa_names) {
    if (!runs_here(isa)) continue;
    if (!names.empty()) names += ", ";
    names += text;
  }
  return names;
}

Status narrow_isa(Machine& machine) {
  const auto text = environment("FRESNEL_ISA");
  if (!text) return Done{};
  const auto isa = parse_isa(*text);
  if (isa && runs_here(*isa)) {
    machine.isa = *isa;
    if (*isa != Isa::avx3) machine.tile_unit = TileUnit::absent;
    return Done{};
  }
  return Refusal{.fault = Fault::bad_input,
                 .kernel = {},
                 .argument = "FRESNEL_ISA",
                 .given = *text,
                 .accepted = "a vector set of this host: " + names_of_runnable(),
                 .nearest = isa ? std::string(name(widest_isa())) : std::string()};
}

Status override_threads(Machine& machine) {
  const auto text = environment("FRESNEL_THREADS");
  if (!text) return Done{};
  const auto threads = whole_number(*text);
  if (threads && *threads >= 1 && *threads <= most_threads) {
    machine.threads = static_cast<int>(*threads);
    return Done{};
  }
  return Refusal{
      .fault = Fault::bad_input,
      .kernel = {},
      .argument = "FRESNEL_THREADS",
      .given = *text,
      .accepted = "a whole number from 1 to " + std::to_string(most_threads),
      .nearest = threads ? std::to_string(std::clamp<std::int64_t>(*threads, 1, most_threads)) : std::string()};
}

}  // namespace

std::string_view name(Isa isa) { return isa_names[static_cast<std::size_t>(isa)].second; }

Result<Isa> parse_isa(std::string_view text) {
  for (const auto& [isa, known] : isa_names) {
    if (text == known) return isa;
  }
  return Refusal{.fault = Fault::bad_input,
                 .kernel = {},
                 .argument = "isa",
                 .given = std::string(text),
                 .accepted = "baseline, avx2, avx3, neon",
                 .nearest = {}};
}

bool runs_here(Isa isa) {
  static const std::int64_t here = hwy::SupportedTargets() & HWY_TARGETS;  // cpuid traps in virtual machines: ask once
  switch (isa) {
    case Isa::baseline: return true;
    case Isa::avx2: return (here & HWY_AVX2) != 0;
    case Isa::avx3: return (here & HWY_AVX3) != 0;
    case Isa::neon: return (here & HWY_NEON) != 0;
  }
  return false;
}

std::vector<int> usable_processors() {
  std::vector<int> processors;
#ifdef __linux__
  // A mask too small for the kernel's is refused, so it grows until it fits.
  for (int most = 1024; processors.empty() && most <= 1 << 20; most *= 4) {
    cpu_set_t* const mask = CPU_ALLOC(most);
    if (mask == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(most);
    if (sched_getaffinity(0, bytes, mask) == 0) {
      for (int processor = 0; processor < most; ++processor) {
        if (CPU_ISSET_S(processor, bytes, mask)) processors.push_back(processor);
      }
    }
    CPU_FREE(mask);
  }
#endif
  if (processors.empty()) {
    const unsigned count = std::max(1u, std::thread::hardware_concurrency());
    for (unsigned processor = 0; processor < count; ++processor) processors.push_back(static_cast<int>(processor));
  }
  return processors;
}

std::string_view name(TileUnit unit) {
  switch (unit) {
    case TileUnit::absent: return "none";
    case TileUnit::denied: return "denied by the operating system";
    case TileUnit::amx_bf16: return "amx_bf16";
  }
  return "?";
}

Result<Machine> detect_machine(const fs::path& root) {
  Machine machine;
  machine.name = processor_name(root);
  machine.isa = widest_isa();
  machine.tile_unit = tile_unit_here();
  const std::vector<int> processors = usable_processors();
  machine.cores = core_count(root, processors);
  machine.threads = static_cast<int>(std::min<std::size_t>(processors.size(), most_threads));
  if (const auto quota = cgroup_quota(root)) machine.threads = std::min(machine.threads, *quota);
  read_caches(root, processors.front(), machine);
  if (const Status status = narrow_isa(machine); !status) return status.refusal();
  if (const Status status = override_threads(machine); !status) return status.refusal();
  return machine;
}

Result<Machine> Machine::detect() { return detect_machine("/"); }

const Result<Machine>& host_machine() {
  // Published by an exchange and not by a static's guard: a process forked half way through would wait for ever.
  static constinit std::atomic<const Result<Machine>*> known{nullptr};
  const Result<Machine>* seen = known.load(std::memory_order_acquire);
  if (seen != nullptr) return *seen;
  auto fresh = std::make_unique<const Result<Machine>>(Machine::detect());
  if (known.compare_exchange_strong(seen, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
  return *seen;
}

const Machine& Machine::host() { return host_machine().value(); }

}  // namespace fresnel
