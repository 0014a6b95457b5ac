// SPDX-License-Identifier: Apache-2.0
// make_inputs as a whole: what it makes fits the problem, is the same everywhere, and what it cannot make it refuses.
#include "inputs/inputs.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "inputs/logical_values.hpp"
#include "inputs/random.hpp"
#include "semantics/views.hpp"

namespace fresnel {
namespace {

using test::made;
using test::parsed;
using test::values_of;

bool holds(const InputKind& kind, DType dtype) { return kind.halves || size_of(dtype) >= 4; }

/// Equal numbers or both NaN.
bool same(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t index = 0; index < a.size(); ++index)
    if (a[index] != b[index] && !(std::isnan(a[index]) && std::isnan(b[index]))) return false;
  return true;
}

TEST(Inputs, DescribeGivesTheProblemBack) {
  for (const char* line :
       {"b2 h4/2 q5 k7 d8 f32", "b2 h4/2 q5 k7 d17/9 bf16 causal topleft w3,0 cap5 scale0.1",
        "b3 h4 q5 k7 d16 f16 alibi lens bshd", "b3 h2 q5 k7 d16 f64 alibi:distance:batch unaligned nolse",
        "b2 h4/2 q5 k7 d8 f32 q:bshd v:bshd q:unaligned o:unaligned", "b2 h4/2 q5 k7 d8 f32 bshd unaligned",
        "b1 h1 q1 k1 d1 f32", "b0 h4 q5 k7 d8 f32", "b2 h4 q0 k7 d8 f32", "b2 h4 q5 k0 d8 f32 lens"}) {
    GeneratedInputs data = made(line, "normal");
    const auto problem = describe(parsed(line).options, data.inputs(), data.outputs());
    ASSERT_TRUE(problem) << line << ": " << problem.refusal().message();
    EXPECT_EQ(print(*problem), line);
    EXPECT_TRUE(check_indices(*problem, data.inputs())) << line;
    EXPECT_TRUE(data.guards_intact()) << line;
  }
}

TEST(Inputs, LayoutsDifferValuesDoNot) {
  for (const char* dtype : {"f64", "f32", "f16", "bf16"})
    for (const InputKind& kind : input_kinds()) {
      const std::string line = std::string("b2 h4/2 q5 k9 d7/6 ") + dtype + " causal lens";
      if (!holds(kind, parsed(line).dtype)) continue;
      const GeneratedInputs plain = made(line, kind.name, 3);
      for (const char* layout : {" bshd", " unaligned", " bshd unaligned"}) {
        const GeneratedInputs other = made(line + layout, kind.name, 3);
        const Inputs a = plain.inputs(), b = other.inputs();
        EXPECT_TRUE(same(values_of(a.q), values_of(b.q))) << kind.name << dtype << layout;
        EXPECT_TRUE(same(values_of(a.k), values_of(b.k))) << kind.name << dtype << layout;
        EXPECT_TRUE(same(values_of(a.v), values_of(b.v))) << kind.name << dtype << layout;
        EXPECT_EQ(std::memcmp(a.seqlens_k->data, b.seqlens_k->data, 8), 0);
      }
    }
}

TEST(Inputs, SeedsAndTensorsDiffer) {
  const GeneratedInputs one = made("b1 h2 q6 k6 d8 f32", "normal", 1), two = made("b1 h2 q6 k6 d8 f32", "normal", 2);
  EXPECT_FALSE(same(values_of(one.inputs().q), values_of(two.inputs().q)));
  EXPECT_FALSE(same(values_of(one.inputs().q), values_of(one.inputs().k)));
  EXPECT_FALSE(same(values_of(one.inputs().k), values_of(one.inputs().v)));
}

/// SplitMix64's finalizer over the bits of q, k and v: one number for all of them.
std::uint64_t fingerprint(const GeneratedInputs& data) {
  std::uint64_t hash = 0;
  for (const View& view : {data.inputs().q, data.inputs().k, data.inputs().v})
    for (const double value : values_of(view)) {
      std::uint64_t bits;
      const double canonical = std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
      std::memcpy(&bits, &canonical, sizeof bits);
      hash = mixed(hash + 0x9e3779b97f4a7c15u + bits);
    }
  return hash;
}

TEST(Inputs, ValuesNeverChange) {
  // A record names its inputs by kind and seed: whoever changes these numbers makes old records unreadable.
  const std::pair<const char*, std::uint64_t> wanted[] = {
      {"normal", 6829894174604780946u},      {"uniform", 10632279040227201161u},  {"constant", 12888045030036505248u},
      {"large", 15796580671980916944u},      {"huge", 17983001122865080434u},     {"tiny", 8074904623290844303u},
      {"subnormal", 7020268097297964072u},   {"shift", 10490272694611540208u},    {"one_hot", 15900394327273673063u},
      {"head_index", 3710097381108682651u},  {"ascending", 2608148082221274229u}, {"descending", 5896256799064205045u},
      {"alternating", 6632303079090664469u}, {"dead_nan", 14939148238401530696u}};
  ASSERT_EQ(std::size(wanted), input_kinds().size());
  for (const auto& [kind, hash] : wanted)
    EXPECT_EQ(fingerprint(made("b2 h4/2 q5 k9 d7/6 f32 causal lens", kind, 3)), hash) << kind;
}

TEST(Inputs, GradientsComeWithTheirOutputs) {
  for (const char* line :
       {"b2 h4/2 q5 k7 d8/6 f32 alibi lens grad", "b2 h4/2 q5 k7 d8/6 bf16 alibi:batch q:bshd o:bshd grad",
        "b2 h4/2 q5 k7 d8/6 f64 bshd unaligned grad"}) {
    GeneratedInputs data = made(line, "large");
    const Inputs inputs = data.inputs();
    const Outputs outputs = data.outputs();
    const auto problem = describe(parsed(line).options, inputs, outputs);
    ASSERT_TRUE(problem) << line << ": " << problem.refusal().message();
    EXPECT_EQ(print(*problem), line);
    ASSERT_TRUE(inputs.dout && outputs.dq && outputs.dk && outputs.dv) << line;
    EXPECT_EQ(outputs.dalibi_slopes.has_value(), inputs.alibi_slopes.has_value()) << line;
    EXPECT_EQ(inputs.dout->strides, outputs.o.strides) << line;
    EXPECT_EQ(outputs.dk->strides, inputs.k.strides) << line;
    for (const double value : values_of(*inputs.dout))
      ASSERT_LT(std::fabs(value), 5) << "dout is normal for every kind";
    for (const double value : values_of(as_input(*outputs.dv))) ASSERT_TRUE(std::isnan(value)) << line;
    EXPECT_TRUE(data.guards_intact()) << line;
    const auto guard = static_cast<unsigned char*>(outputs.dq->data) - 1;
    *guard = 0;
    EXPECT_FALSE(data.guards_intact()) << line;
    std::memset(outputs.dv->data, 0, 4);
    data.reset_outputs();
    EXPECT_TRUE(data.guards_intact()) << line;
    EXPECT_TRUE(std::isnan(values_of(as_input(*outputs.dv)).front())) << line;
  }
  const GeneratedInputs forward = made("b2 h4/2 q5 k7 d8/6 f32 alibi lens", "large");
  EXPECT_FALSE(forward.inputs().dout);
  EXPECT_TRUE(same(values_of(forward.inputs().q),
                   values_of(made("b2 h4/2 q5 k7 d8/6 f32 alibi lens grad", "large").inputs().q)));
}

TEST(Inputs, OutputsAreNanUntilWritten) {
  GeneratedInputs data = made("b2 h2 q3 k4 d5 f16 unaligned", "uniform");
  const auto all_nan = [&] {
    for (const double value : values_of(as_input(data.outputs().o)))
      if (!std::isnan(value)) return false;
    return true;
  };
  EXPECT_TRUE(all_nan());
  ASSERT_TRUE(data.outputs().lse);
  EXPECT_TRUE(std::isnan(static_cast<const float*>(data.outputs().lse->data)[11]));
  static_cast<std::uint16_t*>(data.outputs().o.data)[0] = 0;
  static_cast<float*>(data.outputs().lse->data)[11] = 0;
  EXPECT_FALSE(all_nan());
  EXPECT_TRUE(data.guards_intact()) << "elements may change";
  data.reset_outputs();
  EXPECT_TRUE(all_nan());
  EXPECT_TRUE(std::isnan(static_cast<const float*>(data.outputs().lse->data)[11]));
  EXPECT_FALSE(made("b1 h1 q3 k4 d5 f64 nolse", "normal").outputs().lse);
  EXPECT_EQ(made("b1 h1 q3 k4 d5 f64", "normal").outputs().lse->dtype, DType::f64);
}

TEST(Inputs, GuardsOfEveryTensorAreWatched) {
  GeneratedInputs data = made("b2 h2 q3 k4 d5 f32 alibi lens", "normal");
  const Inputs inputs = data.inputs();
  const Outputs outputs = data.outputs();
  for (const void* start :
       {inputs.q.data, inputs.k.data, inputs.v.data, inputs.alibi_slopes->data, inputs.seqlens_k->data,
        static_cast<const void*>(outputs.o.data), static_cast<const void*>(outputs.lse->data)}) {
    auto* before = static_cast<unsigned char*>(const_cast<void*>(start)) - 1;
    ASSERT_TRUE(data.guards_intact());
    *before = 0;
    EXPECT_FALSE(data.guards_intact());
    *before = 0xff;
  }
}

TEST(Inputs, LengthsAreAMix) {
  const GeneratedInputs data = made("b64 h1 q1 k100 d1 f32 lens", "normal", 5);
  const auto* lengths = static_cast<const std::int32_t*>(data.inputs().seqlens_k->data);
  int none = 0, all = 0, between = 0;
  for (int b = 0; b < 64; ++b) {
    ASSERT_TRUE(lengths[b] >= 0 && lengths[b] <= 100);
    none += lengths[b] == 0;
    all += lengths[b] == 100;
    between += lengths[b] != 0 && lengths[b] != 100;
  }
  EXPECT_GE(none, 16);
  EXPECT_GE(all, 16);
  EXPECT_GE(between, 24);
}

TEST(Inputs, SlopesAreInRangeAndPerBatchOnesDiffer) {
  const GeneratedInputs data = made("b2 h9 q1 k1 d1 f32 alibi:batch", "normal");
  const View slopes = *data.inputs().alibi_slopes;
  const auto* values = static_cast<const float*>(slopes.data);
  ASSERT_EQ(slopes.rank, 2);
  for (int index = 0; index < 18; ++index) EXPECT_TRUE(values[index] > 0x1p-9 && values[index] < 1) << values[index];
  EXPECT_NE(values[0], values[9]);
  const GeneratedInputs per_head = made("b2 h9 q1 k1 d1 f32 alibi", "normal");
  EXPECT_EQ(per_head.inputs().alibi_slopes->rank, 1);
  EXPECT_EQ(static_cast<const float*>(per_head.inputs().alibi_slopes->data)[3], values[3]);
}

TEST(Inputs, EmptyExtentsWork) {
  for (const char* extents : {"b0 h4/2 q5 k7 d8", "b2 h0 q5 k7 d8", "b2 h4/2 q0 k7 d8", "b2 h4/2 q5 k0 d8"})
    for (const InputKind& kind : input_kinds())
      for (const char* rest : {" f32 alibi lens", " f32 causal bshd unaligned"}) {
        const auto data = make_inputs(parsed(std::string(extents) + rest), kind.name, 1);
        ASSERT_TRUE(data) << extents << rest << kind.name << ": " << data.refusal().message();
        EXPECT_TRUE(data->guards_intact());
      }
}

TEST(Inputs, RefusesUnknownKindsAndWhatADtypeCannotHold) {
  const auto unknown = make_inputs(parsed("b1 h1 q1 k1 d1 f32"), "gaussian", 1);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.refusal().argument, "inputs");
  EXPECT_EQ(unknown.refusal().given, "\"gaussian\"");
  for (const InputKind& kind : input_kinds())
    EXPECT_NE(unknown.refusal().accepted.find(kind.name), std::string::npos) << kind.name;
  const auto huge = make_inputs(parsed("b1 h1 q1 k1 d1 bf16"), "huge", 1);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.refusal().message(), "inputs: given huge with bf16; accepted: f32 or f64 for this kind");
  EXPECT_EQ(make_inputs(parsed("b1 h1 q1 k1 d1 f16"), "x", 1).refusal().accepted.find("huge"), std::string::npos);
}

