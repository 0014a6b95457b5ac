// SPDX-License-Identifier: Apache-2.0
// The rows of the catalogue that a test can run on this host. A row for a tile unit that this host lacks is there as
// the same kernel on a unit written in plain C++ (portable_tiles.hpp), and on vectors written so where it lacks those
// (portable_vectors-inl.h): only the instructions themselves go untested.
#pragma once

#include <vector>

#include "kernels/kernel.hpp"

namespace fresnel::test {

/// CPU rows of both passes that are built, in the catalogue's order.
[[nodiscard]] const std::vector<const Kernel*>& rows_here();

/// Is it the catalogue's own, which plans may name?
[[nodiscard]] bool is_listed(const Kernel& row);

/// The instruction sets that `row` runs on here, weakest first.
[[nodiscard]] std::vector<Isa> isas_of(const Kernel& row);

}  // namespace fresnel::test
