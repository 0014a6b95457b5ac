// SPDX-License-Identifier: Apache-2.0
// Where a kernel is right, as data. A row of the catalogue holds one Domain for what it can do and one for where it is
// worth choosing; planning, refusals, tests (inside, every edge, one step outside) and documents all read the same
// struct.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "fresnel/plan.hpp"
#include "fresnel/problem.hpp"

namespace fresnel {

/// A set of small enumerators.
template <class Enum>
struct Set {
  std::uint32_t bits = 0;
  constexpr Set() = default;
  constexpr Set(std::initializer_list<Enum> members) {
    for (const Enum member : members) bits |= 1u << static_cast<unsigned>(member);
  }
  [[nodiscard]] constexpr bool has(Enum member) const {
    const auto index = static_cast<unsigned>(member);
    return index < 32 && ((bits >> index) & 1u);  // a cast may have made a member that no set holds
  }
  bool operator==(const Set&) const = default;
};

/// Inclusive bounds.
struct Bounds {
  std::int64_t least = 0;
  std::int64_t most = INT64_MAX;
  [[nodiscard]] constexpr bool holds(std::int64_t value) const { return value >= least && value <= most; }
  bool operator==(const Bounds&) const = default;
};

/// The options a kernel may or may not honour.
enum class Feature : std::uint8_t { causal, top_left, window, softcap, alibi, seqlens_k, grouped_heads, grad };

struct Domain {
  Set<DType> dtypes;
  Bounds head_dim{1, 576};
  Bounds value_dim{1, 576};
  Bounds queries{};
  Bounds keys{};
  Set<Feature> features;
  Set<Feature>
      required{};  ///< features that a problem must ask for: a backward row computes gradients and nothing else
  Set<AxisOrder> axis_orders{AxisOrder::bhsd, AxisOrder::bshd};
  bool unaligned = true;               ///< accepts tensors that are only element-aligned
  bool isolates_hidden_values = true;  ///< promises rule 4(b): hidden non-finite values reach only rows that see them
  bool operator==(const Domain&) const = default;
};

/// Cheap test: does the domain hold the problem? Builds no text.
[[nodiscard]] bool admits(const Domain& domain, const Problem& problem);

/// The first reason why not; nothing when the domain admits the problem.
[[nodiscard]] std::optional<Refusal> refusal_of(const Domain& domain, const Problem& problem);

}  // namespace fresnel
