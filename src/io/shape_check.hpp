// SPDX-License-Identifier: Apache-2.0
// A tensor's dtype and shape against what its name promises, worded with the axes' names: "k: given f32 [2,4,8,16];
// accepted: f32 [B=2,Hkv,Sk,D=32]". It compares and knows no tensor.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fresnel/result.hpp"
#include "io/tensor.hpp"

namespace fresnel {

/// One axis of an accepted shape; any length when `size` is left out.
struct Axis {
  static constexpr std::int64_t any = -1;
  std::string_view name;
  std::int64_t size = any;
};

/// Accepted shapes, any one of them.
using Forms = std::vector<std::vector<Axis>>;

[[nodiscard]] Status check_tensor(std::string_view name, const OwnedTensor& tensor, DType dtype, const Forms& forms);

}  // namespace fresnel
