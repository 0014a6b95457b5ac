// SPDX-License-Identifier: Apache-2.0
// The kinds of inputs, one function per idea and one table of them. Kinds that aim at certain scores divide by the
// softmax scale in force, so that they reach them whatever the options; softcap and ALiBi then act on top. Square
// roots, products with powers of two and single products are the only arithmetic: the same bits everywhere.
#include "inputs/kinds.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "inputs/inputs.hpp"
#include "semantics/mask.hpp"

namespace fresnel {
namespace {

using Out = std::span<double>;

RowRandom random_of(const Recipe& recipe, const RowPlace& at) {
  return {recipe.seed, at.role, at.batch, at.head, at.row};
}

/// |softmax_scale|; a scale of 0 makes every score 0, so any target will do.
double scale_of(const Recipe& recipe) {
  const double scale = std::fabs(recipe.problem.softmax_scale());
  return scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(recipe.problem.head_dim));
}

double scale_sign(const Recipe& recipe) { return recipe.problem.softmax_scale() < 0 ? -1 : 1; }

/// The magnitude both factors of a product need for `scale * product = score`; kept where sums over D cannot overflow.
double factor_for(const Recipe& recipe, double score) {
  const double most = recipe.problem.dtype == DType::f64 ? 0x1p500 : 0x1p55;
  return std::min(std::sqrt(score / scale_of(recipe)), most);
}

/// The same for q and k with independent elements of variance 1: their dot product is about sqrt(D).
double spread_for(const Recipe& recipe, double score) {
  return factor_for(recipe, score / std::sqrt(static_cast<double>(recipe.problem.head_dim)));
}

void fill_normal(const Recipe& recipe, const RowPlace& at, Out out, double factor) {
  const RowRandom random = random_of(recipe, at);
  for (std::size_t d = 0; d < out.size(); ++d) out[d] = random.normal(d) * factor;
}

void normal(const Recipe& recipe, const RowPlace& at, Out out) { fill_normal(recipe, at, out, 1); }

void uniform(const Recipe& recipe, const RowPlace& at, Out out) {
  const RowRandom random = random_of(recipe, at);
  for (std::size_t d = 0; d < out.size(); ++d) out[d] = random.uniform(d);
}

/// Every key of a head is the same key.
void same_key(const Recipe& recipe, const RowPlace& at, Out out) {
  normal(recipe, {at.role, at.batch, at.head, 0}, out);
}

void large(const Recipe& recipe, const RowPlace& at, Out out) { fill_normal(recipe, at, out, spread_for(recipe, 1e4)); }

/// Queries of every magnitude: the largest scores of a row lie anywhere between 1 and 1e17.
void huge_query(const Recipe& recipe, const RowPlace& at, Out out) {
  constexpr std::int64_t octaves = 57;  // 2^57 is just above 1e17
  const RowRandom random = random_of(recipe, at);
  const auto octave = static_cast<int>(random.below(octaves, 2 * out.size()));
  fill_normal(recipe, at, out, std::ldexp(spread_for(recipe, 1e17), -octave));
}

void huge_key(const Recipe& recipe, const RowPlace& at, Out out) {
  fill_normal(recipe, at, out, spread_for(recipe, 1e17));
}

/// Magnitudes 2^(e-8) to 2^(e+8) around the square root of the least normal product.
void tiny(const Recipe& recipe, const RowPlace& at, Out out) {
  const DType dtype = recipe.problem.dtype;
  const int middle = dtype == DType::f64 ? -511 : dtype == DType::f16 ? -7 : -63;
  const RowRandom random = random_of(recipe, at);
  for (std::size_t d = 0; d < out.size(); ++d) {
    const auto octave = static_cast<int>(random.below(16, 2 * d)) - 8;
    const double mantissa = random.uniform(2 * d + 1);
    out[d] = std::ldexp(mantissa < 0 ? mantissa - 1 : mantissa + 1, middle + octave);
  }
}

struct Subnormals {
  int least;  ///< exponent of the least subnormal
  int bits;   ///< subnormals are whole multiples of it below 2^bits
};

Subnormals subnormals_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return {-1074, 52};
    case DType::f32: return {-149, 23};
    case DType::f16: return {-24, 10};
    default: return {-133, 7};
  }
}

void subnormal(const Recipe& recipe, const RowPlace& at, Out out) {
  const Subnormals range = subnormals_of(recipe.problem.dtype);
  const RowRandom random = random_of(recipe, at);
  for (std::size_t d = 0; d < out.size(); ++d) {
    const double magnitude = static_cast<double>(1 + random.below((std::int64_t{1} << range.bits) - 1, 2 * d));
    out[d] = std::ldexp(random.uniform(2 * d + 1) < 0 ? -magnitude : magnitude, range.least);
  }
}

/// Keys as large as those queries are small: products are ordinary, unless a kernel takes subnormals for zero.
void against_subnormal(const Recipe& recipe, const RowPlace& at, Out out) {
  const Subnormals range = subnormals_of(recipe.problem.dtype);
  uniform(recipe, at, out);
  for (double& value : out) value = std::ldexp(value, -range.least - range.bits);
}

/// Element 0 of q and k alone moves every score by the same amount; the rest is normal.
void shifted_query(const Recipe& recipe, const RowPlace& at, Out out) {
  normal(recipe, at, out);
  out[0] = factor_for(recipe, 1e5);
}

