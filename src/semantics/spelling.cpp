// SPDX-License-Identifier: Apache-2.0
// A Problem as one line of text and back. Every token has one place in the line (a slot), so a line is read by naming
// the slot of each word and checking that slots only rise; the table of slots also words what was expected. Says no
// only to spelling: what a well-spelt problem means is validate's to judge, which the reader calls last.
#include <algorithm>
#include <array>
#include <locale>
#include <sstream>

#include "fresnel/plan.hpp"
#include "semantics/words.hpp"

namespace fresnel {
namespace {

/// The tokens of a line, in their order: six that must be there, then options, layouts and requests.
// clang-format off
enum Slot : int {
  batch, heads, queries, keys, dims, dtype,
  causal, top_left, window, softcap, scale, alibi, lens,
  bshd, q_bshd, k_bshd, v_bshd, o_bshd,
  unaligned, q_unaligned, k_unaligned, v_unaligned, o_unaligned,
  no_lse, grad,
  slot_count
};
// clang-format on

constexpr std::array<std::string_view, slot_count> forms{
    "bN",        "hN[/M]",      "qN",          "kN",          "dN[/M]",      "f64|f32|f16|bf16",
    "causal",    "topleft",     "wL,R",        "capX",        "scaleX",      "alibi[:distance][:batch]",
    "lens",      "bshd",        "q:bshd",      "k:bshd",      "v:bshd",      "o:bshd",
    "unaligned", "q:unaligned", "k:unaligned", "v:unaligned", "o:unaligned", "nolse",
    "grad"};

constexpr std::array<std::string_view, 6> slot_meanings{"the batch", "query heads and kv heads", "the queries",
                                                        "the keys",  "head_dim and value_dim",   "the dtype"};

constexpr std::array<DType, 4> dtypes{DType::f64, DType::f32, DType::f16, DType::bf16};

// ---- printing ----

std::string print_pair(char letter, std::int64_t first, std::int64_t second) {
  return first == second ? fmt::format(" {}{}", letter, first) : fmt::format(" {}{}/{}", letter, first, second);
}

std::string print_bound(const std::optional<std::int64_t>& bound) { return bound ? fmt::format("{}", *bound) : "-"; }

std::string print_options(const Problem& problem) {
  const Options& options = problem.options;
  std::string text;
  if (options.causal) text += " causal";
  if (options.alignment == Alignment::top_left) text += " topleft";
  if (options.window_size_left || options.window_size_right)
    text += fmt::format(" w{},{}", print_bound(options.window_size_left), print_bound(options.window_size_right));
  if (options.softcap) text += fmt::format(" cap{}", *options.softcap);
  if (options.softmax_scale) text += fmt::format(" scale{}", *options.softmax_scale);
  if (problem.alibi_slopes != AlibiSlopes::none) {
    text += " alibi";
    if (options.alibi == AlibiForm::distance) text += ":distance";
    if (problem.alibi_slopes == AlibiSlopes::per_batch_and_head) text += ":batch";
  }
  if (problem.seqlens_k) text += " lens";
  return text;
}

/// One property of the four tensors: the token `all` when every tensor has it, else those that do.
std::string print_property(const std::array<bool, 4>& has, Slot all) {
  if (has[0] && has[1] && has[2] && has[3]) return fmt::format(" {}", forms[all]);
  std::string text;
  for (std::size_t tensor = 0; tensor < has.size(); ++tensor)
    if (has[tensor]) text += fmt::format(" {}", forms[all + 1 + tensor]);
  return text;
}

// ---- words ----

/// Cuts a line at spaces and tabs, one word at a time, so that a hostile line costs no more than its first wrong word.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}

  bool next() {
    const std::size_t first = rest_.find_first_not_of(" \t");
    if (first == std::string_view::npos) return false;
    rest_.remove_prefix(first);
    word_ = rest_.substr(0, rest_.find_first_of(" \t"));
    rest_.remove_prefix(word_.size());
    ++count_;
    return true;
  }

  [[nodiscard]] std::string_view word() const { return word_; }
  [[nodiscard]] int count() const { return count_; }

