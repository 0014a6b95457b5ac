// SPDX-License-Identifier: Apache-2.0
// Machines and rooflines of `fresnel count`: see counting.hpp.
#include "cli/counting.hpp"

#include "cli/errors.hpp"
#include "runtime/ceilings.hpp"

namespace fresnel::cli {
namespace {

std::optional<double> scaled(const std::optional<double>& value, double factor) {
  return value ? std::optional(*value * factor) : std::nullopt;
}

Result<traffic::Rates> this_machine() {
  const auto machine = Machine::detect();
  if (!machine) return machine.refusal();
  traffic::Rates rates{.name = "cpu",
                       .about = "this machine, as `fresnel machine` measured it",
                       .flops = {},
                       .exps = {},
                       .shared_bytes = {},
                       .memory_bytes = {},
                       .cache_bytes = 0,
                       .workgroup_bytes = 0};
  rates.cache_bytes = machine->l3_bytes > 0 ? machine->l3_bytes : machine->l2_bytes;
  rates.workgroup_bytes = machine->l1_bytes;
  if (const auto ceilings = load_ceilings(*machine)) {
    rates.flops = scaled(ceilings->of("f32_fma_tflops"), 1e12);
    rates.exps = scaled(ceilings->of("exp_gops"), 1e9);
    rates.shared_bytes = scaled(ceilings->of("l1_read_gbps"), 1e9);
    rates.memory_bytes = scaled(ceilings->of("dram_read_gbps"), 1e9);
  }
  return rates;
}

std::string time_of(const std::optional<double>& value) { return value ? seconds(*value) : "unknown"; }

}  // namespace

Result<std::optional<traffic::Rates>> rates_for(const Text& machine) {
  if (!machine) return std::optional<traffic::Rates>();
  if (*machine == "cpu") {
    const auto rates = this_machine();
    if (!rates) return rates.refusal();
    return std::optional(*rates);
  }
  if (const traffic::Rates* const rates = traffic::machine_named(*machine)) return std::optional(*rates);
  std::vector<std::string> names{"cpu"};
  for (const traffic::Rates& rates : traffic::machines()) names.emplace_back(rates.name);
  return refuse("--machine", "'" + *machine + "'", joined(names), nearest_word(*machine, names));
}

Json to_json(const traffic::Rates& rates, const traffic::Roofline& roofline) {
  Json json{{"name", rates.name}};
  for (const auto& part : roofline.parts) {
    std::string field(part.name);
    for (char& letter : field) letter = letter == ' ' ? '_' : letter;
    json[field + "_seconds"] = number(part.seconds);
  }
  const auto* const limit = roofline.limit();
  json["seconds"] = limit != nullptr ? number(limit->seconds) : Json(nullptr);
  json["limit"] = limit != nullptr ? Json(limit->name) : Json(nullptr);
  return json;
}

RooflineTable::RooflineTable(const std::string& label)
    : table_({{label},
              {"arithmetic", Table::Align::right},
              {"exponentials", Table::Align::right},
              {"workgroup memory", Table::Align::right},
              {"device memory", Table::Align::right},
              {"at least", Table::Align::right},
              {"set by"}}) {}

void RooflineTable::add(const std::string& label, const traffic::Roofline& roofline) {
  std::vector<std::string> cells{label};
  for (const auto& part : roofline.parts) cells.push_back(time_of(part.seconds));
  const auto* const limit = roofline.limit();
  cells.push_back(limit != nullptr ? time_of(limit->seconds) : "unknown");
  cells.emplace_back(limit != nullptr ? limit->name : "");
  table_.add(std::move(cells));
}

}  // namespace fresnel::cli
