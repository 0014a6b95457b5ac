// SPDX-License-Identifier: Apache-2.0
// The door that libFuzzer knocks at.
#include <cstdint>

#include "fuzz/target.hpp"

// The name is libFuzzer's. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fresnel::test::one_input(std::as_bytes(std::span(data, size)));
  return 0;
}