void shifted_key(const Recipe& recipe, const RowPlace& at, Out out) {
  normal(recipe, at, out);
  out[0] = -scale_sign(recipe) * factor_for(recipe, 1e5);
}

/// Element 0 lifts one key of every head by 100.
void one_hot_query(const Recipe& recipe, const RowPlace& at, Out out) {
  normal(recipe, at, out);
  out[0] = factor_for(recipe, 100);
}

void one_hot_key(const Recipe& recipe, const RowPlace& at, Out out) {
  const std::int64_t hot = random_of(recipe, {at.role, at.batch, at.head, -1}).below(recipe.problem.keys);
  normal(recipe, at, out);
  out[0] = at.row == hot ? scale_sign(recipe) * factor_for(recipe, 100) : 0;
}

void kv_head_index(const Recipe&, const RowPlace& at, Out out) {
  std::fill(out.begin(), out.end(), static_cast<double>(at.head));
}

/// A number as digits to base 128, which bf16 holds exactly, one digit an element, least significant first; the last
/// element takes what is left.
constexpr std::int64_t digit_base = 128;

std::size_t digits_of(const Recipe& recipe) {
  std::size_t digits = 1;
  for (std::int64_t rest = recipe.problem.keys / digit_base; rest > 0; rest /= digit_base) ++digits;
  return std::min(digits, static_cast<std::size_t>(recipe.problem.head_dim));
}

/// Weights of the digits. Scores differ by a power of two near 1/4 from one key to the next, less where the dtype ends.
void digit_query(const Recipe& recipe, const RowPlace& at, Out out) {
  const std::size_t digits = digits_of(recipe);
  const double most = recipe.problem.dtype == DType::f16 ? 0x1p15 : 0x1p55;
  double weight = std::ldexp(1.0, std::ilogb(0.25 / scale_of(recipe)));
  weight = std::min(weight, std::ldexp(most, -7 * static_cast<int>(digits - 1)));
  normal(recipe, at, out);
  for (std::size_t d = 0; d < digits; ++d, weight *= digit_base) out[d] = weight;
}

void digit_key(const Recipe& recipe, Out out, std::int64_t number) {
  const std::size_t digits = digits_of(recipe);
  std::fill(out.begin(), out.end(), 0.0);
  for (std::size_t d = 0; d < digits; ++d, number /= digit_base)
    out[d] = scale_sign(recipe) * static_cast<double>(d + 1 < digits ? number % digit_base : number);
}

void ascending_key(const Recipe& recipe, const RowPlace& at, Out out) { digit_key(recipe, out, at.row); }

void descending_key(const Recipe& recipe, const RowPlace& at, Out out) {
  digit_key(recipe, out, recipe.problem.keys - 1 - at.row);
}

void alternating_query(const Recipe& recipe, const RowPlace& at, Out out) {
  normal(recipe, at, out);
  out[0] = factor_for(recipe, 6);
}

void alternating_key(const Recipe& recipe, const RowPlace& at, Out out) {
  normal(recipe, at, out);
  out[0] = at.row % 2 == 0 ? -factor_for(recipe, 6) : factor_for(recipe, 6);
}

/// The ordinary values, but NaN where no query of the sequence sees the key.
void dead_nan(const Recipe& recipe, const RowPlace& at, Out out) {
  const Problem& problem = recipe.problem;
  const Mask mask = mask_of(problem, recipe.live_keys(at.batch));
  const KeyRange seen = problem.queries > 0 ? mask.range(0, problem.queries) : KeyRange{};
  normal(recipe, at, out);
  if (at.row < seen.first || at.row >= seen.last)
    std::fill(out.begin(), out.end(), std::numeric_limits<double>::quiet_NaN());
}

constexpr std::array kinds{
    InputKind{"normal", "independent, mean 0, variance 1", normal, normal, normal},
    InputKind{"uniform", "independent, uniform in [-1, 1)", uniform, uniform, uniform},
    InputKind{"constant", "all keys of a head equal: equal scores, the output is the mean of v", normal, same_key,
              normal},
    InputKind{"large", "scores around 1e4 in magnitude", large, large, normal},
    InputKind{"huge", "scores up to 1e17, rows of every magnitude below it", huge_query, huge_key, normal, false},
    InputKind{"tiny", "products of q and k around the least normal number", tiny, tiny, normal},
    InputKind{"subnormal", "q and v subnormal, k large enough for ordinary scores", subnormal, against_subnormal,
              subnormal},
    InputKind{"shift", "ordinary scores, all moved by -1e5", shifted_query, shifted_key, normal},
    InputKind{"one_hot", "one key of every head 100 above the others", one_hot_query, one_hot_key, normal},
    InputKind{"head_index", "v is the number of its kv head, and so is the output", normal, normal, kv_head_index},
    InputKind{"ascending", "every key scores up to 1/4 above the one before it: the maximum rises each time",
              digit_query, ascending_key, normal},
    InputKind{"descending", "every key scores up to 1/4 below the one before it: the maximum never rises", digit_query,
              descending_key, normal},
    InputKind{"alternating", "scores 6 down and 6 up in turn", alternating_query, alternating_key, normal},
    InputKind{"dead_nan", "normal, with NaN in every key and value that no query of its sequence sees", normal,
              dead_nan, dead_nan},
};

}  // namespace

std::span<const InputKind> input_kinds() { return kinds; }

void normal_row(const Recipe& recipe, const RowPlace& at, std::span<double> out) { normal(recipe, at, out); }

}  // namespace fresnel
