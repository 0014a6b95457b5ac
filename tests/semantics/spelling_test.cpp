// SPDX-License-Identifier: Apache-2.0
// The one-line spelling: every valid problem survives print and parse, the canonical lines stay as they are, and every
// wrong line is refused by naming the token, what may stand there and, for a misspelling, the nearest token.
#include <gtest/gtest.h>

#include <clocale>
#include <locale>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "problems.hpp"

namespace fresnel {
namespace {

Problem parsed(std::string_view line) {
  const Result<Problem> problem = parse_problem(line);
  EXPECT_TRUE(problem.ok()) << line << "\n" << (problem ? "" : problem.refusal().message());
  return problem ? *problem : Problem{};
}

const std::string base = "b2 h8 q3 k4 d64 f32";

TEST(Spelling, EveryValidProblemSurvives) {
  test::RandomProblems problems(1);
  for (int trial = 0; trial < 20000; ++trial) {
    const Problem problem = problems.next();
    ASSERT_TRUE(validate(problem).ok()) << validate(problem).refusal().message();
    const std::string line = print(problem);
    const Result<Problem> back = parse_problem(line);
    ASSERT_TRUE(back.ok()) << line << "\n" << back.refusal().message();
    ASSERT_TRUE(*back == problem) << line << "\n" << print(*back);
    ASSERT_EQ(std::hash<Problem>()(*back), std::hash<Problem>()(problem)) << line;
  }
}

TEST(Spelling, CanonicalLinesPrintAsTheyAreRead) {
  for (const char* line :
       // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): one line in two
       {"b2 h8/2 q128 k1024 d64/32 bf16 causal topleft w16,- cap5 scale0.1 alibi:distance:batch lens bshd unaligned "
        "nolse grad",
        "b0 h0 q0 k0 d1 f64", "b1 h1 q1 k1 d1 f16 w0,0", "b2 h8 q3 k4 d64 f32 w-,4", "b2 h8 q3 k4 d64 f32 alibi",
        "b2 h8 q3 k4 d64 f32 alibi:distance", "b2 h8 q3 k4 d64 f32 alibi:batch", "b2 h8 q3 k4 d64 f32 q:bshd o:bshd",
        "b2 h8 q3 k4 d64 f32 k:bshd v:bshd o:unaligned nolse", "b2 h8 q3 k4 d64 f32 scale-0.125",
        "b2 h8 q3 k4 d64 f32 scale0", "b2 h8 q3 k4 d64 f32 cap1e-30", "b2 h8 q3 k4 d64 f64 scale1e+300",
        "b2 h8 q3 k4 d64 f32 w9223372036854775807,9223372036854775806"})
    EXPECT_EQ(print(parsed(line)), line);
}

TEST(Spelling, OtherLinesMeanTheCanonicalOne) {
  const std::pair<std::string, std::string> lines[] = {
      {base + " w-,-", base},
      {"  b2\th8/8   q3 k4 d64/64 f32 ", base},
      {"b002 h8 q3 k4 d64 f32", base},
      {base + " q:bshd k:bshd v:bshd o:bshd", base + " bshd"},
      {base + " q:unaligned k:unaligned v:unaligned o:unaligned", base + " unaligned"},
      {base + " scale0.1000", base + " scale0.1"},
      {base + " scale1e-1", base + " scale0.1"},
      {base + " scale00.5e0", base + " scale0.5"},
  };
  for (const auto& [line, canonical] : lines) EXPECT_EQ(print(parsed(line)), canonical) << line;
}

TEST(Spelling, FieldsLandWhereTheyBelong) {
  const Problem problem = parsed(
      "b2 h8/4 q3 k5 d64/32 bf16 causal topleft w16,- cap5 scale-2 alibi:distance lens k:bshd "
      "o:unaligned nolse");
  Problem expected;
  expected.batch = 2;
  expected.heads_q = 8;
  expected.heads_kv = 4;
  expected.queries = 3;
  expected.keys = 5;
  expected.head_dim = 64;
  expected.value_dim = 32;
  expected.dtype = DType::bf16;
  expected.options.causal = true;
  expected.options.alignment = Alignment::top_left;
  expected.options.window_size_left = 16;
  expected.options.softcap = 5;
  expected.options.softmax_scale = -2;
  expected.options.alibi = AlibiForm::distance;
  expected.alibi_slopes = AlibiSlopes::per_head;
  expected.seqlens_k = true;
  expected.k.order = AxisOrder::bshd;
  expected.o.aligned = false;
  expected.lse = false;
  EXPECT_TRUE(problem == expected) << print(problem);
}

TEST(Spelling, AFormWithoutSlopesPrintsNothing) {
  Problem problem = parsed(base);
  problem.options.alibi = AlibiForm::distance;
  EXPECT_EQ(print(problem), base);
}

TEST(Spelling, UnsetAndExplicitScaleDiffer) {
  const Problem unset = parsed(base), given = parsed(base + " scale0.125");
  EXPECT_EQ(unset.softmax_scale(), given.softmax_scale());
  EXPECT_FALSE(unset == given);
  EXPECT_NE(std::hash<Problem>()(unset), std::hash<Problem>()(given));
}

struct Wrong {
  std::string line, given, accepted, nearest;
};

TEST(Spelling, WrongLinesNameTheTokenAndWhatWasExpected) {
  const Wrong wrongs[] = {
      {"", "the end of the line after 0 tokens", "bN", ""},
      {"b2 h8 q3 k4", "the end of the line after 4 tokens", "dN[/M]", ""},
      {"b2 h8 q3 k4 d64", "the end of the line", "f64|f32|f16|bf16", ""},
      {"x", "'x' (token 1)", "bN, the batch", ""},
      {"B2 h8 q3 k4 d64 f32", "'B2' (token 1)", "bN", "b2"},
      {"b2 q3 k4 d64 f32", "'q3' (token 2)", "hN[/M]", ""},
      {"b2 h8 k4 q3 d64 f32", "'k4' (token 3)", "qN", ""},
      {"b2 h8 b2 q3 k4 d64 f32", "'b2' (token 3)", "bN only before hN[/M]; here qN", ""},
      {"b2 h8 q3 k4 d64 fp16", "'fp16' (token 6)", "f64|f32|f16|bf16", "f16"},
      {"b2 h8 q3 k4 d64 BF16", "'BF16' (token 6)", "f64|f32|f16|bf16", "bf16"},
      {"b2 h8 q3 k4 d64 i32", "'i32' (token 6)", "f64|f32|f16|bf16", "f32"},
      {"b2 h8 q+3 k4 d64 f32", "'q+3' (token 3)", "qN, the queries, in whole numbers", ""},
      {"b2 h8 q-3 k4 d64 f32", "'q-3' (token 3)", "whole numbers from 0 to 9223372036854775807", ""},
      {"b2 h8 q3.0 k4 d64 f32", "'q3.0' (token 3)", "whole numbers", ""},
      {"b2 h8 q3 k1e3 d64 f32", "'k1e3' (token 4)", "whole numbers", ""},
      {"b2 h8 q0x3 k4 d64 f32", "'q0x3' (token 3)", "whole numbers", ""},
      {"b9223372036854775808 h8 q3 k4 d64 f32", "'b9223372036854775808' (token 1)", "whole numbers", ""},
      {"b18446744073709551617 h8 q3 k4 d64 f32", "(token 1)", "whole numbers", ""},
      {"b2 h8/ q3 k4 d64 f32", "'h8/' (token 2)", "hN[/M]", ""},
      {"b2 h/8 q3 k4 d64 f32", "'h/8' (token 2)", "hN[/M]", ""},
      {"b2 h8/2/2 q3 k4 d64 f32", "'h8/2/2' (token 2)", "hN[/M]", ""},
      {"b2 h8 q3/3 k4 d64 f32", "'q3/3' (token 3)", "qN", ""},
      {base + " casual", "'casual' (token 7)", "causal | topleft | wL,R", "causal"},
      {base + " Causal", "'Causal' (token 7)", "causal", "causal"},
      {base + " top_left", "'top_left' (token 7)", "topleft", "topleft"},
      {base + " scle-1\x1b[2J", "'scle-1\\x1b[2J' (token 7)", "causal", ""},  // no escape sequence as the nearest
      {base + " CAP5\x1b[2J", "'CAP5\\x1b[2J' (token 7)", "causal", ""},
      {base + " causal causal", "'causal' (token 8)", "each token once; here topleft", ""},
      {base + " cap5 causal", "'causal' (token 8)", "causal only before capX; here scaleX", ""},
      {base + " grad nolse", "'nolse' (token 8)", "nolse only before grad; here the end of the line", ""},
      {base + " grad grad", "'grad' (token 8)", "each token once; here the end of the line", ""},
      {base + " grad extra", "'extra' (token 8)", "the end of the line", ""},
      {base + " w5", "'w5' (token 7)", "wL,R", ""},
      {base + " w5,", "'w5,' (token 7)", "- (unbounded)", ""},
      {base + " w,5", "'w,5' (token 7)", "wL,R", ""},
      {base + " w-1,5", "'w-1,5' (token 7)", "wL,R", ""},
      {base + " w1,2,3", "'w1,2,3' (token 7)", "wL,R", ""},
      {base + " w--,-", "'w--,-' (token 7)", "wL,R", ""},
      {base + " w9223372036854775808,-", "(token 7)", "wL,R", ""},
      {base + " cap", "'cap' (token 7)", "capX, X a decimal", ""},
      {base + " cap=5", "'cap=5' (token 7)", "capX", ""},
      {base + " cap5.", "'cap5.' (token 7)", "capX", ""},
      {base + " cap.5", "'cap.5' (token 7)", "capX", ""},
      {base + " cap+5", "'cap+5' (token 7)", "capX", ""},
      {base + " cap5e", "'cap5e' (token 7)", "capX", ""},
      {base + " cap5e+", "'cap5e+' (token 7)", "capX", ""},
      {base + " capinf", "'capinf' (token 7)", "capX", ""},
      {base + " cap5,0", "'cap5,0' (token 7)", "capX", ""},
      {base + " scalenan", "'scalenan' (token 7)", "scaleX", ""},
      {base + " scale0x1p3", "'scale0x1p3' (token 7)", "scaleX", ""},
      {base + " scale1e999", "'scale1e999' (token 7)", "scaleX, X a decimal within float64", ""},
      {base + " scale1e-999", "'scale1e-999' (token 7)", "scaleX, X a decimal within float64", ""},
      {base + " scale--1", "'scale--1' (token 7)", "scaleX", ""},
      {base + " sclae0.1", "'sclae0.1' (token 7)", "scaleX", "scale0.1"},
      {base + " cpa5", "'cpa5' (token 7)", "capX", "cap5"},
      {base + " alibi:", "'alibi:' (token 7)", "alibi:distance", "alibi"},
      {base + " alibi:distnace", "'alibi:distnace' (token 7)", "alibi, alibi:distance", "alibi:distance"},
      {base + " alibi:batch:distance", "(token 7)", "alibi:distance:batch", ""},
      {base + " alibi:relative", "(token 7)", "alibi:distance:batch", ""},
      {base + " allibi", "'allibi' (token 7)", "alibi", "alibi"},
      {base + " seqlens", "'seqlens' (token 7)", "lens", ""},
      {base + " bshd q:bshd", "'q:bshd' (token 8)", "either bshd for all tensors or q:bshd", ""},
      {base + " q:bshd bshd", "'bshd' (token 8)", "bshd only before q:bshd", ""},
      {base + " o:bshd k:bshd", "'k:bshd' (token 8)", "k:bshd only before o:bshd", ""},
      {base + " unaligned o:unaligned", "'o:unaligned' (token 8)", "either unaligned for all", ""},
      {base + " bhsd", "'bhsd' (token 7)", "bshd", "bshd"},
      {base + " unalinged", "'unalinged' (token 7)", "unaligned", "unaligned"},
      {base + " no_lse", "'no_lse' (token 7)", "nolse", "nolse"},
      {base + "\n", "'f32\\x0a' (token 6)", "f64|f32|f16|bf16", "f32"},
      {"b2 h8 q\xd9\xa3 k4 d64 f32", "'q\\xd9\\xa3' (token 3)", "qN", ""},
  };
  for (const Wrong& wrong : wrongs) {
    const Result<Problem> problem = parse_problem(wrong.line);
    ASSERT_FALSE(problem.ok()) << wrong.line << " was read as " << print(*problem);
    const Refusal& refusal = problem.refusal();
    EXPECT_EQ(refusal.fault, Fault::bad_input);
    EXPECT_EQ(refusal.argument, "problem") << wrong.line;
    EXPECT_NE(refusal.given.find(wrong.given), std::string::npos) << wrong.line << "\n" << refusal.message();
    EXPECT_NE(refusal.accepted.find(wrong.accepted), std::string::npos) << wrong.line << "\n" << refusal.message();
    EXPECT_EQ(refusal.nearest, wrong.nearest) << wrong.line << "\n" << refusal.message();
  }
}

TEST(Spelling, WellSpeltNonsenseIsRefusedByName) {
  const std::pair<std::string, std::string> lines[] = {
      {"b2 h8/3 q3 k4 d64 f32", "heads_kv"},
      {"b2 h8/0 q3 k4 d64 f32", "heads_kv"},
      {"b2 h8 q3 k4 d0 f32", "head_dim"},
      {"b2 h8 q3 k4 d64/0 f32", "value_dim"},
      {base + " cap0", "softcap"},
      {base + " cap-1", "softcap"},
      {base + " scale1e-39", "softmax_scale"},
      {"b9223372036854775807 h8 q3 k4 d64 f32", "q"},
  };
  for (const auto& [line, argument] : lines) {
    const Result<Problem> problem = parse_problem(line);
    ASSERT_FALSE(problem.ok()) << line;
    EXPECT_EQ(problem.refusal().argument, argument) << line;
  }
}

TEST(Spelling, HostileLinesAreRefused) {
  constexpr std::size_t megabyte = 1 << 20;
  const std::string zeros(megabyte, '0'), nines(megabyte, '9'), letters(megabyte, 'c'), nuls(megabyte, '\0');
  std::string words;
  while (words.size() < megabyte) words += " causal";
  for (const std::string& line :
       {nines, letters, nuls, "b" + nines, "b2 h8 q3 k4 d64 f32 cap" + nines, base + " scale0." + zeros + "1",
        base + " " + letters, base + " alibi:" + letters, base + words, base + " w" + nines + "," + nines,
        std::string(megabyte, ' '), base + std::string(1, '\0'), base + " causal" + std::string(1, '\0') + "x"}) {
    const Result<Problem> problem = parse_problem(line);
    ASSERT_FALSE(problem.ok());
    EXPECT_LT(problem.refusal().message().size(), 1000u);
    for (const char c : problem.refusal().message()) ASSERT_TRUE(c >= ' ' && c <= '~');
  }
}

/// Any one byte of a full line changed, dropped or doubled: refused, or read as something that survives print and
/// parse.
TEST(Spelling, EveryOneByteMutation) {
  const std::string line =
      "b2 h8/2 q128 k1024 d64/32 bf16 causal topleft w16,- cap5 scale0.1 alibi:distance:batch lens q:bshd unaligned "
      "nolse";
  int read = 0, refused = 0;
  const auto attempt = [&](const std::string& mutant) {
    const Result<Problem> problem = parse_problem(mutant);
    ++(problem ? read : refused);
    if (problem) {
      ASSERT_TRUE(parsed(print(*problem)) == *problem) << mutant;
    } else {
      ASSERT_FALSE(problem.refusal().given.empty() || problem.refusal().accepted.empty()) << mutant;
    }
  };
  for (std::size_t at = 0; at < line.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string mutant = line;
      mutant[at] = static_cast<char>(byte);
      attempt(mutant);
    }
    attempt(line.substr(0, at));
    attempt(line.substr(0, at) + line.substr(at + 1));
    attempt(line.substr(0, at) + line[at] + line.substr(at));
  }
  EXPECT_GT(read, 300);
  EXPECT_GT(refused, 20000);
}

struct DecimalComma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(Spelling, LocaleChangesNothing) {
  const std::string line = "b2 h8 q1234567 k4 d64 f32 cap12345.5 scale0.1";
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new DecimalComma));
  const std::string c_locale = std::setlocale(LC_ALL, nullptr);
  std::setlocale(LC_ALL, "de_DE.UTF-8");  // where installed
  const Problem problem = parsed(line);
  const std::string back = print(problem);
  std::setlocale(LC_ALL, c_locale.c_str());
  std::locale::global(before);
  EXPECT_EQ(back, line);
  EXPECT_EQ(problem.options.softcap, 12345.5);
}

