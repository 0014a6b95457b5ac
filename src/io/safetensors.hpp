// SPDX-License-Identifier: Apache-2.0
// The safetensors format: 8 bytes of header length (little endian), a JSON header, the tensors' bytes.
//
//     {"__metadata__": {"key": "text"}, "q": {"dtype": "F32", "shape": [1,2,8,16], "data_offsets": [0, 1024]}}
//
// Everything is checked before a tensor's memory is allocated. As the format's own specification demands, the tensors
// must cover the data exactly: an overlap, a hole or a byte to spare is refused. Offsets need no alignment. It refuses
// dtypes that attention cannot use, and any header beyond 100 MB (the format's own limit).
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fresnel/result.hpp"
#include "io/tensor.hpp"

namespace fresnel {

/// Text under text keys; nothing here is interpreted.
using Metadata = std::map<std::string, std::string>;

struct NamedTensor {
  std::string name;
  OwnedTensor tensor;
};

struct SafetensorsFile {
  Metadata metadata;
  std::vector<NamedTensor> tensors;  ///< in the order of their bytes
};

struct NamedView {
  std::string name;
  View view;  ///< any strides, the last axis contiguous; host memory
};

/// A caller's own checks, made when the header is known to be sound and no data has been read: the outline's tensors
/// have dtype and shape, but no bytes. A refusal ends the reading.
using Inspect = std::function<Status(SafetensorsFile outline)>;

/// dtypes F64, F32, F16, BF16, I32 and BOOL. Refusals name the path and, where one is at fault, the tensor.
[[nodiscard]] Result<SafetensorsFile> read_safetensors(const std::filesystem::path& path, const Inspect& inspect = {});
/// The same from memory; `label` stands for the path in refusals.
[[nodiscard]] Result<SafetensorsFile> parse_safetensors(std::span<const std::byte> bytes,
                                                        std::string_view label = "memory", const Inspect& inspect = {});

/// Writes all or nothing (AtomicFile). The same arguments give the same bytes: wider dtypes come first, so that every
/// tensor is aligned, and equal widths in the order given. Refuses equal names and text that is not UTF-8.
[[nodiscard]] Status write_safetensors(const std::filesystem::path& path, const Metadata& metadata,
                                       std::span<const NamedView> tensors);

}  // namespace fresnel