TEST(Inputs, RefusesInvalidProblems) {
  Problem problem = parsed("b1 h4 q1 k1 d1 f32");
  problem.heads_kv = 3;
  const auto data = make_inputs(problem, "normal", 1);
  ASSERT_FALSE(data);
  EXPECT_EQ(data.refusal().argument, "heads_kv");
  problem = parsed("b1 h4 q1 k1 d1 f32");
  problem.queries = -1;
  EXPECT_FALSE(make_inputs(problem, "normal", 1));
}

TEST(Inputs, RefusesWhatDoesNotFitInMemory) {
  for (const char* line :
       {"b1 h1 q1000000000000 k1 d64 f32", "b1 h1 q1 k1000000000000 d64 f64", "b1000000 h1000000 q1 k1 d100 bf16",
        "b1 h1 q1000000000000000 k1 d1 bf16", "b1 h1 q1000000 k1000000 d100000 f64",
        "b576460752303423487 h1 q0 k0 d1 f16", "b576460752303423487 h1 q0 k0 d1 f32 lens"}) {
    const auto data = make_inputs(parsed(line), "normal", 1);
    ASSERT_FALSE(data) << line;
    EXPECT_EQ(data.refusal().fault, Fault::out_of_memory) << line;
    EXPECT_EQ(data.refusal().argument, "problem") << line;
    EXPECT_NE(data.refusal().accepted.find("half of this machine's memory"), std::string::npos) << line;
  }
}

TEST(Inputs, KindsHaveNamesAndLines) {
  EXPECT_EQ(input_kinds().front().name, "normal");
  for (const InputKind& kind : input_kinds()) {
    EXPECT_FALSE(kind.name.empty());
    EXPECT_GT(kind.blurb.size(), 10u) << kind.name;
    EXPECT_LT(kind.blurb.size(), 100u) << kind.name;
  }
}

}  // namespace
}  // namespace fresnel