TEST(Hash, EveryFieldCounts) {
  const Problem plain = parsed(base);
  std::unordered_map<std::size_t, std::string> seen{{std::hash<Problem>()(plain), base}};
  for (const std::string& line : {std::string("b3 h8 q3 k4 d64 f32"),
                                  std::string("b2 h16/8 q3 k4 d64 f32"),
                                  std::string("b2 h8/4 q3 k4 d64 f32"),
                                  std::string("b2 h8 q4 k4 d64 f32"),
                                  std::string("b2 h8 q4 k3 d64 f32"),
                                  std::string("b2 h8 q3 k4 d65/64 f32"),
                                  std::string("b2 h8 q3 k4 d64/65 f32"),
                                  std::string("b2 h8 q3 k4 d64 f16"),
                                  base + " causal",
                                  base + " topleft",
                                  base + " w0,-",
                                  base + " w-,0",
                                  base + " w0,0",
                                  base + " w1,-",
                                  base + " cap1",
                                  base + " scale1",
                                  base + " scale0",
                                  base + " alibi",
                                  base + " alibi:distance",
                                  base + " alibi:batch",
                                  base + " lens",
                                  base + " q:bshd",
                                  base + " k:bshd",
                                  base + " v:bshd",
                                  base + " o:bshd",
                                  base + " q:unaligned",
                                  base + " k:unaligned",
                                  base + " v:unaligned",
                                  base + " o:unaligned",
                                  base + " nolse",
                                  base + " grad"}) {
    const auto [place, fresh] = seen.emplace(std::hash<Problem>()(parsed(line)), line);
    EXPECT_TRUE(fresh) << line << " and " << place->second;
  }
}

