// SPDX-License-Identifier: Apache-2.0
// tightness [VALUES]: judges at least VALUES outputs of every built row and dtype (default 100,000) and prints the
// table of docs/numerics.md; exits with 1 where an output lies beyond its budget, and names the command that shows it.
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>

#include "budgets/tightness.hpp"

int main(int count, char** words) {
  std::int64_t values = 100'000;
  if (count > 1) {
    const char* const end = words[1] + std::strlen(words[1]);
    const auto parsed = std::from_chars(words[1], end, values);
    if (count > 2 || parsed.ec != std::errc() || parsed.ptr != end || values < 0) {
      std::fprintf(stderr, "tightness: VALUES: given '%s'; accepted: one whole number from 0\n", words[count - 1]);
      return 2;
    }
  }
  try {
    const auto measured = fresnel::test::measure_tightness(values, fresnel::default_executor());
    std::fputs(fresnel::test::table_of(measured).c_str(), stdout);
    int code = 0;
    for (const fresnel::test::Tightness& line : measured) {
      if (line.mismatches == 0) continue;
      std::fprintf(stderr, "tightness: %s beyond the budget: %s\n", line.output.c_str(), line.worst_command.c_str());
      code = 1;
    }
    return code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tightness: %s\n", error.what());
    return 2;
  }
}
