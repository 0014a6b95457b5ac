// SPDX-License-Identifier: Apache-2.0
// The .npy reader and writer: the bytes NumPy itself writes, round trips, and every fault with its words.
#include "io/npy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "io/raw_file.hpp"

namespace fresnel {
namespace {

using test::Bytes;
using test::expect_refusal;
using test::TemporaryDirectory;

/// A file of version `major` with this dictionary and zeros behind it.
Bytes raw_npy(int major, const std::string& header, std::size_t data_bytes) {
  std::string text = "\x93NUMPY";
  text += static_cast<char>(major);
  text += '\0';
  for (int byte = 0; byte < (major == 1 ? 2 : 4); ++byte) text += static_cast<char>(header.size() >> (8 * byte) & 0xff);
  return test::bytes_of(text + header + std::string(data_bytes, '\0'));
}

TEST(Npy, ReadsAndWritesTheBytesOfNumPy) {
  // numpy.save of numpy.arange(6, dtype='<f4').reshape(2, 3), as its format specification lays it out.
  std::string text("\x93NUMPY\x01\x00\x76\x00", 10);
  text += "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  text += std::string(127 - text.size(), ' ') + '\n';
  Bytes bytes = test::bytes_of(text);
  std::vector<float> values(6);
  std::iota(values.begin(), values.end(), 0.0f);
  const auto* data = reinterpret_cast<const std::byte*>(values.data());
  bytes.insert(bytes.end(), data, data + 24);

  const auto tensor = parse_npy(bytes);
  ASSERT_TRUE(tensor) << tensor.refusal().message();
  EXPECT_EQ(tensor->dtype, DType::f32);
  EXPECT_EQ(tensor->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(std::ranges::equal(tensor->elements<float>(), values));

  const TemporaryDirectory directory;
  ASSERT_TRUE(write_npy(directory / "a.npy", tensor->view()));
  EXPECT_EQ(test::file_bytes(directory / "a.npy"), bytes);
}

TEST(Npy, RoundTripsEveryDtypeAndRank) {
  const TemporaryDirectory directory;
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::i32, DType::boolean})
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {3}, {2, 3}, {2, 0, 4}, {1, 2, 3, 5}}) {
      OwnedTensor tensor = OwnedTensor::zeros(dtype, shape).value();
      unsigned count = 0;
      for (std::byte& byte : tensor.bytes.span())
        byte = static_cast<std::byte>(++count % (dtype == DType::boolean ? 2 : 251));
      ASSERT_TRUE(write_npy(directory / "a.npy", tensor.view()));
      const auto read = read_tensor(directory / "a.npy");
      ASSERT_TRUE(read) << read.refusal().message();
      EXPECT_EQ(read->dtype, dtype);
      EXPECT_EQ(read->shape, shape);
      EXPECT_TRUE(std::ranges::equal(read->bytes.span(), tensor.bytes.span()));
    }
}

TEST(Npy, ReadsAllVersionsAndSpellings) {
  for (const int version : {1, 2, 3}) {
    const auto tensor = parse_npy(raw_npy(version, "{'shape': (3,), \"descr\":'<f8','fortran_order':False}\n", 24));
    ASSERT_TRUE(tensor) << tensor.refusal().message();
    EXPECT_EQ(tensor->shape, (std::vector<std::int64_t>{3}));
    EXPECT_EQ(tensor->dtype, DType::f64);
  }
}

struct BadNpy {
  const char* header;
  std::size_t data_bytes;
  const char* argument;
  const char* given;
  const char* accepted;
};

class NpyRefuses : public testing::TestWithParam<BadNpy> {};

TEST_P(NpyRefuses, ByName) {
  const BadNpy& bad = GetParam();
  expect_refusal(parse_npy(raw_npy(1, bad.header, bad.data_bytes), "f"), bad.argument, bad.given, bad.accepted);
}

