// SPDX-License-Identifier: Apache-2.0
// The arguments of one command. CLI11 splits words and prints help; every value arrives as text and is read by the
// functions here, so that all usage errors have the one form: argument, what was given, what is accepted.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fresnel/result.hpp"

namespace CLI {
class App;  // a large header, needed by usage.cpp alone
class Option;
}  // namespace CLI

namespace fresnel::cli {

using Text = std::optional<std::string>;

class Usage {
 public:
  Usage(const std::string& command, const std::string& description);
  ~Usage();

  /// A positional argument; `required_text` refuses an absent one.
  void positional(const std::string& name, Text& value, const std::string& help);
  void positionals(const std::string& name, std::vector<std::string>& values, const std::string& help);
  /// An option that takes one value and may be given once: `--kernel NAME` or `-o,--output OUT`.
  void option(const std::string& names, Text& value, const std::string& help, const std::string& placeholder);
  /// An option that takes one value and may be repeated.
  void repeated(const std::string& names, std::vector<std::string>& values, const std::string& help,
                const std::string& placeholder);
  void flag(const std::string& names, bool& value, const std::string& help);

  /// Reads the words. False: help was asked for and has been printed.
  [[nodiscard]] Result<bool> parse(std::vector<std::string> words);

 private:
  struct Single {
    Text* value = nullptr;
    std::string given;
    CLI::Option* option = nullptr;
  };

  CLI::Option* add_single(const std::string& names, Text& value, const std::string& help);
  [[nodiscard]] Refusal reworded(const std::string& error) const;
  [[nodiscard]] Refusal unknown(const std::string& word) const;
  [[nodiscard]] std::vector<std::string> option_names() const;

  std::unique_ptr<CLI::App> app_;
  std::deque<Single> singles_;  // a deque: CLI11 keeps references to the elements
  std::size_t positionals_ = 0;
};

/// The value of a positional argument that must be there.
[[nodiscard]] Result<std::string> required_text(const std::string& name, const Text& value,
                                                const std::string& accepted);
/// A whole number in [least, most].
[[nodiscard]] Result<std::int64_t> whole_number(const std::string& name, const std::string& text, std::int64_t least,
                                                std::int64_t most);
/// A seed: a whole number in [0, 2^64).
[[nodiscard]] Result<std::uint64_t> seed_number(const std::string& name, const std::string& text);
/// A decimal number in [least, most].
[[nodiscard]] Result<double> decimal_number(const std::string& name, const std::string& text, double least,
                                            double most);

}  // namespace fresnel::cli
