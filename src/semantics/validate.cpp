// SPDX-License-Identifier: Apache-2.0
// The only place where faults of a Problem are worded (docs/semantics.md is the law it applies). Looks at the value
// alone: no pointer, no machine and no kernel. What is meaningful but not offered is refused later, by a row's domain.
#include <cmath>
#include <limits>

#include "fresnel/plan.hpp"
#include "semantics/words.hpp"

namespace fresnel {
namespace {

// Every tensor stays below 2^63 bytes at 8 bytes an element, so that no offset, count or byte size can overflow.
constexpr std::int64_t most_elements = (std::int64_t{1} << 60) - 1;

Objection fault_of_extents(const Problem& problem) {
  const struct {
    const char* name;
    std::int64_t value;
    std::int64_t least;
  } extents[] = {{"batch", problem.batch, 0},        {"heads_q", problem.heads_q, 0}, {"heads_kv", problem.heads_kv, 0},
                 {"queries", problem.queries, 0},    {"keys", problem.keys, 0},       {"head_dim", problem.head_dim, 1},
                 {"value_dim", problem.value_dim, 1}};
  for (const auto& extent : extents)
    if (extent.value < extent.least)
      return refuse(extent.name, fmt::format("{}", extent.value),
                    extent.least == 0 ? "a count of at least 0" : "a width of at least 1",
                    fmt::format("{}", extent.least));
  return std::nullopt;
}

/// The divisor of heads_q nearest to heads_kv, as text; empty when it is far away (the search is bounded).
std::string nearest_divisor(std::int64_t heads_q, std::int64_t heads_kv) {
  if (heads_kv > heads_q) return fmt::format("{}", heads_q);
  for (std::int64_t step = 1; step <= 4096; ++step)
    for (const std::int64_t candidate : {heads_kv - step, heads_kv + step})
      if (candidate >= 1 && candidate <= heads_q && heads_q % candidate == 0) return fmt::format("{}", candidate);
  return {};
}

Objection fault_of_heads(const Problem& problem) {
  if (problem.heads_q == 0) return std::nullopt;  // any number of kv heads serves no query head
  if (problem.heads_kv > 0 && problem.heads_q % problem.heads_kv == 0) return std::nullopt;
  return refuse("heads_kv", fmt::format("{} for {} query heads", problem.heads_kv, problem.heads_q),
                "a divisor of heads_q (0 only when heads_q is 0)", nearest_divisor(problem.heads_q, problem.heads_kv));
}

/// Refuses a value outside an enumeration's `count` members; only a cast can produce one.
template <class Enum>
Objection fault_of_member(const char* name, Enum value, unsigned count, const char* accepted) {
  const auto number = static_cast<unsigned>(value);
  if (number < count) return std::nullopt;
  return refuse(name, fmt::format("unknown value {}", number), accepted);
}

Objection fault_of_enumerators(const Problem& problem) {
  if (!is_attention_dtype(problem.dtype)) return refuse("dtype", spell(problem.dtype), "f64, f32, f16 or bf16");
  if (auto fault = fault_of_member("alignment", problem.options.alignment, 2, "bottom_right or top_left")) return fault;
  if (auto fault = fault_of_member("alibi", problem.options.alibi, 2, "relative or distance")) return fault;
  if (auto fault = fault_of_member("alibi_slopes", problem.alibi_slopes, 3, "none, per_head or per_batch_and_head"))
    return fault;
  const std::pair<const char*, AxisOrder> orders[] = {{"q.order", problem.q.order},
                                                      {"k.order", problem.k.order},
                                                      {"v.order", problem.v.order},
                                                      {"o.order", problem.o.order}};
  for (const auto& [name, order] : orders)
    if (auto fault = fault_of_member(name, order, 2, "bhsd or bshd")) return fault;
  return std::nullopt;
}

/// The magnitudes a factor of the scores may have: what float32 arithmetic (float64 for float64) can carry undamaged.
struct Magnitudes {
  double least;
  double beyond;  ///< first magnitude that is too large
  const char* text;
};

Magnitudes magnitudes_of(DType dtype) {
  if (dtype == DType::f64)
    return {std::numeric_limits<double>::min(), std::numeric_limits<double>::infinity(),
            "a finite magnitude of at least 2^-1022"};
  return {0x1p-126, 0x1p127, "a magnitude in [2^-126, 2^127)"};
}

std::string nearest_magnitude(double value, const Magnitudes& range) {
  if (std::isnan(value)) return {};
  const double magnitude = std::fabs(value) < range.least ? range.least : std::nextafter(range.beyond, 0.0);
  return fmt::format("{}", std::copysign(magnitude, value));
}

Objection fault_of_scale(const Problem& problem) {
  if (!problem.options.softmax_scale || *problem.options.softmax_scale == 0) return std::nullopt;
  const double scale = *problem.options.softmax_scale;
  const Magnitudes range = magnitudes_of(problem.dtype);
  if (std::fabs(scale) >= range.least && std::fabs(scale) < range.beyond) return std::nullopt;
  return refuse(
      "softmax_scale", fmt::format("{}", scale),
      fmt::format("unset (1 / sqrt(head_dim)), 0, or {}, either sign, for {}", range.text, spell(problem.dtype)),
      nearest_magnitude(scale, range));
}

Objection fault_of_softcap(const Problem& problem) {
  if (!problem.options.softcap) return std::nullopt;
  const double cap = *problem.options.softcap;
  const Magnitudes range = magnitudes_of(problem.dtype);
  if (cap >= range.least && cap < range.beyond) return std::nullopt;
  if (cap == 0)
    return refuse("softcap", fmt::format("{}", cap),
                  "a positive number; 0 would divide every score by 0, leave softcap unset for no cap", "unset");
  return refuse("softcap", fmt::format("{}", cap),
                fmt::format("unset (no cap), or a positive number with {} for {}", range.text, spell(problem.dtype)),
                cap < 0 ? std::string() : nearest_magnitude(cap, range));
}

Objection fault_of_windows(const Problem& problem) {
  const std::pair<const char*, std::optional<std::int64_t>> windows[] = {
      {"window_size_left", problem.options.window_size_left}, {"window_size_right", problem.options.window_size_right}};
  for (const auto& [name, window] : windows)
    if (window && *window < 0)
      return refuse(name, fmt::format("{}", *window),
                    "unset (unbounded), or a count of keys of at least 0 (0 is a real bound)", "unset");
  return std::nullopt;
}

Objection fault_of_alibi(const Problem& problem) {
  if (problem.alibi_slopes != AlibiSlopes::none || problem.options.alibi == AlibiForm::relative) return std::nullopt;
  return refuse("alibi", "distance without alibi_slopes", "a form other than the default only with alibi_slopes",
                "relative");
}

/// Empty axes count as one: code may multiply extents in any order.
bool fits(std::initializer_list<std::int64_t> extents) {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents) {
    if (extent <= 1) continue;
    if (extent > most_elements / product) return false;
    product *= extent;
  }
  return true;
}

Objection fault_of_sizes(const Problem& problem) {
  const struct {
    const char* name;
    std::int64_t heads, rows, width;
  } tensors[] = {{"q", problem.heads_q, problem.queries, problem.head_dim},
                 {"k", problem.heads_kv, problem.keys, problem.head_dim},
                 {"v", problem.heads_kv, problem.keys, problem.value_dim},
                 {"o", problem.heads_q, problem.queries, problem.value_dim}};
  for (const auto& tensor : tensors)
    if (!fits({problem.batch, tensor.heads, tensor.rows, tensor.width}))
      return refuse(tensor.name, fmt::format("[{},{},{},{}]", problem.batch, tensor.heads, tensor.rows, tensor.width),
                    "fewer than 2^60 elements, axes of length 0 counted as 1");
  return std::nullopt;
}

}  // namespace

Status validate(const Problem& problem) {
  // Extents before sizes, dtype before the ranges that depend on it.
  for (const auto fault_of : {fault_of_extents, fault_of_heads, fault_of_enumerators, fault_of_scale, fault_of_softcap,
                              fault_of_windows, fault_of_alibi, fault_of_sizes})
    if (auto fault = fault_of(problem)) return *std::move(fault);
  return Done{};
}

}  // namespace fresnel
