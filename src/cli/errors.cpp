// SPDX-License-Identifier: Apache-2.0
// Exit codes and the wording of usage errors. Errors about a problem are worded by semantics and errors about files by
// io; both pass through here unchanged.
#include "cli/errors.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

#include "cli/json.hpp"
#include "cli/text.hpp"

namespace fresnel::cli {
namespace {

/// Levenshtein's distance: insertions, deletions and substitutions that turn one word into the other.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t substituted = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

int exit_code(const Refusal& refusal) {
  switch (refusal.fault) {
    case Fault::bad_input:
    case Fault::unsupported: return exit_refused;
    default: return exit_failed;
  }
}

int report(const Refusal& refusal, bool json) {
  if (json) {
    emit(Json{{"error", to_json(refusal)}});
  } else {
    const std::string line = "fresnel: " + printable(refusal.message()) + "\n";
    std::fputs(line.c_str(), stderr);
  }
  return exit_code(refusal);
}

std::string nearest_word(std::string_view typed, const std::vector<std::string>& known) {
  constexpr std::size_t longest = 64;  // nobody means a known word by more than this, and the distance is quadratic
  if (typed.size() > longest) return {};
  std::string best;
  std::size_t least = typed.size() / 3 + 2;  // a third of the letters may be wrong, one in the shortest words
  for (const std::string& word : known) {
    const std::size_t changes = distance(typed, word);
    if (changes < least) {
      least = changes;
      best = word;
    }
  }
  return best;
}

Refusal refuse(std::string argument, std::string given, std::string accepted, std::string nearest) {
  return {Fault::bad_input, {}, std::move(argument), std::move(given), std::move(accepted), std::move(nearest)};
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace fresnel::cli
