// SPDX-License-Identifier: Apache-2.0
// Words for a kernel's contract: names of enumerators, and the phrases that tables, pages and JSON share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernel.hpp"
#include "semantics/domain.hpp"

namespace fresnel {

[[nodiscard]] std::string_view word(Feature feature);
[[nodiscard]] std::string_view word(AxisOrder order);
[[nodiscard]] std::string_view word(Determinism determinism);

/// Names of the members, in the order of their declaration.
[[nodiscard]] std::vector<std::string> names_of(const Set<DType>& dtypes);
[[nodiscard]] std::vector<std::string> names_of(const Set<Feature>& features);
[[nodiscard]] std::vector<std::string> names_of(const Set<AxisOrder>& orders);

/// The words with `between` between them.
[[nodiscard]] std::string joined(const std::vector<std::string>& words, std::string_view between);
/// The text with a capital first letter.
[[nodiscard]] std::string capitalised(std::string_view text);

/// "1 to 576", "512 and more", "1".
[[nodiscard]] std::string bounds_of(const Bounds& bounds);
/// Bounds of D, and of Dv where they differ.
[[nodiscard]] std::string dims_of(const Domain& domain);
/// "all", "all but grad" or the list, whichever is shortest.
[[nodiscard]] std::string features_of(const Domain& domain);
/// What `prefers` asks beyond the domain: "wherever it is right", "only when forced" or the clauses.
[[nodiscard]] std::string preference_of(const Kernel& kernel);
/// The same as the end of a sentence: "Chosen for queries 48 and more".
[[nodiscard]] std::string chosen_of(const Kernel& kernel);

}  // namespace fresnel
