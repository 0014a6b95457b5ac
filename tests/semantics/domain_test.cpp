// SPDX-License-Identifier: Apache-2.0
// Domains: inside, on every edge, one step outside every edge, and which reason wins. Uses a made-up narrow domain, so
// that every field can say no.
#include "semantics/domain.hpp"

#include <gtest/gtest.h>

#include "problems.hpp"

namespace fresnel {
namespace {

Problem parsed(const std::string& line) {
  const Result<Problem> problem = parse_problem(line);
  EXPECT_TRUE(problem.ok()) << line;
  return problem ? *problem : Problem{};
}

Domain narrow() {
  Domain domain;
  domain.dtypes = {DType::f32, DType::bf16};
  domain.head_dim = {16, 576};
  domain.value_dim = {8, 512};
  domain.queries = {1, 1};
  domain.keys = {2, INT64_MAX};
  domain.axis_orders = {AxisOrder::bhsd};
  domain.unaligned = false;
  return domain;
}

Domain wide() {
  Domain domain;
  domain.dtypes = {DType::f64, DType::f32, DType::f16, DType::bf16};
  domain.head_dim = domain.value_dim = {1, INT64_MAX};
  domain.features = {Feature::causal, Feature::top_left,  Feature::window,        Feature::softcap,
                     Feature::alibi,  Feature::seqlens_k, Feature::grouped_heads, Feature::grad};
  return domain;
}

struct Outside {
  std::string line, argument, given, accepted, nearest;
};

TEST(Domain, OneStepOutsideEveryEdge) {
  const std::string inside = "b2 h8 q1 k2 d16/8 f32";
  EXPECT_TRUE(admits(narrow(), parsed(inside)));
  EXPECT_TRUE(admits(narrow(), parsed("b0 h0 q1 k1000000 d576/512 bf16 scale2 nolse")));
  const Outside outsides[] = {
      {"b2 h8 q1 k2 d16/8 f16", "dtype", "f16", "f32, bf16", ""},
      {"b2 h8 q1 k2 d15/8 f32", "head_dim", "15", "16 to 576", "16"},
      {"b2 h8 q1 k2 d600/8 f32", "head_dim", "600", "16 to 576", "576"},
      {"b2 h8 q1 k2 d16/7 f32", "value_dim", "7", "8 to 512", "8"},
      {"b2 h8 q1 k2 d16/513 f32", "value_dim", "513", "8 to 512", "512"},
      {"b2 h8 q0 k2 d16/8 f32", "queries", "0", "1", "1"},
      {"b2 h8 q2 k2 d16/8 f32", "queries", "2", "1", "1"},
      {"b2 h8 q1 k1 d16/8 f32", "keys", "1", "at least 2", "2"},
      {inside + " causal", "causal", "true", "false", "false"},
      {inside + " topleft", "alignment", "top_left", "bottom_right", "bottom_right"},
      {inside + " w3,-", "window", "left 3, right unbounded", "no window", "unbounded"},
      {inside + " w-,0", "window", "left unbounded, right 0", "no window", "unbounded"},
      {inside + " cap2.5", "softcap", "2.5", "no softcap", "unset"},
      {inside + " alibi", "alibi_slopes", "slopes", "no ALiBi", "none"},
      {inside + " alibi:distance:batch", "alibi_slopes", "slopes", "no ALiBi", "none"},
      {inside + " lens", "seqlens_k", "key counts", "sequences of equal length", "none"},
      {"b2 h8/2 q1 k2 d16/8 f32", "heads_kv", "2 for 8 query heads", "as many as query heads", "8"},
      {inside + " grad", "grad", "gradients asked for", "forward only", "no grad"},
      {inside + " q:bshd", "q", "bshd", "bhsd", ""},
      {inside + " k:bshd", "k", "bshd", "bhsd", ""},
      {inside + " v:bshd", "v", "bshd", "bhsd", ""},
      {inside + " o:bshd", "o", "bshd", "bhsd", ""},
      {inside + " q:unaligned", "q", "no multiple of 16 bytes", "multiples of 16 bytes", ""},
      {inside + " k:unaligned", "k", "no multiple of 16 bytes", "multiples of 16 bytes", ""},
      {inside + " v:unaligned", "v", "no multiple of 16 bytes", "multiples of 16 bytes", ""},
      {inside + " o:unaligned", "o", "no multiple of 16 bytes", "multiples of 16 bytes", ""},
  };
  for (const Outside& outside : outsides) {
    const Problem problem = parsed(outside.line);
    EXPECT_FALSE(admits(narrow(), problem)) << outside.line;
    EXPECT_TRUE(admits(wide(), problem)) << outside.line;
    const std::optional<Refusal> refusal = refusal_of(narrow(), problem);
    ASSERT_TRUE(refusal.has_value()) << outside.line;
    EXPECT_EQ(refusal->fault, Fault::unsupported);
    EXPECT_TRUE(refusal->kernel.empty());
    EXPECT_EQ(refusal->argument, outside.argument) << outside.line;
    EXPECT_NE(refusal->given.find(outside.given), std::string::npos) << refusal->message();
    EXPECT_NE(refusal->accepted.find(outside.accepted), std::string::npos) << refusal->message();
    EXPECT_EQ(refusal->nearest, outside.nearest) << refusal->message();
  }
}

TEST(Domain, TheFirstReasonWins) {
  // Everything is wrong; each cure uncovers the next reason.
  Problem problem = parsed("b2 h8/2 q2 k1 d600/600 f16 causal topleft w1,1 cap1 alibi lens bshd unaligned grad");
  const auto reason = [&] { return refusal_of(narrow(), problem)->argument; };
  EXPECT_EQ(reason(), "dtype");
  problem.dtype = DType::f32;
  EXPECT_EQ(reason(), "head_dim");
  problem.head_dim = 16;
  EXPECT_EQ(reason(), "value_dim");
  problem.value_dim = 16;
  EXPECT_EQ(reason(), "queries");
  problem.queries = 1;
  EXPECT_EQ(reason(), "keys");
  problem.keys = 2;
  EXPECT_EQ(reason(), "causal");
  problem.options.causal = false;
  EXPECT_EQ(reason(), "alignment");
  problem.options.alignment = Alignment::bottom_right;
  EXPECT_EQ(reason(), "window");
  problem.options.window_size_left = problem.options.window_size_right = std::nullopt;
  EXPECT_EQ(reason(), "softcap");
  problem.options.softcap.reset();
  EXPECT_EQ(reason(), "alibi_slopes");
  problem.alibi_slopes = AlibiSlopes::none;
  EXPECT_EQ(reason(), "seqlens_k");
  problem.seqlens_k = false;
  EXPECT_EQ(reason(), "heads_kv");
  problem.heads_kv = 8;
  EXPECT_EQ(reason(), "grad");
  problem.grad = false;
  EXPECT_EQ(reason(), "q");
  problem.q = problem.k = problem.v = {};
  EXPECT_EQ(reason(), "o");
  problem.o = {};
  EXPECT_TRUE(admits(narrow(), problem));
}

TEST(Domain, EachFeatureIsAskedForOnItsOwn) {
  const std::pair<const char*, Feature> lines[] = {{" causal", Feature::causal}, {" topleft", Feature::top_left},
                                                   {" w1,-", Feature::window},   {" cap1", Feature::softcap},
                                                   {" alibi", Feature::alibi},   {" lens", Feature::seqlens_k},
                                                   {" grad", Feature::grad}};
  for (const auto& [token, feature] : lines) {
    const Problem problem = parsed(std::string("b2 h8 q1 k2 d16/8 f32") + token);
    Domain only = narrow(), all_but = wide();
    only.features = {feature};
    all_but.features.bits &= ~Set<Feature>{feature}.bits;
    EXPECT_TRUE(admits(only, problem)) << token;
    EXPECT_FALSE(admits(all_but, problem)) << token;
  }
}

TEST(Domain, TestAndTextAgree) {
  test::RandomProblems problems(5);
  int admitted = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const Problem problem = problems.next();
    Domain domain = trial % 2 ? wide() : narrow();
    domain.queries = domain.keys = {0, INT64_MAX};
    domain.features.bits = static_cast<std::uint32_t>(trial * 37) & 0xff;
    ASSERT_EQ(admits(domain, problem), !refusal_of(domain, problem).has_value()) << print(problem);
    admitted += admits(domain, problem);
  }
  EXPECT_GT(admitted, 100);
}

TEST(Domain, NoDtypeAdmitsNothing) {
  const std::optional<Refusal> refusal = refusal_of(Domain{}, parsed("b2 h8 q1 k2 d16/8 f32"));
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->accepted, "none");
  Problem cast = parsed("b2 h8 q1 k2 d16/8 f32");
  cast.dtype = static_cast<DType>(255);
  EXPECT_FALSE(admits(wide(), cast));
  EXPECT_EQ(refusal_of(wide(), cast)->given, "dtype(255)");
}

}  // namespace
}  // namespace fresnel
