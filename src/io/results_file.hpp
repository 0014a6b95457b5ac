// SPDX-License-Identifier: Apache-2.0
// Results files: what attention computed, as safetensors with tensors `o`, `lse`, `dq`, `dk`, `dv` and `dalibi_slopes`.
// Anybody may write one; reading holds it to the problem it claims to answer. Gradients are refused for a problem that
// does not ask for them.
#pragma once

#include <filesystem>
#include <optional>

#include "fresnel/plan.hpp"
#include "fresnel/result.hpp"
#include "io/safetensors.hpp"
#include "io/tensor.hpp"

namespace fresnel {

struct Results {
  OwnedTensor o;                             ///< [B, Hq, Sq, Dv] in the problem's dtype
  std::optional<OwnedTensor> lse;            ///< [B, Hq, Sq], f32 (f64 for f64 problems)
  std::optional<OwnedTensor> dq, dk, dv;     ///< shapes and dtype of q, k, v
  std::optional<OwnedTensor> dalibi_slopes;  ///< shape of alibi_slopes, dtype of lse
  Metadata metadata;                         ///< not interpreted

  /// The tensors as check takes them; valid while the results live.
  [[nodiscard]] Outputs outputs();
};

/// All or nothing; any strides, the last axis contiguous. Write failures are Fault::io.
[[nodiscard]] Status write_results(const std::filesystem::path& path, const View& o, const std::optional<View>& lse,
                                   const Metadata& metadata = {});
/// The same with every gradient that the outputs have.
[[nodiscard]] Status write_results(const std::filesystem::path& path, const Outputs& outputs, const Metadata& metadata);

/// Refusals name the tensor or the file.
[[nodiscard]] Result<Results> read_results(const std::filesystem::path& path, const Problem& problem);
/// The same from memory.
[[nodiscard]] Result<Results> parse_results(std::span<const std::byte> bytes, const Problem& problem,
                                            std::string_view label = "memory");

}  // namespace fresnel
