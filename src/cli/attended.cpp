// SPDX-License-Identifier: Apache-2.0
// Choosing, computing and drawing one row of attention weights: see attended.hpp.
#include "cli/attended.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "cli/errors.hpp"
#include "cli/text.hpp"
#include "oracle/forward.hpp"
#include "semantics/mask.hpp"

namespace fresnel::cli {
namespace {

constexpr std::size_t keys_shown = 10;

/// Replaces `index` by what was typed, which has to lie in [0, extent).
Status choose(const char* option, const Text& typed, std::int64_t extent, std::int64_t& index) {
  if (!typed) return Done{};
  if (extent == 0) return refuse(option, "'" + *typed + "'", "nothing: the problem has no query row");
  const auto given = whole_number(option, *typed, 0, extent - 1);
  if (!given) return given.refusal();
  index = *given;
  return Done{};
}

/// Position of a query among the keys of its sequence.
std::int64_t position_of(const CaseRun& run, const QueryRow& row) {
  const auto& lengths = run.given.seqlens_k;
  const std::int64_t keys =
      lengths ? lengths->elements<std::int32_t>()[static_cast<std::size_t>(row.batch)] : run.problem.keys;
  return mask_of(run.problem, keys).position(row.query);
}

/// The token at a position; empty where the case names none.
std::string token_at(const Case& given, std::int64_t position) {
  if (position < 0 || position >= static_cast<std::int64_t>(given.tokens.size())) return "";
  return given.tokens[static_cast<std::size_t>(position)];
}

}  // namespace

void RowChoice::add_to(Usage& usage) {
  usage.option("--batch", batch, "Batch of the query row to show", "N");
  usage.option("--head", head, "Query head of the row to show", "N");
  usage.option("--query", query, "Query of the row to show", "N");
}

Result<QueryRow> typed_row(const RowChoice& choice, const Problem& problem, QueryRow row) {
  if (const Status fine = choose("--batch", choice.batch, problem.batch, row.batch); !fine) return fine.refusal();
  if (const Status fine = choose("--head", choice.head, problem.heads_q, row.head); !fine) return fine.refusal();
  if (const Status fine = choose("--query", choice.query, problem.queries, row.query); !fine) return fine.refusal();
  return row;
}

Result<std::optional<QueryRow>> chosen_row(const RowChoice& choice, const CaseRun& run) {
  const Problem& problem = run.problem;
  if (run.given.tokens.empty() && !choice.made()) return std::optional<QueryRow>();
  QueryRow row{0, 0, problem.queries - 1};
  if (const auto& show = run.given.show) row = {show->batch, show->head, show->query};
  const auto typed = typed_row(choice, problem, row);
  if (!typed) return typed.refusal();
  if (problem.batch == 0 || problem.heads_q == 0 || problem.queries == 0) return std::optional<QueryRow>();
  return std::optional<QueryRow>(*typed);
}

Result<Attended> attended(const CaseRun& run, const QueryRow& row) {
  const auto weights = reference_row(run.problem, run.inputs(), row.batch, row.head, row.query);
  if (!weights) return weights.refusal();
  std::vector<std::size_t> order(weights->weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t shown = std::min(keys_shown, order.size());
  // Equal weights in key order; a NaN weight, where the inputs have one, comes last.
  const auto heavier = [&](std::size_t one, std::size_t other) {
    const double a = weights->weights[one], b = weights->weights[other];
    const bool a_ordered = a == a, b_ordered = b == b;
    if (a_ordered != b_ordered) return a_ordered;
    return a_ordered && a != b ? a > b : one < other;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(), heavier);
  Attended result{row, position_of(run, row), weights->keys.size(), {}};
  for (std::size_t rank = 0; rank < shown; ++rank)
    result.largest.push_back(
        {weights->keys.first + static_cast<std::int64_t>(order[rank]), weights->weights[order[rank]]});
  return result;
}

std::string bars_of(const Attended& attended, const Case& given, const Paint& paint) {
  constexpr int bar_columns = 40, token_columns = 24;
  const std::string token = token_at(given, attended.position);
  std::string text = fmt::format("batch {}, head {}, query {}{} sees {} key{}", attended.row.batch, attended.row.head,
                                 attended.row.query, token.empty() ? "" : " " + quoted(token, token_columns),
                                 grouped(attended.visible), attended.visible == 1 ? "" : "s");
  text = paint.strong(text) + (attended.largest.empty() ? "\n" : ":\n");
  for (const Weight& weight : attended.largest) {
    const std::string name = given.tokens.empty() ? "" : quoted(token_at(given, weight.key), token_columns);
    const int gap = given.tokens.empty() ? 0 : token_columns - columns(name);
    text += fmt::format("{:>8}  {}{} {:>6}", weight.key, name, std::string(static_cast<std::size_t>(gap), ' '),
                        percent(weight.weight));
    const std::string drawn = bar(weight.weight, bar_columns);
    text += drawn.empty() ? "\n" : fmt::format("  {}\n", paint.accent(drawn));
  }
  return text;
}

Json to_json(const Attended& attended, const Case& given) {
  const auto token = [&](std::int64_t position) {
    return given.tokens.empty() ? Json(nullptr) : Json(token_at(given, position));
  };
  Json keys = Json::array();
  for (const Weight& weight : attended.largest)
    keys.push_back({{"key", weight.key}, {"token", token(weight.key)}, {"weight", number(weight.weight)}});
  return {{"batch", attended.row.batch},       {"head", attended.row.head},   {"query", attended.row.query},
          {"token", token(attended.position)}, {"visible", attended.visible}, {"keys", keys}};
}

}  // namespace fresnel::cli
