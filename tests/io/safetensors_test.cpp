// SPDX-License-Identifier: Apache-2.0
// The safetensors reader and writer: round trips, and every fault with its words. Hostile bytes at large are in
// hostile_test.cpp.
#include "io/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <numeric>

#include "io/raw_file.hpp"

namespace fresnel {
namespace {

using test::Bytes;
using test::expect_refusal;
using test::TemporaryDirectory;

/// A tensor whose bytes all differ from their neighbours.
OwnedTensor counted(DType dtype, std::vector<std::int64_t> shape) {
  OwnedTensor tensor = OwnedTensor::zeros(dtype, std::move(shape)).value();
  unsigned value = 0;
  for (std::byte& byte : tensor.bytes.span())
    byte = static_cast<std::byte>(dtype == DType::boolean ? value++ % 2 : ++value % 251);
  return tensor;
}

std::vector<NamedView> views_of(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedView> views;
  for (const NamedTensor& tensor : tensors) views.push_back({tensor.name, tensor.tensor.view()});
  return views;
}

bool same(const OwnedTensor& a, const OwnedTensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::ranges::equal(a.bytes.span(), b.bytes.span());
}

std::vector<NamedTensor> one_of_each() {
  std::vector<NamedTensor> tensors;
  tensors.push_back({"half", counted(DType::f16, {3, 1})});
  tensors.push_back({"flag", counted(DType::boolean, {5})});
  tensors.push_back({"double", counted(DType::f64, {2, 3})});
  tensors.push_back({"brain", counted(DType::bf16, {1, 2, 3, 1})});
  tensors.push_back({"scalar", counted(DType::f32, {})});
  tensors.push_back({"nothing", counted(DType::f32, {4, 0, 2})});
  tensors.push_back({"index \"quoted\" \xc3\xa9", counted(DType::i32, {7})});
  return tensors;
}

TEST(Safetensors, RoundTripKeepsEverything) {
  const TemporaryDirectory directory;
  const std::vector<NamedTensor> tensors = one_of_each();
  const Metadata metadata{{"problem", "{\"causal\": true}"}, {"note", "line\nbreak, \xe2\x82\xac and \"quotes\""}};
  ASSERT_TRUE(write_safetensors(directory / "a.safetensors", metadata, views_of(tensors)));
  const auto file = read_safetensors(directory / "a.safetensors");
  ASSERT_TRUE(file) << file.refusal().message();
  EXPECT_EQ(file->metadata, metadata);
  ASSERT_EQ(file->tensors.size(), tensors.size());
  for (const NamedTensor& tensor : tensors) {
    const auto found = std::ranges::find(file->tensors, tensor.name, &NamedTensor::name);
    ASSERT_NE(found, file->tensors.end()) << tensor.name;
    EXPECT_TRUE(same(found->tensor, tensor.tensor)) << tensor.name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(found->tensor.bytes.data()) % 64, 0u) << tensor.name;
  }
  EXPECT_EQ(directory.entries(), 1u);
}

TEST(Safetensors, WritingIsDeterministicAndAligned) {
  const TemporaryDirectory directory;
  const std::vector<NamedTensor> tensors = one_of_each();
  ASSERT_TRUE(write_safetensors(directory / "a", {{"b", "2"}, {"a", "1"}}, views_of(tensors)));
  ASSERT_TRUE(write_safetensors(directory / "b", {{"a", "1"}, {"b", "2"}}, views_of(tensors)));
  const Bytes bytes = test::file_bytes(directory / "a");
  EXPECT_EQ(bytes, test::file_bytes(directory / "b"));
  EXPECT_EQ(std::to_integer<int>(bytes[0]) % 8, 0) << "the data begins on an 8-byte boundary";
  // Wider dtypes first, equal widths as given: every tensor is aligned to its own elements.
  const auto file = read_safetensors(directory / "a");
  ASSERT_TRUE(file) << file.refusal().message();
  std::vector<std::string> names;
  for (const NamedTensor& tensor : file->tensors) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"double", "scalar", "nothing", "index \"quoted\" \xc3\xa9", "half",
                                             "brain", "flag"}));
}

TEST(Safetensors, StridedViewsAreWrittenDense) {
  const TemporaryDirectory directory;
  std::vector<float> memory(2 * 3 * 4 * 5);
  std::iota(memory.begin(), memory.end(), 0.0f);
  const View bshd(memory.data(), DType::f32, {2, 3, 4, 5});
  ASSERT_TRUE(write_safetensors(directory / "a", {}, std::vector<NamedView>{{"x", bshd.transposed(1, 2)}}));
  const auto file = read_safetensors(directory / "a");
  ASSERT_TRUE(file);
  const OwnedTensor& read = file->tensors.at(0).tensor;
  EXPECT_EQ(read.shape, (std::vector<std::int64_t>{2, 4, 3, 5}));
  for (std::size_t b = 0, at = 0; b < 2; ++b)
    for (std::size_t h = 0; h < 4; ++h)
      for (std::size_t s = 0; s < 3; ++s)
        for (std::size_t d = 0; d < 5; ++d, ++at)
          ASSERT_EQ(read.elements<float>()[at], static_cast<float>(((b * 3 + s) * 4 + h) * 5 + d));
}

