// SPDX-License-Identifier: Apache-2.0
// The figures of the page: see figures.hpp.
#include "report/figures.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "oracle/forward.hpp"
#include "semantics/mask.hpp"
#include "semantics/softmax.hpp"
#include "traffic/emulate.hpp"
#include "walk/walk.hpp"

namespace fresnel::report {
namespace {

constexpr std::int64_t most_tiles_drawn = 24;  ///< along either side of the drawing
constexpr std::size_t most_keys_shown = 512;   ///< of one row of attention

/// The mask of a row's own sequence.
Mask mask_for(const Problem& problem, const Inputs& inputs, const Row& row) {
  if (!inputs.seqlens_k) return mask_of(problem, problem.keys);
  const auto* const lengths = static_cast<const std::int32_t*>(inputs.seqlens_k->data);
  return mask_of(problem, lengths[row.batch * inputs.seqlens_k->strides[0]]);
}

const char* name(TileClass kind) {
  switch (kind) {
    case TileClass::skip: return "skip";
    case TileClass::full: return "full";
    case TileClass::edge: return "edge";
  }
  return "";
}

Json place_of(const Row& row) { return {{"batch", row.batch}, {"head", row.head}, {"query", row.query}}; }

/// Visited tiles of one query tile in walking order: [first key, keys, class].
template <class Visit>
void visit_tiles(const Mask& mask, const Tile& tile, std::int64_t query, Visit&& visit) {
  const std::int64_t first = query / tile.queries * tile.queries;
  const QueryTile rows{0, 0, first, std::min(tile.queries, mask.queries - first)};
  for_each_key_tile(mask, tile.keys, rows, visit);
}

/// One letter for each key tile of a query tile: skip, edge or full.
std::string classes_of(const Mask& mask, const Tile& tile, std::int64_t query, std::int64_t key_tiles) {
  std::string letters(static_cast<std::size_t>(key_tiles), 's');
  visit_tiles(mask, tile, query, [&](const KeyTile& keys) {
    letters[static_cast<std::size_t>(keys.first / tile.keys)] = name(keys.kind)[0];
  });
  return letters;
}

/// m and l after each tile that the row's query tile visits, in double, by the algebra that kernels restate.
Json steps_of(const Mask& mask, const Tile& tile, const Row& row, const TrueWeights& truth) {
  Json steps = Json::array();
  State<double> state;
  visit_tiles(mask, tile, row.query, [&](const KeyTile& keys) {
    State<double> own;
    std::int64_t seen = 0;
    for (std::int64_t key = std::max(keys.first, truth.keys.first);
         key < std::min(keys.first + keys.count, truth.keys.last); ++key, ++seen)
      own.push(truth.scores[static_cast<std::size_t>(key - truth.keys.first)], {}, {});
    const double before = state.m;
    state.merge(own, {}, {});
    steps.push_back({{"tile", keys.first / tile.keys},
                     {"first", keys.first},
                     {"keys", keys.count},
                     {"class", name(keys.kind)},
                     {"seen", seen},
                     {"tile_m", number(own.m)},
                     {"m", number(state.m)},
                     {"l", number(state.l)},
                     {"rescale", number(relative_weight(before, state.m))}});
  });
  return steps;
}

/// A tile that cuts the longer side into at most 16, where a kernel's own leaves a picture of one or two tiles.
Tile small_tile(const Problem& problem) {
  std::int64_t side = 8;
  while (tiles_of(std::max(problem.queries, problem.keys), side) > 16) side *= 2;
  return {side, side};
}

Result<Json> walk_of(const Problem& problem, const Inputs& inputs, const Tile& tile, const std::vector<Row>& rows,
                     const std::vector<TrueWeights>& truths, const char* about) {
  const std::int64_t query_tiles = tiles_of(problem.queries, tile.queries);
  const std::int64_t key_tiles = tiles_of(problem.keys, tile.keys);
  Json walk{{"about", about},
            {"tile", {{"queries", tile.queries}, {"keys", tile.keys}}},
            {"query_tiles", query_tiles},
            {"key_tiles", key_tiles},
            {"rows", Json::array()}};
  for (std::size_t at = 0; at < rows.size(); ++at) {
    const Mask mask = mask_for(problem, inputs, rows[at]);
    Json grid = Json::array();
    for (std::int64_t index = 0; index < query_tiles; ++index)
      grid.push_back(classes_of(mask, tile, index * tile.queries, key_tiles));
    walk["rows"].push_back({{"grid", grid},
                            {"query_tile", rows[at].query / tile.queries},
                            {"steps", steps_of(mask, tile, rows[at], truths[at])}});
  }
  return walk;
}

Result<std::vector<TrueWeights>> truths_of(const Problem& problem, const Inputs& inputs, const std::vector<Row>& rows) {
  std::vector<TrueWeights> truths;
  for (const Row& row : rows) {
    auto truth = reference_row(problem, inputs, row.batch, row.head, row.query);
    if (!truth) return truth.refusal();
    truths.push_back(std::move(truth).value());
  }
  return truths;
}

/// Keys to show of a row, in key order: all, or those of the largest weights.
std::vector<std::size_t> keys_to_show(const std::vector<double>& weights) {
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (order.size() <= most_keys_shown) return order;
  // A NaN, where the inputs have one, weighs nothing here.
  const auto weight = [&](std::size_t key) { return weights[key] == weights[key] ? weights[key] : 0.0; };
  std::stable_sort(order.begin(), order.end(), [&](auto one, auto other) { return weight(one) > weight(other); });
  order.resize(most_keys_shown);
  std::sort(order.begin(), order.end());
  return order;
}

Json token_at(const std::vector<std::string>& tokens, std::int64_t position) {
  if (position < 0 || position >= static_cast<std::int64_t>(tokens.size())) return nullptr;
  return tokens[static_cast<std::size_t>(position)];
}

Json budget_of(const Judgement& judgement, const ShareCounts& shares) {
  return {{"count", judgement.count},
          {"mismatches", judgement.mismatches},
          {"max_error", number(judgement.max_error)},
          {"max_share", number(judgement.max_share)},
          {"median_share", number(shares.median())},
          {"exact", shares.exact()},
          {"by_octave", shares.by_octave()}};
}

}  // namespace

std::vector<Row> rows_beside(const Problem& problem, const Row& first) {
  std::vector<Row> rows{first};
  const auto add = [&](const Row& row) {
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
  };
  for (const std::int64_t quarter : {4, 3, 2, 1})
    add({first.batch, first.head, std::max<std::int64_t>(problem.queries * quarter / 4 - 1, 0)});
  for (std::int64_t head = 0; head < std::min<std::int64_t>(problem.heads_q, 4); ++head)
    add({first.batch, head, first.query});
  return rows;
}

Result<Json> walks(const Problem& problem, const Inputs& inputs, const Tile& tile, const std::vector<Row>& rows) {
  const auto truths = truths_of(problem, inputs, rows);
  if (!truths) return truths.refusal();
  Json found{{"rows", Json::array()}, {"walks", Json::array()}};
  for (std::size_t at = 0; at < rows.size(); ++at) {
    found["rows"].push_back(place_of(rows[at]));
    found["rows"].back()["lse"] = number((*truths)[at].lse);
  }
  const auto add = [&](const Tile& cut, const char* about) -> Status {
    if (tiles_of(problem.queries, cut.queries) > most_tiles_drawn ||
        tiles_of(problem.keys, cut.keys) > most_tiles_drawn)
      return Done{};
    auto walk = walk_of(problem, inputs, cut, rows, *truths, about);
    if (!walk) return walk.refusal();
    found["walks"].push_back(std::move(*walk));
    return Done{};
  };
  if (const Status added = add(small_tile(problem), "small tiles, to look at"); !added) return added.refusal();
  if (const Status added = add(tile, "the kernel's tiles"); !added) return added.refusal();
  return found;
}

Result<Json> attention(const Problem& problem, const Inputs& inputs, const std::vector<Row>& rows,
                       const std::vector<std::string>& tokens) {
  const auto truths = truths_of(problem, inputs, rows);
  if (!truths) return truths.refusal();
  Json shown{{"tokens", !tokens.empty()}, {"rows", Json::array()}};
  for (std::size_t at = 0; at < rows.size(); ++at) {
    const TrueWeights& truth = (*truths)[at];
    Json keys = Json::array();
    for (const std::size_t index : keys_to_show(truth.weights)) {
      const std::int64_t key = truth.keys.first + static_cast<std::int64_t>(index);
      keys.push_back({key, number(truth.weights[index]), token_at(tokens, key)});
    }
    Json row = place_of(rows[at]);
    row["token"] = token_at(tokens, mask_for(problem, inputs, rows[at]).position(rows[at].query));
    row["visible"] = truth.keys.size();
    row["keys"] = std::move(keys);
    shown["rows"].push_back(std::move(row));
  }
  return shown;
}

Result<Json> traffic_by_length(std::int64_t width) {
  Json rows = Json::array();
  for (std::int64_t length = 64; length <= 65536; length *= 2) {
    Problem problem;
    problem.queries = problem.keys = length;
    problem.head_dim = problem.value_dim = width;
    problem.lse = false;
    for (const traffic::Kind kind : {traffic::Kind::unfused, traffic::Kind::fused}) {
      const auto shape = traffic::shape_of(kind, problem);
      if (!shape) return shape.refusal();
      const auto counted = traffic::count(kind, *shape, traffic::WalkKind::closed);
      rows.push_back({{"n", length},
                      {"d", width},
                      {"b", shape->tile},
                      {"kind", traffic::name(kind)},
                      {"global_bytes", counted.counts.global_bytes()},
                      {"extra_memory_bytes", counted.extra_memory_bytes}});
    }
  }
  return rows;
}

Json budgets(const Verdict& verdict, const Shares& shares) {
  Json outputs{{"o", budget_of(verdict.o, shares.o)}};
  if (verdict.lse) outputs["lse"] = budget_of(*verdict.lse, shares.lse);
  return {{"ok", verdict.ok()}, {"outputs", std::move(outputs)}};
}

}  // namespace fresnel::report
