// SPDX-License-Identifier: Apache-2.0
// A Problem says what is to be computed, never where the data lies: a value, hashable, printed and parsed as one line.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "fresnel/result.hpp"
#include "fresnel/view.hpp"

#pragma GCC visibility push(default)  // what stands below is what a shared library exports

namespace fresnel {

/// Where query i stands among the keys: position i (`top_left`) or i + keys - queries (`bottom_right`).
enum class Alignment : std::uint8_t { bottom_right, top_left };

/// ALiBi's additive term: slope * (j - p) or -slope * |j - p|.
enum class AlibiForm : std::uint8_t { relative, distance };

/// Everything that changes what attention means. Defaults are plain softmax(q k^T / sqrt(D)) v.
struct Options {
  std::optional<double> softmax_scale;  ///< unset: 1 / sqrt(head_dim); 0 and negative are legal
  bool causal = false;                  ///< key j is visible to the query at p if j <= p
  Alignment alignment = Alignment::bottom_right;
  std::optional<std::int64_t> window_size_left;   ///< keys before p that stay visible; unset: unbounded
  std::optional<std::int64_t> window_size_right;  ///< keys after p that stay visible; unset: unbounded
  std::optional<double> softcap;                  ///< c: scores become c tanh(s / c); unset: none
  AlibiForm alibi = AlibiForm::relative;          ///< form of the term; acts only when alibi_slopes are given

  bool operator==(const Options&) const = default;
};

/// Axis order in memory, outermost first; views are always handed over as [B, H, S, D].
enum class AxisOrder : std::uint8_t { bhsd, bshd };

/// What planning may know of a tensor's memory.
struct LayoutClass {
  AxisOrder order = AxisOrder::bhsd;
  bool aligned = true;  ///< base address and outer strides are multiples of 16 bytes

  bool operator==(const LayoutClass&) const = default;
};

/// Which slopes are given.
enum class AlibiSlopes : std::uint8_t { none, per_head, per_batch_and_head };

struct Problem {
  std::int64_t batch = 1;
  std::int64_t heads_q = 1;
  std::int64_t heads_kv = 1;   ///< query head h reads kv head h / (heads_q / heads_kv)
  std::int64_t queries = 0;    ///< Sq
  std::int64_t keys = 0;       ///< Sk
  std::int64_t head_dim = 0;   ///< D, width of q and k
  std::int64_t value_dim = 0;  ///< Dv, width of v and o
  DType dtype = DType::f32;    ///< of q, k, v and o
  Options options;
  AlibiSlopes alibi_slopes = AlibiSlopes::none;
  bool seqlens_k = false;  ///< per-sequence key counts are given
  LayoutClass q, k, v, o;
  bool lse = true;    ///< lse is asked for
  bool grad = false;  ///< the backward is asked for

  bool operator==(const Problem&) const = default;

  /// The softmax scale in force.
  [[nodiscard]] double softmax_scale() const;
  /// Query heads per kv head; 1 when there are no heads.
  [[nodiscard]] std::int64_t group() const { return heads_q > 0 && heads_kv > 0 ? heads_q / heads_kv : 1; }
};

/// The problem as one line, e.g. `b2 h8/2 q128 k1024 d64 bf16 causal w16,- cap5`; `parse_problem` reads it back.
///
///     b2 h8[/2] q128 k1024 d64[/32] bf16 [causal] [topleft] [w16,-] [cap5] [scale0.1] [alibi[:distance][:batch]]
///     [lens] [bshd | q:bshd k:.. v:.. o:..] [unaligned | q:unaligned ..] [nolse] [grad]
[[nodiscard]] std::string print(const Problem& problem);

/// Reads a line; tokens come in the order above. The refusal names the token that is wrong, missing or out of place.
[[nodiscard]] Result<Problem> parse_problem(std::string_view line);

}  // namespace fresnel
/// @cond
template <>
struct std::hash<fresnel::Problem> {
  std::size_t operator()(const fresnel::Problem& problem) const noexcept;
};
/// @endcond
#pragma GCC visibility pop
