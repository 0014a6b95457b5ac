// SPDX-License-Identifier: Apache-2.0
// The saved form of the ceilings: JSON in the user's cache directory. A file that is not exactly what was written here
// is as good as none; writing goes to a temporary name that is renamed when complete.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/ceilings.hpp"

namespace fresnel {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t most_bytes = 1 << 20;

/// A directory named by an environment variable; relative ones are to be ignored (XDG Base Directory Specification).
std::optional<fs::path> directory_in(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  fs::path path(text);
  if (!path.is_absolute()) return std::nullopt;
  return path;
}

Refusal not_written(const fs::path& path, const std::string& reason) {
  return {.fault = Fault::io,
          .kernel = {},
          .argument = path.string(),
          .given = reason,
          .accepted = "a place that can be written",
          .nearest = {}};
}

/// A count from 1 up that fits an int.
std::optional<int> count_in(const Json& object, const char* field) {
  const auto at = object.find(field);
  if (at == object.end() || !at->is_number_integer()) return std::nullopt;
  const auto value = at->get<std::int64_t>();
  if (value < 1 || value > 1 << 24) return std::nullopt;
  return static_cast<int>(value);
}

/// Fills in one figure; false when the field is there but is neither null nor a finite positive number.
bool read_figure(const Json& peaks, Figure& figure) {
  const auto at = peaks.find(std::string(figure.name));
  if (at == peaks.end() || at->is_null()) return true;
  if (!at->is_number()) return false;
  const double value = at->get<double>();
  if (!std::isfinite(value) || value <= 0) return false;
  figure.value = value;
  return true;
}

}  // namespace

std::string to_json(const Ceilings& ceilings) {
  Json peaks = Json::object();
  for (const Figure& figure : ceilings.figures) {
    peaks[std::string(figure.name)] = figure.value ? Json(*figure.value) : Json(nullptr);
  }
  Json json;
  json["name"] = ceilings.machine;
  json["isa"] = std::string(name(ceilings.isa));
  json["cores"] = ceilings.cores;
  json["threads"] = ceilings.threads;
  json["peaks"] = std::move(peaks);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<Ceilings> parse_ceilings(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const auto machine_name = json.find("name"), isa_name = json.find("isa"), peaks = json.find("peaks");
  if (machine_name == json.end() || isa_name == json.end() || peaks == json.end()) return std::nullopt;
  if (!machine_name->is_string() || !isa_name->is_string() || !peaks->is_object()) return std::nullopt;
  const auto isa = parse_isa(isa_name->get_ref<const std::string&>());
  const auto cores = count_in(json, "cores"), threads = count_in(json, "threads");
  if (!isa || !cores || !threads) return std::nullopt;
  Machine machine;
  machine.name = machine_name->get<std::string>();
  machine.isa = *isa;
  machine.cores = *cores;
  machine.threads = *threads;
  Ceilings ceilings = unmeasured(machine);
  for (Figure& figure : ceilings.figures) {
    if (!read_figure(*peaks, figure)) return std::nullopt;
  }
  return ceilings;
}

std::optional<fs::path> ceilings_path() {
  if (const auto cache = directory_in("XDG_CACHE_HOME")) return *cache / "fresnel" / "machine.json";
  if (const auto home = directory_in("HOME")) return *home / ".cache" / "fresnel" / "machine.json";
  return std::nullopt;
}

Status save_ceilings(const Ceilings& ceilings) {
  const auto path = ceilings_path();
  if (!path) return not_written("the user's cache directory", "neither XDG_CACHE_HOME nor HOME is an absolute path");
  std::error_code error;
  fs::create_directories(path->parent_path(), error);
  if (error) return not_written(*path, error.message());
  const fs::path temporary = path->string() + "." + std::to_string(getpid()) + ".tmp";
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << to_json(ceilings);
    file.close();
    if (!file) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) fs::rename(temporary, *path, error);
  if (!error) return Done{};
  std::error_code ignored;
  fs::remove(temporary, ignored);
  return not_written(*path, error.message());
}

std::optional<Ceilings> load_ceilings(const Machine& machine) {
  const auto path = ceilings_path();
  if (!path) return std::nullopt;
  std::ifstream file(*path, std::ios::binary);
  std::string text;
  for (char c; text.size() <= most_bytes && file.get(c);) text += c;
  if (text.empty() || text.size() > most_bytes) return std::nullopt;
  auto ceilings = parse_ceilings(text);
  if (!ceilings || ceilings->machine != machine.name || ceilings->isa != machine.isa) return std::nullopt;
  return ceilings;
}

}  // namespace fresnel
