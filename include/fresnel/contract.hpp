// SPDX-License-Identifier: Apache-2.0
// What each kernel promises, as text for programs: operands with their dtypes, shapes and layouts, options, outputs,
// cost formulas, precision, determinism. What is printed is read off the row that plans and dispatch read, and tests
// hold every kernel to it. docs/kernels.md is the same for people.
#pragma once

#include <string>
#include <string_view>

#include "fresnel/result.hpp"

#pragma GCC visibility push(default)  // what stands below is what a shared library exports

namespace fresnel {

/// How contracts are printed: one JSON document {rows: [...]}, a page of markdown, or FKC blocks in markdown.
enum class ContractFormat { json, markdown, fkc };

/// The contract of one kernel as a JSON object; a refusal where there is no such kernel. `kernel_names` lists them.
[[nodiscard]] Result<std::string> contract_json(std::string_view kernel);

/// The contracts of all kernels, in order of preference.
[[nodiscard]] std::string contracts(ContractFormat format);

}  // namespace fresnel

#pragma GCC visibility pop