TEST(Safetensors, ReadsPaddedHeadersUnalignedDataAndFilesWithoutTensors) {
  const auto padded =
      parse_safetensors(test::raw_safetensors(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},)"
                                              R"("b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}}   )",
                                              9));
  ASSERT_TRUE(padded) << padded.refusal().message();
  EXPECT_EQ(padded->tensors.at(1).name, "b");
  const auto empty = parse_safetensors(test::raw_safetensors("{}", 0));
  ASSERT_TRUE(empty) << empty.refusal().message();
  EXPECT_TRUE(empty->tensors.empty());
}

TEST(Safetensors, TensorsComeInTheOrderOfTheirBytes) {
  const auto file = parse_safetensors(test::raw_safetensors(R"({"a":{"dtype":"I32","shape":[1],"data_offsets":[4,8]},)"
                                                            R"("z":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})",
                                                            8));
  ASSERT_TRUE(file) << file.refusal().message();
  EXPECT_EQ(file->tensors.at(0).name, "z");
  EXPECT_EQ(file->tensors.at(1).name, "a");
}

struct BadHeader {
  const char* header;
  std::size_t data_bytes;
  const char* argument;
  const char* given;
  const char* accepted;
};

class SafetensorsRefuses : public testing::TestWithParam<BadHeader> {};

TEST_P(SafetensorsRefuses, ByName) {
  const BadHeader& bad = GetParam();
  const auto file = parse_safetensors(test::raw_safetensors(bad.header, bad.data_bytes), "f");
  expect_refusal(file, bad.argument, bad.given, bad.accepted);
}

INSTANTIATE_TEST_SUITE_P(
    Headers, SafetensorsRefuses,
    testing::Values(
        BadHeader{"[]", 0, "f: header", "no object", "a JSON object"},
        BadHeader{"", 0, "f: header", "no object", "a JSON object"},
        BadHeader{" {}", 0, "f: header", "no object", "a JSON object"},
        BadHeader{"{", 0, "f: header", "no JSON at byte 2", "strict JSON"},
        BadHeader{"{}}", 0, "f: header", "no JSON at byte 3", "strict JSON"},
        BadHeader{R"({"a":NaN})", 0, "f: header.a", "no JSON at byte", "no NaN"},
        BadHeader{"{\"\xff\":1}", 0, "f: header", "no JSON at byte", "strict JSON"},
        BadHeader{R"({"a":1})", 0, "f: a", "1", "an object with dtype, shape and data_offsets"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1]}})", 4, "f: a", "2 keys", "dtype, shape and data_offsets"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offset":[0,4]}})", 4, "f: a", "\"data_offset\"",
                  "data_offsets"},
        BadHeader{R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8, "f: a.dtype", "\"I64\"",
                  "F64, F32, F16"},
        BadHeader{R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", 1, "f: a.dtype", "\"F8_E4M3\"",
                  "BF16"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "f: a.dtype", "\"U8\"", "I32 or BOOL"},
        BadHeader{R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", 1, "f: a.dtype", "7", "F32"},
        BadHeader{R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "f: a.shape", "1", "a list of counts"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "f: a.shape", "-1", "[0, 2^63)"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "f: a.shape", "1.0",
                  "whole numbers"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4, "f: a.shape",
                  "18446744073709551615", "[0, 2^63)"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4, "f: a.shape",
                  "[4294967296,4294967296]", "fewer than 2^63 bytes"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", 0, "f: a.shape",
                  "[0,4294967296,4294967296]", "fewer than 2^63 bytes"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "f: a.data_offsets", "[0]",
                  "[begin,end]"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "f: a.data_offsets", "[4,0]",
                  "begin <= end"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, "f: a.data_offsets", "[0,8]", "<= 4"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "f: a.data_offsets", "4 bytes",
                  "8 bytes, the size of F32 [2]"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                  R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                  4, "f: b.data_offsets", "an overlap at byte 0", "begins at byte 4"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                  R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                  12, "f: b.data_offsets", "a hole at byte 8", "begins at byte 4"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "f", "5 bytes of data", "4 bytes"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                  R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                  8, "f: header.a", "the key twice", "every key once"},
        BadHeader{R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "f: header.a.dtype",
                  "the key twice", "every key once"},
        BadHeader{R"({"__metadata__":{"k":1}})", 0, "f: __metadata__.k", "1", "a string"},
        BadHeader{R"({"__metadata__":"k"})", 0, "f: __metadata__", "\"k\"", "an object of strings"},
        BadHeader{R"({"__metadata__":{"k":"1","k":"2"}})", 0, "f: header.__metadata__.k", "the key twice", "once"},
        BadHeader{R"({"__metadata__":{"k":{"k":"2"}}})", 0, "f: __metadata__.k", "an object", "a string"},
        BadHeader{R"({"":1})", 0, "f: (empty)", "1", "an object with dtype"},
        BadHeader{R"({"a":1e999})", 0, "f: header.a", "beyond double precision: 1e999", "a finite number"},
        BadHeader{"{\"a\x1b[31m\":1}", 0, "f: header", "no JSON", "strict JSON"}));

