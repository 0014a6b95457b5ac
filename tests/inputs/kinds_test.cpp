// SPDX-License-Identifier: Apache-2.0
// Every kind does what its line in the table says, for ordinary and for odd scales, in every dtype that holds it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "inputs/logical_values.hpp"
#include "semantics/mask.hpp"

namespace fresnel {
namespace {

using test::made;
using test::score_of;
using test::value_at;
using test::values_of;

const char* const dtypes[] = {"f64", "f32", "f16", "bf16"};
const char* const scales[] = {"", " scale0.5", " scale-2", " scale0.001", " scale30"};

std::string line(const std::string& extents, const std::string& dtype, const std::string& options = "") {
  return extents + ' ' + dtype + options;
}

/// Relative precision of the dtype's elements.
double unit_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x1p-53;
    case DType::f32: return 0x1p-24;
    case DType::f16: return 0x1p-11;
    default: return 0x1p-8;
  }
}

/// Scores of one query row against all keys.
std::vector<double> scores_of(const GeneratedInputs& data, std::int64_t b, std::int64_t h, std::int64_t i) {
  std::vector<double> scores;
  for (std::int64_t j = 0; j < data.problem().keys; ++j) scores.push_back(score_of(data, b, h, i, j));
  return scores;
}

/// The root mean square of all scores.
double spread_of(const GeneratedInputs& data) {
  double squares = 0;
  const Problem& p = data.problem();
  for (std::int64_t i = 0; i < p.queries; ++i)
    for (const double score : scores_of(data, 0, 0, i)) squares += score * score;
  return std::sqrt(squares / static_cast<double>(p.queries * p.keys));
}

double least_nonzero(const View& view) {
  double least = std::numeric_limits<double>::infinity();
  for (const double value : values_of(view))
    if (value != 0) least = std::min(least, std::fabs(value));
  return least;
}

double largest(const View& view) {
  double most = 0;
  for (const double value : values_of(view)) most = std::max(most, std::fabs(value));
  return most;
}

TEST(Kinds, EverythingIsFiniteButDeadNan) {
  for (const InputKind& kind : input_kinds())
    for (const char* dtype : dtypes) {
      for (const char* scale : {"", " scale1e-30", " scale1e30", " scale-0.1", " scale0"}) {
        const auto data = make_inputs(test::parsed(line("b1 h2/1 q6 k9 d5", dtype, scale)), kind.name, 1);
        if (!data) {
          EXPECT_EQ(kind.name, "huge") << data.refusal().message();
          continue;
        }
        for (const View& view : {data->inputs().q, data->inputs().k, data->inputs().v})
          for (const double value : values_of(view))
            ASSERT_TRUE(std::isfinite(value)) << kind.name << ' ' << dtype << scale;
      }
    }
}

TEST(Kinds, NormalAndUniform) {
  for (const char* dtype : dtypes) {
    EXPECT_NEAR(spread_of(made(line("b1 h1 q60 k60 d64", dtype), "normal")), 1, 0.1) << dtype;
    const GeneratedInputs uniform = made(line("b1 h1 q60 k60 d64", dtype), "uniform");
    EXPECT_LE(largest(uniform.inputs().q), 1) << dtype;
    EXPECT_GT(largest(uniform.inputs().q), 0.99) << dtype;
  }
}

TEST(Kinds, ConstantScoresAreEqual) {
  for (const char* dtype : dtypes) {
    const GeneratedInputs data = made(line("b2 h4/2 q3 k7 d5", dtype), "constant");
    for (std::int64_t h = 0; h < 4; ++h) {
      const std::vector<double> scores = scores_of(data, 1, h, 2);
      EXPECT_EQ(std::ranges::count(scores, scores.front()), 7) << dtype;
      EXPECT_NE(scores.front(), 0) << dtype;
    }
    EXPECT_NE(score_of(data, 0, 0, 0, 0), score_of(data, 1, 0, 0, 0)) << "heads differ";
    EXPECT_NE(value_at(data.inputs().v, 0, 0, 0, 0), value_at(data.inputs().v, 0, 0, 1, 0)) << "values differ";
  }
}

TEST(Kinds, LargeScoresAreAroundTenThousand) {
  for (const char* dtype : dtypes)
    for (const char* scale : scales)
      for (const char* extents : {"b1 h1 q40 k40 d64", "b1 h1 q40 k40 d1"})
        EXPECT_NEAR(spread_of(made(line(extents, dtype, scale), "large")), 1e4, 5e3) << dtype << scale;
}

