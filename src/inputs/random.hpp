// SPDX-License-Identifier: Apache-2.0
// Random numbers by position: a value is a function of (seed, role, batch, head, row, element) and of nothing else, so
// that every layout, order of filling and platform gives the same tensors. Only integer arithmetic and single roundings
// are used; no library function whose last bit may differ. It has no state and is not fit for cryptography.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace fresnel {

/// Which tensor a row belongs to.
enum class Role : std::uint8_t { q, k, v, alibi_slopes, seqlens_k, dout };

/// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014,
/// figure 18): one changed bit changes about half of the result.
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// The numbers of one row. Element d of a row is SplitMix64's d-th output from a start that depends on the row.
class RowRandom {
 public:
  constexpr RowRandom(std::uint64_t seed, Role role, std::int64_t batch, std::int64_t head, std::int64_t row)
      : key_(mixed(seed + gamma)) {
    for (const std::uint64_t part : {static_cast<std::uint64_t>(role), static_cast<std::uint64_t>(batch),
                                     static_cast<std::uint64_t>(head), static_cast<std::uint64_t>(row)})
      key_ = mixed(key_ + gamma + part);
  }

  [[nodiscard]] constexpr std::uint64_t word(std::uint64_t element) const {
    return mixed(key_ + (element + 1) * gamma);
  }

  /// Uniform in [0, count), for count of at least 1.
  [[nodiscard]] constexpr std::int64_t below(std::int64_t count, std::uint64_t element = 0) const {
    return static_cast<std::int64_t>(word(element) % static_cast<std::uint64_t>(count));
  }

  /// Uniform in [-1, 1), a multiple of 2^-52.
  [[nodiscard]] constexpr double uniform(std::uint64_t element) const {
    return static_cast<double>(static_cast<std::int64_t>(word(element)) >> 11) * 0x1p-52;
  }

  /// Nearly normal, mean 0 and variance 1, within +-4.9: the sum of eight uniform 16-bit numbers (Irwin and Hall),
  /// which needs no logarithm.
  [[nodiscard]] constexpr double normal(std::uint64_t element) const {
    constexpr std::int64_t mean = 8 * 65535 / 2;
    constexpr double per_unit = 1.8688123650118534e-05;  // 1 / sqrt(8 (2^32 - 1) / 12)
    const std::uint64_t pairs = paired(word(2 * element)) + paired(word(2 * element + 1));
    const std::uint64_t sum = (pairs & 0xffffffffu) + (pairs >> 32);
    return static_cast<double>(static_cast<std::int64_t>(sum) - mean) * per_unit;
  }

 private:
  static constexpr std::uint64_t gamma = 0x9e3779b97f4a7c15u;  // 2^64 over the golden ratio, odd

  /// Four 16-bit numbers to two sums side by side.
  [[nodiscard]] static constexpr std::uint64_t paired(std::uint64_t word) {
    constexpr std::uint64_t low_halves = 0x0000ffff0000ffffu;
    return (word & low_halves) + ((word >> 16) & low_halves);
  }

  std::uint64_t key_;
};

}  // namespace fresnel