INSTANTIATE_TEST_SUITE_P(
    Headers, NpyRefuses,
    testing::Values(
        BadNpy{"", 0, "f: header", "no Python dictionary at byte 0", "{'descr'"},
        BadNpy{"{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", 4, "f: descr", "'>f4'", "little endian"},
        BadNpy{"{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}", 4, "f: fortran_order", "True",
               "False (C order)"},
        BadNpy{"{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}", 8, "f: descr", "'<i8'", "'<i4'"},
        BadNpy{"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8, "f: descr", "'|O'", "'<f4'"},
        BadNpy{"{'descr': '<V2', 'fortran_order': False, 'shape': (1,)}", 2, "f: descr", "'<V2'", "'<f2'"},
        BadNpy{"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4, "f: descr", "a structured dtype",
               "'<f4'"},
        BadNpy{"{'descr': True, 'fortran_order': False, 'shape': (1,)}", 4, "f: descr", "no string", "'<f4'"},
        BadNpy{"{'descr': '<f4', 'fortran_order': '', 'shape': (1,)}", 4, "f: fortran_order", "no boolean", "False"},
        BadNpy{"{'descr': '<f4', 'fortran_order': False, 'shape': 'a'}", 4, "f: shape", "no tuple", "a tuple"},
        BadNpy{"{'descr': '<f4', 'fortran_order': False, 'shape': (1)}", 4, "f: header", "no Python dictionary",
               "{'descr'"},
        BadNpy{"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4, "f: header", "no Python dictionary",
               "{'descr'"},
        BadNpy{"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 4, "f: header",
               "no Python dictionary", "{'descr'"},
        BadNpy{"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 4, "f: shape",
               "[4294967296,4294967296]", "a shape of 1 elements"},
        BadNpy{"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 4, "f: shape", "[2]", "what 4 bytes hold"},
        BadNpy{"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 5, "f: shape", "[1]", "what 5 bytes hold"},
        BadNpy{"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4, "f: descr",
               "the key twice", "each once"},
        BadNpy{"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': True}", 4, "f: x", "an unknown key",
               "each once"},
        BadNpy{"{'descr': '<f4', 'shape': (1,)}", 4, "f: header", "a missing key", "fortran_order"},
        BadNpy{"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", 4, "f: header", "at byte 56", "{'descr'"},
        BadNpy{"{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", 4, "f: header", "no Python dictionary",
               "{'descr'"},
        BadNpy{"{'descr': '<f4", 4, "f: header", "no Python dictionary", "{'descr'"}));

TEST(Npy, RefusesWhatIsNoNpy) {
  expect_refusal(parse_npy({}, "f"), "f", "no .npy file", "NUMPY");
  expect_refusal(parse_npy(test::bytes_of("PK\x03\x04 a zip archive"), "f"), "f", "no .npy file", "NUMPY");
  expect_refusal(parse_npy(raw_npy(4, "{}", 0), "f"), "f: version", "4.0", "1.0, 2.0 or 3.0");
  Bytes endless = raw_npy(2, "{}", 0);
  endless[11] = std::byte{0xff};
  expect_refusal(parse_npy(endless, "f"), "f: header length", "4278190082", "at most 2");
  Bytes flag = raw_npy(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (1,)}", 1);
  flag.back() = std::byte{3};
  expect_refusal(parse_npy(flag, "f"), "f", "a boolean byte of 3", "0 or 1");
}

TEST(Npy, WriterRefusesBf16AndStridedRows) {
  const TemporaryDirectory directory;
  const OwnedTensor tensor = OwnedTensor::zeros(DType::bf16, {2, 3}).value();
  expect_refusal(write_npy(directory / "a.npy", tensor.view()), "dtype", "bf16", "f64, f32, f16, i32 or bool");
  View view = tensor.view().transposed(0, 1);
  view.dtype = DType::f16;
  expect_refusal(write_npy(directory / "a.npy", view), "tensor", "a last axis with stride 3", "contiguous");
  EXPECT_EQ(directory.entries(), 0u);
}

TEST(Npy, ReadTensorTakesEitherFormatByContent) {
  const TemporaryDirectory directory;
  const OwnedTensor tensor = OwnedTensor::zeros(DType::bf16, {2, 3}).value();
  ASSERT_TRUE(write_safetensors(directory / "one", {}, std::vector<NamedView>{{"x", tensor.view()}}));
  const auto read = read_tensor(directory / "one");
  ASSERT_TRUE(read) << read.refusal().message();
  EXPECT_EQ(read->dtype, DType::bf16);
  ASSERT_TRUE(
      write_safetensors(directory / "two", {}, std::vector<NamedView>{{"x", tensor.view()}, {"y", tensor.view()}}));
  expect_refusal(read_tensor(directory / "two"), (directory / "two").string(), "2 tensors", "one tensor");
  expect_refusal(read_tensor(directory / "none"), (directory / "none").string(), "No such file", "can be read");
  test::write_bytes(directory / "short", "x");
  expect_refusal(read_tensor(directory / "short"), (directory / "short").string(), "1 bytes", "safetensors");
}

}  // namespace
}  // namespace fresnel
