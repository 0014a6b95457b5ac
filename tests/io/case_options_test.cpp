// SPDX-License-Identifier: Apache-2.0
// The words of a case's metadata: every key, every wrong type, every refusal by name.
#include "io/case_options.hpp"

#include <gtest/gtest.h>

#include <string>

#include "io/raw_file.hpp"

namespace fresnel {
namespace {

using test::expect_refusal;

TEST(CaseOptions, DefaultsForAnEmptyObjectAndForNulls) {
  for (const char* text : {"{}", R"({"softmax_scale":null,"causal":null,"alignment":null,"window_size_left":null,)"
                                 R"("window_size_right":null,"softcap":null,"alibi":null,"block_size":null})"}) {
    const auto parsed = parse_case_options(text);
    ASSERT_TRUE(parsed) << parsed.refusal().message();
    EXPECT_EQ(parsed->options, Options{});
    EXPECT_FALSE(parsed->alibi_given);
    EXPECT_FALSE(parsed->block_size);
  }
}

TEST(CaseOptions, EveryKeyActs) {
  const auto parsed = parse_case_options(
      R"({"softmax_scale":-0.1,"causal":true,"alignment":"top_left","window_size_left":16,"window_size_right":0,)"
      R"("softcap":5,"alibi":"distance","block_size":8})");
  ASSERT_TRUE(parsed) << parsed.refusal().message();
  Options wanted;
  wanted.softmax_scale = -0.1;
  wanted.causal = true;
  wanted.alignment = Alignment::top_left;
  wanted.window_size_left = 16;
  wanted.window_size_right = 0;
  wanted.softcap = 5.0;
  wanted.alibi = AlibiForm::distance;
  EXPECT_EQ(parsed->options, wanted);
  EXPECT_TRUE(parsed->alibi_given);
  EXPECT_EQ(parsed->block_size, 8);

  const auto words = parse_case_options(R"({"causal":false,"alignment":"bottom_right","alibi":"relative"})");
  ASSERT_TRUE(words) << words.refusal().message();
  EXPECT_EQ(words->options, Options{});
  EXPECT_TRUE(words->alibi_given);
}

struct BadText {
  const char* text;
  const char* argument;
  const char* given;
  const char* accepted;
};

class CaseOptionsRefuses : public testing::TestWithParam<BadText> {};

TEST_P(CaseOptionsRefuses, ByName) {
  const BadText& bad = GetParam();
  expect_refusal(parse_case_options(bad.text), bad.argument, bad.given, bad.accepted);
}

INSTANTIATE_TEST_SUITE_P(
    Problems, CaseOptionsRefuses,
    testing::Values(
        BadText{"", "problem", "no JSON at byte 1", "strict JSON"}, BadText{"[]", "problem", "a list", "a JSON object"},
        BadText{"[{}]", "problem", "a list", "a JSON object"},
        BadText{"true", "problem", "a lone true", "a JSON object"},
        BadText{"{'causal':true}", "problem", "no JSON at byte 2", "strict JSON"},
        BadText{R"({"causal":true,})", "problem", "no JSON at byte", "trailing commas"},
        BadText{R"({"causal":true} // yes)", "problem", "no JSON at byte", "comments"},
        BadText{R"({"causl":true})", "problem.causl", "an unknown key",
                "softmax_scale, causal, alignment, window_size_left, window_size_right, softcap, alibi, block_size"},
        BadText{R"({"Causal":true})", "problem.Causal", "an unknown key", "causal"},
        BadText{R"({"dropout":null})", "problem.dropout", "an unknown key", "softcap"},
        BadText{R"({"causal":true,"causal":true})", "problem.causal", "the key twice", "every key once"},
        BadText{R"({"causal":true,"caus\u0061l":false})", "problem.causal", "the key twice", "every key once"},
        BadText{R"({"causal":1})", "problem.causal", "1", "true, false or null"},
        BadText{R"({"causal":"true"})", "problem.causal", "\"true\"", "true, false or null"},
        BadText{R"({"alignment":"topleft"})", "problem.alignment", "\"topleft\"",
                "\"bottom_right\", \"top_left\" or null"},
        BadText{R"({"alignment":0})", "problem.alignment", "0", "\"top_left\""},
        BadText{R"({"alibi":"absolute"})", "problem.alibi", "\"absolute\"", "\"relative\", \"distance\" or null"},
        BadText{R"({"alibi":true})", "problem.alibi", "true", "\"relative\""},
        BadText{R"({"softmax_scale":"0.125"})", "problem.softmax_scale", "\"0.125\"", "a number or null"},
        BadText{R"({"softmax_scale":true})", "problem.softmax_scale", "true", "a number or null"},
        BadText{R"({"softmax_scale":[1]})", "problem.softmax_scale", "a list", "a number or null"},
        BadText{R"({"softmax_scale":NaN})", "problem.softmax_scale", "no JSON at byte", "no NaN, Infinity"},
        BadText{R"({"softmax_scale":-Infinity})", "problem.softmax_scale", "no JSON at byte", "no NaN, Infinity"},
        BadText{R"({"softcap":1e400})", "problem.softcap", "beyond double precision: 1e400", "a finite number"},
        BadText{R"({"softcap":{"softcap":1}})", "problem.softcap", "an object", "a number or null"},
        BadText{R"({"window_size_left":-1})", "problem.window_size_left", "-1", "a whole number in [0, 2^63), or null"},
        BadText{R"({"window_size_right":16.0})", "problem.window_size_right", "16.0", "a whole number"},
        BadText{R"({"window_size_right":true})", "problem.window_size_right", "true", "a whole number"},
        BadText{R"({"window_size_left":9223372036854775808})", "problem.window_size_left", "9223372036854775808",
                "2^63"},
        BadText{R"({"window_size_left":99999999999999999999})", "problem.window_size_left", "1e+20", "2^63"},
        BadText{R"({"block_size":-4})", "problem.block_size", "-4", "a whole number"}));

TEST(CaseOptions, LongAndStrangeNamesAreCutAndEscaped) {
  const std::string name = std::string(100'000, 'x');
  expect_refusal(parse_case_options("{\"" + name + "\":1}"), "problem." + name.substr(0, 64) + "...", "unknown",
                 "causal");
  expect_refusal(parse_case_options(R"({"\u001b[2J\u00e9":1})"), "problem.\\x1b[2J\\xc3\\xa9", "unknown", "causal");
}

TEST(CaseOptions, DeepOrEndlessJsonIsRefused) {
  expect_refusal(parse_case_options(R"({"softcap":)" + std::string(200'000, '[')), "problem.softcap",
                 "nested too deeply", "at most 8 levels");
  std::string endless = "[0";
  for (int count = 0; count < 1 << 20; ++count) endless += ",0";
  expect_refusal(parse_tokens(endless + "]"), "tokens", "too many values", "at most 1048576");
}

TEST(Tokens, AreAListOfStrings) {
  const auto tokens = parse_tokens(R"(["On"," the","\u00e9"])");
  ASSERT_TRUE(tokens) << tokens.refusal().message();
  EXPECT_EQ(*tokens, (std::vector<std::string>{"On", " the", "\xc3\xa9"}));
  expect_refusal(parse_tokens(R"({"a":"b"})"), "tokens", "an object", "a JSON list of strings");
  expect_refusal(parse_tokens(R"(["a",1])"), "tokens", "1", "a JSON list of strings");
  expect_refusal(parse_tokens(R"(["a)"), "tokens", "no JSON", "strict JSON");
}

TEST(Show, IsARow) {
  const auto show = parse_show(R"({"batch":0,"head":4,"query":106})");
  ASSERT_TRUE(show) << show.refusal().message();
  EXPECT_EQ(*show, (Show{0, 4, 106}));
  expect_refusal(parse_show("[0,4,106]"), "show", "a list", "batch, head and query");
  expect_refusal(parse_show(R"({"batch":0,"head":4})"), "show", "without all three keys", "batch, head and query");
  expect_refusal(parse_show(R"({"batch":0,"head":4,"row":1})"), "show.row", "an unknown key", "batch, head and query");
  expect_refusal(parse_show(R"({"batch":0,"head":-4,"query":1})"), "show.head", "-4", "a whole number");
  expect_refusal(parse_show(R"({"batch":0,"head":null,"query":1})"), "show.head", "null", "a whole number");
  expect_refusal(parse_show(R"({"batch":0,"batch":0,"head":1,"query":1})"), "show.batch", "twice", "once");
}

}  // namespace
}  // namespace fresnel
