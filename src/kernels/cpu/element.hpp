// SPDX-License-Identifier: Apache-2.0
// Element types as the CPU kernels see them: storage type, the type sums are kept in, and where a head's rows lie.
// Address arithmetic only; nothing here computes attention.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/kernel.hpp"
#include "runtime/half.hpp"
#include "semantics/mask.hpp"

namespace fresnel::cpu {

struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

/// Sums are float32 for half and single inputs, float64 for double: half is never accumulated in half.
template <class In>
using Real = std::conditional_t<std::is_same_v<In, double>, double, float>;

/// True where rows are read as they lie, without conversion.
template <class In>
inline constexpr bool reads_in_place = std::is_floating_point_v<In>;

[[nodiscard]] inline float to_real(float value) { return value; }
[[nodiscard]] inline double to_real(double value) { return value; }
[[nodiscard]] inline float to_real(Float16 value) { return f16_to_float(value.bits); }
[[nodiscard]] inline float to_real(BFloat16 value) { return bf16_to_float(value.bits); }

template <class In>
[[nodiscard]] inline In from_real(Real<In> value) {
  if constexpr (std::is_same_v<In, Float16>) {
    return {float_to_f16(value)};
  } else if constexpr (std::is_same_v<In, BFloat16>) {
    return {float_to_bf16(value)};
  } else {
    return value;
  }
}

/// Bytes of the type that a problem's sums are kept in.
[[nodiscard]] constexpr std::size_t real_bytes(const Problem& problem) { return problem.dtype == DType::f64 ? 8 : 4; }

/// The rows of one head: element (row, d) lies at base[row * stride + d].
template <class Element>
struct Rows {
  Element* base;
  std::ptrdiff_t stride;
  [[nodiscard]] Element* row(std::int64_t index) const { return base + index * stride; }
};

/// The distance between rows. An axis of length 1 may have any stride, even one that no multiple of can be taken: then
/// 0.
template <class AnyView>
[[nodiscard]] std::ptrdiff_t row_stride(const AnyView& view) {
  return view.sizes[2] > 1 ? view.strides[2] : 0;
}

template <class In>
[[nodiscard]] inline Rows<const In> rows_of(const View& view, std::int64_t batch, std::int64_t head) {
  const auto* data = static_cast<const In*>(view.data);
  return {data + batch * view.strides[0] + head * view.strides[1], row_stride(view)};
}

template <class In>
[[nodiscard]] inline Rows<In> rows_of(const MutableView& view, std::int64_t batch, std::int64_t head) {
  auto* data = static_cast<In*>(view.data);
  return {data + batch * view.strides[0] + head * view.strides[1], row_stride(view)};
}

/// Live keys of a sequence, clamped to the extent so that a bad length can never read outside the tensors.
[[nodiscard]] inline std::int64_t live_keys(const Problem& problem, const Inputs& inputs, std::int64_t batch) {
  if (!inputs.seqlens_k) return problem.keys;
  const View& lengths = *inputs.seqlens_k;
  const std::int64_t length = static_cast<const std::int32_t*>(lengths.data)[batch * lengths.strides[0]];
  return std::clamp<std::int64_t>(length, 0, problem.keys);
}

[[nodiscard]] inline float slope_of(const Inputs& inputs, std::int64_t batch, std::int64_t head) {
  const View& slopes = *inputs.alibi_slopes;
  const auto* data = static_cast<const float*>(slopes.data);
  return slopes.rank == 1 ? data[head * slopes.strides[0]] : data[batch * slopes.strides[0] + head * slopes.strides[1]];
}

/// What happens to a dot product before the softmax, with every constant already in the kernel's type.
template <class T>
struct ScoreRule {
  T scale = 1;
  T softcap = 0;  ///< 0: none
  T slope = 0;
  bool alibi = false;
  bool distance = false;

  /// Nothing but the scale: the fast path.
  [[nodiscard]] bool plain() const { return softcap == T(0) && !alibi; }
};

template <class T>
[[nodiscard]] inline ScoreRule<T> score_rule(const Problem& problem, const Inputs& inputs, std::int64_t batch,
                                             std::int64_t head) {
  ScoreRule<T> rule;
  rule.scale = static_cast<T>(problem.softmax_scale());
  if (problem.options.softcap) rule.softcap = static_cast<T>(*problem.options.softcap);
  rule.alibi = problem.alibi_slopes != AlibiSlopes::none;
  rule.distance = problem.options.alibi == AlibiForm::distance;
  if (rule.alibi) rule.slope = static_cast<T>(slope_of(inputs, batch, head));
  return rule;
}

/// Largest distance at which j - p and its neighbours are exact in T, so that ALiBi may step by adding.
template <class T>
inline constexpr std::int64_t exact_distance = std::int64_t{1} << (std::numeric_limits<T>::digits - 1);

/// m + ln l, the logarithm taken in double: its error is below that of storing the result as float.
template <class T>
[[nodiscard]] inline T log_sum_exp(T m, T l) {
  return static_cast<T>(static_cast<double>(m) + std::log(static_cast<double>(l)));
}

/// Writes lse of one query, if it is asked for.
template <class T>
inline void store_lse(const Outputs& outputs, std::int64_t batch, std::int64_t head, std::int64_t query, T value) {
  if (!outputs.lse) return;
  const MutableView& lse = *outputs.lse;
  static_cast<T*>(lse.data)[batch * lse.strides[0] + head * lse.strides[1] + query * lse.strides[2]] = value;
}

/// Cuts one lane's workspace into arrays, each on a cache line of its own. With a null base it only measures.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}

  template <class T>
  T* take(std::int64_t count) {
    std::byte* const at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(at);
  }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

}  // namespace fresnel::cpu