TEST(Safetensors, RefusesHeaderLengths) {
  const auto with_length = [](std::uint64_t length, std::size_t rest) {
    Bytes bytes(8 + rest);
    for (std::size_t byte = 0; byte < 8; ++byte) bytes[byte] = static_cast<std::byte>(length >> (8 * byte));
    return parse_safetensors(bytes, "f");
  };
  expect_refusal(parse_safetensors({}, "f"), "f", "0 bytes", "at least 8 bytes");
  expect_refusal(with_length(3, 2), "f: header length", "3", "at most 2 bytes");
  expect_refusal(with_length(~std::uint64_t{0}, 2), "f: header length", "18446744073709551615", "at most 2 bytes");
  expect_refusal(with_length(std::uint64_t{1} << 63, 2), "f: header length", "9223372036854775808", "at most 2 bytes");
}

TEST(Safetensors, RefusesAHeaderBeyondTheFormatsLimitWithoutReadingIt) {
  const TemporaryDirectory directory;
  std::string prefix;
  for (int byte = 0; byte < 8; ++byte) prefix += static_cast<char>(std::uint64_t{100'000'001} >> (8 * byte) & 0xff);
  test::write_bytes(directory / "a", prefix);
  std::filesystem::resize_file(directory / "a", 200'000'000);  // sparse
  expect_refusal(read_safetensors(directory / "a"), (directory / "a").string() + ": header length", "100000001",
                 "at most 100000000");
}

TEST(Safetensors, RefusesZeroBytesByteOrderMarksAndBadBooleans) {
  const std::string hidden("{}\0garbage", 10);
  expect_refusal(parse_safetensors(test::raw_safetensors(hidden, 0), "f"), "f: header", "a zero byte", "strict JSON");
  Bytes flags = test::raw_safetensors(R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 2);
  flags.back() = std::byte{2};
  expect_refusal(parse_safetensors(flags, "f"), "f: a", "a boolean byte of 2", "0 or 1");
}

TEST(Safetensors, RefusesWhatIsNoRegularFile) {
  const TemporaryDirectory directory;
  expect_refusal(read_safetensors(directory / "none"), (directory / "none").string(), "No such file", "can be read");
  std::filesystem::create_directory(directory / "d");
  expect_refusal(read_safetensors(directory / "d"), (directory / "d").string(), "not a regular file", "a regular file");
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  expect_refusal(read_safetensors(directory / "pipe"), (directory / "pipe").string(), "not a regular file",
                 "a regular file");
  expect_refusal(read_safetensors("/dev/zero"), "/dev/zero", "not a regular file", "a regular file");
}

TEST(Safetensors, WriterRefuses) {
  const TemporaryDirectory directory;
  const OwnedTensor tensor = counted(DType::f32, {2, 3});
  const View view = tensor.view();
  const auto written = [&](const Metadata& metadata, std::vector<NamedView> tensors) {
    return write_safetensors(directory / "a", metadata, tensors);
  };
  expect_refusal(written({}, {{"x", view}, {"x", view}}), "name", "\"x\" twice", "every name once");
  expect_refusal(written({}, {{"__metadata__", view}}), "name", "__metadata__", "leaves free");
  expect_refusal(written({{"a", "\xff"}}, {}), "metadata", "not UTF-8", "UTF-8");
  expect_refusal(written({}, {{"\xff", view}}), "metadata", "not UTF-8", "UTF-8");
  expect_refusal(written({}, {{"x", view.transposed(0, 1)}}), "x", "a last axis with stride 3", "contiguous");
  View elsewhere = view;
  elsewhere.device = Device::cuda;
  expect_refusal(written({}, {{"x", elsewhere}}), "x", "cuda memory", "host memory");
  EXPECT_EQ(directory.entries(), 0u) << "a refused file leaves nothing behind";
}

TEST(OwnedTensor, RefusesShapesThatOverflow) {
  constexpr std::int64_t big = std::int64_t{1} << 31;
  expect_refusal(OwnedTensor::zeros(DType::f32, {big, big}), "shape", "[2147483648,2147483648]", "2^63");
  expect_refusal(OwnedTensor::zeros(DType::f32, {-1}), "shape", "[-1]", "at least 0");
  EXPECT_EQ(byte_size_of(DType::f32, std::vector<std::int64_t>{0, big}), 0);
  EXPECT_EQ(byte_size_of(DType::f64, std::vector<std::int64_t>{}), 8);
  EXPECT_THROW(static_cast<void>(counted(DType::f32, {1, 1, 1, 1, 1}).view()), Error);
}

}  // namespace
}  // namespace fresnel