TEST(Hash, EqualProblemsHashAlike) {
  Problem zero = parsed(base), negative = zero;
  zero.options.softmax_scale = 0.0;
  negative.options.softmax_scale = -0.0;
  ASSERT_TRUE(zero == negative);
  EXPECT_EQ(std::hash<Problem>()(zero), std::hash<Problem>()(negative));
}

TEST(Hash, SpreadsNeighbours) {
  std::unordered_set<std::size_t> low;  // the low 16 bits of 4,096 neighbours: about 3,968 differ by chance
  for (std::int64_t queries = 0; queries < 64; ++queries)
    for (std::int64_t keys = 0; keys < 64; ++keys) {
      Problem problem;
      problem.queries = queries;
      problem.keys = keys;
      low.insert(std::hash<Problem>()(problem) & 0xffff);
    }
  EXPECT_GT(low.size(), 3800u);
}

TEST(Problem, ScaleInForceAndGroup) {
  EXPECT_EQ(parsed(base).softmax_scale(), 0.125);
  EXPECT_EQ(parsed(base + " scale-3").softmax_scale(), -3);
  EXPECT_EQ(parsed(base + " scale0").softmax_scale(), 0);
  EXPECT_EQ(parsed("b2 h8/2 q3 k4 d64 f32").group(), 4);
  EXPECT_EQ(parsed("b2 h0/2 q3 k4 d64 f32").group(), 1);
  EXPECT_EQ(parsed("b2 h0 q3 k4 d64 f32").group(), 1);
}

}  // namespace
}  // namespace fresnel
