// SPDX-License-Identifier: Apache-2.0
// A recursive descent over the text, one function for each precedence:
//
//     sum      product { (+ | -) product }
//     product  factor { (* | /) factor }
//     factor   number | name | (min | max) ( sum , sum ) | ( sum ) | - factor
//
// The first fault stops everything: `fault_` is looked at wherever text is consumed. Nesting is bounded, since formulas
// may come from a file.
#include "kernels/expression.hpp"

#include <algorithm>
#include <optional>
#include <string>

namespace fresnel {
namespace {

constexpr int deepest = 64;

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }
bool is_letter(char letter) { return (letter >= 'a' && letter <= 'z') || letter == '_'; }

class Formula {
 public:
  Formula(std::string_view text, std::span<const Symbol> symbols) : text_(text), symbols_(symbols) {}

  Result<double> value() {
    const double result = sum(0);
    if (!fault_ && next() != '\0') fail("an operator or the end");
    if (fault_) return *fault_;
    return result;
  }

 private:
  double sum(int depth) {
    double result = product(depth);
    for (;;) {
      if (taken('+'))
        result += product(depth);
      else if (taken('-'))
        result -= product(depth);
      else
        return result;
    }
  }

  double product(int depth) {
    double result = factor(depth);
    for (;;) {
      if (taken('*'))
        result *= factor(depth);
      else if (taken('/'))
        result /= factor(depth);
      else
        return result;
    }
  }

  double factor(int depth) {
    if (depth == deepest) return fail("brackets and signs nested less deep");
    if (taken('-')) return -factor(depth + 1);
    if (taken('(')) {
      const double result = sum(depth + 1);
      expect(')');
      return result;
    }
    if (is_digit(next())) return number();
    if (is_letter(next())) return named(depth);
    return fail("a number, a name or (");
  }

  /// Digits, and perhaps a point and more digits.
  double number() {
    double result = 0, place = 1;
    for (; is_digit(next_letter()); ++place_) result = 10 * result + (next_letter() - '0');
    if (next_letter() != '.') return result;
    for (++place_; is_digit(next_letter()); ++place_) result += (place /= 10) * (next_letter() - '0');
    return result;
  }

  double named(int depth) {
    const std::size_t start = place_;
    while (is_letter(next_letter()) || is_digit(next_letter())) ++place_;
    const std::string_view name = text_.substr(start, place_ - start);
    if (name == "min" || name == "max") {
      expect('(');
      const double first = sum(depth + 1);
      expect(',');
      const double second = sum(depth + 1);
      expect(')');
      return name == "min" ? std::min(first, second) : std::max(first, second);
    }
    for (const Symbol& symbol : symbols_)
      if (symbol.name == name) return symbol.value;
    place_ = start;
    std::string known;
    for (const Symbol& symbol : symbols_) known += (known.empty() ? "" : ", ") + std::string(symbol.name);
    return fail("one of " + known);
  }

  /// The letter at hand; 0 at the end and after a fault.
  [[nodiscard]] char next_letter() const { return fault_ || place_ >= text_.size() ? '\0' : text_[place_]; }
  char next() {
    while (next_letter() == ' ') ++place_;
    return next_letter();
  }
  bool taken(char wanted) {
    if (next() != wanted) return false;
    ++place_;
    return true;
  }
  void expect(char wanted) {
    if (!taken(wanted)) fail(std::string(1, wanted));
  }
  double fail(std::string accepted) {
    if (fault_) return 0;
    const std::string rest(text_.substr(place_, 40));
    const std::string given = rest.empty() ? "the end" : "'" + rest + "'";
    fault_ =
        Refusal{Fault::bad_input, "", "formula", given + " in '" + std::string(text_) + "'", std::move(accepted), ""};
    return 0;
  }

  std::string_view text_;
  std::span<const Symbol> symbols_;
  std::size_t place_ = 0;
  std::optional<Refusal> fault_;
};

}  // namespace

Result<double> evaluate(std::string_view formula, std::span<const Symbol> symbols) {
  return Formula(formula, symbols).value();
}

}  // namespace fresnel
