// SPDX-License-Identifier: Apache-2.0
// The mask against the law written a second time: every query, key and tile of every small problem, by brute force, and
// the same questions at positions near 2^62. Knows nothing of how mask.hpp finds its answers.
#include "semantics/mask.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace fresnel {
namespace {

using Wide = __int128;
constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

/// Rule 1 as the page says it, in integers that cannot overflow. Windows: -1 is unbounded.
bool law(const Problem& problem, std::int64_t live, std::int64_t query, std::int64_t key) {
  const Options& options = problem.options;
  const Wide position = options.alignment == Alignment::top_left ? Wide(query) : Wide(query) + live - problem.queries;
  if (key < 0 || key >= live) return false;
  if (options.causal && Wide(key) > position) return false;
  if (options.window_size_left && Wide(key) < position - *options.window_size_left) return false;
  if (options.window_size_right && Wide(key) > position + *options.window_size_right) return false;
  return true;
}

const std::vector<std::optional<std::int64_t>> windows{std::nullopt, 0, 1, 2, 3, 4, huge - 1, huge};

/// Calls visit(problem) for every alignment, causal and pair of windows.
template <class Visit>
void for_each_mask(std::int64_t queries, Visit&& visit) {
  Problem problem;
  problem.queries = queries;
  for (const Alignment alignment : {Alignment::bottom_right, Alignment::top_left})
    for (const bool causal : {false, true})
      for (const auto& left : windows)
        for (const auto& right : windows) {
          problem.options.alignment = alignment;
          problem.options.causal = causal;
          problem.options.window_size_left = left;
          problem.options.window_size_right = right;
          visit(problem);
        }
}

/// How many visible pairs lie in [0, q) x [0, j), so that any rectangle is counted in four look-ups.
class Counts {
 public:
  Counts(const Problem& problem, std::int64_t live, std::int64_t keys) : width_(keys + 1) {
    sums_.assign(static_cast<std::size_t>((problem.queries + 1) * width_), 0);
    for (std::int64_t q = 0; q < problem.queries; ++q)
      for (std::int64_t j = 0; j < keys; ++j)
        at(q + 1, j + 1) = at(q, j + 1) + at(q + 1, j) - at(q, j) + (law(problem, live, q, j) ? 1 : 0);
  }

  std::int64_t in(std::int64_t query, std::int64_t queries, std::int64_t key, std::int64_t keys) {
    return at(query + queries, key + keys) - at(query, key + keys) - at(query + queries, key) + at(query, key);
  }

