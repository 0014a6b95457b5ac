// SPDX-License-Identifier: Apache-2.0
// Comparing and wording shapes.
#include "io/shape_check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "io/words.hpp"
#include "semantics/words.hpp"

namespace fresnel {
namespace {

bool fits(const std::vector<std::int64_t>& shape, const std::vector<Axis>& form) {
  return std::equal(shape.begin(), shape.end(), form.begin(), form.end(),
                    [](std::int64_t size, const Axis& axis) { return axis.size == Axis::any || axis.size == size; });
}

std::string print(const std::vector<Axis>& form) {
  std::string text;
  for (const Axis& axis : form) {
    text += text.empty() ? "[" : ",";
    text += axis.name;
    if (axis.size != Axis::any) text += fmt::format("={}", axis.size);
  }
  return text + "]";
}

}  // namespace

Status check_tensor(std::string_view name, const OwnedTensor& tensor, DType dtype, const Forms& forms) {
  const auto matches = [&](const std::vector<Axis>& form) { return fits(tensor.shape, form); };
  if (tensor.dtype == dtype && std::any_of(forms.begin(), forms.end(), matches)) return Done{};
  std::string accepted;
  for (const std::vector<Axis>& form : forms) accepted += (accepted.empty() ? "" : " or ") + print(form);
  return refuse(std::string(name), spell(tensor.dtype) + ' ' + print_shape(tensor.shape),
                spell(dtype) + ' ' + accepted);
}

}  // namespace fresnel
