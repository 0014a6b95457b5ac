// SPDX-License-Identifier: Apache-2.0
// What every fuzz target is: one function of some bytes that comes back, or ends the process with a sentence. libFuzzer
// (entry.cpp) and the replay of the kept corpus (replay.cpp) call it alike. It refuses to know what the bytes mean.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "fresnel/result.hpp"

namespace fresnel::test {

/// Each target defines it once.
void one_input(std::span<const std::byte> bytes);

/// A fault ends the process: a fuzzer keeps the input that did it, a test fails.
inline void demand(bool right, const std::string& sentence) {
  if (right) return;
  std::fprintf(stderr, "%s\n", sentence.c_str());
  std::abort();
}

/// A refusal names the argument, what was given and what is accepted, is short whatever was read, and holds no byte
/// that a terminal would obey.
inline void demand_reason(const Refusal& refusal) {
  const std::string message = refusal.message();
  demand(!refusal.argument.empty() && !refusal.given.empty() && !refusal.accepted.empty(), "no reason: " + message);
  demand(message.size() < 2000, "a refusal as long as its input: " + message);
  for (const char character : message)
    if (character < ' ' || character > '~') demand(false, "not printable: " + message);
}

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace fresnel::test
