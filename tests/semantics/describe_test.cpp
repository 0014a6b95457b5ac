// SPDX-License-Identifier: Apache-2.0
// From views to a Problem: a good call with one thing changed at a time. Refusals must name the tensor and the axis,
// and every layout class must come from strides and addresses alone. Memory is never read, so that most addresses are
// invented.
#include <gtest/gtest.h>

#include <functional>

#include "fresnel/plan.hpp"

namespace fresnel {
namespace {

constexpr std::int64_t B = 2, Hq = 4, Hkv = 2, Sq = 3, Sk = 5, D = 8, Dv = 16;

/// Invented addresses, a megabyte apart and 64-byte aligned.
void* address(std::uintptr_t slot, std::uintptr_t byte = 0) { return reinterpret_cast<void*>((slot << 20) + byte); }

struct Call {
  Options options;
  Inputs inputs{.q = {address(1), DType::f32, {B, Hq, Sq, D}},
                .k = {address(2), DType::f32, {B, Hkv, Sk, D}},
                .v = {address(3), DType::f32, {B, Hkv, Sk, Dv}},
                .alibi_slopes = {},
                .seqlens_k = {}};
  Outputs outputs{.o = {address(4), DType::f32, {B, Hq, Sq, Dv}},
                  .lse = MutableView{address(5), DType::f32, {B, Hq, Sq}}};

