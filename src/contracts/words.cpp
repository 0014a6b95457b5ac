// SPDX-License-Identifier: Apache-2.0
// Names of enumerators: see words.hpp. They are the names of the options in case files and problem lines where there
// are such, so that a refusal, a table and a file speak of the same thing.
#include "contracts/words.hpp"

#include <fmt/format.h>

#include <array>

#include "fresnel/view.hpp"

namespace fresnel {
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

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : std::string(between)) + word;
  return text;
}

std::string capitalised(std::string_view text) {
  std::string copy(text);
  if (!copy.empty() && copy[0] >= 'a' && copy[0] <= 'z') copy[0] = static_cast<char>(copy[0] - 'a' + 'A');
  return copy;
}

std::string bounds_of(const Bounds& bounds) {
  if (bounds.most == INT64_MAX) return fmt::format("{} and more", bounds.least);
  if (bounds.least == bounds.most) return fmt::format("{}", bounds.least);
  return fmt::format("{} to {}", bounds.least, bounds.most);
}

std::string dims_of(const Domain& domain) {
  const std::string dims = bounds_of(domain.head_dim);
  return domain.head_dim == domain.value_dim ? dims : fmt::format("{} / {}", dims, bounds_of(domain.value_dim));
}

namespace {

/// "all", "all but grad" or the list, whichever is shortest.
std::string members_of(const Domain& domain) {
  const std::vector<std::string> have = names_of(domain.features);
  if (have.size() == every_feature.size()) return "all";
  if (have.size() * 2 < every_feature.size()) return have.empty() ? "none" : joined(have, " ");
  std::vector<std::string> lacking;
  for (const Feature feature : every_feature)
    if (!domain.features.has(feature)) lacking.emplace_back(word(feature));
  return "all but " + joined(lacking, " ");
}

}  // namespace

std::string features_of(const Domain& domain) {
  const std::string members = members_of(domain);
  return domain.required.bits == 0 ? members : members + ", needs " + joined(names_of(domain.required), " ");
}

namespace {

/// What `chosen` asks beyond `right`.
std::string clauses_of(const Domain& chosen, const Domain& right) {
  std::vector<std::string> clauses;
  const auto bounds = [&](const char* what, const Bounds& wanted, const Bounds& most) {
    if (!(wanted == most)) clauses.push_back(fmt::format("{} {}", what, bounds_of(wanted)));
  };
  if (!(chosen.dtypes == right.dtypes)) clauses.push_back(joined(names_of(chosen.dtypes), " "));
  bounds("head dim", chosen.head_dim, right.head_dim);
  bounds("value dim", chosen.value_dim, right.value_dim);
  bounds("queries", chosen.queries, right.queries);
  bounds("keys", chosen.keys, right.keys);
  if (!(chosen.keys == right.keys) && chosen.features.has(Feature::seqlens_k)) clauses.back() += " or lengths given";
  if (!(chosen.features == right.features)) clauses.push_back("features: " + members_of(chosen));
  if (!(chosen.required == right.required)) clauses.push_back("with " + joined(names_of(chosen.required), " "));
  if (!(chosen.axis_orders == right.axis_orders)) clauses.push_back(joined(names_of(chosen.axis_orders), " "));
  if (chosen.unaligned != right.unaligned) clauses.emplace_back("aligned tensors");
  return joined(clauses, ", ");
}

}  // namespace

std::string preference_of(const Kernel& kernel) {
  if (kernel.prefers.dtypes.bits == 0) return "only when forced";
  if (kernel.prefers == kernel.domain) return "wherever it is right";
  const std::string clauses = clauses_of(kernel.prefers, kernel.domain);
  if (kernel.prefers_also.dtypes.bits == 0) return clauses;
  return clauses + "; " + clauses_of(kernel.prefers_also, kernel.domain);
}

std::string chosen_of(const Kernel& kernel) {
  const bool for_some = kernel.prefers.dtypes.bits != 0 && !(kernel.prefers == kernel.domain);
  return "Chosen " + std::string(for_some ? "for " : "") + preference_of(kernel);
}

}  // namespace fresnel
