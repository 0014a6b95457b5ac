// SPDX-License-Identifier: Apache-2.0
// Splitting words and refusing wrong ones: see usage.hpp. CLI11's own sentences never reach the user.
#include "cli/usage.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "cli/errors.hpp"

namespace fresnel::cli {

Usage::Usage(const std::string& command, const std::string& description)
    : app_(std::make_unique<CLI::App>(description, "fresnel " + command)) {
  // Unknown words are collected rather than thrown, so that a misspelt option is reported before what it made missing.
  app_->allow_extras();
  app_->get_formatter()->column_width(28);
}

Usage::~Usage() = default;

void Usage::positional(const std::string& name, Text& value, const std::string& help) {
  add_single(name, value, help)->type_name("");
  ++positionals_;
}

void Usage::positionals(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  app_->add_option(name, values, help)->type_name("");
}

void Usage::option(const std::string& names, Text& value, const std::string& help, const std::string& placeholder) {
  add_single(names, value, help)->type_name(placeholder);
}

CLI::Option* Usage::add_single(const std::string& names, Text& value, const std::string& help) {
  Single& single = singles_.emplace_back(Single{&value, {}, nullptr});
  single.option = app_->add_option(names, single.given, help);
  return single.option;
}

void Usage::repeated(const std::string& names, std::vector<std::string>& values, const std::string& help,
                     const std::string& placeholder) {
  app_->add_option(names, values, help)->type_name(placeholder)->allow_extra_args(false);
}

void Usage::flag(const std::string& names, bool& value, const std::string& help) {
  app_->add_flag(names, value, help)->disable_flag_override();
}

Result<bool> Usage::parse(std::vector<std::string> words) {
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // the order in which CLI11 takes words off the end
  try {
    app_->parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app_->help().c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& error) {
    return reworded(error.what());
  }
  const std::vector<std::string> left = app_->remaining();
  for (const std::string& word : left)
    if (word.size() > 1 && word.front() == '-') return unknown(word);
  if (!left.empty()) {
    const std::string accepted = positionals_ == 0 ? "no argument" : fmt::format("{} arguments", positionals_);
    return refuse("arguments", "also '" + left.front() + "'", positionals_ == 1 ? "one argument" : accepted);
  }
  for (Single& single : singles_)
    if (single.option->count() > 0) *single.value = std::move(single.given);
  return true;
}

// The only mistakes that are left for CLI11 to find: an option without its value or given twice, and a value for a
// flag.
Refusal Usage::reworded(const std::string& error) const {
  for (const CLI::Option* option : app_->get_options()) {
    const std::string name = option->get_name();
    const bool is_flag = option->get_expected_max() == 0;  // of flags CLI11 leaves out the dashes
    if (!error.starts_with(is_flag ? name.substr(name.find_first_not_of('-')) : name)) continue;
    if (is_flag) return refuse(name, "a value", "no value");
    if (error.find("At Most") != std::string::npos) return refuse(name, "more than once", "once");
    return refuse(name, "nothing", "a value");
  }
  return refuse("usage", error, "see --help");
}

Refusal Usage::unknown(const std::string& word) const {
  const std::string name = word.substr(0, word.find('='));
  const std::vector<std::string> known = option_names();
  return refuse(name, "an unknown option", joined(known), nearest_word(name, known));
}

std::vector<std::string> Usage::option_names() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options()) {
    const std::string name = option->get_name();
    if (name.starts_with("-")) names.push_back(name);
  }
  return names;
}

Result<std::string> required_text(const std::string& name, const Text& value, const std::string& accepted) {
  if (!value || value->empty()) return refuse(name, "nothing", accepted);
  return *value;
}

namespace {

template <class Number>
bool read_whole(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, value);
  return fault == std::errc() && stop == end;
}

}  // namespace

Result<std::int64_t> whole_number(const std::string& name, const std::string& text, std::int64_t least,
                                  std::int64_t most) {
  std::int64_t value = 0;
  if (!read_whole(text, value) || value < least || value > most)
    return refuse(name, "'" + text + "'", fmt::format("a whole number from {} to {}", least, most));
  return value;
}

Result<std::uint64_t> seed_number(const std::string& name, const std::string& text) {
  std::uint64_t value = 0;
  if (!read_whole(text, value)) return refuse(name, "'" + text + "'", "a whole number from 0 to 18446744073709551615");
  return value;
}

Result<double> decimal_number(const std::string& name, const std::string& text, double least, double most) {
  // strtod also takes leading blanks, hexadecimals, "inf" and "nan"; only digits with a point and an exponent are
  // meant.
  const bool digits = !text.empty() && text.find_first_not_of("0123456789.eE+-") == std::string::npos;
  char* stop = nullptr;
  const double value = digits ? std::strtod(text.c_str(), &stop) : 0;
  if (!digits || stop != text.c_str() + text.size() || !(value >= least && value <= most))
    return refuse(name, "'" + text + "'", fmt::format("a number from {} to {}", least, most));
  return value;
}

}  // namespace fresnel::cli
