// SPDX-License-Identifier: Apache-2.0
// What a Problem knows about itself: the scale in force and its hash. Judges nothing (validate does) and spells nothing
// (spelling does).
#include "fresnel/problem.hpp"

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <utility>

namespace fresnel {

double Problem::softmax_scale() const {
  return options.softmax_scale ? *options.softmax_scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
}

namespace {

/// Folds 64-bit words into a hash; the mixer is the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", OOPSLA 2014, figure 18), so that one changed bit changes about half of the result.
class Hasher {
 public:
  void add(std::uint64_t word) {
    std::uint64_t z = state_ + 0x9e3779b97f4a7c15u + word;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    state_ = z ^ (z >> 31);
  }

  void add(const std::optional<double>& number) {
    add(static_cast<std::uint64_t>(number.has_value()));
    if (!number) return;
    const double value = *number + 0.0;  // -0 equals 0, so it must hash alike
    std::uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    add(bits);
  }

  void add(const std::optional<std::int64_t>& number) {
    add(static_cast<std::uint64_t>(number.has_value()));
    if (number) add(static_cast<std::uint64_t>(*number));
  }

  /// Small values (below 256 each), eight to a word.
  void add_bytes(std::initializer_list<unsigned> bytes) {
    std::uint64_t word = 0;
    int count = 0;
    for (const unsigned byte : bytes) {
      word = word << 8 | (byte & 0xffu);
      if (++count % 8 == 0) add(std::exchange(word, 0));
    }
    add(word);
  }

  [[nodiscard]] std::size_t value() const { return static_cast<std::size_t>(state_ ^ (state_ >> 32)); }

 private:
  std::uint64_t state_ = 0;
};

unsigned byte_of(const LayoutClass& layout) {
  return static_cast<unsigned>(layout.order) << 1 | static_cast<unsigned>(layout.aligned);
}

}  // namespace
}  // namespace fresnel

std::size_t std::hash<fresnel::Problem>::operator()(const fresnel::Problem& problem) const noexcept {
  const fresnel::Options& options = problem.options;
  fresnel::Hasher hasher;
  for (const std::int64_t extent : {problem.batch, problem.heads_q, problem.heads_kv, problem.queries, problem.keys,
                                    problem.head_dim, problem.value_dim})
    hasher.add(static_cast<std::uint64_t>(extent));
  hasher.add(options.softmax_scale);
  hasher.add(options.softcap);
  hasher.add(options.window_size_left);
  hasher.add(options.window_size_right);
  hasher.add_bytes({static_cast<unsigned>(problem.dtype), options.causal, static_cast<unsigned>(options.alignment),
                    static_cast<unsigned>(options.alibi), static_cast<unsigned>(problem.alibi_slopes),
                    problem.seqlens_k, problem.lse, problem.grad, fresnel::byte_of(problem.q),
                    fresnel::byte_of(problem.k), fresnel::byte_of(problem.v), fresnel::byte_of(problem.o)});
  return hasher.value();
}
