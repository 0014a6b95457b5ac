// SPDX-License-Identifier: Apache-2.0
// The door of the command line: finds the command, and turns whatever comes back, refusal or exception, into one
// sentence (or one JSON document) and an exit code.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/print.hpp"

namespace fresnel::cli {
namespace {

struct Command {
  const char* name;
  const char* usage;
  const char* summary;
  Result<int> (*run)(const Words&);
};

constexpr std::array<Command, 11> commands{{
    {"attend", "CASE [-o OUT] [--check]", "compute attention for a case file and say how it went", attend_command},
    {"check", "CASE RESULT", "judge anybody's result for a case against an error budget", check_command},
    {"count", "[--n N --d D --kind KIND]", "count what kernels ask of memory, on an emulated machine", count_command},
    {"overflow", "CASE", "count the scores that would overflow float16 without the maximum", overflow_command},
    {"time", "PROBLEM...", "verify kernels, then time them", time_command},
    {"report", "CASE -o OUT.html", "one page to look at: walk, attention, traffic, budget, speed", report_command},
    {"kernels", "", "list the kernels and their contracts", kernels_command},
    {"explain", "PROBLEM", "say which kernel is chosen and why the others refuse", explain_command},
    {"record", "DIR --protocol FILE", "run a protocol and keep what came out as evidence", record_command},
    {"audit", "DIR", "compute again what a record says", audit_command},
    {"machine", "", "measure what this machine can do at most", machine_command},
}};

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands) names.emplace_back(command.name);
  return names;
}

void print_help() {
  std::string text = "fresnel: exact attention, cut into tiles\n\nUsage: fresnel COMMAND [OPTIONS]\n\nCommands:\n";
  for (const Command& command : commands)
    text += fmt::format("  {:<34}  {}\n", fmt::format("{} {}", command.name, command.usage), command.summary);
  text +=
      "\nEvery command takes --help, and --json for one JSON document on standard output.\n"
      "A PROBLEM is one line, for example: \"b1 h8/2 q1024 k1024 d64 f32 causal\".\n"
      "Exit codes: 0 done and right, 1 judged wrong, 2 bad input or refused, 3 device, memory or file failed.\n";
  std::fputs(text.c_str(), stdout);
}

Result<int> dispatch(Words words) {
  // --json may also stand before the command.
  Words leading;
  while (!words.empty() && words.front() == "--json") {
    leading.assign(1, words.front());
    words.erase(words.begin());
  }
  const std::string first = words.empty() ? std::string() : words.front();
  if (first == "--help" || first == "-h") {
    print_help();
    return exit_right;
  }
  if (first == "--version") {
    fmt::print("fresnel {}\n", FRESNEL_VERSION);
    return exit_right;
  }
  const auto* found = std::find_if(commands.begin(), commands.end(), [&](const Command& c) { return first == c.name; });
  if (found == commands.end()) {
    const std::vector<std::string> names = command_names();
    return refuse("command", words.empty() ? "nothing" : "'" + first + "'", joined(names), nearest_word(first, names));
  }
  words.erase(words.begin());
  words.insert(words.end(), leading.begin(), leading.end());
  return found->run(words);
}

/// What went wrong below us, as a refusal.
Refusal refusal_of_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return error.refusal();
  } catch (const std::bad_alloc&) {
    return {Fault::out_of_memory, {}, "memory", "more than there is", "a smaller problem", {}};
  } catch (const std::exception& error) {
    return {Fault::device, {}, "fresnel", error.what(), "no such failure", {}};
  }
}

int run(const Words& words) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  const bool json = std::find(words.begin(), dashes, "--json") != dashes;
  Result<int> result = exit_right;
  try {
    result = dispatch(words);
  } catch (...) {
    result = refusal_of_exception();
  }
  const int code = result ? *result : report(result.refusal(), json);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const Refusal refusal{Fault::io, {}, "standard output", std::strerror(errno), "a place that can be written to", {}};
  return report(refusal, false);
}

}  // namespace
}  // namespace fresnel::cli

int main(int count, char** words) { return fresnel::cli::run({words + std::min(count, 1), words + count}); }
