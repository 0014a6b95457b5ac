// SPDX-License-Identifier: Apache-2.0
// Names of enumerators: see words.hpp. They are the names of the options in case files and problem lines where there
// are such, so that a refusal, a table and a file speak of the same thing.
#include "cli/words.hpp"

#include <array>

#include "fresnel/view.hpp"

namespace fresnel::cli {
namespace {

constexpr std::array every_dtype{DType::f64, DType::f32, DType::f16, DType::bf16};
constexpr std::array every_feature{Feature::causal, Feature::top_left,  Feature::window,        Feature::softcap,
                                   Feature::alibi,  Feature::seqlens_k, Feature::grouped_heads, Feature::grad};
constexpr std::array every_order{AxisOrder::bhsd, AxisOrder::bshd};

template <class Enum, std::size_t N, class Word>
std::vector<std::string> listed(const Set<Enum>& set, const std::array<Enum, N>& every, Word&& word_of) {
  std::vector<std::string> names;
  for (const Enum member : every)
    if (set.has(member)) names.emplace_back(word_of(member));
  return names;
}

}  // namespace

std::string_view word(Feature feature) {
  constexpr std::array<std::string_view, every_feature.size()> names{"causal", "top_left",  "window",        "softcap",
                                                                     "alibi",  "seqlens_k", "grouped_heads", "grad"};
  return names[static_cast<std::size_t>(feature)];
}

std::string_view word(AxisOrder order) { return order == AxisOrder::bhsd ? "bhsd" : "bshd"; }

std::string_view word(Determinism determinism) {
  switch (determinism) {
    case Determinism::bitwise: return "bitwise";
  }
  return "";
}

std::vector<std::string> names_of(const Set<DType>& dtypes) {
  return listed(dtypes, every_dtype, [](DType dtype) { return name(dtype); });
}

std::vector<std::string> names_of(const Set<Feature>& features) {
  return listed(features, every_feature, [](Feature feature) { return word(feature); });
}

std::vector<std::string> names_of(const Set<AxisOrder>& orders) {
  return listed(orders, every_order, [](AxisOrder order) { return word(order); });
}

std::vector<std::string> all_features() {
  std::vector<std::string> names;
  for (const Feature feature : every_feature) names.emplace_back(word(feature));
  return names;
}

}  // namespace fresnel::cli
