// SPDX-License-Identifier: Apache-2.0
// Putting the page together: see page.hpp.
#include "report/page.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "report/assets.hpp"

namespace fresnel::report {
namespace {

constexpr const char* library_file = "/usr/share/javascript/chart.js/chart.min.js";

/// Every `from` replaced by `to`.
std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = std::min(text.find(from, at), text.size());
    out += text.substr(at, found - at);
    if (found < text.size()) out += to;
    at = found + (found < text.size() ? from.size() : 0);
  }
  return out;
}

/// A script inside a page ends at the first "</script", wherever that stands.
std::string script(std::string_view text) { return replaced(text, "</script", "<\\/script"); }

}  // namespace

Result<std::string> chart_library() {
  const char* const named = std::getenv("FRESNEL_CHART_JS");
  const std::string path = named != nullptr ? named : library_file;
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file && text.find("Chart") != std::string::npos) return text;
  const std::string given = path + (text.empty() ? ", which cannot be read" : ", which is something else");
  return Refusal{Fault::unsupported,
                 {},
                 "chart library",
                 given,
                 "Chart.js 3 or 4, as Debian's package libjs-chart.js installs it (or its file in FRESNEL_CHART_JS)",
                 {}};
}

std::string embedded(const Json& data) {
  std::string text = data.dump(-1, ' ', true, Json::error_handler_t::replace);
  for (const auto& [from, to] : {std::pair{"<", "\\u003c"}, std::pair{">", "\\u003e"}, std::pair{"&", "\\u0026"}})
    text = replaced(text, from, to);
  return text;
}

std::string page(const Json& data, std::string_view library) {
  // The places are filled in one pass over the frame, so that nothing put into one is taken for another.
  const std::pair<std::string_view, std::string> places[] = {{"{{style}}", std::string(assets::style_css)},
                                                             {"{{data}}", embedded(data)},
                                                             {"{{library}}", script(library)},
                                                             {"{{charts}}", script(assets::charts_js)},
                                                             {"{{walk}}", script(assets::walk_js)},
                                                             {"{{attention}}", script(assets::attention_js)},
                                                             {"{{page}}", script(assets::page_js)}};
  std::string out;
  std::string_view rest = assets::page_html;
  for (const auto& [place, text] : places) {
    const std::size_t at = rest.find(place);
    out += rest.substr(0, at);
    out += text;
    rest = rest.substr(at + place.size());
  }
  return out + std::string(rest);
}

Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

}  // namespace fresnel::report
