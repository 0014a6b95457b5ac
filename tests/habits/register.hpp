// SPDX-License-Identifier: Apache-2.0
// Turns tables of habits into GoogleTest tests: one test per habit, looping over every row and instruction set.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "habits/habits.hpp"

namespace fresnel::test {

class HabitTest final : public testing::Test {
 public:
  explicit HabitTest(const Habit& habit) : habit_(habit) {}
  void TestBody() override {
    const std::vector<Runner> runners = catalogue_runners();
    ASSERT_FALSE(runners.empty()) << "no row of the catalogue is built for this host";
    for (const Runner& runner : runners) EXPECT_EQ(faults_of(habit_, runner), "") << runner.name();
  }

 private:
  const Habit& habit_;
};

/// Registers `suite`.`habit` for every habit of a table; for a static initialiser of a test file.
inline bool register_habits(const char* suite, std::span<const Habit> habits) {
  for (const Habit& habit : habits)
    testing::RegisterTest(suite, std::string(habit.name).c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [&habit]() -> testing::Test* { return new HabitTest(habit); });
  return true;
}

}  // namespace fresnel::test
