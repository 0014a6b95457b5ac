// SPDX-License-Identifier: Apache-2.0
// What the emulated kernels round, so that the judge can hold a run to its budget: float32 with products and sums
// rounded apart, the C library's exp and log (within one unit in the last place), sums straight over the keys.
#include "traffic/emulate.hpp"

namespace fresnel::traffic {

Roundings roundings_of(Kind kind, const Shape& shape) {
  Roundings roundings;
  roundings.name = std::string(name(kind));
  roundings.exp_constant = 0x1p-23;
  roundings.rescale = 0x1p-23;
  // Algorithm 1 keeps o normalised: a pass multiplies by l and divides by the new l, four more roundings.
  if (kind == Kind::outer_k) roundings.rescale += 4 * roundings.unit;
  roundings.log = 0x1p-23;
  roundings.tile_keys = shape.tile;
  roundings.running_sum = true;
  return roundings;
}

}  // namespace fresnel::traffic
