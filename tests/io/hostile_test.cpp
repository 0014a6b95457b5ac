// SPDX-License-Identifier: Apache-2.0
// Files made to hurt: cut off at every byte, with bits flipped and bytes replaced. A reader may accept or refuse; it
// must neither crash, nor hang, nor read outside the file. Run under the address sanitizer this says the most.
#include <gtest/gtest.h>

#include <cstdint>

#include "io/case_file.hpp"
#include "io/npy.hpp"
#include "io/raw_file.hpp"

namespace fresnel {
namespace {

using test::Bytes;

/// SplitMix64, see inputs/random.hpp; restated so that this room's tests need no other room.
class Dice {
 public:
  std::uint64_t below(std::uint64_t count) {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % count;
  }

 private:
  std::uint64_t state_ = 1;
};

/// Anywhere in the first `count` bytes.
void flip_one_bit(Bytes& bytes, std::uint64_t count, Dice& dice) {
  const std::uint64_t at = dice.below(count);
  bytes[at] ^= static_cast<std::byte>(1u << dice.below(8));
}

Bytes small_case() {
  return test::raw_case({{"problem", R"({"causal":true,"window_size_left":3,"alignment":"top_left"})"},
                         {"tokens", R"(["a","b","c"])"},
                         {"show", R"({"batch":0,"head":1,"query":1})"}},
                        {{"q", "F32", {1, 2, 2, 3}},
                         {"k", "F32", {1, 1, 3, 3}},
                         {"v", "F32", {1, 1, 3, 2}},
                         {"alibi_slopes", "F32", {2}},
                         {"seqlens_k", "I32", {1}},
                         {"expected_lse", "F64", {1, 2, 2}}});
}

Bytes small_npy() {
  const test::TemporaryDirectory directory;
  const OwnedTensor tensor = OwnedTensor::zeros(DType::f32, {2, 3}).value();
  EXPECT_TRUE(write_npy(directory / "a", tensor.view()));
  return test::file_bytes(directory / "a");
}

/// A refusal says what is wrong; an accepted file can be used.
void expect_sane(const Bytes& bytes) {
  const auto read = parse_case(bytes, "f");
  if (!read) {
    ASSERT_FALSE(read.refusal().argument.empty());
    ASSERT_FALSE(read.refusal().given.empty());
    ASSERT_FALSE(read.refusal().accepted.empty());
    ASSERT_LT(read.refusal().message().size(), 2000u);
    return;
  }
  const Inputs inputs = read->inputs();
  for (const View& view : {inputs.q, inputs.k, inputs.v}) {
    const auto* data = static_cast<const unsigned char*>(view.data);
    unsigned sum = 0;
    for (std::int64_t byte = 0; byte < view.elements() * size_of(view.dtype); ++byte) sum += data[byte];
    ASSERT_LE(sum, 255u * 1000);
  }
}

void expect_sane_npy(const Bytes& bytes) {
  const auto read = parse_npy(bytes, "f");
  if (!read) {
    ASSERT_FALSE(read.refusal().given.empty());
    ASSERT_LT(read.refusal().message().size(), 2000u);
  }
}

TEST(Hostile, TheUntouchedFilesAreFine) {
  EXPECT_TRUE(parse_case(small_case()));
  EXPECT_TRUE(parse_npy(small_npy()));
}

TEST(Hostile, EveryPrefixIsRefused) {
  const Bytes whole = small_case();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const Bytes prefix(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    ASSERT_FALSE(parse_case(prefix)) << length << " of " << whole.size() << " bytes were taken for a file";
    expect_sane(prefix);
  }
  const Bytes npy = small_npy();
  for (std::size_t length = 0; length < npy.size(); ++length)
    ASSERT_FALSE(parse_npy(Bytes(npy.begin(), npy.begin() + static_cast<std::ptrdiff_t>(length)))) << length;
}

TEST(Hostile, EveryPrefixOfAFileOnDiskIsRefused) {
  const test::TemporaryDirectory directory;
  const Bytes whole = test::file_bytes(std::string(FRESNEL_TEST_DATA) + "/cases/dense_head_dim_1.safetensors");
  test::write_bytes(directory / "a", {reinterpret_cast<const char*>(whole.data()), whole.size()});
  ASSERT_TRUE(read_case(directory / "a"));
  for (std::size_t length = whole.size(); length-- > 0;) {
    std::filesystem::resize_file(directory / "a", length);
    ASSERT_FALSE(read_case(directory / "a")) << length;
  }
}

TEST(Hostile, TenThousandFlippedBits) {
  const Bytes whole = small_case();
  std::uint64_t header_bytes = 0;
  for (std::size_t byte = 8; byte-- > 0;)
    header_bytes = header_bytes << 8 | std::to_integer<std::uint64_t>(whole[byte]);
  Dice dice;
  int refused = 0;
  for (int trial = 0; trial < 10'000; ++trial) {
    Bytes bytes = whole;
    for (std::uint64_t flips = 1 + dice.below(3); flips > 0; --flips) flip_one_bit(bytes, 8 + header_bytes, dice);
    ASSERT_NO_FATAL_FAILURE(expect_sane(bytes)) << "trial " << trial;
    refused += !parse_case(bytes);
  }
  EXPECT_GT(refused, 9'000) << "nearly every flip in the header means something else or nothing";
}

TEST(Hostile, TenThousandReplacedPieces) {
  const std::string_view pieces[] = {"{",
                                     "}",
                                     "[",
                                     "]",
                                     "\"",
                                     ",",
                                     ":",
                                     "0",
                                     "-1",
                                     "1e999",
                                     "null",
                                     "[[[[[[[[[[",
                                     "\\u0000",
                                     "\xff",
                                     "q",
                                     "F64",
                                     "9223372036854775807",
                                     "18446744073709551616",
                                     "\"q\":{}"};
  const Bytes whole = small_case();
  std::string text(reinterpret_cast<const char*>(whole.data()), whole.size());
  const std::size_t header_end = text.rfind('}') + 1;
  const std::string header = text.substr(8, header_end - 8);
  Dice dice;
  for (int trial = 0; trial < 10'000; ++trial) {
    std::string changed = header;
    for (std::uint64_t changes = 1 + dice.below(3); changes > 0; --changes) {
      const std::uint64_t at = dice.below(changed.size() + 1), length = dice.below(4);
      changed.replace(at, length, pieces[dice.below(std::size(pieces))]);
    }
    const Bytes bytes = test::raw_safetensors(changed, whole.size() - header_end);
    ASSERT_NO_FATAL_FAILURE(expect_sane(bytes)) << "trial " << trial << ": " << changed;
  }
}

TEST(Hostile, TenThousandFlippedBitsOfAnNpy) {
  const Bytes whole = small_npy();
  Dice dice;
  for (int trial = 0; trial < 10'000; ++trial) {
    Bytes bytes = whole;
    for (std::uint64_t flips = 1 + dice.below(3); flips > 0; --flips) flip_one_bit(bytes, 80, dice);
    ASSERT_NO_FATAL_FAILURE(expect_sane_npy(bytes)) << "trial " << trial;
  }
}

TEST(Hostile, AClaimedTerabyteIsRefusedBeforeMemoryIsTaken) {
  const auto file =
      test::raw_safetensors(R"({"q":{"dtype":"F32","shape":[274877906944],"data_offsets":[0,1099511627776]}})", 16);
  test::expect_refusal(parse_case(file, "f"), "f: q.data_offsets", "[0,1099511627776]", "<= 16");
}

}  // namespace
}  // namespace fresnel
