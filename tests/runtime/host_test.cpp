// SPDX-License-Identifier: Apache-2.0
// Detection: what this host says must hold together, environment variables narrow it or are refused by name, and
// made-up machines laid out as files are read as they are.
#include "runtime/host.hpp"

#include <gtest/gtest.h>

#include <thread>

#ifdef __linux__
#include <sched.h>
#endif

#include "runtime/scratch.hpp"

namespace fresnel {
namespace {

using test::Directory;
using test::Environment;

class HostTest : public testing::Test {
 protected:
  Environment threads_{"FRESNEL_THREADS", std::nullopt};
  Environment isa_{"FRESNEL_ISA", std::nullopt};
};

TEST_F(HostTest, ThisHostHoldsTogether) {
  const auto machine = Machine::detect();
  ASSERT_TRUE(machine);
  EXPECT_FALSE(machine->name.empty());
  EXPECT_EQ(machine->device, Device::cpu);
  EXPECT_TRUE(runs_here(machine->isa));
  EXPECT_GE(machine->cores, 1);
  EXPECT_LE(machine->cores, static_cast<int>(usable_processors().size()));
  EXPECT_GE(machine->threads, 1);
  EXPECT_LE(machine->threads, static_cast<int>(usable_processors().size()));
  EXPECT_GE(machine->l1_bytes, 4 << 10);
  EXPECT_GE(machine->l2_bytes, machine->l1_bytes);
  EXPECT_FALSE(machine->f32_tflops || machine->f64_tflops || machine->dram_gbps);
}

TEST_F(HostTest, TheHostIsReadOnce) {
  const Machine* const host = &Machine::host();
  EXPECT_FALSE(host->name.empty());
  const Environment changed("FRESNEL_THREADS", "no number");
  EXPECT_EQ(&Machine::host(), host);
  EXPECT_EQ(&*host_machine(), host);
}

TEST_F(HostTest, IsaNamesReadBack) {
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx3, Isa::neon}) {
    const auto read = parse_isa(name(isa));
    ASSERT_TRUE(read);
    EXPECT_EQ(*read, isa);
  }
  for (const char* const wrong : {"", "AVX2", "avx2 ", "avx512", "sse"}) {
    const auto read = parse_isa(wrong);
    ASSERT_FALSE(read) << wrong;
    EXPECT_EQ(read.refusal().argument, "isa");
    EXPECT_EQ(read.refusal().given, wrong);
  }
}

TEST_F(HostTest, TheBaselineRunsEverywhereAndOneArchitectureOnly) {
  EXPECT_TRUE(runs_here(Isa::baseline));
  EXPECT_FALSE(runs_here(Isa::neon) && runs_here(Isa::avx2));
#if defined(__x86_64__)
  // The compiler's own look at the processor agrees.
  EXPECT_EQ(runs_here(Isa::avx2), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(runs_here(Isa::avx3), __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
#endif
}

TEST_F(HostTest, TheVectorSetCanBeNarrowed) {
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx3, Isa::neon}) {
    const Environment narrowed("FRESNEL_ISA", std::string(name(isa)));
    const auto machine = Machine::detect();
    ASSERT_EQ(machine.ok(), runs_here(isa));
    if (machine) {
      EXPECT_EQ(machine->isa, isa);
    } else {
      EXPECT_EQ(machine.refusal().argument, "FRESNEL_ISA");
      EXPECT_EQ(machine.refusal().given, name(isa));
      EXPECT_NE(machine.refusal().accepted.find("baseline"), std::string::npos);
      EXPECT_TRUE(runs_here(parse_isa(machine.refusal().nearest).value()));
    }
  }
  const Environment wrong("FRESNEL_ISA", "avx9");
  const auto machine = Machine::detect();
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.refusal().given, "avx9");
}

TEST_F(HostTest, ThreadsCanBeSetAndAnEmptyVariableIsNone) {
  for (const auto& [text, threads] : {std::pair{"1", 1}, {"3", 3}, {"64", 64}, {"4096", 4096}}) {
    const Environment set("FRESNEL_THREADS", text);
    EXPECT_EQ(Machine::detect().value().threads, threads);
  }
  const int unset = Machine::detect().value().threads;
  const Environment empty("FRESNEL_THREADS", "");
  EXPECT_EQ(Machine::detect().value().threads, unset);
}

TEST_F(HostTest, AThreadCountThatIsNoneIsRefused) {
  for (const char* const wrong : {"0", "-1", "4097", "1.5", " 2", "2 ", "two", "99999999999999999999", "0x2"}) {
    const Environment set("FRESNEL_THREADS", wrong);
    const auto machine = Machine::detect();
    ASSERT_FALSE(machine) << wrong;
    EXPECT_EQ(machine.refusal().fault, Fault::bad_input);
    EXPECT_EQ(machine.refusal().argument, "FRESNEL_THREADS");
    EXPECT_EQ(machine.refusal().given, wrong);
    EXPECT_EQ(machine.refusal().accepted, "a whole number from 1 to 4096");
  }
}

#ifdef __linux__
TEST_F(HostTest, AThreadBoundToOneProcessorSeesOne) {
  std::thread bound([] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(static_cast<std::size_t>(usable_processors().back()), &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
    const auto machine = Machine::detect();
    ASSERT_TRUE(machine);
    EXPECT_EQ(machine->threads, 1);
    EXPECT_EQ(machine->cores, 1);
  });
  bound.join();
}
#endif

