// SPDX-License-Identifier: Apache-2.0
// Names of the enumerators of a kernel's contract, for tables and JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernel.hpp"
#include "semantics/domain.hpp"

namespace fresnel::cli {

[[nodiscard]] std::string_view word(Feature feature);
[[nodiscard]] std::string_view word(AxisOrder order);
[[nodiscard]] std::string_view word(Determinism determinism);

/// Names of the members, in the order of their declaration.
[[nodiscard]] std::vector<std::string> names_of(const Set<DType>& dtypes);
[[nodiscard]] std::vector<std::string> names_of(const Set<Feature>& features);
[[nodiscard]] std::vector<std::string> names_of(const Set<AxisOrder>& orders);

/// Every feature there is.
[[nodiscard]] std::vector<std::string> all_features();

}  // namespace fresnel::cli
