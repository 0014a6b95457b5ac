// SPDX-License-Identifier: Apache-2.0
// What a printed contract claims, each claim a function that turns the text into calls of the row and lists where the
// row does otherwise. Given a contract with one word changed, they must find it.
#pragma once

#include <span>
#include <string_view>

#include "contracts/call.hpp"

namespace fresnel::test {

struct Claim {
  std::string_view name;
  void (*check)(const Json& contract, const Runner& runner, Faults& faults);
};

[[nodiscard]] std::span<const Claim> claims();

/// All claims at once; "" when the row does what the contract says.
[[nodiscard]] std::string broken_claims(const Json& contract, const Runner& runner);

}  // namespace fresnel::test
