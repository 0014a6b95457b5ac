// SPDX-License-Identifier: Apache-2.0
// One page of HTML that holds everything it shows: style, scripts, the chart library and the figures as one block of
// JSON. It asks nothing of any network, and nothing that a case file says can become a part of its markup.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "fresnel/result.hpp"

namespace fresnel::report {

using Json = nlohmann::ordered_json;

/// The text of Chart.js, from where Debian's libjs-chart.js puts it or from the file that FRESNEL_CHART_JS names; a
/// refusal that names file and package where there is none.
[[nodiscard]] Result<std::string> chart_library();

/// The data as a block that no string in it can end: markup's own characters are written as JSON escapes.
[[nodiscard]] std::string embedded(const Json& data);

[[nodiscard]] std::string page(const Json& data, std::string_view library);

/// NaN and infinities as the strings "nan", "inf" and "-inf".
[[nodiscard]] Json number(double value);

}  // namespace fresnel::report
