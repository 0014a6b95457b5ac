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
  std::optional<OwnedTensor> dq = std::nullopt;  ///< this and the next three where the case has a dout
  std::optional<OwnedTensor> dk = std::nullopt;
  std::optional<OwnedTensor> dv = std::nullopt;
  std::optional<OwnedTensor> dalibi_slopes = std::nullopt;

  /// With dout, where there is one.
  [[nodiscard]] Inputs inputs() const;
  [[nodiscard]] Outputs outputs();
};

/// "layer, licence: metadata that nothing here reads", cut to one line.
[[nodiscard]] std::string unread_line(const std::vector<std::string>& keys);

/// Reads, describes and validates; index arrays included.
[[nodiscard]] Result<CaseRun> prepare_case(const std::string& path);

}  // namespace fresnel::cli
