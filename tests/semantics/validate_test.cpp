// SPDX-License-Identifier: Apache-2.0
// Every rule of validate from both sides: what is just inside passes, what is just outside is refused by name with what
// would be accepted. Problems are built by hand, so that values no line can spell are tried too.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "fresnel/plan.hpp"

namespace fresnel {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Problem plain(DType dtype = DType::f32) {
  Problem problem;
  problem.batch = 2;
  problem.heads_q = problem.heads_kv = 8;
  problem.queries = 3;
  problem.keys = 4;
  problem.head_dim = problem.value_dim = 64;
  problem.dtype = dtype;
  return problem;
}

using Change = std::function<void(Problem&)>;

void expect_valid(const Change& change, DType dtype = DType::f32) {
  Problem problem = plain(dtype);
  change(problem);
  const Status status = validate(problem);
  EXPECT_TRUE(status.ok()) << print(problem) << "\n" << (status ? "" : status.refusal().message());
}

/// The refusal must name the argument and hold the given and accepted words; `nearest` must be exact.
void expect_refused(const Change& change, const std::string& argument, const std::string& given,
                    const std::string& accepted, const std::string& nearest, DType dtype = DType::f32) {
  Problem problem = plain(dtype);
  change(problem);
  const Status status = validate(problem);
  ASSERT_FALSE(status.ok()) << print(problem);
  const Refusal& refusal = status.refusal();
  EXPECT_EQ(refusal.fault, Fault::bad_input);
  EXPECT_TRUE(refusal.kernel.empty());
  EXPECT_EQ(refusal.argument, argument) << refusal.message();
  EXPECT_NE(refusal.given.find(given), std::string::npos) << refusal.message();
  EXPECT_NE(refusal.accepted.find(accepted), std::string::npos) << refusal.message();
  EXPECT_EQ(refusal.nearest, nearest) << refusal.message();
}

TEST(Validate, EmptyExtentsAreLegal) {
  expect_valid([](Problem& p) { p.batch = 0; });
  expect_valid([](Problem& p) { p.heads_q = p.heads_kv = 0; });
  expect_valid([](Problem& p) { p.heads_q = 0; });
  expect_valid([](Problem& p) { p.queries = 0; });
  expect_valid([](Problem& p) { p.keys = 0; });
  expect_valid([](Problem& p) { p.head_dim = p.value_dim = 1; });
  expect_valid([](Problem& p) { p.grad = true; });
  expect_valid([](Problem& p) { p.lse = false; });
}

TEST(Validate, NegativeExtentsAndEmptyWidths) {
  expect_refused([](Problem& p) { p.batch = -1; }, "batch", "-1", "at least 0", "0");
  expect_refused([](Problem& p) { p.heads_q = -8; }, "heads_q", "-8", "at least 0", "0");
  expect_refused([](Problem& p) { p.heads_kv = -8; }, "heads_kv", "-8", "at least 0", "0");
  expect_refused([](Problem& p) { p.queries = INT64_MIN; }, "queries", "-9223372036854775808", "at least 0", "0");
  expect_refused([](Problem& p) { p.keys = -1; }, "keys", "-1", "at least 0", "0");
  expect_refused([](Problem& p) { p.head_dim = 0; }, "head_dim", "0", "at least 1", "1");
  expect_refused([](Problem& p) { p.value_dim = 0; }, "value_dim", "0", "at least 1", "1");
  expect_refused([](Problem& p) { p.value_dim = -3; }, "value_dim", "-3", "at least 1", "1");
}

TEST(Validate, KeyHeadsDivideQueryHeads) {
  for (const std::int64_t group : {1, 2, 3, 5, 6, 7, 12, 40}) expect_valid([&](Problem& p) { p.heads_q = 8 * group; });
  const auto heads = [](std::int64_t q, std::int64_t kv) {
    return [=](Problem& p) {
      p.heads_q = q;
      p.heads_kv = kv;
    };
  };
  expect_refused(heads(9, 7), "heads_kv", "7 for 9 query heads", "a divisor of heads_q", "9");
  expect_refused(heads(8, 3), "heads_kv", "3 for 8 query heads", "a divisor", "2");
  expect_refused(heads(2, 8), "heads_kv", "8 for 2 query heads", "a divisor", "2");
  expect_refused(heads(8, 0), "heads_kv", "0 for 8 query heads", "0 only when heads_q is 0", "1");
  expect_refused(heads((std::int64_t{1} << 40) + 1, std::int64_t{1} << 39), "heads_kv", "query heads", "a divisor", "");
}

TEST(Validate, Enumerators) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) expect_valid([](Problem&) {}, dtype);
  expect_refused([](Problem& p) { p.dtype = DType::i32; }, "dtype", "i32", "f64, f32, f16 or bf16", "");
  expect_refused([](Problem& p) { p.dtype = DType::boolean; }, "dtype", "bool", "f64, f32, f16 or bf16", "");
  expect_refused([](Problem& p) { p.dtype = static_cast<DType>(200); }, "dtype", "dtype(200)", "f64, f32", "");
  expect_refused([](Problem& p) { p.options.alignment = static_cast<Alignment>(2); }, "alignment", "unknown value 2",
                 "bottom_right or top_left", "");
  expect_refused([](Problem& p) { p.options.alibi = static_cast<AlibiForm>(9); }, "alibi", "unknown value 9",
                 "relative", "");
  expect_refused([](Problem& p) { p.alibi_slopes = static_cast<AlibiSlopes>(3); }, "alibi_slopes", "unknown value 3",
                 "per_head", "");
  expect_refused([](Problem& p) { p.v.order = static_cast<AxisOrder>(7); }, "v.order", "unknown value 7", "bshd", "");
}

