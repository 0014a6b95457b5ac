// SPDX-License-Identifier: Apache-2.0
// Bytes as an .npy file: refused with a reason, or a tensor whose bytes are all there and no more than the file had.
#include "io/npy.hpp"

#include <algorithm>

#include "fuzz/target.hpp"

namespace fresnel::test {

void one_input(std::span<const std::byte> bytes) {
  const Result<OwnedTensor> read = parse_npy(bytes, "fuzz");
  if (!read) return demand_reason(read.refusal());
  const auto size = byte_size_of(read->dtype, read->shape);
  demand(size && static_cast<std::size_t>(*size) == read->bytes.size(), "a tensor that is not its shape");
  demand(read->bytes.size() < bytes.size(), "more elements than the file has bytes");
  const auto held = read->bytes.span();
  demand(std::equal(held.begin(), held.end(), bytes.end() - static_cast<std::ptrdiff_t>(held.size())),
         "the elements are not the file's last bytes");
}

}  // namespace fresnel::test