  void set_dtype(DType dtype) {
    inputs.q.dtype = inputs.k.dtype = inputs.v.dtype = outputs.o.dtype = dtype;
    outputs.lse->dtype = dtype == DType::f64 ? DType::f64 : DType::f32;
  }
  void slopes(std::initializer_list<std::int64_t> sizes) { inputs.alibi_slopes = View{address(6), DType::f32, sizes}; }
  void lengths(std::initializer_list<std::int64_t> sizes) { inputs.seqlens_k = View{address(7), DType::i32, sizes}; }
  [[nodiscard]] Result<Problem> describe() const { return fresnel::describe(options, inputs, outputs); }
};

using Change = std::function<void(Call&)>;

std::string described(const Change& change) {
  Call call;
  change(call);
  const Result<Problem> problem = call.describe();
  return problem ? print(*problem) : problem.refusal().message();
}

void expect_refused(const Change& change, const std::string& argument, const std::string& given,
                    const std::string& accepted, const std::string& nearest = "") {
  Call call;
  change(call);
  const Result<Problem> problem = call.describe();
  ASSERT_FALSE(problem.ok()) << "described as " << print(*problem) << ", expected a refusal of " << argument << ": "
                             << given;
  const Refusal& refusal = problem.refusal();
  EXPECT_EQ(refusal.fault, Fault::bad_input);
  EXPECT_EQ(refusal.argument, argument) << refusal.message();
  EXPECT_NE(refusal.given.find(given), std::string::npos) << refusal.message();
  EXPECT_NE(refusal.accepted.find(accepted), std::string::npos) << refusal.message();
  EXPECT_EQ(refusal.nearest, nearest) << refusal.message();
}

TEST(Describe, Plain) {
  EXPECT_EQ(described([](Call&) {}), "b2 h4/2 q3 k5 d8/16 f32");
  EXPECT_EQ(described([](Call& c) { c.outputs.lse.reset(); }), "b2 h4/2 q3 k5 d8/16 f32 nolse");
  EXPECT_EQ(described([](Call& c) { c.set_dtype(DType::bf16); }), "b2 h4/2 q3 k5 d8/16 bf16");
  EXPECT_EQ(described([](Call& c) { c.slopes({Hq}); }), "b2 h4/2 q3 k5 d8/16 f32 alibi");
  EXPECT_EQ(described([](Call& c) { c.slopes({B, Hq}); }), "b2 h4/2 q3 k5 d8/16 f32 alibi:batch");
  EXPECT_EQ(described([](Call& c) { c.lengths({B}); }), "b2 h4/2 q3 k5 d8/16 f32 lens");
  EXPECT_EQ(described([](Call& c) {
              c.options.causal = true;
              c.options.softmax_scale = 0.5;
              c.options.softcap = 5;
              c.options.window_size_left = 1;
              c.options.alignment = Alignment::top_left;
            }),
            "b2 h4/2 q3 k5 d8/16 f32 causal topleft w1,- cap5 scale0.5");
}

TEST(Describe, AFormWithoutSlopesIsForgotten) {
  Call plain, distance;
  distance.options.alibi = AlibiForm::distance;
  ASSERT_TRUE(plain.describe().ok() && distance.describe().ok());
  EXPECT_TRUE(*plain.describe() == *distance.describe());
  EXPECT_EQ(described([](Call& c) {
              c.options.alibi = AlibiForm::distance;
              c.slopes({Hq});
            }),
            "b2 h4/2 q3 k5 d8/16 f32 alibi:distance");
}

TEST(Describe, OptionsAreValidated) {
  expect_refused([](Call& c) { c.options.softcap = 0; }, "softcap", "0", "unset", "unset");
  expect_refused([](Call& c) { c.options.window_size_left = -1; }, "window_size_left", "-1", "at least 0", "unset");
  expect_refused([](Call& c) { c.inputs.k.sizes[1] = c.inputs.v.sizes[1] = 3; }, "heads_kv", "3 for 4 query heads",
                 "a divisor", "2");
  expect_refused([](Call& c) { c.inputs.q.sizes[3] = c.inputs.k.sizes[3] = 0; }, "head_dim", "0", "at least 1", "1");
}

TEST(Describe, RankAndSizes) {
  expect_refused(
      [](Call& c) {
        c.inputs.q = {address(1), DType::f32, {2, 8, 64}};
      },
      "q", "rank 3 [2,8,64]", "rank 4 [batch, heads, queries, head_dim]");
  expect_refused(
      [](Call& c) {
        c.inputs.k = {address(1), DType::f32, {2, 8, 1, 5, 64}};
      },
      "k", "rank 5 [2,8,1,5,...]", "rank 4 [batch, kv heads, keys, head_dim]");
  expect_refused([](Call& c) { c.inputs.v = View(); }, "v", "rank 0 []", "rank 4 [batch, kv heads, keys, value_dim]");
  expect_refused([](Call& c) { c.outputs.o.rank = -7; }, "o", "rank -7 []",
                 "rank 4 [batch, heads, queries, value_dim]");
  expect_refused([](Call& c) { c.outputs.lse->rank = 4; }, "lse", "rank 4", "rank 3 [batch, heads, queries]");
  expect_refused([](Call& c) { c.inputs.k.sizes[2] = -5; }, "k", "size -5 on axis 2 (keys) of [2,2,-5,8]",
                 "at least 0");
  expect_refused(
      [](Call& c) {
        c.slopes({1, B, Hq});
      },
      "alibi_slopes", "rank 3 [1,2,4]", "rank 1 [heads] or rank 2 [batch, heads]");
  expect_refused([](Call& c) { c.lengths({B, 1}); }, "seqlens_k", "rank 2 [2,1]", "rank 1 [batch]");
}

TEST(Describe, Dtypes) {
  expect_refused([](Call& c) { c.inputs.q.dtype = DType::i32; }, "q", "i32", "f64, f32, f16 or bf16");
  expect_refused([](Call& c) { c.inputs.q.dtype = static_cast<DType>(77); }, "q", "dtype(77)", "f64, f32, f16 or bf16");
  expect_refused([](Call& c) { c.inputs.k.dtype = DType::f16; }, "k", "f16", "f32, the dtype of q", "f32");
  expect_refused([](Call& c) { c.inputs.v.dtype = static_cast<DType>(77); }, "v", "dtype(77)", "f32, the dtype of q",
                 "f32");
  expect_refused([](Call& c) { c.outputs.o.dtype = DType::f64; }, "o", "f64", "f32, the dtype of q", "f32");
  expect_refused([](Call& c) { c.outputs.lse->dtype = DType::f64; }, "lse", "f64", "f32 when q is f32", "f32");
  expect_refused(
      [](Call& c) {
        c.set_dtype(DType::bf16);
        c.outputs.lse->dtype = DType::bf16;
      },
      "lse", "bf16", "f32 when q is bf16", "f32");
  expect_refused(
      [](Call& c) {
        c.set_dtype(DType::f64);
        c.outputs.lse->dtype = DType::f32;
      },
      "lse", "f32", "f64 when q is f64", "f64");
  expect_refused(
      [](Call& c) {
        c.slopes({Hq});
        c.inputs.alibi_slopes->dtype = DType::f64;
      },
      "alibi_slopes", "f64", "f32", "f32");
  expect_refused(
      [](Call& c) {
        c.lengths({B});
        c.inputs.seqlens_k->dtype = DType::f32;
      },
      "seqlens_k", "f32", "i32", "i32");
}

TEST(Describe, Devices) {
  const auto everywhere = [](Call& c, Device device) {
    c.inputs.q.device = c.inputs.k.device = c.inputs.v.device = c.outputs.o.device = c.outputs.lse->device = device;
  };
  EXPECT_EQ(described([&](Call& c) { everywhere(c, Device::cuda); }), "b2 h4/2 q3 k5 d8/16 f32");
  EXPECT_EQ(described([&](Call& c) {
              everywhere(c, Device::cuda);
              c.lengths({B});
            }),
            "b2 h4/2 q3 k5 d8/16 f32 lens");
  expect_refused([](Call& c) { c.inputs.q.device = static_cast<Device>(9); }, "q", "device(9)", "cpu, cuda or webgpu");
  expect_refused([](Call& c) { c.inputs.k.device = Device::cuda; }, "k", "on cuda", "on cpu, where q is", "cpu");
  expect_refused([](Call& c) { c.outputs.lse->device = Device::webgpu; }, "lse", "on webgpu", "on cpu, where q is",
                 "cpu");
  expect_refused(
      [](Call& c) {
        c.slopes({Hq});
        c.inputs.alibi_slopes->device = Device::cuda;
      },
      "alibi_slopes", "on cuda", "on cpu", "cpu");
}

TEST(Describe, TensorsAgree) {
  expect_refused([](Call& c) { c.inputs.k.sizes[0] = 3; }, "k", "batch = 3 (axis 0 of [3,2,5,8])",
                 "batch = 2, as on axis 0 of q [2,4,3,8]", "2");
  expect_refused([](Call& c) { c.inputs.v.sizes[0] = 1; }, "v", "batch = 1", "axis 0 of q", "2");
  expect_refused([](Call& c) { c.inputs.k.sizes[3] = 9; }, "k", "head_dim = 9", "axis 3 of q", "8");
  expect_refused([](Call& c) { c.inputs.v.sizes[1] = 4; }, "v", "kv heads = 4", "axis 1 of k", "2");
  expect_refused([](Call& c) { c.inputs.v.sizes[2] = 6; }, "v", "keys = 6", "axis 2 of k [2,2,5,8]", "5");
  expect_refused([](Call& c) { c.outputs.o.sizes[0] = 3; }, "o", "batch = 3", "axis 0 of q", "2");
  expect_refused([](Call& c) { c.outputs.o.sizes[1] = 2; }, "o", "heads = 2", "axis 1 of q", "4");
  expect_refused([](Call& c) { c.outputs.o.sizes[2] = 5; }, "o", "queries = 5", "axis 2 of q", "3");
  expect_refused([](Call& c) { c.outputs.o.sizes[3] = 8; }, "o", "value_dim = 8", "axis 3 of v [2,2,5,16]", "16");
  for (int axis = 0; axis < 3; ++axis)
    expect_refused([&](Call& c) { c.outputs.lse->sizes[static_cast<std::size_t>(axis)] = 9; }, "lse", "= 9 (axis ",
                   "as on axis " + std::to_string(axis) + " of q",
                   axis == 0   ? "2"
                   : axis == 1 ? "4"
                               : "3");
  expect_refused([](Call& c) { c.slopes({Hkv}); }, "alibi_slopes", "heads = 2 (axis 0 of [2])", "the heads of q", "4");
  expect_refused([](Call& c) { c.slopes({Hq, B}); }, "alibi_slopes", "batch = 4", "the batch of q", "2");
  expect_refused([](Call& c) { c.slopes({B, B}); }, "alibi_slopes", "heads = 2 (axis 1", "the heads of q", "4");
  expect_refused([](Call& c) { c.lengths({1}); }, "seqlens_k", "batch = 1", "the batch of q", "2");
}

TEST(Describe, LastAxisIsContiguous) {
  for (const std::int64_t stride : {0, 2, -1}) {
    const std::string given = "stride " + std::to_string(stride) + " on the last axis";
    expect_refused([&](Call& c) { c.inputs.q.strides[3] = stride; }, "q", given, "stride 1", "1");
    expect_refused([&](Call& c) { c.inputs.k.strides[3] = stride; }, "k", given, "stride 1", "1");
    expect_refused([&](Call& c) { c.inputs.v.strides[3] = stride; }, "v", given, "stride 1", "1");
    expect_refused([&](Call& c) { c.outputs.o.strides[3] = stride; }, "o", given, "stride 1", "1");
    expect_refused([&](Call& c) { c.outputs.lse->strides[2] = stride; }, "lse", given, "stride 1", "1");
  }
  expect_refused(
      [](Call& c) {
        c.lengths({B});
        c.inputs.seqlens_k->strides[0] = 2;
      },
      "seqlens_k", "stride 2", "stride 1", "1");
  // The stride of an axis of length 1 is ignored.
  EXPECT_EQ(described([](Call& c) {
              c.inputs.q.sizes[3] = c.inputs.k.sizes[3] = 1;
              c.inputs.q.strides[3] = -77;
              c.inputs.k.strides[3] = INT64_MIN;
            }),
            "b2 h4/2 q3 k5 d1/16 f32");
}

TEST(Describe, Addresses) {
  expect_refused([](Call& c) { c.inputs.q.data = nullptr; }, "q", "a null pointer for shape [2,4,3,8]",
                 "null only when");
  expect_refused([](Call& c) { c.outputs.o.data = nullptr; }, "o", "a null pointer", "null only when");
  expect_refused([](Call& c) { c.outputs.lse->data = nullptr; }, "lse", "a null pointer", "null only when");
  expect_refused([](Call& c) { c.inputs.k.data = address(2, 2); }, "k", "address 0x200002",
                 "a multiple of 4 bytes, the size of f32");
  expect_refused(
      [](Call& c) {
        c.set_dtype(DType::f64);
        c.inputs.v.data = address(3, 4);
      },
      "v", "address 0x300004", "a multiple of 8 bytes");
  expect_refused(
      [](Call& c) {
        c.lengths({B});
        c.inputs.seqlens_k->data = address(7, 1);
      },
      "seqlens_k", "address 0x700001", "a multiple of 4 bytes");
  EXPECT_EQ(described([](Call& c) {
              c.set_dtype(DType::f16);
              c.inputs.k.data = address(2, 2);
            }),
            "b2 h4/2 q3 k5 d8/16 f16 k:unaligned");
}

TEST(Describe, NothingIsAskedOfEmptyTensors) {
  EXPECT_EQ(described([](Call& c) {
              c.inputs.k = {nullptr, DType::f32, {B, Hkv, 0, D}};
              c.inputs.v = {address(0, 1), DType::f32, {B, Hkv, 0, Dv}};
            }),
            "b2 h4/2 q3 k0 d8/16 f32");
  EXPECT_EQ(described([](Call& c) {
              c.inputs.q = {nullptr, DType::f32, {B, 0, Sq, D}};
              c.outputs.o = {nullptr, DType::f32, {B, 0, Sq, Dv}};
              c.outputs.lse = MutableView{nullptr, DType::f32, {B, 0, Sq}};
            }),
            "b2 h0/2 q3 k5 d8/16 f32");
  EXPECT_EQ(described([](Call& c) {
              c.inputs = {.q = {nullptr, DType::f32, {0, Hq, Sq, D}},
                          .k = {nullptr, DType::f32, {0, Hkv, Sk, D}},
                          .v = {nullptr, DType::f32, {0, Hkv, Sk, Dv}},
                          .alibi_slopes = {},
                          .seqlens_k = View{nullptr, DType::i32, {0}}};
              c.outputs = {.o = {nullptr, DType::f32, {0, Hq, Sq, Dv}}, .lse = {}};
            }),
            "b0 h4/2 q3 k5 d8/16 f32 lens nolse");
}

TEST(Describe, InputStridesAreFree) {
  // One key for all (stride 0), a sequence read backwards, a fused buffer with wide rows.
  EXPECT_EQ(described([](Call& c) { c.inputs.k.strides = {0, 0, 0, 1}; }), "b2 h4/2 q3 k5 d8/16 f32");
  EXPECT_EQ(described([](Call& c) { c.inputs.k.strides = {80, 40, -8, 1}; }), "b2 h4/2 q3 k5 d8/16 f32");
  EXPECT_EQ(described([](Call& c) { c.inputs.v.strides = {107520, 64, 21504, 1}; }), "b2 h4/2 q3 k5 d8/16 f32 v:bshd");
  EXPECT_EQ(described([](Call& c) {
              c.slopes({B, Hq});
              c.inputs.alibi_slopes->strides = {0, 1};
            }),
            "b2 h4/2 q3 k5 d8/16 f32 alibi:batch");
  // An input may overlap an input.
  EXPECT_EQ(described([](Call& c) { c.inputs.k.data = c.inputs.v.data = c.inputs.q.data; }), "b2 h4/2 q3 k5 d8/16 f32");
}

TEST(Describe, AxisOrder) {
  const auto swapped = [](auto view) {
    return decltype(view){view.data, view.dtype, {view.sizes[0], view.sizes[2], view.sizes[1], view.sizes[3]}}
        .transposed(1, 2);
  };
  EXPECT_EQ(described([&](Call& c) { c.inputs.q = swapped(c.inputs.q); }), "b2 h4/2 q3 k5 d8/16 f32 q:bshd");
  EXPECT_EQ(described([&](Call& c) { c.outputs.o = swapped(c.outputs.o); }), "b2 h4/2 q3 k5 d8/16 f32 o:bshd");
  EXPECT_EQ(described([&](Call& c) {
              c.inputs.q = swapped(c.inputs.q);
              c.inputs.k = swapped(c.inputs.k);
              c.inputs.v = swapped(c.inputs.v);
              c.outputs.o = swapped(c.outputs.o);
            }),
            "b2 h4/2 q3 k5 d8/16 f32 bshd");
  // A length of 1 says nothing about the order; equal strides read as heads first; magnitudes count, not signs.
  EXPECT_EQ(described([&](Call& c) {
              c.inputs.k.sizes[1] = c.inputs.v.sizes[1] = 1;
              c.inputs.k.strides[1] = 8, c.inputs.k.strides[2] = 64;
            }),
            "b2 h4/1 q3 k5 d8/16 f32");
  EXPECT_EQ(described([](Call& c) { c.inputs.k.strides = {0, 8, 8, 1}; }), "b2 h4/2 q3 k5 d8/16 f32");
  EXPECT_EQ(described([](Call& c) { c.inputs.k.strides = {80, 8, -16, 1}; }), "b2 h4/2 q3 k5 d8/16 f32 k:bshd");
  EXPECT_EQ(described([](Call& c) { c.inputs.k.strides = {80, -40, 8, 1}; }), "b2 h4/2 q3 k5 d8/16 f32");
}

TEST(Describe, AlignmentClass) {
  EXPECT_EQ(described([](Call& c) { c.inputs.q.data = address(1, 4); }), "b2 h4/2 q3 k5 d8/16 f32 q:unaligned");
  EXPECT_EQ(described([](Call& c) { c.inputs.q.data = address(1, 16); }), "b2 h4/2 q3 k5 d8/16 f32");
  EXPECT_EQ(described([](Call& c) { c.inputs.k.strides = {80, 40, 9, 1}; }), "b2 h4/2 q3 k5 d8/16 f32 k:unaligned");
  EXPECT_EQ(described([](Call& c) { c.inputs.k.strides = {80, 42, 8, 1}; }), "b2 h4/2 q3 k5 d8/16 f32 k:unaligned");
  EXPECT_EQ(described([](Call& c) { c.inputs.k.strides = {81, 40, 8, 1}; }), "b2 h4/2 q3 k5 d8/16 f32 k:unaligned");
  EXPECT_EQ(described([](Call& c) { c.inputs.k.strides = {80, 40, -9, 1}; }), "b2 h4/2 q3 k5 d8/16 f32 k:unaligned");
  EXPECT_EQ(described([](Call& c) { c.outputs.o.strides = {193, 48, 16, 1}; }), "b2 h4/2 q3 k5 d8/16 f32 o:unaligned");
  // 8 halves are 16 bytes, 4 are not; an axis of length 1 has no say.
  EXPECT_EQ(described([](Call& c) {
              c.set_dtype(DType::f16);
              c.inputs.k.strides = {80, 40, 12, 1};
            }),
            "b2 h4/2 q3 k5 d8/16 f16 k:unaligned");
  EXPECT_EQ(described([](Call& c) {
              c.inputs.k.sizes[1] = c.inputs.v.sizes[1] = 1;
              c.inputs.k.strides[1] = 3;
            }),
            "b2 h4/1 q3 k5 d8/16 f32");
}

TEST(Describe, OutputsDoNotOverlapThemselves) {
  const auto strides = [](std::array<std::int64_t, 4> given) { return [=](Call& c) { c.outputs.o.strides = given; }; };
  const std::string accepted = "an output that does not overlap itself";
  EXPECT_EQ(described(strides({192, 48, 16, 1})), "b2 h4/2 q3 k5 d8/16 f32");
  EXPECT_EQ(described(strides({192, 16, 64, 1})), "b2 h4/2 q3 k5 d8/16 f32 o:bshd");
  EXPECT_EQ(described(strides({16, 32, 128, 1})), "b2 h4/2 q3 k5 d8/16 f32 o:bshd");  // batch inside heads inside rows
  expect_refused(strides({192, 48, 15, 1}), "o", "axis 2 steps by 15 over the 16 elements", accepted);
  expect_refused(strides({192, 47, 16, 1}), "o", "axis 1 steps by 47 over the 48 elements", accepted);
  expect_refused(strides({191, 48, 16, 1}), "o", "axis 0 steps by 191 over the 192 elements", accepted);
  expect_refused(strides({0, 48, 16, 1}), "o", "axis 0 steps by 0", accepted);
  expect_refused(strides({192, 48, 0, 1}), "o", "axis 2 steps by 0", accepted);
  expect_refused(strides({192, -48, 16, 1}), "o", "axis 1 steps by -48", accepted);
  expect_refused([](Call& c) { c.outputs.lse->strides = {2, 3, 1}; }, "lse", "axis 0 steps by 2 over the 3", accepted);
  // Heads 2 apart in a buffer of 3-wide rows would collide only pairwise; the rule is the nested one.
  EXPECT_EQ(described([](Call& c) { c.outputs.lse->strides = {12, 3, 1}; }), "b2 h4/2 q3 k5 d8/16 f32");
}

TEST(Describe, OutputsMeetNothing) {
  const std::uintptr_t q_bytes = B * Hq * Sq * D * 4, o_bytes = B * Hq * Sq * Dv * 4, lse_bytes = B * Hq * Sq * 4;
  const std::string accepted = "meets no other tensor's";
  const auto o_at = [](std::uintptr_t slot, std::uintptr_t byte) {
    return [=](Call& c) { c.outputs.o.data = address(slot, byte); };
  };
  EXPECT_EQ(described(o_at(1, q_bytes)), "b2 h4/2 q3 k5 d8/16 f32");
  EXPECT_EQ(described(o_at(0, (1 << 20) - o_bytes)), "b2 h4/2 q3 k5 d8/16 f32");
  expect_refused(o_at(1, q_bytes - 4), "o", "which meet q at [0x100000,", accepted);
  expect_refused(o_at(0, (1 << 20) - o_bytes + 4), "o", "which meet q", accepted);
  expect_refused(o_at(2, 0), "o", "which meet k", accepted);
  expect_refused(o_at(3, 64), "o", "which meet v", accepted);
  expect_refused(o_at(5, 0), "lse", "which meet o", accepted);
  expect_refused([](Call& c) { c.outputs.lse->data = address(1); }, "lse", "which meet q", accepted);
  expect_refused([=](Call& c) { c.outputs.lse->data = address(4, o_bytes - 4); }, "lse", "which meet o", accepted);
  EXPECT_EQ(described([=](Call& c) { c.outputs.lse->data = address(4, o_bytes); }), "b2 h4/2 q3 k5 d8/16 f32");
  EXPECT_EQ(described([=](Call& c) { c.outputs.lse->data = address(3, (1 << 20) - lse_bytes); }),
            "b2 h4/2 q3 k5 d8/16 f32");
  expect_refused(
      [](Call& c) {
        c.slopes({Hq});
        c.inputs.alibi_slopes->data = c.outputs.o.data;
      },
      "o", "which meet alibi_slopes", accepted);
  expect_refused(
      [](Call& c) {
        c.lengths({B});
        c.inputs.seqlens_k->data = c.outputs.lse->data;
      },
      "lse", "which meet seqlens_k", accepted);
  // A negative stride reaches below the address.
  expect_refused(
      [](Call& c) {
        c.inputs.k.data = address(4, 2048);
        c.inputs.k.strides = {80, 40, -8, 1};
        c.outputs.o.data = address(4, 2048 - 16 - 1536);
      },
      "o", "which meet k at [0x400780,", accepted);
}

TEST(Describe, NothingWraps) {
  const std::string accepted = "fit in 64 bits";
  expect_refused([](Call& c) { c.inputs.q.strides[0] = INT64_MAX; }, "q", "with strides [9223372036854775807,",
                 accepted);
  expect_refused([](Call& c) { c.inputs.q.strides[0] = INT64_MIN; }, "q", "with strides [-9223372036854775808,",
                 accepted);
  expect_refused([](Call& c) { c.inputs.q.strides[1] = INT64_MAX / 2; }, "q", "with strides", accepted);
  expect_refused([](Call& c) { c.inputs.k.strides[0] = INT64_MAX / 4 + 1; }, "k", "with strides", accepted);
  expect_refused([](Call& c) { c.inputs.k.strides[0] = -(std::int64_t{1} << 30); }, "k", "with strides", accepted);
  expect_refused([](Call& c) { c.outputs.o.strides[0] = INT64_MAX / 4; }, "o", "with strides", accepted);
  expect_refused([](Call& c) { c.inputs.v.data = reinterpret_cast<void*>(~std::uintptr_t{0} - 63); }, "v", "shape",
                 accepted);
  expect_refused(
      [](Call& c) {
        for (View* view : {&c.inputs.q, &c.inputs.k, &c.inputs.v}) view->sizes[0] = INT64_MAX;
        c.outputs.o.sizes[0] = c.outputs.lse->sizes[0] = INT64_MAX;
      },
      "q", "shape [9223372036854775807,4,3,8]", accepted);
  // All strides 0: the memory is small, the problem is not.
  expect_refused(
      [](Call& c) {
        for (View* view : {&c.inputs.k, &c.inputs.v}) {
          view->sizes[2] = INT64_MAX;
          view->strides = {0, 0, 0, 1};
        }
      },
      "k", "[2,2,9223372036854775807,8]", "fewer than 2^60 elements");
  // A stride that only an axis of length 1 has is never used.
  EXPECT_EQ(described([](Call& c) {
              c.inputs.k.sizes[2] = c.inputs.v.sizes[2] = 1;
              c.inputs.k.strides[2] = INT64_MIN;
            }),
            "b2 h4/2 q3 k1 d8/16 f32");
}

TEST(Describe, ManyHeadsAndBatches) {
  EXPECT_EQ(described([](Call& c) {
              c = Call();
              c.inputs = {.q = {address(1), DType::f32, {65536, 3, 1, 8}},
                          .k = {address(100), DType::f32, {65536, 1, 1, 8}},
                          .v = {address(200), DType::f32, {65536, 1, 1, 8}},
                          .alibi_slopes = {},
                          .seqlens_k = {}};
              c.outputs = {.o = {address(300), DType::f32, {65536, 3, 1, 8}}, .lse = {}};
            }),
            "b65536 h3/1 q1 k1 d8 f32 nolse");
}

}  // namespace
}  // namespace fresnel
