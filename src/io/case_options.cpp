// SPDX-License-Identifier: Apache-2.0
// One reader per type of value, one row per key.
#include "io/case_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "io/json.hpp"
#include "io/words.hpp"
#include "semantics/words.hpp"

namespace fresnel {
namespace {

Status read(const Json& value, const std::string& argument, std::optional<double>& number) {
  if (!value.is_number()) return refuse(argument, describe_json(value), "a number or null");
  number = value.get<double>();
  return Done{};
}

Status read(const Json& value, const std::string& argument, std::optional<std::int64_t>& count) {
  count = count_of(value);
  if (!count) return refuse(argument, describe_json(value), "a whole number in [0, 2^63), or null");
  return Done{};
}

Status read(const Json& value, const std::string& argument, bool& flag) {
  if (!value.is_boolean()) return refuse(argument, describe_json(value), "true, false or null");
  flag = value.get<bool>();
  return Done{};
}

/// An enumerator by its word; `words` are in the enumeration's order.
template <class Enum>
Status read(const Json& value, const std::string& argument, Enum& member, std::array<std::string_view, 2> words) {
  const auto* word = value.get_ptr<const std::string*>();
  const auto* found = word == nullptr ? words.end() : std::find(words.begin(), words.end(), *word);
  if (found == words.end())
    return refuse(argument, describe_json(value), fmt::format("\"{}\", \"{}\" or null", words[0], words[1]));
  member = static_cast<Enum>(found - words.begin());
  return Done{};
}

struct Key {
  std::string_view name;
  Status (*read)(const Json& value, const std::string& argument, CaseOptions& into);
};

constexpr std::array<Key, 8> keys{{
    {"softmax_scale", [](const Json& value, const std::string& argument,
                         CaseOptions& into) { return read(value, argument, into.options.softmax_scale); }},
    {"causal", [](const Json& value, const std::string& argument,
                  CaseOptions& into) { return read(value, argument, into.options.causal); }},
    {"alignment",
     [](const Json& value, const std::string& argument, CaseOptions& into) {
       return read(value, argument, into.options.alignment, {"bottom_right", "top_left"});
     }},
    {"window_size_left", [](const Json& value, const std::string& argument,
                            CaseOptions& into) { return read(value, argument, into.options.window_size_left); }},
    {"window_size_right", [](const Json& value, const std::string& argument,
                             CaseOptions& into) { return read(value, argument, into.options.window_size_right); }},
    {"softcap", [](const Json& value, const std::string& argument,
                   CaseOptions& into) { return read(value, argument, into.options.softcap); }},
    {"alibi",
     [](const Json& value, const std::string& argument, CaseOptions& into) {
       into.alibi_given = true;
       return read(value, argument, into.options.alibi, {"relative", "distance"});
     }},
    {"block_size", [](const Json& value, const std::string& argument,
                      CaseOptions& into) { return read(value, argument, into.block_size); }},
}};

std::string key_names() {
  std::string text;
  for (const Key& key : keys) text += fmt::format("{}{}", text.empty() ? "" : ", ", key.name);
  return text;
}

const Key* find_key(std::string_view name) {
  const auto* key = std::find_if(keys.begin(), keys.end(), [&](const Key& known) { return known.name == name; });
  return key == keys.end() ? nullptr : key;
}

}  // namespace

bool is_case_option(std::string_view name) { return find_key(name) != nullptr; }

Result<CaseOptions> parse_case_options(std::string_view text) {
  const Result<Json> document = parse_json(text, "problem");
  if (!document) return document.refusal();
  if (!document->is_object()) return refuse("problem", describe_json(*document), "a JSON object");
  CaseOptions result;
  for (const auto& item : document->items()) {
    const Key* const key = find_key(item.key());
    const std::string argument = "problem." + readable(item.key());
    if (key == nullptr) return refuse(argument, "an unknown key", key_names());
    if (item.value().is_null()) continue;
    if (const Status status = key->read(item.value(), argument, result); !status) return status.refusal();
  }
  return result;
}

Result<std::vector<std::string>> parse_tokens(std::string_view text) {
  const Result<Json> document = parse_json(text, "tokens");
  if (!document) return document.refusal();
  if (!document->is_array()) return refuse("tokens", describe_json(*document), "a JSON list of strings");
  std::vector<std::string> tokens;
  for (const Json& token : *document) {
    if (!token.is_string()) return refuse("tokens", describe_json(token), "a JSON list of strings");
    tokens.push_back(token.get<std::string>());
  }
  return tokens;
}

Result<Show> parse_show(std::string_view text) {
  const std::string accepted = "a JSON object with batch, head and query";
  const Result<Json> document = parse_json(text, "show");
  if (!document) return document.refusal();
  if (!document->is_object()) return refuse("show", describe_json(*document), accepted);
  Show show;
  const std::pair<std::string_view, std::int64_t*> fields[] = {
      {"batch", &show.batch}, {"head", &show.head}, {"query", &show.query}};
  for (const auto& item : document->items()) {
    const auto* field = std::find_if(std::begin(fields), std::end(fields),
                                     [&](const auto& known) { return known.first == item.key(); });
    const std::string argument = "show." + readable(item.key());
    if (field == std::end(fields)) return refuse(argument, "an unknown key", accepted);
    const std::optional<std::int64_t> count = count_of(item.value());
    if (!count) return refuse(argument, describe_json(item.value()), "a whole number in [0, 2^63)");
    *field->second = *count;
  }
  if (document->size() != std::size(fields)) return refuse("show", "an object without all three keys", accepted);
  return show;
}

}  // namespace fresnel