 private:
  std::string_view rest_, word_;
  int count_ = 0;
};

/// A word as it may appear in a message: short, printable ASCII.
std::string shown(std::string_view word) {
  constexpr std::size_t most = 40;
  std::string text = "'";
  for (const char c : word.substr(0, most))
    text += c >= ' ' && c <= '~' ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return word.size() > most ? fmt::format("{}...' ({} bytes)", text, word.size()) : text + "'";
}

Refusal no(const Words& words, std::string accepted, std::string nearest = {}) {
  return refuse("problem", fmt::format("{} (token {})", shown(words.word()), words.count()), std::move(accepted),
                std::move(nearest));
}

/// The slot a word belongs to by its look; a number in it may still be wrong.
std::optional<Slot> slot_of(std::string_view word) {
  for (int slot = causal; slot < slot_count; ++slot)
    if (word == forms[slot]) return static_cast<Slot>(slot);
  for (const DType type : dtypes)
    if (word == name(type)) return dtype;
  if (word.starts_with("scale")) return scale;
  if (word.starts_with("cap")) return softcap;
  if (word == "alibi" || word.starts_with("alibi:")) return alibi;
  if (word.size() < 2 || std::string_view("0123456789+-.,/").find(word[1]) == std::string_view::npos)
    return std::nullopt;
  constexpr std::pair<char, Slot> letters[] = {{'b', batch}, {'h', heads}, {'q', queries},
                                               {'k', keys},  {'d', dims},  {'w', window}};
  for (const auto& [letter, slot] : letters)
    if (word[0] == letter) return slot;
  return std::nullopt;
}

/// Edits (insert, drop, change, swap of neighbours) that turn one word into the other; both are short.
std::size_t distance(std::string_view a, std::string_view b) {
  constexpr std::size_t most = 32;
  std::array<std::array<std::size_t, most + 1>, most + 1> edits{};
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      std::size_t& best = edits[i][j];
      best = i + j;
      if (i > 0) best = std::min(best, edits[i - 1][j] + 1);
      if (j > 0) best = std::min(best, edits[i][j - 1] + 1);
      if (i > 0 && j > 0) best = std::min(best, edits[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        best = std::min(best, edits[i - 2][j - 2] + 1);
    }
  return edits[a.size()][b.size()];
}

/// The known token a misspelt word is nearest to, numbers kept ("sclae0.1" gives "scale0.1"); empty when none is near.
std::string nearest_token(std::string_view word) {
  if (word.size() > 32) return {};
  // What is kept of the word goes into a message as it stands.
  const bool printable = std::all_of(word.begin(), word.end(), [](char c) { return c > ' ' && c <= '~'; });
  std::string lower(word);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (lower != word && printable && slot_of(lower)) return lower;
  const std::size_t number = std::min(lower.find_first_of("0123456789-."), lower.size());
  std::string nearest;
  std::size_t fewest = lower.size();
  const auto try_token = [&](std::string_view given, std::string_view token, std::string_view tail) {
    const std::size_t edits = distance(given, token);
    if (edits >= fewest || edits > std::max<std::size_t>(1, token.size() / 3)) return;
    fewest = edits;
    nearest = std::string(token) + std::string(tail);
  };
  for (const std::string_view token : {"alibi", "alibi:distance", "alibi:batch", "alibi:distance:batch"})
    try_token(lower, token, "");
  for (const DType type : dtypes) try_token(lower, name(type), "");
  for (int slot = causal; slot < slot_count; ++slot)
    if (slot != window && slot != softcap && slot != scale && slot != alibi) try_token(lower, forms[slot], "");
  if (printable && number < lower.size())
    for (const std::string_view prefix : {"cap", "scale"})
      try_token(std::string_view(lower).substr(0, number), prefix, std::string_view(lower).substr(number));
  return nearest;
}

/// What may stand after `last` (-1: at the start of the line).
std::string expected_after(int last) {
  if (last < dtype) return fmt::format("{}, {}", forms[last + 1], slot_meanings[last + 1]);
  std::string text;
  for (int slot = last + 1; slot < slot_count; ++slot)
    text += fmt::format("{}{}", text.empty() ? "" : " | ", forms[slot]);
  return text.empty() ? "the end of the line" : text + " | the end of the line";
}

// ---- numbers ----

/// A whole number of at least 0: digits only, within 64 bits.
std::optional<std::int64_t> read_count(std::string_view text) {
  if (text.empty()) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    if (__builtin_mul_overflow(value, std::int64_t{10}, &value)) return std::nullopt;
    if (__builtin_add_overflow(value, std::int64_t{c - '0'}, &value)) return std::nullopt;
  }
  return value;
}

std::size_t digits_at(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of("0123456789", at), text.size()) - at;
}