 private:
  std::int64_t& at(std::int64_t q, std::int64_t j) { return sums_[static_cast<std::size_t>(q * width_ + j)]; }
  std::int64_t width_;
  std::vector<std::int64_t> sums_;
};

/// The interval of keys that any of the queries sees, from the counts alone.
KeyRange seen(Counts& counts, std::int64_t query, std::int64_t queries, std::int64_t keys) {
  KeyRange range{keys, 0};
  for (std::int64_t j = 0; j < keys; ++j) {
    if (counts.in(query, queries, j, 1) == 0) continue;
    range.first = std::min(range.first, j);
    range.last = j + 1;
  }
  return range;
}

TEST(Mask, VisibleIsTheLaw) {
  std::int64_t pairs = 0;
  for (std::int64_t queries = 0; queries <= 9; ++queries)
    for (std::int64_t live = 0; live <= 9; ++live)
      for_each_mask(queries, [&](const Problem& problem) {
        const Mask mask = mask_of(problem, live);
        std::int64_t visible = 0;
        for (std::int64_t q = 0; q < queries; ++q)
          for (std::int64_t j = -1; j <= live + 1; ++j) {
            const bool expected = law(problem, live, q, j);
            ASSERT_EQ(mask.visible(q, j), expected) << print(problem) << " " << live << " " << q << " " << j;
            visible += expected;
            ++pairs;
          }
        ASSERT_EQ(visible_pairs(mask), static_cast<double>(visible)) << print(problem) << " live " << live;
      });
  EXPECT_GT(pairs, 500'000);
}

TEST(Mask, RangesAndClassesAgreeWithVisible) {
  constexpr std::int64_t keys = 9;  // tiles may reach beyond the live keys
  for (std::int64_t queries = 1; queries <= 9; ++queries)
    for (std::int64_t live = 0; live <= keys; ++live)
      for_each_mask(queries, [&](const Problem& problem) {
        const Mask mask = mask_of(problem, live);
        Counts counts(problem, live, keys);
        for (std::int64_t q = 0; q < queries; ++q)
          for (std::int64_t n = 1; q + n <= queries; ++n) {
            const KeyRange range = mask.range(q, n), expected = seen(counts, q, n, keys);
            ASSERT_EQ(range.size(), expected.size()) << print(problem) << " live " << live << " q " << q << " n " << n;
            ASSERT_TRUE(expected.empty() || range == expected) << print(problem) << " " << live << " " << q << " " << n;
            for (std::int64_t j = 0; j < keys; ++j)
              for (std::int64_t m = 1; j + m <= keys; ++m) {
                const std::int64_t visible = counts.in(q, n, j, m);
                const TileClass expected_class = visible == 0       ? TileClass::skip
                                                 : visible == n * m ? TileClass::full
                                                                    : TileClass::edge;
                ASSERT_EQ(classify(mask, q, n, j, m), expected_class)
                    << print(problem) << " live " << live << " tile " << q << "+" << n << " x " << j << "+" << m;
              }
          }
      });
}

TEST(Mask, RangeOfOneQueryIsRangeOfATileOfOne) {
  for_each_mask(5, [&](const Problem& problem) {
    const Mask mask = mask_of(problem, 7);
    for (std::int64_t q = 0; q < 5; ++q) ASSERT_EQ(mask.range(q), mask.range(q, 1));
  });
}

/// Lengths near 2^62: nothing may overflow (the sanitizer build watches), and the answers stay the law's.
TEST(Mask, HugePositions) {
  constexpr std::int64_t big = std::int64_t{1} << 62;
  const std::vector<std::int64_t> lengths{0, 1, 9, big - 9, big};
  const std::vector<std::optional<std::int64_t>> bounds{std::nullopt, 0, 3, big - 1, big, huge - 1, huge};
  const auto around = [](std::int64_t length) {
    std::vector<std::int64_t> places;
    for (const std::int64_t place :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{5}, length / 2, length - 9, length - 2, length - 1})
      if (place >= 0 && place < length) places.push_back(place);
    return places;
  };
  Problem problem;
  for (const std::int64_t queries : lengths)
    for (const std::int64_t live : lengths)
      for (const Alignment alignment : {Alignment::bottom_right, Alignment::top_left})
        for (const bool causal : {false, true})
          for (const auto& left : bounds)
            for (const auto& right : bounds) {
              problem.queries = queries;
              problem.options = {.softmax_scale = {},
                                 .causal = causal,
                                 .alignment = alignment,
                                 .window_size_left = left,
                                 .window_size_right = right,
                                 .softcap = {}};
              const Mask mask = mask_of(problem, live);
              for (const std::int64_t q : around(queries)) {
                const KeyRange range = mask.range(q);
                for (const std::int64_t j : around(live)) {
                  const bool expected = law(problem, live, q, j);
                  ASSERT_EQ(mask.visible(q, j), expected) << print(problem) << " " << live << " " << q << " " << j;
                  ASSERT_EQ(j >= range.first && j < range.last, expected)
                      << print(problem) << " " << live << " " << q << " " << j;
                  ASSERT_EQ(classify(mask, q, 1, j, 1), expected ? TileClass::full : TileClass::skip);
                }
              }
            }
}

TEST(Mask, CountsPairsOfHugeSequences) {
  Problem problem;
  problem.queries = std::int64_t{1} << 59;
  const double n = 0x1p59;
  EXPECT_EQ(visible_pairs(mask_of(problem, problem.queries)), n * n);
  problem.options.window_size_left = huge - 1;
  problem.options.window_size_right = huge;
  EXPECT_EQ(visible_pairs(mask_of(problem, problem.queries)), n * n);
  problem.options.causal = true;
  EXPECT_DOUBLE_EQ(visible_pairs(mask_of(problem, problem.queries)), n * (n + 1) / 2);
  problem.options.window_size_left = 99;
  problem.queries = std::int64_t{1} << 40;  // a difference of two squares: good to about 2^-53 of the square
  EXPECT_NEAR(visible_pairs(mask_of(problem, problem.queries)), 100 * 0x1p40 - 99 * 50, 0x1p79 * 0x1p-51);
}

/// The worked examples of docs/semantics.md, and cases that users have been bitten by: rows are queries, columns keys,
/// o visible, . hidden.
struct Picture {
  const char* what;
  std::int64_t keys;
  Options options;
  std::vector<const char*> rows;
};

Options options_of(bool causal, Alignment alignment, std::optional<std::int64_t> left,
                   std::optional<std::int64_t> right) {
  Options options;
  options.causal = causal;
  options.alignment = alignment;
  options.window_size_left = left;
  options.window_size_right = right;
  return options;
}

TEST(Mask, Pictures) {
  constexpr Alignment low = Alignment::bottom_right, top = Alignment::top_left;
  const std::vector<Picture> pictures{
      {"causal, more keys", 5, options_of(true, low, {}, {}), {"ooo..", "oooo.", "ooooo"}},
      {"causal, more keys, top left", 5, options_of(true, top, {}, {}), {"o....", "oo...", "ooo.."}},
      {"causal, more queries", 2, options_of(true, low, {}, {}), {"..", "..", "..", "o.", "oo"}},
      {"causal, more queries, top left", 2, options_of(true, top, {}, {}), {"o.", "oo", "oo", "oo", "oo"}},
      {"right bound far beyond the keys", 2, options_of(false, low, {}, 2147483647), {"oo", "oo", "oo", "oo", "oo"}},
      {"window (1,1), more queries", 2, options_of(false, low, 1, 1), {"..", "..", "o.", "oo", "oo"}},
      {"0 is a bound", 3, options_of(false, low, 0, 0), {"o..", ".o.", "..o"}},
      {"left only", 4, options_of(false, low, 1, {}), {"oooo", "oooo", ".ooo", "..oo"}},
      {"causal narrows the right window", 4, options_of(true, low, 1, 3), {"o...", "oo..", ".oo.", "..oo"}},
      {"sliding window", 5, options_of(true, low, 2, {}), {".ooo.", "..ooo"}},
      {"sliding window, top left", 5, options_of(true, top, 2, {}), {"o....", "oo..."}},
      {"right only", 4, options_of(false, low, {}, 1), {"oo..", "ooo.", "oooo", "oooo"}},
      {"window (1,1), more queries, top left", 2, options_of(false, top, 1, 1), {"oo", "oo", ".o", "..", ".."}},
      {"window past the last key, top left", 2, options_of(false, top, 1, 0), {"o.", "oo", ".o", ".."}},
  };
  for (const Picture& picture : pictures) {
    Problem problem;
    problem.queries = static_cast<std::int64_t>(picture.rows.size());
    problem.options = picture.options;
    const Mask mask = mask_of(problem, picture.keys);
    for (std::int64_t q = 0; q < problem.queries; ++q)
      for (std::int64_t j = 0; j < picture.keys; ++j)
        EXPECT_EQ(mask.visible(q, j), picture.rows[static_cast<std::size_t>(q)][j] == 'o')
            << picture.what << ", query " << q << ", key " << j;
  }
}

// Usable at compile time, so that device code and tables may share it.
static_assert(Mask{.queries = 2, .keys = 4, .offset = 2, .right = 0}.range(0) == KeyRange{0, 3});

}  // namespace
}  // namespace fresnel
