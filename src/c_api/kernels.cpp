// SPDX-License-Identifier: Apache-2.0
// The table of kernels and the version for C.
#include "kernels/kernel.hpp"

#include <algorithm>

#include "c_api/error.hpp"
#include "fresnel/contract.hpp"

using namespace fresnel;

const char* fresnel_version() noexcept { return FRESNEL_VERSION; }

size_t fresnel_kernel_count() noexcept { return catalogue().size(); }

fresnel_status fresnel_kernel_describe(size_t index, fresnel_kernel_info* kernel) noexcept {
  return c_api::guarded([&]() -> Status {
    c_api::known(kernel, "kernel");
    if (index >= catalogue().size())
      c_api::refuse("index", std::to_string(index), "below " + std::to_string(catalogue().size()));
    const Kernel& row = catalogue()[index];
    kernel->name = row.name.data();  // rows are made of literals, which end in 0
    kernel->blurb = row.blurb.data();
    kernel->device = static_cast<int>(row.device);
    kernel->built = row.run != nullptr ? 1 : 0;
    kernel->backward = row.domain.required.has(Feature::grad) ? 1 : 0;
    kernel->dtypes = row.domain.dtypes.bits;
    const std::pair<const Bounds&, int64_t*> widths[] = {{row.domain.head_dim, kernel->head_dim},
                                                         {row.domain.value_dim, kernel->value_dim}};
    for (const auto& [bounds, place] : widths) {
      place[0] = bounds.least;
      place[1] = bounds.most;
    }
    return Done{};
  });
}

fresnel_status fresnel_kernel_contract(const char* name, char* text, size_t capacity, size_t* needed) noexcept {
  return c_api::guarded([&]() -> Status {
    c_api::require(name, "name");
    const Result<std::string> contract = contract_json(name);
    if (!contract) return contract.refusal();
    c_api::write_text(*contract, text, capacity, needed);
    return Done{};
  });
}
