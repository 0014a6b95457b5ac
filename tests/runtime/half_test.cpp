// SPDX-License-Identifier: Apache-2.0
// Half conversions against definitions: all 65,536 patterns in, and out around every tie and every exponent.
#include "runtime/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/float_control.hpp"

namespace fresnel {
namespace {

/// A format by its definition: sign, exponent bits, mantissa bits.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  float (*in)(std::uint16_t);
  std::uint16_t (*out)(float);

  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  }
  /// The value of a finite pattern without sign.
  [[nodiscard]] double value(int pattern) const {
    const int exponent = pattern >> mantissa_bits, mantissa = pattern & ((1 << mantissa_bits) - 1);
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias() - mantissa_bits);
    return std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias() - mantissa_bits);
  }
};

const Format f16{5, 10, &f16_to_float, &float_to_f16};
const Format bf16{8, 7, &bf16_to_float, &float_to_bf16};

class HalfTest : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(Formats, HalfTest, testing::Values(f16, bf16),
                         [](const auto& info) { return info.param.exponent_bits == 5 ? "f16" : "bf16"; });

TEST_P(HalfTest, EveryPatternReadsAsItsValue) {
  const Format& format = GetParam();
  for (int pattern = 0; pattern < 0x8000; ++pattern) {
    const float positive = format.in(static_cast<std::uint16_t>(pattern));
    const float negative = format.in(static_cast<std::uint16_t>(pattern | 0x8000));
    ASSERT_EQ(bits_of(negative), bits_of(positive) | 0x80000000u) << pattern;
    if (pattern < format.infinity()) {
      ASSERT_EQ(static_cast<double>(positive), format.value(pattern)) << pattern;
      ASSERT_FALSE(std::signbit(positive));
    } else {
      ASSERT_TRUE(pattern == format.infinity() ? std::isinf(positive) : std::isnan(positive)) << pattern;
    }
  }
}

TEST_P(HalfTest, EveryPatternComesBack) {
  const Format& format = GetParam();
  for (int pattern = 0; pattern < 0x10000; ++pattern) {
    const auto half = static_cast<std::uint16_t>(pattern);
    const std::uint16_t back = format.out(format.in(half));
    if ((pattern & 0x7fff) <= format.infinity()) {
      ASSERT_EQ(back, half) << pattern;
    } else {
      ASSERT_TRUE(std::isnan(format.in(back))) << pattern;
      ASSERT_EQ(back & 0x8000, pattern & 0x8000) << pattern;
    }
  }
}

TEST_P(HalfTest, EveryTieGoesToEvenAndItsNeighboursToTheNearest) {
  const Format& format = GetParam();
  const float inf = std::numeric_limits<float>::infinity();
  for (int below = 0; below < format.infinity(); ++below) {
    // The tie above the largest finite value is where the next one would have been, had it an exponent.
    const double middle = (format.value(below) + format.value(below + 1)) / 2;
    const auto tie = static_cast<float>(middle);
    ASSERT_EQ(static_cast<double>(tie), middle);
    const int even = below % 2 == 0 ? below : below + 1;
    for (const int sign : {0, 0x8000}) {
      const float s = sign == 0 ? 1.0f : -1.0f;
      ASSERT_EQ(format.out(s * tie), even | sign) << below;
      ASSERT_EQ(format.out(s * std::nextafter(tie, 0.0f)), below | sign) << below;
      ASSERT_EQ(format.out(s * std::nextafter(tie, inf)), (below + 1) | sign) << below;
    }
  }
}

TEST_P(HalfTest, EveryFloatExponentRoundsToTheNearest) {
  const Format& format = GetParam();
  std::uint32_t mantissa = 1;
  for (std::uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (int sample = 0; sample < 500; ++sample) {
      mantissa = mantissa * 1664525u + 1013904223u;
      const float value = float_of(exponent << 23 | (sample == 0 ? 0 : sample == 1 ? 0x7fffffu : mantissa >> 9));
      const std::uint16_t half = format.out(value);
      ASSERT_LE(half, format.infinity());
      // No neighbour is nearer; past the largest, "nearest" counts as if exponents went on.
      const double error = std::fabs(format.value(half) - value);
      const int below = half > 0 ? half - 1 : half, above = half < format.infinity() ? half + 1 : half;
      ASSERT_LE(error, std::fabs(format.value(below) - value)) << value;
      ASSERT_LE(error, std::fabs(format.value(above) - value)) << value;
    }
  }
}

TEST_P(HalfTest, InfinitiesAndNaNsStay) {
  const Format& format = GetParam();
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(format.out(inf), format.infinity());
  EXPECT_EQ(format.out(-inf), format.infinity() | 0x8000);
  EXPECT_EQ(format.out(std::numeric_limits<float>::max()), format.infinity());
  for (const std::uint32_t payload : {0x1u, 0x1fffu, 0x3fffffu, 0x400000u, 0x7fffffu}) {  // signalling ones too
    EXPECT_TRUE(std::isnan(format.in(format.out(float_of(0x7f800000u | payload))))) << payload;
    EXPECT_TRUE(std::isnan(format.in(format.out(float_of(0xff800000u | payload))))) << payload;
  }
}

#if defined(__x86_64__)
TEST(Half, F16SubnormalsSurviveAThreadThatFlushesSubnormalFloats) {
  const std::uint64_t ordinary = float_control();
  set_float_control(ordinary | 0x8040);
  std::vector<float> values;
  for (int pattern = 0; pattern < 0x400; ++pattern) values.push_back(f16_to_float(static_cast<std::uint16_t>(pattern)));
  std::vector<std::uint16_t> back;
  for (const float value : values) back.push_back(float_to_f16(value));
  set_float_control(ordinary);
  for (int pattern = 0; pattern < 0x400; ++pattern) {
    ASSERT_EQ(static_cast<double>(values[static_cast<std::size_t>(pattern)]), f16.value(pattern));
    ASSERT_EQ(back[static_cast<std::size_t>(pattern)], pattern);
  }
}
#endif

TEST(Half, KnownValues) {
  EXPECT_EQ(float_to_f16(65504.0f), 0x7bff);
  EXPECT_EQ(float_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_f16(0x1p-24f), 0x0001);
  EXPECT_EQ(float_to_f16(0x1p-25f), 0x0000);
  EXPECT_EQ(float_to_f16(-0.0f), 0x8000);
  EXPECT_EQ(float_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(float_to_bf16(0x1.01p0f), 0x3f80);
  EXPECT_EQ(float_to_bf16(0x1.03p0f), 0x3f82);
}

TEST(Half, LoadsAnyFloatingTypeAsDouble) {
  const double f64[] = {1.5, 0x1p-1074};
  const float f32[] = {1.5f, 0x1p-149f};
  const std::uint16_t half[] = {0x3e00, 0x0001}, brain[] = {0x3fc0, 0x0001};
  EXPECT_EQ(load_as_double(f64, DType::f64, 1), 0x1p-1074);
  EXPECT_EQ(load_as_double(f32, DType::f32, 1), 0x1p-149);
  EXPECT_EQ(load_as_double(half, DType::f16, 0), 1.5);
  EXPECT_EQ(load_as_double(half, DType::f16, 1), 0x1p-24);
  EXPECT_EQ(load_as_double(brain, DType::bf16, 0), 1.5);
  EXPECT_EQ(load_as_double(brain, DType::bf16, 1), 0x1p-133);
}

}  // namespace
}  // namespace fresnel