TEST(Validate, ScaleInFloat32Range) {
  const double largest = std::nextafter(0x1p127, 0.0), below_least = std::nextafter(0x1p-126, 0.0);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const double scale : {0.0, -0.0, 1.0, -1.0, 0x1p-126, -0x1p-126, largest, -largest, 3e37})
      expect_valid([&](Problem& p) { p.options.softmax_scale = scale; }, dtype);
    const auto scale = [](double value) { return [=](Problem& p) { p.options.softmax_scale = value; }; };
    const std::string accepted = "a magnitude in [2^-126, 2^127)";
    expect_refused(scale(below_least), "softmax_scale", "1.175494350822287", accepted, "1.1754943508222875e-38", dtype);
    expect_refused(scale(-1e-300), "softmax_scale", "-1e-300", accepted, "-1.1754943508222875e-38", dtype);
    expect_refused(scale(0x1p127), "softmax_scale", "1.7014118346046923e+38", accepted, "1.7014118346046921e+38",
                   dtype);
    expect_refused(scale(-inf), "softmax_scale", "-inf", accepted, "-1.7014118346046921e+38", dtype);
    expect_refused(scale(nan), "softmax_scale", "nan", accepted, "", dtype);
  }
}

TEST(Validate, ScaleInFloat64Range) {
  const double least = std::numeric_limits<double>::min(), most = std::numeric_limits<double>::max();
  for (const double scale : {0.0, least, -least, most, -most, 1e-300, 1e300})
    expect_valid([&](Problem& p) { p.options.softmax_scale = scale; }, DType::f64);
  const auto scale = [](double value) { return [=](Problem& p) { p.options.softmax_scale = value; }; };
  const std::string accepted = "a finite magnitude of at least 2^-1022";
  expect_refused(scale(least / 2), "softmax_scale", "1.1125369292536007e-308", accepted, "2.2250738585072014e-308",
                 DType::f64);
  expect_refused(scale(inf), "softmax_scale", "inf", accepted, "1.7976931348623157e+308", DType::f64);
  expect_refused(scale(nan), "softmax_scale", "nan", accepted, "", DType::f64);
}

