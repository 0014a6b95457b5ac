// SPDX-License-Identifier: Apache-2.0
// Bytes as a call: a problem from inside a domain, placed anywhere in memory, with numbers from zero to infinity in it.
// Every string of bytes is a valid call, so that a fuzzer spends its time in kernels and not in refusals, and a call is
// small, so that it spends little of it. Knows domains, never a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include "semantics/domain.hpp"
#include "support/scenario.hpp"

namespace fresnel::test {

/// Bytes as choices, one after the other; zeros when they are used up, so the first choice of a list is the plain one.
class Choices {
 public:
  explicit Choices(std::span<const std::byte> bytes) : rest_(bytes) {}

  [[nodiscard]] int byte() {
    if (rest_.empty()) return 0;
    const int value = std::to_integer<int>(rest_.front());
    rest_ = rest_.subspan(1);
    return value;
  }
  [[nodiscard]] bool flag() { return byte() % 2 != 0; }
  /// In [0, count), for counts from 1 to 65,536.
  [[nodiscard]] std::int64_t below(std::int64_t count) {
    const std::int64_t low = byte();
    return (count > 256 ? low + 256 * byte() : low) % count;
  }
  template <class List>
  [[nodiscard]] auto pick(const List& list) {
    return list[static_cast<std::size_t>(below(static_cast<std::int64_t>(std::size(list))))];
  }

 private:
  std::span<const std::byte> rest_;
};

/// A problem that the domain admits and `validate` accepts; `asks for` a feature only where the domain has it.
[[nodiscard]] Problem draw_problem(const Domain& domain, Choices& choices);

/// The problem's inputs: values, slopes, lengths and placements.
[[nodiscard]] Scenario draw_scenario(const Problem& problem, Choices& choices);

/// A gradient of o, shaped and placed like o.
[[nodiscard]] HostTensor draw_dout(const Problem& problem, Choices& choices);

/// The same numbers, packed densely; with junk wherever the law says that nobody looks: in keys and values that no
/// query of their sequence sees, and in queries that see no key.
[[nodiscard]] Scenario with_junk(const Scenario& scenario, Choices& choices);

/// Does query i of sequence b see any key?
[[nodiscard]] bool sees_nothing(const Scenario& scenario, std::int64_t b, std::int64_t i);

}  // namespace fresnel::test