TEST(Kinds, HugeScoresReachTenToTheSeventeenAtEveryMagnitude) {
  for (const char* dtype : {"f64", "f32"})
    for (const char* scale : scales) {
      const GeneratedInputs data = made(line("b1 h1 q200 k8 d64", dtype, scale), "huge");
      double least = std::numeric_limits<double>::infinity(), most = 0;
      for (std::int64_t i = 0; i < 200; ++i) {
        double row = 0;
        for (const double score : scores_of(data, 0, 0, i)) row = std::max(row, std::fabs(score));
        least = std::min(least, row);
        most = std::max(most, row);
      }
      EXPECT_GT(most, 2e16) << dtype << scale;
      EXPECT_LT(most, 1e18) << dtype << scale;
      EXPECT_LT(least, 100) << dtype << scale;
    }
}

TEST(Kinds, TinyProductsStraddleTheLeastNormal) {
  const std::pair<const char*, double> least_normals[] = {
      {"f64", 0x1p-1022}, {"f32", 0x1p-126}, {"f16", 0x1p-14}, {"bf16", 0x1p-126}};
  for (const auto& [dtype, least_normal] : least_normals) {
    const GeneratedInputs data = made(line("b1 h1 q20 k20 d16", dtype), "tiny");
    int below = 0, above = 0;
    for (const double q : values_of(data.inputs().q))
      for (const double k : values_of(data.inputs().k)) {
        below += std::fabs(q * k) < least_normal;
        above += std::fabs(q * k) > least_normal;
      }
    EXPECT_GT(below, 20 * 16 * 20 * 16 / 4) << dtype;
    EXPECT_GT(above, 20 * 16 * 20 * 16 / 4) << dtype;
    if (data.problem().dtype == DType::f16) continue;  // its range is too short: some elements are subnormal
    EXPECT_GT(least_nonzero(data.inputs().q), least_normal) << dtype;
  }
}

TEST(Kinds, SubnormalElementsGiveOrdinaryScores) {
  const std::pair<const char*, double> least_normals[] = {
      {"f64", 0x1p-1022}, {"f32", 0x1p-126}, {"f16", 0x1p-14}, {"bf16", 0x1p-126}};
  for (const auto& [dtype, least_normal] : least_normals) {
    const GeneratedInputs data = made(line("b1 h1 q20 k20 d16", dtype), "subnormal");
    EXPECT_LT(largest(data.inputs().q), least_normal) << dtype;
    EXPECT_LT(largest(data.inputs().v), least_normal) << dtype;
    EXPECT_GT(least_nonzero(data.inputs().q), 0) << dtype;
    EXPECT_EQ(std::ranges::count(values_of(data.inputs().q), 0.0), 0) << dtype;
    const double spread = spread_of(data);
    EXPECT_GT(spread, 0.1) << dtype;
    EXPECT_LT(spread, 2) << dtype;
  }
}

TEST(Kinds, ShiftMovesEveryScoreAlike) {
  for (const char* dtype : dtypes)
    for (const char* scale : {"", " scale0.5", " scale-2", " scale30"}) {
      const GeneratedInputs data = made(line("b2 h2 q4 k30 d64", dtype, scale), "shift");
      const Problem& p = data.problem();
      const double unit = unit_of(p.dtype);
      const double shift =
          p.softmax_scale() * value_at(data.inputs().q, 0, 0, 0, 0) * value_at(data.inputs().k, 0, 0, 0, 0);
      EXPECT_NEAR(shift, -1e5, 1e5 * 4 * unit) << dtype << scale;
      std::set<double> moved_by;
      for (std::int64_t i = 0; i < 4; ++i)
        for (std::int64_t j = 0; j < 30; ++j)
          moved_by.insert(value_at(data.inputs().q, 1, 1, i, 0) * value_at(data.inputs().k, 1, 1, j, 0));
      EXPECT_EQ(moved_by.size(), 1u) << dtype << scale;
    }
}

TEST(Kinds, OneHotLiftsOneKey) {
  for (const char* dtype : dtypes)
    for (const char* scale : {"", " scale0.5", " scale-2"})
      for (std::int64_t h = 0; h < 4; ++h) {
        const GeneratedInputs data = made(line("b2 h4/2 q4 k30 d64", dtype, scale), "one_hot");
        for (std::int64_t i = 0; i < 4; ++i) {
          std::vector<double> scores = scores_of(data, 1, h, i);
          std::ranges::sort(scores, std::greater());
          const double spread = 5 * 8 * std::fabs(data.problem().softmax_scale());
          EXPECT_GT(scores[0] - scores[1], 100 - 2 * spread) << dtype << scale;
          EXPECT_LT(scores[1] - scores[29], 2 * spread) << dtype << scale;
        }
      }
}

