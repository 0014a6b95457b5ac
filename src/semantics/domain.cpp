// SPDX-License-Identifier: Apache-2.0
// Reads a Domain: is the problem inside, and if not, which field says no first. One function finds the reason, so that
// the cheap test and the text can never disagree; dtypes are looked at first, then extents, options and layouts.
#include "semantics/domain.hpp"

#include <array>
#include <utility>

#include "semantics/words.hpp"

namespace fresnel {
namespace {

enum class Reason : std::uint8_t { none, dtype, extent, feature, missing_feature, axis_order, alignment };

/// Why not: the reason and which extent, feature or tensor it concerns.
struct Finding {
  Reason reason = Reason::none;
  int which = 0;
};

constexpr std::array<const char*, 4> extent_names{"head_dim", "value_dim", "queries", "keys"};
constexpr std::array<const char*, 4> tensor_names{"q", "k", "v", "o"};
constexpr int feature_count = static_cast<int>(Feature::grad) + 1;

std::array<std::pair<Bounds, std::int64_t>, 4> extents_of(const Domain& domain, const Problem& problem) {
  return {{{domain.head_dim, problem.head_dim},
           {domain.value_dim, problem.value_dim},
           {domain.queries, problem.queries},
           {domain.keys, problem.keys}}};
}

std::array<LayoutClass, 4> layouts_of(const Problem& problem) { return {problem.q, problem.k, problem.v, problem.o}; }

/// Does the problem ask for the feature?
bool needs(const Problem& problem, Feature feature) {
  const Options& options = problem.options;
  switch (feature) {
    case Feature::causal: return options.causal;
    case Feature::top_left: return options.alignment == Alignment::top_left;
    case Feature::window: return options.window_size_left || options.window_size_right;
    case Feature::softcap: return options.softcap.has_value();
    case Feature::alibi: return problem.alibi_slopes != AlibiSlopes::none;
    case Feature::seqlens_k: return problem.seqlens_k;
    case Feature::grouped_heads: return problem.heads_q != problem.heads_kv;
    case Feature::grad: return problem.grad;
  }
  return false;
}

Finding first_reason(const Domain& domain, const Problem& problem) {
  if (!domain.dtypes.has(problem.dtype)) return {Reason::dtype};
  const auto extents = extents_of(domain, problem);
  for (std::size_t i = 0; i < extents.size(); ++i)
    if (!extents[i].first.holds(extents[i].second)) return {Reason::extent, static_cast<int>(i)};
  for (int i = 0; i < feature_count; ++i)
    if (needs(problem, static_cast<Feature>(i)) && !domain.features.has(static_cast<Feature>(i)))
      return {Reason::feature, i};
  for (int i = 0; i < feature_count; ++i)
    if (domain.required.has(static_cast<Feature>(i)) && !needs(problem, static_cast<Feature>(i)))
      return {Reason::missing_feature, i};
  const auto layouts = layouts_of(problem);
  for (std::size_t i = 0; i < layouts.size(); ++i)
    if (!domain.axis_orders.has(layouts[i].order)) return {Reason::axis_order, static_cast<int>(i)};
  for (std::size_t i = 0; i < layouts.size(); ++i)
    if (!domain.unaligned && !layouts[i].aligned) return {Reason::alignment, static_cast<int>(i)};
  return {};
}

Refusal no(std::string argument, std::string given, std::string accepted, std::string nearest = {}) {
  Refusal refusal = refuse(std::move(argument), std::move(given), std::move(accepted), std::move(nearest));
  refusal.fault = Fault::unsupported;
  return refusal;
}

Refusal dtype_refusal(const Domain& domain, const Problem& problem) {
  std::string accepted;
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    if (domain.dtypes.has(dtype)) accepted += fmt::format("{}{}", accepted.empty() ? "" : ", ", name(dtype));
  return no("dtype", spell(problem.dtype), accepted.empty() ? "none" : accepted);
}

Refusal extent_refusal(const char* name, const Bounds& bounds, std::int64_t value) {
  const std::string accepted = bounds.least == bounds.most ? fmt::format("{}", bounds.least)
                               : bounds.most == INT64_MAX  ? fmt::format("at least {}", bounds.least)
                                                           : fmt::format("{} to {}", bounds.least, bounds.most);
  return no(name, fmt::format("{}", value), accepted,
            fmt::format("{}", value < bounds.least ? bounds.least : bounds.most));
}

std::string print_bound(const std::optional<std::int64_t>& bound) {
  return bound ? fmt::format("{}", *bound) : "unbounded";
}

Refusal feature_refusal(Feature feature, const Problem& problem) {
  const Options& options = problem.options;
  switch (feature) {
    case Feature::causal: return no("causal", "true", "false", "false");
    case Feature::top_left: return no("alignment", "top_left", "bottom_right", "bottom_right");
    case Feature::window:
      return no("window",
                fmt::format("left {}, right {}", print_bound(options.window_size_left),
                            print_bound(options.window_size_right)),
                "no window", "unbounded");
    case Feature::softcap: return no("softcap", fmt::format("{}", *options.softcap), "no softcap", "unset");
    case Feature::alibi: return no("alibi_slopes", "slopes", "no ALiBi", "none");
    case Feature::seqlens_k: return no("seqlens_k", "key counts", "sequences of equal length", "none");
    case Feature::grouped_heads:
      return no("heads_kv", fmt::format("{} for {} query heads", problem.heads_kv, problem.heads_q),
                "as many as query heads", fmt::format("{}", problem.heads_q));
    case Feature::grad: return no("grad", "gradients asked for", "forward only", "no grad");
  }
  return no("feature", fmt::format("{}", static_cast<unsigned>(feature)), "a known feature");
}

/// Only gradients have rows of their own.
Refusal missing_feature_refusal(Feature feature) {
  if (feature == Feature::grad) return no("grad", "no gradients asked for", "gradients only", "grad");
  return no("feature", fmt::format("{}", static_cast<unsigned>(feature)), "a feature that a row may require");
}

}  // namespace

bool admits(const Domain& domain, const Problem& problem) {
  return first_reason(domain, problem).reason == Reason::none;
}

std::optional<Refusal> refusal_of(const Domain& domain, const Problem& problem) {
  const Finding finding = first_reason(domain, problem);
  const auto which = static_cast<std::size_t>(finding.which);
  switch (finding.reason) {
    case Reason::none: return std::nullopt;
    case Reason::dtype: return dtype_refusal(domain, problem);
    case Reason::extent: {
      const auto [bounds, value] = extents_of(domain, problem)[which];
      return extent_refusal(extent_names[which], bounds, value);
    }
    case Reason::feature: return feature_refusal(static_cast<Feature>(finding.which), problem);
    case Reason::missing_feature: return missing_feature_refusal(static_cast<Feature>(finding.which));
    case Reason::axis_order: {
      const bool given_bshd = layouts_of(problem)[which].order == AxisOrder::bshd;
      return no(tensor_names[which], given_bshd ? "bshd" : "bhsd", given_bshd ? "bhsd" : "bshd");
    }
    case Reason::alignment:
      return no(tensor_names[which], "an address or outer stride that is no multiple of 16 bytes",
                "address and outer strides that are multiples of 16 bytes");
  }
  return std::nullopt;
}

}  // namespace fresnel
