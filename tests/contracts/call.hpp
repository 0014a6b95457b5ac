// SPDX-License-Identifier: Apache-2.0
// A call put together from what a printed contract says of its operands and outputs, and from nothing else: names,
// dtypes and shapes are read out of the JSON, shapes are evaluated. It refuses to know what the row's domain says.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/host_tensor.hpp"
#include "support/runner.hpp"

namespace fresnel::test {

using Json = nlohmann::json;

/// How one tensor of a call differs from the others, which are dense.
struct Change {
  std::string tensor;
  Placement placement;
  bool dense = false;  ///< the same values, copied to dense memory: what the placement must agree with
};

class ContractCall {
 public:
  ContractCall(const Json& contract, const Problem& problem, const Change& change = {});

  [[nodiscard]] bool has(const std::string& tensor) const { return tensors_.count(tensor) > 0; }
  [[nodiscard]] Inputs inputs();
  [[nodiscard]] Outputs outputs();
  [[nodiscard]] Result<Problem> described();

  /// Plans, runs (a backward after some forward) and judges. "" or what was wrong.
  [[nodiscard]] std::string fault(const Runner& runner, int lanes = 2);
  /// The bits of every output, whatever its strides.
  [[nodiscard]] std::vector<std::uint64_t> bits() const;

 private:
  void add(const Json& tensor, const std::string& dtype, const Change& change, bool input);
  void fill(const std::string& name, const Placement& placement);

  Problem problem_;
  std::vector<std::string> written_;
  std::map<std::string, HostTensor> tensors_;
};

}  // namespace fresnel::test