/// -digits[.digits][e[+-]digits], as printed; neither hexadecimal nor "inf".
bool is_decimal(std::string_view text) {
  std::size_t at = text.starts_with('-') ? 1 : 0;
  std::size_t digits = digits_at(text, at);
  if (digits == 0) return false;
  at += digits;
  if (at < text.size() && text[at] == '.') {
    digits = digits_at(text, ++at);
    if (digits == 0) return false;
    at += digits;
  }
  if (at < text.size() && text[at] == 'e') {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    digits = digits_at(text, at);
    if (digits == 0) return false;
    at += digits;
  }
  return at == text.size();
}

/// The double nearest to a decimal, whatever the process's locale; none for text that is no decimal or lies beyond
/// float64.
std::optional<double> read_decimal(std::string_view text) {
  constexpr std::size_t most = 64;  // the shortest spelling of a double has at most 24 characters
  if (text.size() > most || !is_decimal(text)) return std::nullopt;
  std::istringstream stream{std::string(text)};
  stream.imbue(std::locale::classic());
  double value = 0;
  if (!(stream >> value)) return std::nullopt;
  const bool is_zero = text.substr(0, text.find('e')).find_first_of("123456789") == std::string_view::npos;
  if (value == 0 && !is_zero) return std::nullopt;  // underflow: the number given was not 0
  return value;
}

// ---- reading ----

constexpr std::string_view whole_numbers = "whole numbers from 0 to 9223372036854775807";

Objection read_sizes(const Words& words, Slot slot, Problem& problem) {
  const std::string_view text = words.word().substr(1);
  const bool may_pair = slot == heads || slot == dims;
  const std::size_t slash = may_pair ? text.find('/') : std::string_view::npos;
  const std::optional<std::int64_t> first = read_count(text.substr(0, slash));
  const std::optional<std::int64_t> second =
      slash == std::string_view::npos ? first : read_count(text.substr(slash + 1));
  if (!first || !second)
    return no(words, fmt::format("{}, {}, in {}", forms[slot], slot_meanings[slot], whole_numbers));
  switch (slot) {
    case batch: problem.batch = *first; break;
    case heads:
      problem.heads_q = *first;
      problem.heads_kv = *second;
      break;
    case queries: problem.queries = *first; break;
    case keys: problem.keys = *first; break;
    default:
      problem.head_dim = *first;
      problem.value_dim = *second;
      break;
  }
  return std::nullopt;
}

Objection read_window(const Words& words, Problem& problem) {
  const std::string_view text = words.word().substr(1);
  const std::size_t comma = text.find(',');
  bool right_form = comma != std::string_view::npos;
  const auto read_bound = [&](std::string_view bound, std::optional<std::int64_t>& target) {
    if (bound == "-") return;  // unbounded
    target = read_count(bound);
    if (!target) right_form = false;
  };
  if (right_form) {
    read_bound(text.substr(0, comma), problem.options.window_size_left);
    read_bound(text.substr(comma + 1), problem.options.window_size_right);
  }
  if (right_form) return std::nullopt;
  return no(words, fmt::format("wL,R, keys visible before and after, each - (unbounded) or in {}", whole_numbers));
}

Objection read_number(const Words& words, std::string_view prefix, std::optional<double>& target) {
  target = read_decimal(words.word().substr(prefix.size()));
  if (target) return std::nullopt;
  return no(words, fmt::format("{}X, X a decimal within float64 such as 0.125, -2 or 1e-05", prefix));
}

Objection read_alibi(const Words& words, Problem& problem) {
  std::string_view text = words.word().substr(std::string_view("alibi").size());
  problem.alibi_slopes = AlibiSlopes::per_head;
  if (constexpr std::string_view form = ":distance"; text.starts_with(form)) {
    problem.options.alibi = AlibiForm::distance;
    text.remove_prefix(form.size());
  }
  if (constexpr std::string_view slopes = ":batch"; text.starts_with(slopes)) {
    problem.alibi_slopes = AlibiSlopes::per_batch_and_head;
    text.remove_prefix(slopes.size());
  }
  if (text.empty()) return std::nullopt;
  return no(words, "alibi, alibi:distance, alibi:batch or alibi:distance:batch", nearest_token(words.word()));
}