TEST(Validate, Softcap) {
  for (const double cap : {0x1p-126, 1.0, 50.0, std::nextafter(0x1p127, 0.0)})
    expect_valid([&](Problem& p) { p.options.softcap = cap; });
  expect_valid([](Problem& p) { p.options.softcap = 1e300; }, DType::f64);
  const auto cap = [](double value) { return [=](Problem& p) { p.options.softcap = value; }; };
  expect_refused(cap(0), "softcap", "0", "leave softcap unset for no cap", "unset");
  expect_refused(cap(-0.0), "softcap", "-0", "leave softcap unset for no cap", "unset");
  expect_refused(cap(-5), "softcap", "-5", "a positive number", "");
  expect_refused(cap(1e-39), "softcap", "1e-39", "[2^-126, 2^127)", "1.1754943508222875e-38");
  expect_refused(cap(1e300), "softcap", "1e+300", "[2^-126, 2^127)", "1.7014118346046921e+38");
  expect_refused(cap(inf), "softcap", "inf", "[2^-126, 2^127)", "1.7014118346046921e+38");
  expect_refused(cap(nan), "softcap", "nan", "a positive number", "");
}

TEST(Validate, Windows) {
  for (const std::int64_t window : {std::int64_t{0}, std::int64_t{1}, std::int64_t{INT64_MAX}})
    expect_valid([&](Problem& p) { p.options.window_size_left = p.options.window_size_right = window; });
  expect_refused([](Problem& p) { p.options.window_size_left = -1; }, "window_size_left", "-1", "0 is a real bound",
                 "unset");
  expect_refused([](Problem& p) { p.options.window_size_right = INT64_MIN; }, "window_size_right",
                 "-9223372036854775808", "unset (unbounded)", "unset");
}

TEST(Validate, AlibiFormNeedsSlopes) {
  expect_valid([](Problem& p) {
    p.alibi_slopes = AlibiSlopes::per_head;
    p.options.alibi = AlibiForm::distance;
  });
  expect_refused([](Problem& p) { p.options.alibi = AlibiForm::distance; }, "alibi", "distance without alibi_slopes",
                 "only with alibi_slopes", "relative");
}

TEST(Validate, SizesStayWithin64Bits) {
  constexpr std::int64_t big = std::int64_t{1} << 50;
  const auto sizes = [](std::int64_t batch, std::int64_t heads, std::int64_t queries, std::int64_t keys,
                        std::int64_t width) {
    return [=](Problem& p) {
      p.batch = batch;
      p.heads_q = p.heads_kv = heads;
      p.queries = queries;
      p.keys = keys;
      p.head_dim = p.value_dim = width;
    };
  };
  expect_valid(sizes(1, 1, 1, (std::int64_t{1} << 60) - 1, 1));
  expect_valid(sizes(1, 80000, 1, 1, 1));
  expect_valid(sizes(65536, 65536, 16, 16, 64));
  const std::string accepted = "fewer than 2^60 elements";
  expect_refused(sizes(1, 1, 1, std::int64_t{1} << 60, 1), "k", "[1,1,1152921504606846976,1]", accepted, "");
  expect_refused(sizes(1, 1, big, 1, 1024), "q", "[1,1,1125899906842624,1024]", accepted, "");
  expect_refused(sizes(INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX), "q", "[9223372036854775807,", accepted,
                 "");
  expect_refused(sizes(0, 2, big, 1, 1024), "q", "[0,2,1125899906842624,1024]", accepted, "");
  expect_refused(
      [&](Problem& p) {
        p.keys = big;
        p.value_dim = 1024;
        p.head_dim = 1;
        p.batch = 1;
        p.heads_kv = 1;
      },
      "v", "[1,1,1125899906842624,1024]", accepted, "");
  expect_refused(
      [&](Problem& p) {
        p.queries = big;
        p.value_dim = 1024;
        p.head_dim = 1;
        p.batch = 1;
        p.heads_q = p.heads_kv = 1;
      },
      "o", "[1,1,1125899906842624,1024]", accepted, "");
}

}  // namespace
}  // namespace fresnel
