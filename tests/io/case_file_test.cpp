// SPDX-License-Identifier: Apache-2.0
// Case files: all cases in tests/data, and every fault of names and shapes with its words.
#include "io/case_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "io/raw_file.hpp"

namespace fresnel {
namespace {

using test::expect_refusal;
using test::RawTensor;

const std::filesystem::path cases = std::filesystem::path(FRESNEL_TEST_DATA) / "cases";

std::vector<std::filesystem::path> cases_named(std::string_view prefix) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(cases))
    if (entry.path().filename().string().starts_with(prefix)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  return paths;
}

TEST(CaseFile, ReadsEveryDenseCase) {
  const auto paths = cases_named("dense_");
  ASSERT_GE(paths.size(), 19u);
  for (const auto& path : paths) {
    const auto read = read_case(path);
    ASSERT_TRUE(read) << read.refusal().message();
    EXPECT_EQ(read->path, path.string());
    EXPECT_TRUE(read->options.softmax_scale) << path;
    for (const auto* tensor : {&read->dout, &read->expected_o, &read->expected_lse, &read->expected_dq,
                               &read->expected_dk, &read->expected_dv})
      EXPECT_TRUE(tensor->has_value()) << path;
    const Inputs inputs = read->inputs();
    EXPECT_EQ(inputs.q.rank, 4);
    EXPECT_EQ(inputs.q.elements() * size_of(inputs.q.dtype), static_cast<std::int64_t>(read->q.bytes.size()));
    EXPECT_EQ(inputs.v.sizes[3], read->expected_o->shape[3]) << path;
  }
}

TEST(CaseFile, ReadsTheFieldsOfACase) {
  const auto read = read_case(cases / "dense_all.safetensors");
  ASSERT_TRUE(read) << read.refusal().message();
  EXPECT_TRUE(read->options.causal);
  EXPECT_EQ(read->options.window_size_left, 20);
  EXPECT_FALSE(read->options.window_size_right);
  EXPECT_EQ(read->options.softcap, 8.0);
  EXPECT_EQ(read->options.softmax_scale, 0.14433756729740646);
  EXPECT_EQ(read->options.alignment, Alignment::bottom_right);
  EXPECT_EQ(read->q.shape, (std::vector<std::int64_t>{2, 4, 45, 48}));
  EXPECT_EQ(read->k.shape, (std::vector<std::int64_t>{2, 2, 61, 48}));
  ASSERT_TRUE(read->inputs().alibi_slopes);
  EXPECT_EQ(read->inputs().alibi_slopes->rank, 1);
  EXPECT_FALSE(read->seqlens_k);
  EXPECT_TRUE(read->tokens.empty());
  EXPECT_FALSE(read->show);

  const auto lengths = read_case(cases / "dense_seqlens.safetensors");
  ASSERT_TRUE(lengths) << lengths.refusal().message();
  ASSERT_TRUE(lengths->inputs().seqlens_k);
  EXPECT_EQ(lengths->inputs().seqlens_k->dtype, DType::i32);
  const auto top_left = read_case(cases / "dense_cross_top_left.safetensors");
  ASSERT_TRUE(top_left) << top_left.refusal().message();
  EXPECT_EQ(top_left->options.alignment, Alignment::top_left);
}

TEST(CaseFile, ReadsTheExampleWithItsWords) {
  const auto read = read_case(std::filesystem::path(FRESNEL_SOURCE_DIR) / "examples/smollm2/attention.safetensors");
  ASSERT_TRUE(read) << read.refusal().message();
  EXPECT_EQ(static_cast<std::int64_t>(read->tokens.size()), read->k.shape[2]);
  EXPECT_EQ(read->tokens.at(1), " the");
  ASSERT_TRUE(read->show);
  EXPECT_EQ(*read->show, (Show{0, 4, 106}));
}

TEST(CaseFile, RefusesEveryPagedCaseByName) {
  const auto paths = cases_named("paged_");
  ASSERT_GE(paths.size(), 6u);
  for (const auto& path : paths) {
    const auto read = read_case(path);
    ASSERT_FALSE(read) << path;
    EXPECT_EQ(read.refusal().fault, Fault::unsupported) << read.refusal().message();
    const std::string& name = read.refusal().argument;
    EXPECT_TRUE(name == "k_cache" || name == "block_table") << read.refusal().message();
    EXPECT_NE(read.refusal().given.find("not supported yet"), std::string::npos) << read.refusal().message();
    EXPECT_NE(read.refusal().accepted.find("q, k, v, alibi_slopes"), std::string::npos) << read.refusal().message();
  }
}

/// A case with every tensor there is: B 2, Hq 4, Hkv 2, Sq 3, Sk 5, D 8, Dv 6.
std::vector<RawTensor> full_case() {
  return {{"q", "F32", {2, 4, 3, 8}},
          {"k", "F32", {2, 2, 5, 8}},
          {"v", "F32", {2, 2, 5, 6}},
          {"alibi_slopes", "F32", {2, 4}},
          {"seqlens_k", "I32", {2}},
          {"dout", "F32", {2, 4, 3, 6}},
          {"expected_o", "F64", {2, 4, 3, 6}},
          {"expected_lse", "F64", {2, 4, 3}},
          {"expected_dq", "F64", {2, 4, 3, 8}},
          {"expected_dk", "F64", {2, 2, 5, 8}},
          {"expected_dv", "F64", {2, 2, 5, 6}},
          {"expected_dalibi_slopes", "F64", {2, 4}}};
}

Result<Case> parsed(const Metadata& metadata, const std::vector<RawTensor>& tensors) {
  return parse_case(test::raw_case(metadata, tensors), "f");
}

Result<Case> parsed(const std::vector<RawTensor>& tensors) { return parsed({{"problem", "{}"}}, tensors); }

/// The full case with one tensor changed.
std::vector<RawTensor> changed(std::string_view name, const RawTensor& tensor) {
  std::vector<RawTensor> tensors = full_case();
  *std::ranges::find(tensors, name, &RawTensor::name) = tensor;
  return tensors;
}

std::vector<RawTensor> without(std::string_view name) {
  std::vector<RawTensor> tensors = full_case();
  std::erase_if(tensors, [&](const RawTensor& tensor) { return tensor.name == name; });
  return tensors;
}

TEST(CaseFile, ReadsAFullCaseFromMemory) {
  const auto read = parsed(full_case());
  ASSERT_TRUE(read) << read.refusal().message();
  EXPECT_EQ(read->path, "f");
  EXPECT_EQ(read->options, Options{});
  EXPECT_EQ(read->inputs().alibi_slopes->rank, 2);
  EXPECT_TRUE(read->expected_dalibi_slopes);
  const auto formed = parsed({{"problem", R"({"alibi":"distance"})"}, {"anything", "else"}}, full_case());
  ASSERT_TRUE(formed) << formed.refusal().message();
  EXPECT_EQ(formed->options.alibi, AlibiForm::distance);
}

TEST(CaseFile, NotesBesideTheProblemAreKeptByName) {
  const auto read = parsed({{"problem", "{}"}, {"Tokens", "[]"}, {"format", "pt"}}, full_case());
  ASSERT_TRUE(read) << read.refusal().message();
  EXPECT_EQ(read->unread, (std::vector<std::string>{"Tokens", "format"}));
  EXPECT_TRUE(parsed(full_case())->unread.empty());
}

/// Read as a note it would be ignored, and the answer be that of another problem.
TEST(CaseFile, AnOptionBesideTheProblemIsRefused) {
  for (const char* key : {"causal", "softmax_scale", "alignment", "window_size_left", "softcap", "block_size"}) {
    const auto beside = parsed({{"problem", "{}"}, {key, "true"}}, full_case());
    expect_refusal(beside, key, "beside metadata key problem", "inside the JSON of problem");
    expect_refusal(parsed({{key, "true"}}, full_case()), key, "beside metadata key problem", "inside the JSON");
  }
}

TEST(CaseFile, ReadsHalvesAndEmptyAxes) {
  for (const char* dtype : {"F16", "BF16", "F64"}) {
    const auto read = parsed({{"q", dtype, {0, 4, 3, 8}}, {"k", dtype, {0, 2, 0, 8}}, {"v", dtype, {0, 2, 0, 6}}});
    ASSERT_TRUE(read) << read.refusal().message();
    EXPECT_EQ(read->inputs().q.elements(), 0);
  }
}

struct BadTensor {
  const char* replaced;
  RawTensor tensor;
  const char* argument;
  const char* given;
  const char* accepted;
};

class CaseFileRefuses : public testing::TestWithParam<BadTensor> {};

TEST_P(CaseFileRefuses, ByName) {
  const BadTensor& bad = GetParam();
  expect_refusal(parsed(changed(bad.replaced, bad.tensor)), bad.argument, bad.given, bad.accepted);
}

INSTANTIATE_TEST_SUITE_P(
    Tensors, CaseFileRefuses,
    testing::Values(
        BadTensor{"q", {"q", "I32", {2, 4, 3, 8}}, "q", "i32", "f64, f32, f16 or bf16"},
        BadTensor{"q", {"q", "BOOL", {2, 4, 3, 8}}, "q", "bool", "f64, f32, f16 or bf16"},
        BadTensor{"q", {"q", "F32", {4, 3, 8}}, "q", "f32 [4,3,8]", "f32 [B,Hq,Sq,D]"},
        BadTensor{"q", {"q", "F32", {2, 4, 3, 8, 1}}, "q", "f32 [2,4,3,8,1]", "f32 [B,Hq,Sq,D]"},
        BadTensor{"k", {"k", "F16", {2, 2, 5, 8}}, "k", "f16 [2,2,5,8]", "f32 [B=2,Hkv,Sk,D=8]"},
        BadTensor{"k", {"k", "F32", {1, 2, 5, 8}}, "k", "f32 [1,2,5,8]", "f32 [B=2,Hkv,Sk,D=8]"},
        BadTensor{"k", {"k", "F32", {2, 2, 5, 7}}, "k", "f32 [2,2,5,7]", "D=8"},
        BadTensor{"v", {"v", "F32", {2, 1, 5, 6}}, "v", "f32 [2,1,5,6]", "f32 [B=2,Hkv=2,Sk=5,Dv]"},
        BadTensor{"v", {"v", "F32", {2, 2, 4, 6}}, "v", "f32 [2,2,4,6]", "Sk=5"},
        BadTensor{"alibi_slopes", {"alibi_slopes", "F64", {2, 4}}, "alibi_slopes", "f64", "f32 [Hq=4] or [B=2,Hq=4]"},
        BadTensor{"alibi_slopes", {"alibi_slopes", "F32", {2}}, "alibi_slopes", "f32 [2]", "[Hq=4] or [B=2,Hq=4]"},
        BadTensor{"seqlens_k", {"seqlens_k", "I32", {3}}, "seqlens_k", "i32 [3]", "i32 [B=2]"},
        BadTensor{"seqlens_k", {"seqlens_k", "F32", {2}}, "seqlens_k", "f32 [2]", "i32 [B=2]"},
        BadTensor{"dout", {"dout", "F32", {2, 4, 3, 8}}, "dout", "f32 [2,4,3,8]", "f32 [B=2,Hq=4,Sq=3,Dv=6]"},
        BadTensor{"dout", {"dout", "F64", {2, 4, 3, 6}}, "dout", "f64", "f32 [B=2"},
        BadTensor{"expected_o", {"expected_o", "F32", {2, 4, 3, 6}}, "expected_o", "f32", "f64 [B=2,Hq=4,Sq=3,Dv=6]"},
        BadTensor{"expected_o", {"expected_o", "F64", {2, 3, 4, 6}}, "expected_o", "[2,3,4,6]", "[B=2,Hq=4,Sq=3,Dv=6]"},
        BadTensor{
            "expected_lse", {"expected_lse", "F64", {2, 4, 3, 1}}, "expected_lse", "[2,4,3,1]", "[B=2,Hq=4,Sq=3]"},
        BadTensor{"expected_dq", {"expected_dq", "F64", {2, 4, 3, 6}}, "expected_dq", "[2,4,3,6]", "D=8"},
        BadTensor{"expected_dk", {"expected_dk", "F64", {2, 4, 5, 8}}, "expected_dk", "[2,4,5,8]", "Hkv=2"},
        BadTensor{"expected_dv", {"expected_dv", "F64", {2, 2, 5, 8}}, "expected_dv", "[2,2,5,8]", "Dv=6"},
        BadTensor{"expected_dalibi_slopes",
                  {"expected_dalibi_slopes", "F64", {4}},
                  "expected_dalibi_slopes",
                  "f64 [4]",
                  "f64 [B=2,Hq=4]"},
        BadTensor{"seqlens_k", {"seqlen_k", "I32", {2}}, "seqlen_k", "an unknown tensor name", "seqlens_k"},
        BadTensor{"dout", {"do", "F32", {2, 4, 3, 6}}, "do", "an unknown tensor name", "q, k, v, alibi_slopes"},
        BadTensor{"dout", {"o", "F32", {2, 4, 3, 6}}, "o", "an unknown tensor name", "expected_o"}));

TEST(CaseFile, RefusesFeaturesThatDoNotExistYet) {
  for (const char* name :
       {"mask", "bias", "sinks", "cu_seqlens_q", "cu_seqlens_k", "k_cache", "v_cache", "block_table", "context_lens"}) {
    std::vector<RawTensor> tensors = full_case();
    tensors.push_back({name, "F32", {1}});
    expect_refusal(parsed(tensors), name, "not supported yet", "q, k, v", Fault::unsupported);
  }
}

TEST(CaseFile, RefusesWhatIsMissing) {
  for (const char* name : {"q", "k", "v"}) expect_refusal(parsed(without(name)), name, "no such tensor", "q, k and v");
  expect_refusal(parsed(without("dout")), "expected_dq", "a gradient without dout", "with dout");
  expect_refusal(parsed(without("alibi_slopes")), "expected_dalibi_slopes", "without alibi_slopes", "that is there");
  expect_refusal(parsed({}, full_case()), "problem", "no such metadata key", "{} for none");
  expect_refusal(parsed({{"Problem", "{}"}}, full_case()), "problem", "no such metadata key", "a JSON object");
}

TEST(CaseFile, RefusesOptionsThatCouldNotAct) {
  expect_refusal(parsed({{"problem", R"({"block_size":16})"}}, full_case()), "problem.block_size",
                 "16 without a paged cache", "k_cache");
  expect_refusal(parsed({{"problem", R"({"alibi":"relative"})"}},
                        {{"q", "F32", {1, 1, 1, 1}}, {"k", "F32", {1, 1, 1, 1}}, {"v", "F32", {1, 1, 1, 1}}}),
                 "problem.alibi", "a form without alibi_slopes", "null or absent");
  expect_refusal(parsed({{"problem", R"({"causal":true,"causl":true})"}}, full_case()), "problem.causl",
                 "an unknown key", "causal");
}

TEST(CaseFile, FindsFaultsOfNamesAndShapesBeforeItReadsData) {
  // A terabyte that is nowhere: reading it would end in a refusal about memory, not about a name.
  const test::TemporaryDirectory directory;
  const std::string header = R"({"quiet":{"dtype":"F32","shape":[274877906944],"data_offsets":[0,1099511627776]}})";
  const test::Bytes start = test::raw_safetensors(header, 0);
  test::write_bytes(directory / "a", {reinterpret_cast<const char*>(start.data()), start.size()});
  std::error_code error;
  std::filesystem::resize_file(directory / "a", start.size() + (std::uint64_t{1} << 40), error);
  if (error) GTEST_SKIP() << "no sparse files here: " << error.message();
  expect_refusal(read_case(directory / "a"), "quiet", "an unknown tensor name", "q, k, v");
  expect_refusal(read_results(directory / "a", Problem()), "quiet", "an unknown tensor name", "o, lse");
}

TEST(CaseFile, HoldsTokensAndShowToTheShapes) {
  const auto with = [](const std::string& key, const std::string& text) {
    return parsed({{"problem", "{}"}, {key, text}}, full_case());
  };
  EXPECT_TRUE(with("tokens", R"(["a","b","c","d","e"])"));
  expect_refusal(with("tokens", R"(["a","b"])"), "tokens", "2 strings", "each of the 5 keys");
  EXPECT_TRUE(with("show", R"({"batch":1,"head":3,"query":2})"));
  expect_refusal(with("show", R"({"batch":2,"head":3,"query":2})"), "show", "batch 2", "B=2, Hq=4 and Sq=3");
  expect_refusal(with("show", R"({"batch":1,"head":4,"query":2})"), "show", "head 4", "Hq=4");
  expect_refusal(with("show", R"({"batch":1,"head":3,"query":3})"), "show", "query 3", "Sq=3");
}

}  // namespace
}  // namespace fresnel
