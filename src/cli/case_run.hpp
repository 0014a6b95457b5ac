// SPDX-License-Identifier: Apache-2.0
// A case file made ready to run: its problem, checked, and memory for its outputs.
#pragma once

#include "fresnel/plan.hpp"
#include "io/case_file.hpp"

namespace fresnel::cli {

struct CaseRun {
  Case given;
  Problem problem;
  OwnedTensor o, lse;

  [[nodiscard]] Inputs inputs() const { return given.inputs(); }
  [[nodiscard]] Outputs outputs() { return {o.mutable_view(), lse.mutable_view()}; }
};

/// Reads, describes and validates; index arrays included.
[[nodiscard]] Result<CaseRun> prepare_case(const std::string& path);

}  // namespace fresnel::cli
