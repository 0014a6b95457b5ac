// SPDX-License-Identifier: Apache-2.0
// A domain sampled as data: problems from inside it, the numbers that sit on and around its bounds, and the problems
// that stand one step outside with the name of the field that must be refused. It refuses to know any kernel.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "semantics/domain.hpp"
#include "support/scenario.hpp"

namespace fresnel::test {

/// Head dims of real models and their neighbours, and the edges of vector widths.
constexpr std::array<std::int64_t, 20> head_dims{1,   2,   7,   8,   33,  63,  64,  65,  80,  96,
                                                 112, 120, 128, 160, 192, 224, 256, 257, 512, 576};

constexpr std::array<Feature, 8> all_features{Feature::causal,        Feature::top_left, Feature::window,
                                              Feature::softcap,       Feature::alibi,    Feature::seqlens_k,
                                              Feature::grouped_heads, Feature::grad};

/// The members of `values` that the bounds hold, and the bounds themselves where they are finite and at most `most`.
[[nodiscard]] std::vector<std::int64_t> values_inside(const Bounds& bounds, const std::vector<std::int64_t>& values,
                                                      std::int64_t most);

/// A small problem that the domain admits, every feature it has switched on about one time in three.
[[nodiscard]] Problem random_problem(const Domain& domain, Random& random);

/// `problem` with a feature switched on: the smallest change that needs it.
[[nodiscard]] Problem with_feature(Problem problem, Feature feature);

/// A problem that a domain must refuse, and the words one of which must be the refusal's argument.
struct Outsider {
  Problem problem;
  std::vector<std::string> fields;
};
/// One step outside every bound and without every feature, from `inside`, which the domain admits.
[[nodiscard]] std::vector<Outsider> outsiders(const Domain& domain, const Problem& inside);

}  // namespace fresnel::test
