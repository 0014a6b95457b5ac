// SPDX-License-Identifier: Apache-2.0
// From a kind to its kernel, for any workgroup machine.
#pragma once

#include "traffic/backward_kernels.hpp"
#include "traffic/outer_k_kernel.hpp"

namespace fresnel::traffic {

template <class Machine>
void execute(Machine& machine, Kind kind, const Shape& shape, const Tensors<typename Machine::Global>& tensors) {
  switch (kind) {
    case Kind::unfused: return unfused(machine, shape, tensors);
    case Kind::fused: return fused(machine, shape, tensors);
    case Kind::broken: return fused(machine, shape, tensors, /*rescales_l=*/false);
    case Kind::outer_k: return outer_k(machine, shape, tensors);
    case Kind::backward: return backward(machine, shape, tensors);
  }
}

}  // namespace fresnel::traffic
