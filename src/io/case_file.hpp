// SPDX-License-Identifier: Apache-2.0
// Case files: one attention problem with its data, as safetensors (docs/semantics.md lists tensors and keys). Reading
// words every fault of the file: names, dtypes, and shapes against each other. What the numbers mean together (head
// groups, ranges of options, values of lengths) is for describe, validate and check_indices. Results come along, since
// whoever reads a case writes or reads one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fresnel/plan.hpp"
#include "fresnel/result.hpp"
#include "io/case_options.hpp"
#include "io/results_file.hpp"
#include "io/tensor.hpp"

namespace fresnel {

struct Case {
  std::string path;  ///< or the label of the memory it came from
  Options options;
  OwnedTensor q;                            ///< [B, Hq, Sq, D]; f64, f32, f16 or bf16
  OwnedTensor k;                            ///< [B, Hkv, Sk, D], q's dtype
  OwnedTensor v;                            ///< [B, Hkv, Sk, Dv], q's dtype
  std::optional<OwnedTensor> alibi_slopes;  ///< f32 [Hq] or [B, Hq]
  std::optional<OwnedTensor> seqlens_k;     ///< i32 [B]
  std::optional<OwnedTensor> dout;          ///< [B, Hq, Sq, Dv], q's dtype; asks for the backward

  /// Answers from elsewhere, all f64.
  std::optional<OwnedTensor> expected_o;              ///< [B, Hq, Sq, Dv]
  std::optional<OwnedTensor> expected_lse;            ///< [B, Hq, Sq]
  std::optional<OwnedTensor> expected_dq;             ///< as q; this and the next three only with dout
  std::optional<OwnedTensor> expected_dk;             ///< as k
  std::optional<OwnedTensor> expected_dv;             ///< as v
  std::optional<OwnedTensor> expected_dalibi_slopes;  ///< as alibi_slopes

  std::vector<std::string> tokens;  ///< Sk of them, or none
  std::optional<Show> show;         ///< within B, Hq and Sq
  std::vector<std::string> unread;  ///< other metadata keys, which nothing here reads

  /// Views of the forward's inputs; valid while the case lives.
  [[nodiscard]] Inputs inputs() const;
};

/// Refusals name the tensor, `problem.KEY`, `tokens`, `show`, an option that stands beside `problem`, or the file.
/// Tensors of features that do not exist yet (mask, bias, sinks, packed and paged) are Fault::unsupported.
[[nodiscard]] Result<Case> read_case(const std::filesystem::path& path);
/// The same from memory.
[[nodiscard]] Result<Case> parse_case(std::span<const std::byte> bytes, std::string_view label = "memory");

}  // namespace fresnel
