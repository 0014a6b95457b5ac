// SPDX-License-Identifier: Apache-2.0
// What all habits share: exceptions become faults, lines become problems, and a crash is confined to a child process.
#include "habits/habits.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

namespace fresnel::test {

std::string faults_of(const Habit& habit, const Runner& runner) {
  Faults faults;
  try {
    habit.check(runner, faults);
  } catch (const std::exception& error) {
    faults.add(error.what());
  }
  return faults.message();
}

std::vector<Problem> problems_for(const Runner& runner, const std::vector<std::string>& lines) {
  std::vector<Problem> problems;
  const std::vector<DType> dtypes = dtypes_of(runner);
  std::size_t turn = static_cast<std::size_t>(runner.machine().isa);
  for (const std::string& line : lines) {
    Problem problem = problem_of(line);
    const DType only = dtypes[turn++ % dtypes.size()];
    for (const DType dtype : dtypes) {
      if (under_thread_sanitizer && runner.listed() && dtype != only) continue;
      problem.dtype = dtype;
      if (admits(runner.domain(), problem)) problems.push_back(problem);
    }
  }
  return problems;
}

bool survives(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace fresnel::test
