// SPDX-License-Identifier: Apache-2.0
// The smallest user of fresnel: equal scores, so the answer is the mean of the values. Exits 0 if it is. Uses nothing
// but the public headers.
#include <cstdio>

#include "fresnel/fresnel.hpp"

int main() {
  const float q[2] = {0, 0}, k[4] = {1, 2, 3, 4}, v[4] = {1, 10, 3, 30};
  float o[2] = {-1, -1};
  const auto report = fresnel::attend(fresnel::Options{},
                                      {.q = {q, fresnel::DType::f32, {1, 1, 1, 2}},
                                       .k = {k, fresnel::DType::f32, {1, 1, 2, 2}},
                                       .v = {v, fresnel::DType::f32, {1, 1, 2, 2}},
                                       .alibi_slopes = {},
                                       .seqlens_k = {}},
                                      {.o = {o, fresnel::DType::f32, {1, 1, 1, 2}}, .lse = {}});
  if (!report) {
    std::fprintf(stderr, "%s\n", report.refusal().message().c_str());
    return 2;
  }
  std::printf("%s: %g %g\n", report->kernel.c_str(), static_cast<double>(o[0]), static_cast<double>(o[1]));
  return o[0] == 2 && o[1] == 20 ? 0 : 1;
}
