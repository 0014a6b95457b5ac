// SPDX-License-Identifier: Apache-2.0
// Verdicts in words: see verdict.hpp.
#include "cli/verdict.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace fresnel::cli {
namespace {

std::string place(const Judgement& judgement, int rank) {
  if (judgement.at[0] < 0) return "";
  std::string text;
  for (int axis = 0; axis < rank; ++axis)
    text += fmt::format("{}{}", axis == 0 ? "[" : ", ", judgement.at[static_cast<std::size_t>(axis)]);
  return text + "]";
}

void add_row(Table& table, const char* output, const Judgement& judgement, int rank, const Paint& paint) {
  const std::string wrong = grouped(judgement.mismatches);
  table.add({output, grouped(judgement.count), judgement.mismatches == 0 ? wrong : paint.bad(wrong),
             small(judgement.max_error), percent(judgement.max_share), percent(judgement.max_share_probable),
             place(judgement, rank)});
}

std::string clause(const char* output, const Judgement& judgement, int rank) {
  if (judgement.count == 0) return fmt::format("{} has no values", output);
  if (judgement.mismatches == 0) return fmt::format("{} {} of its budget", output, percent(judgement.max_share));
  return fmt::format("{} {} of {} beyond the budget, worst at {}", output, grouped(judgement.mismatches),
                     grouped(judgement.count), place(judgement, rank));
}

/// The gradients that were judged, by name.
std::vector<std::pair<const char*, const Judgement*>> gradients_of(const Verdict& verdict) {
  std::vector<std::pair<const char*, const Judgement*>> judged;
  const std::pair<const char*, const std::optional<Judgement>*> gradients[] = {
      {"dq", &verdict.dq}, {"dk", &verdict.dk}, {"dv", &verdict.dv}, {"dalibi_slopes", &verdict.dalibi_slopes}};
  for (const auto& [name, judgement] : gradients)
    if (*judgement) judged.emplace_back(name, &**judgement);
  return judged;
}

}  // namespace

std::string verdict_table(const Verdict& verdict, const Paint& paint) {
  using Align = Table::Align;
  Table table({{"output", Align::left},
               {"values", Align::right},
               {"wrong", Align::right},
               {"largest error", Align::right},
               {"of budget", Align::right},
               {"of probable", Align::right},
               {"where [b, h, i, d]", Align::left}});
  add_row(table, "o", verdict.o, 4, paint);
  if (verdict.lse) add_row(table, "lse", *verdict.lse, 3, paint);
  for (const auto& [name, judgement] : gradients_of(verdict)) add_row(table, name, *judgement, 4, paint);
  return table.text(paint);
}

std::string verdict_line(const Verdict& verdict) {
  std::string text = clause("o", verdict.o, 4);
  if (verdict.lse) text += ", " + clause("lse", *verdict.lse, 3);
  for (const auto& [name, judgement] : gradients_of(verdict)) text += ", " + clause(name, *judgement, 4);
  return text;
}

}  // namespace fresnel::cli
