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

/// An output that was judged, and how many indices name one of its elements.
struct Judged {
  const char* name;
  const Judgement* judgement;
  int rank;
};

std::vector<Judged> judged_outputs(const Verdict& verdict) {
  std::vector<Judged> judged{{"o", &verdict.o, 4}};
  if (verdict.lse) judged.push_back({"lse", &*verdict.lse, 3});
  const std::pair<const char*, const std::optional<Judgement>*> gradients[] = {
      {"dq", &verdict.dq}, {"dk", &verdict.dk}, {"dv", &verdict.dv}, {"dalibi_slopes", &verdict.dalibi_slopes}};
  for (const auto& [name, judgement] : gradients)
    if (*judgement) judged.push_back({name, &**judgement, 4});
  return judged;
}

void add_row(Table& table, const Judged& output, const Paint& paint) {
  const Judgement& judgement = *output.judgement;
  const std::string wrong = grouped(judgement.mismatches);
  table.add({output.name, grouped(judgement.count), judgement.mismatches == 0 ? wrong : paint.bad(wrong),
             small(judgement.max_error), percent(judgement.max_share), percent(judgement.max_share_probable),
             place(judgement, output.rank)});
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
  for (const Judged& output : judged_outputs(verdict)) add_row(table, output, paint);
  return table.text(paint);
}

std::string verdict_line(const Verdict& verdict) {
  std::string shares, wrong;
  for (const auto& [name, judgement, rank] : judged_outputs(verdict)) {
    if (judgement->mismatches == 0)
      shares += fmt::format("{}{} {}", shares.empty() ? "" : ", ", name, percent(judgement->max_share));
    else if (wrong.empty())
      wrong = fmt::format("{} of {} in {}, worst at {}", grouped(judgement->mismatches), grouped(judgement->count),
                          name, place(*judgement, rank));
    else
      wrong += fmt::format(", {} in {}", grouped(judgement->mismatches), name);
  }
  return wrong.empty() ? shares + " of the budget" : "beyond the budget " + wrong;
}

}  // namespace fresnel::cli
