// SPDX-License-Identifier: Apache-2.0
// A barrier is real: whichever one a kernel left out, the running machine would notice, although its threads run one
// after the other and the numbers would come out right.
#include <gtest/gtest.h>

#include "traffic/emulated.hpp"
#include "traffic/running_group.hpp"

namespace fresnel::test {
namespace {

using traffic::Kind;
using traffic::RunningMachine;
using Group = RunningMachine::Group;

/// What the watch says of one workgroup of four threads with four words.
template <class Body>
std::optional<traffic::Race> race_in(Body&& body) {
  RunningMachine machine;
  machine.launch({}, 4, [](auto&, const QueryTile&) { ADD_FAILURE() << "an empty grid has no workgroup"; });
  machine.launch({1, 1, 1, 1, true}, 4, [&](auto& group, const QueryTile&) { body(group, group.memory(4, 1)); });
  return machine.race();
}

void fill(Group& group, const RunningMachine::Memory& memory) {
  group.threads(4, [&](auto& thread) { thread.put(memory, thread.id, 1); });
}

void read_neighbour(Group& group, const RunningMachine::Memory& memory) {
  group.threads(4, [&](auto& thread) { static_cast<void>(thread.get(memory, (thread.id + 1) % 4)); });
}

TEST(Races, WhatAnotherThreadWroteIsReadAfterABarrier) {
  EXPECT_FALSE(race_in([](Group& group, const auto& memory) {
    fill(group, memory);
    group.barrier();
    read_neighbour(group, memory);
  }));
  const auto race = race_in([](Group& group, const auto& memory) {
    fill(group, memory);
    read_neighbour(group, memory);
  });
  ASSERT_TRUE(race);
  EXPECT_EQ(race->word, 1);
  EXPECT_EQ(race->earlier, 1);
  EXPECT_EQ(race->later, 0);
  EXPECT_FALSE(race->wrote);
}

TEST(Races, AThreadMayReadWhatItWroteItself) {
  EXPECT_FALSE(race_in([](Group& group, const auto& memory) {
    group.threads(4, [&](auto& thread) {
      thread.put(memory, thread.id, 1);
      static_cast<void>(thread.get(memory, thread.id));
      thread.put(memory, thread.id, 2);
    });
  }));
}

TEST(Races, WhatAnotherThreadReadsIsWrittenAfterABarrier) {
  const auto run = [](bool waits) {
    return race_in([&](Group& group, const auto& memory) {
      fill(group, memory);
      group.barrier();
      read_neighbour(group, memory);
      if (waits) group.barrier();
      fill(group, memory);
    });
  };
  EXPECT_FALSE(run(true));
  const auto race = run(false);
  ASSERT_TRUE(race);
  EXPECT_TRUE(race->wrote);
}

TEST(Races, AWordThatSeveralReadBelongsToNobody) {
  EXPECT_TRUE(race_in([](Group& group, const auto& memory) {
    fill(group, memory);
    group.barrier();
    group.threads(4, [&](auto& thread) { static_cast<void>(thread.get(memory, 3)); });
    group.threads(4, [&](auto& thread) {
      if (thread.id == 3) thread.put(memory, 3, 0);  // the last to read it is not the only one
    });
  }));
}

TEST(Races, TwoThreadsDoNotWriteOneWord) {
  EXPECT_TRUE(race_in(
      [](Group& group, const auto& memory) { group.threads(2, [&](auto& thread) { thread.put(memory, 0, 1); }); }));
}

TEST(Races, MemoryStartsUnwritten) {
  const auto race = race_in([](Group& group, const auto& memory) { read_neighbour(group, memory); });
  ASSERT_TRUE(race);
  EXPECT_EQ(race->earlier, -1);
}

// Every barrier of every kernel is needed, but for the last of a workgroup, after which nobody touches its memory.
TEST(Races, EveryBarrierOfEveryKernelIsMissed) {
  for (const Kind kind : traffic::all_kinds) {
    SCOPED_TRACE(traffic::name(kind));
    Problem problem = square(5, 4, kind == Kind::backward);
    problem.grad = kind == Kind::backward;
    const traffic::Shape shape = traffic::shape_of(kind, problem, {.rows = 2}).value();
    const traffic::Count barriers = traffic::count(kind, shape).counts.barriers;
    traffic::Count unneeded = 0;
    for (traffic::Count idle = 1; idle <= barriers; ++idle) {
      const Emulated ran(kind, shape, 1, idle);
      EXPECT_EQ(ran.emulation.counts.barriers, barriers) << "an idle barrier still counts";
      unneeded += ran.emulation.race ? 0 : 1;
    }
    // Workgroups whose loop over tiles ends with a barrier: 3 tiles of 5 rows, in two kernels of three; one a head.
    const traffic::Count workgroups = kind == Kind::outer_k ? 1 : kind == Kind::fused || kind == Kind::broken ? 3 : 6;
    EXPECT_EQ(unneeded, workgroups);
  }
}

}  // namespace
}  // namespace fresnel::test
