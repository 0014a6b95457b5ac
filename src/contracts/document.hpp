// SPDX-License-Identifier: Apache-2.0
// Parts of a contract as JSON, for whoever prints them elsewhere. Field names are those of the public structs.
#pragma once

#include <nlohmann/json.hpp>

#include "fresnel/check.hpp"

namespace fresnel {

[[nodiscard]] nlohmann::ordered_json to_json(const Roundings& roundings);

}  // namespace fresnel
