// SPDX-License-Identifier: Apache-2.0
// Headers written out by hand, apart from the library's own writer.
#include "io/raw_file.hpp"

#include <nlohmann/json.hpp>

namespace fresnel::test {

Bytes raw_case(const Metadata& metadata, const std::vector<RawTensor>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t begin = 0;
  for (const RawTensor& tensor : tensors) {
    std::int64_t end = tensor.dtype == "F64" ? 8 : tensor.dtype == "BOOL" ? 1 : tensor.dtype.ends_with("16") ? 2 : 4;
    for (const std::int64_t extent : tensor.shape) end *= extent;
    end += begin;
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  return raw_safetensors(header.dump(), static_cast<std::size_t>(begin));
}

}  // namespace fresnel::test
