// SPDX-License-Identifier: Apache-2.0
// Values as JSON: see json.hpp. Field names are those of the public structs.
#include "cli/json.hpp"

#include <cmath>
#include <cstdio>
#include <string>

namespace fresnel::cli {
Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json number(const std::optional<double>& value) { return value ? number(*value) : Json(nullptr); }

Json to_json(const Refusal& refusal) {
  Json json{{"argument", refusal.argument},
            {"given", refusal.given},
            {"accepted", refusal.accepted},
            {"message", refusal.message()}};
  if (!refusal.kernel.empty()) json["kernel"] = refusal.kernel;
  if (!refusal.nearest.empty()) json["nearest"] = refusal.nearest;
  return json;
}

Json to_json(const Judgement& judgement, int rank) {
  Json at = nullptr;
  if (judgement.at[0] >= 0) at = std::vector<std::int64_t>(judgement.at.begin(), judgement.at.begin() + rank);
  return {{"count", judgement.count},
          {"mismatches", judgement.mismatches},
          {"max_error", number(judgement.max_error)},
          {"max_share", number(judgement.max_share)},
          {"at", at},
          {"mismatches_probable", judgement.mismatches_probable},
          {"max_share_probable", number(judgement.max_share_probable)}};
}

Json to_json(const Verdict& verdict) {
  Json outputs{{"o", to_json(verdict.o, 4)}};
  if (verdict.lse) outputs["lse"] = to_json(*verdict.lse, 3);
  const std::pair<const char*, const std::optional<Judgement>*> gradients[] = {
      {"dq", &verdict.dq}, {"dk", &verdict.dk}, {"dv", &verdict.dv}, {"dalibi_slopes", &verdict.dalibi_slopes}};
  for (const auto& [name, judgement] : gradients)
    if (*judgement) outputs[name] = to_json(**judgement, 4);
  return {{"ok", verdict.ok()}, {"outputs", outputs}};
}

void emit(const Json& document) {
  // Names taken from arguments and files need not be UTF-8; a document must be.
  const std::string text = document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace fresnel::cli