TEST(Kinds, HeadIndexIsInV) {
  for (const char* dtype : dtypes) {
    const GeneratedInputs data = made(line("b2 h6/3 q1 k4 d5", dtype), "head_index");
    for (std::int64_t h = 0; h < 3; ++h) EXPECT_EQ(value_at(data.inputs().v, 1, h, 3, 4), static_cast<double>(h));
  }
}

TEST(Kinds, AscendingRisesAndDescendingFallsWithEveryKey) {
  for (const char* dtype : dtypes)
    for (const char* scale : {"", " scale0.5", " scale-2", " scale0.001", " scale30"})
      for (const char* extents : {"b1 h2/1 q3 k1000 d64", "b1 h1 q2 k20000 d3", "b1 h1 q2 k120 d1"}) {
        const GeneratedInputs up = made(line(extents, dtype, scale), "ascending");
        const GeneratedInputs down = made(line(extents, dtype, scale), "descending");
        std::vector<double> rising = scores_of(up, 0, 0, 1), falling = scores_of(down, 0, 0, 1);
        double least = std::numeric_limits<double>::infinity(), most = 0;
        for (std::size_t j = 1; j < rising.size(); ++j) {
          least = std::min(least, rising[j] - rising[j - 1]);
          most = std::max(most, rising[j] - rising[j - 1]);
        }
        EXPECT_GT(least, up.problem().dtype == DType::f16 ? 0 : 0.124) << extents << dtype << scale;
        EXPECT_LT(most, 0.251) << extents << dtype << scale;
        std::ranges::reverse(falling);
        EXPECT_EQ(rising, falling) << extents << dtype << scale;
      }
}

TEST(Kinds, AlternatingSwingsByTwelve) {
  for (const char* dtype : dtypes)
    for (const char* scale : {"", " scale-0.1"}) {
      const GeneratedInputs data = made(line("b1 h1 q4 k30 d64", dtype, scale), "alternating");
      const double q = value_at(data.inputs().q, 0, 0, 2, 0) * data.problem().softmax_scale();
      EXPECT_NEAR(std::fabs(q * value_at(data.inputs().k, 0, 0, 4, 0)), 6, 0.1) << dtype << scale;
      EXPECT_EQ(value_at(data.inputs().k, 0, 0, 4, 0), -value_at(data.inputs().k, 0, 0, 5, 0)) << dtype << scale;
      EXPECT_EQ(value_at(data.inputs().k, 0, 0, 4, 0), value_at(data.inputs().k, 0, 0, 6, 0)) << dtype << scale;
    }
}

TEST(Kinds, DeadNanIsNormalWithNanWhereNobodySees) {
  for (const char* dtype : dtypes)
    for (const char* options : {" lens", " causal", " causal topleft", " w2,1", " causal topleft w2,- lens", ""})
      for (const char* extents : {"b6 h2 q3 k9 d4", "b6 h2 q9 k3 d4", "b2 h1 q0 k5 d4"}) {
        const std::string text = line(extents, dtype, options);
        const GeneratedInputs dead = made(text, "dead_nan", 2), normal = made(text, "normal", 2);
        const Problem& p = dead.problem();
        EXPECT_EQ(values_of(dead.inputs().q), values_of(normal.inputs().q)) << text;
        const View lengths = dead.inputs().seqlens_k.value_or(View());
        for (std::int64_t b = 0; b < p.batch; ++b) {
          const Mask mask = mask_of(p, p.seqlens_k ? static_cast<const std::int32_t*>(lengths.data)[b] : p.keys);
          for (std::int64_t j = 0; j < p.keys; ++j) {
            bool seen = false;
            for (std::int64_t i = 0; i < p.queries; ++i) seen = seen || mask.visible(i, j);
            const double k = value_at(dead.inputs().k, b, 0, j, 3), v = value_at(dead.inputs().v, b, 0, j, 3);
            EXPECT_EQ(std::isnan(k), !seen) << text << " key " << j;
            EXPECT_EQ(std::isnan(v), !seen) << text << " key " << j;
            if (!seen) continue;
            EXPECT_EQ(k, value_at(normal.inputs().k, b, 0, j, 3)) << text;
            EXPECT_EQ(v, value_at(normal.inputs().v, b, 0, j, 3)) << text;
          }
        }
      }
}

}  // namespace
}  // namespace fresnel