/// A token of the axis order or alignment groups: `all` and the four that follow it.
Objection read_property(const Words& words, Slot slot, Slot all, int last, Problem& problem) {
  if (slot != all && last == all)
    return no(words,
              fmt::format("either {0} for all tensors or {1} and the like for some", forms[all], forms[all + 1]));
  const std::array<LayoutClass*, 4> layouts{&problem.q, &problem.k, &problem.v, &problem.o};
  for (int tensor = 0; tensor < 4; ++tensor) {
    if (slot != all && slot != all + 1 + tensor) continue;
    LayoutClass& layout = *layouts[tensor];
    if (all == bshd)
      layout.order = AxisOrder::bshd;
    else
      layout.aligned = false;
  }
  return std::nullopt;
}

void read_dtype(std::string_view word, Problem& problem) {
  for (const DType type : dtypes)
    if (word == name(type)) problem.dtype = type;
}

Objection read_token(const Words& words, Slot slot, int last, Problem& problem) {
  switch (slot) {
    case batch:
    case heads:
    case queries:
    case keys:
    case dims: return read_sizes(words, slot, problem);
    case dtype: read_dtype(words.word(), problem); break;
    case causal: problem.options.causal = true; break;
    case top_left: problem.options.alignment = Alignment::top_left; break;
    case window: return read_window(words, problem);
    case softcap: return read_number(words, "cap", problem.options.softcap);
    case scale: return read_number(words, "scale", problem.options.softmax_scale);
    case alibi: return read_alibi(words, problem);
    case lens: problem.seqlens_k = true; break;
    case no_lse: problem.lse = false; break;
    case grad: problem.grad = true; break;
    default: return read_property(words, slot, slot < unaligned ? bshd : unaligned, last, problem);
  }
  return std::nullopt;
}

/// Unknown, repeated, out of place, or before a token that must come first.
Objection objection_to_place(const Words& words, std::optional<Slot> slot, int last) {
  if (!slot) return no(words, expected_after(last), nearest_token(words.word()));
  if (*slot == last) return no(words, fmt::format("each token once; here {}", expected_after(last)));
  if (*slot < last)
    return no(words, fmt::format("{} only before {}; here {}", forms[*slot], forms[last], expected_after(last)));
  if (last < dtype && *slot != last + 1) return no(words, expected_after(last));
  return std::nullopt;
}

}  // namespace

std::string print(const Problem& problem) {
  std::string text = fmt::format("b{}", problem.batch);
  text += print_pair('h', problem.heads_q, problem.heads_kv);
  text += fmt::format(" q{} k{}", problem.queries, problem.keys);
  text += print_pair('d', problem.head_dim, problem.value_dim);
  text += fmt::format(" {}", spell(problem.dtype));
  text += print_options(problem);
  const auto is_bshd = [](const LayoutClass& layout) { return layout.order == AxisOrder::bshd; };
  text += print_property({is_bshd(problem.q), is_bshd(problem.k), is_bshd(problem.v), is_bshd(problem.o)}, bshd);
  text += print_property({!problem.q.aligned, !problem.k.aligned, !problem.v.aligned, !problem.o.aligned}, unaligned);
  if (!problem.lse) text += " nolse";
  if (problem.grad) text += " grad";
  return text;
}

Result<Problem> parse_problem(std::string_view line) {
  Problem problem;
  Words words(line);
  int last = -1;
  while (words.next()) {
    const std::optional<Slot> slot = slot_of(words.word());
    if (auto fault = objection_to_place(words, slot, last)) return *std::move(fault);
    if (auto fault = read_token(words, *slot, last, problem)) return *std::move(fault);
    last = *slot;
  }
  if (last < dtype)
    return refuse("problem", fmt::format("the end of the line after {} tokens", words.count()), expected_after(last));
  if (const Status valid = validate(problem); !valid) return valid.refusal();
  return problem;
}

}  // namespace fresnel
