// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy format, versions 1 to 3: one tensor a file, the header a Python dictionary.
//
//     \x93NUMPY \x01\x00 <header length> {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   <elements>
//
// Holds f64, f32, f16, i32 and bool in C order, little endian. Anything else (Fortran order, big endian, structured or
// other dtypes; bf16 on writing) is refused by name, and so are bytes after the last element.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "fresnel/result.hpp"
#include "io/tensor.hpp"

namespace fresnel {

[[nodiscard]] Result<OwnedTensor> read_npy(const std::filesystem::path& path);
/// The same from memory; `label` stands for the path in refusals.
[[nodiscard]] Result<OwnedTensor> parse_npy(std::span<const std::byte> bytes, std::string_view label = "memory");

/// Writes version 1.0, all or nothing (AtomicFile); any strides, the last axis contiguous, host memory.
[[nodiscard]] Status write_npy(const std::filesystem::path& path, const View& view);

/// One tensor, from a .npy file or from a safetensors file that holds exactly one; the content decides, not the name.
[[nodiscard]] Result<OwnedTensor> read_tensor(const std::filesystem::path& path);

}  // namespace fresnel
