// SPDX-License-Identifier: Apache-2.0
// A builder behind nlohmann's event parser. Its own document parser keeps the last of two equal keys and knows no
// limits; here the first fault ends the parse and is worded with the key where it happened.
#include "io/json.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>
#include <vector>

#include "io/words.hpp"
#include "semantics/words.hpp"

namespace fresnel {
namespace {

constexpr std::size_t most_levels = 8;                     // a header needs three
constexpr std::size_t most_values = std::size_t{1} << 20;  // a million tokens; about 100 MB of nodes at worst

class Builder {
 public:
  explicit Builder(std::string_view argument) : argument_(argument) {}

  [[nodiscard]] Json take() { return std::move(root_); }
  [[nodiscard]] Refusal refusal() const { return *refusal_; }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // never called for text
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    levels_.back().key = std::move(name);
    if (levels_.back().container->contains(levels_.back().key)) return fail("the key twice", "every key once");
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const Json::exception& error) {
    constexpr int not_finite = 406;
    if (error.id == not_finite) return fail("a number beyond double precision: " + readable(token), "a finite number");
    return fail(fmt::format("no JSON at byte {}: {}", position, in_quotes(token)),
                "strict JSON (no NaN, Infinity, comments or trailing commas)");
  }

  bool fail(std::string given, std::string accepted) {
    refusal_ = refuse(path(), std::move(given), std::move(accepted));
    return false;
  }

 private:
  struct Level {
    Json* container;
    std::string key;  ///< the key whose value comes next; empty in an array
  };

  /// The argument and the keys that lead to the value being read.
  [[nodiscard]] std::string path() const {
    std::string text = argument_;
    for (const Level& level : levels_)
      if (!level.key.empty()) text += '.' + readable(level.key);
    return text;
  }

  Json* place(Json value) {
    if (++values_ > most_values) {
      fail("too many values", fmt::format("at most {} values", most_values));
      return nullptr;
    }
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.container->is_array()) {
      level.container->push_back(std::move(value));
      return &level.container->back();
    }
    return &((*level.container)[level.key] = std::move(value));
  }

  bool add(Json value) {
    if (levels_.empty()) return fail("a lone " + describe_json(value), "a JSON object or list");
    if (place(std::move(value)) == nullptr) return false;
    levels_.back().key.clear();
    return true;
  }

  bool open(Json container) {
    if (levels_.size() == most_levels) return fail("nested too deeply", fmt::format("at most {} levels", most_levels));
    Json* placed = place(std::move(container));
    if (placed != nullptr) levels_.push_back({placed, {}});
    return placed != nullptr;
  }

  bool close() {
    levels_.pop_back();
    if (!levels_.empty()) levels_.back().key.clear();
    return true;
  }

  std::string argument_;
  Json root_;
  std::vector<Level> levels_;
  std::size_t values_ = 0;
  std::optional<Refusal> refusal_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view argument) {
  Builder builder(argument);
  // The parser skips a byte order mark and takes a zero byte for the end, which would hide what follows it.
  const std::size_t unreadable = text.find('\0');
  if (text.starts_with("\xef\xbb\xbf") || unreadable != std::string_view::npos)
    return refuse(std::string(argument), "a byte order mark or a zero byte", "strict JSON in UTF-8");
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) return builder.refusal();
  return builder.take();
}

std::string describe_json(const Json& value) {
  switch (value.type()) {
    case Json::value_t::array: return "a list";
    case Json::value_t::object: return "an object";
    case Json::value_t::string: return in_quotes(value.get_ref<const std::string&>());
    default: return value.dump();
  }
}

std::optional<std::int64_t> count_of(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto count = value.get<std::uint64_t>();
  if (count > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  return static_cast<std::int64_t>(count);
}

}  // namespace fresnel