/// A machine as files: all usable processors on one core, with the given caches.
class LaidOut : public HostTest {
 protected:
  LaidOut() {
    root_.write("proc/cpuinfo", "processor\t: 0\nmodel name\t:   Imaginary \t CPU  @ 1 THz \nflags : x\n");
    for (const int processor : usable_processors()) {
      const std::string at = "sys/devices/system/cpu/cpu" + std::to_string(processor) + "/";
      root_.write(at + "topology/physical_package_id", "0\n");
      root_.write(at + "topology/core_id", "7\n");
      cache(at + "cache/index0/", "1", "Data", "48K");
      cache(at + "cache/index1/", "1", "Instruction", "32K");
      cache(at + "cache/index2/", "2", "Unified", "2M");
      cache(at + "cache/index3/", "3", "Unified", "98304K");
    }
  }
  void cache(const std::string& at, const char* level, const char* type, const char* size) {
    root_.write(at + "level", std::string(level) + "\n");
    root_.write(at + "type", std::string(type) + "\n");
    root_.write(at + "size", std::string(size) + "\n");
  }
  [[nodiscard]] Machine read() const { return detect_machine(root_.path()).value(); }

  Directory root_;
  int processors_ = static_cast<int>(usable_processors().size());
};

TEST_F(LaidOut, NameCoresAndCaches) {
  const Machine machine = read();
  EXPECT_EQ(machine.name, "Imaginary CPU @ 1 THz");
  EXPECT_EQ(machine.cores, 1);
  EXPECT_EQ(machine.threads, processors_);
  EXPECT_EQ(machine.l1_bytes, 48 << 10);
  EXPECT_EQ(machine.l2_bytes, 2 << 20);
  EXPECT_EQ(machine.l3_bytes, 96 << 20);
}

TEST_F(LaidOut, QuotaOfTheSecondKindAndOfAGroupAbove) {
  root_.write("proc/self/cgroup", "0::/outer/inner\n");
  root_.write("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  EXPECT_EQ(read().threads, processors_);
  root_.write("sys/fs/cgroup/outer/cpu.max", "50000 100000\n");
  EXPECT_EQ(read().threads, 1);
  root_.write("sys/fs/cgroup/outer/cpu.max", "100001 100000\n");  // rounded up
  EXPECT_EQ(read().threads, std::min(processors_, 2));
  root_.write("sys/fs/cgroup/cpu.max", "100000 100000\n");  // the tightest counts
  EXPECT_EQ(read().threads, 1);
}

TEST_F(LaidOut, QuotaOfTheFirstKind) {
  root_.write("proc/self/cgroup", "9:name=systemd:/\n3:cpuacct,cpu:/box\n2:cpuset:/\n");
  root_.write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1\n");
  root_.write("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read().threads, processors_);
  root_.write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "20000\n");
  EXPECT_EQ(read().threads, 1);
}

TEST_F(LaidOut, TheEnvironmentOverridesTheQuota) {
  root_.write("proc/self/cgroup", "0::/\n");
  root_.write("sys/fs/cgroup/cpu.max", "10000 100000\n");
  EXPECT_EQ(read().threads, 1);
  const Environment set("FRESNEL_THREADS", "5");
  EXPECT_EQ(read().threads, 5);
}

TEST_F(LaidOut, WhatCannotBeReadKeepsItsDefault) {
  const Directory empty;
  const Machine machine = detect_machine(empty.path()).value(), defaults;
  EXPECT_FALSE(machine.name.empty());
  EXPECT_EQ(machine.threads, processors_);
  EXPECT_EQ(machine.cores, processors_);
  EXPECT_EQ(machine.l1_bytes, defaults.l1_bytes);
  EXPECT_EQ(machine.l2_bytes, defaults.l2_bytes);
  EXPECT_EQ(machine.l3_bytes, defaults.l3_bytes);
}

TEST_F(LaidOut, NonsenseKeepsTheDefaultToo) {
  root_.write("proc/cpuinfo", "model name\nmodel name :\n: : :\n");
  root_.write("proc/self/cgroup", "\n:\n::\n0::/../../..\n0::relative\n1:cpu\n");
  root_.write("sys/fs/cgroup/cpu.max", "lots of it\n");
  for (const int processor : usable_processors()) {
    const std::string at = "sys/devices/system/cpu/cpu" + std::to_string(processor) + "/";
    root_.write(at + "topology/core_id", "seven\n");
    cache(at + "cache/index0/", "1", "Data", "-48K");
    cache(at + "cache/index2/", "2", "Unified", "99999999999999999999");
    cache(at + "cache/index3/", "three", "Unified", "");
  }
  const Machine machine = read(), defaults;
  EXPECT_FALSE(machine.name.empty());
  EXPECT_EQ(machine.threads, processors_);
  EXPECT_EQ(machine.cores, processors_);
  EXPECT_EQ(machine.l1_bytes, defaults.l1_bytes);
  EXPECT_EQ(machine.l2_bytes, defaults.l2_bytes);
  EXPECT_EQ(machine.l3_bytes, defaults.l3_bytes);
}

}  // namespace
}  // namespace fresnel
