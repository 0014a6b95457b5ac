// SPDX-License-Identifier: Apache-2.0
// A row's contract as a value: what a caller may hand over, what comes back, what it costs and how right it is. It is
// read off the row (and off the law, for what every row shares); nothing is written down a second time, and
// tests/contracts turns what is printed back into calls. JSON, the page for people and the FKC form are three ways of
// printing this one struct.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/cost.hpp"
#include "kernels/kernel.hpp"

namespace fresnel {

/// What a tensor's memory may look like. Strides of axes of length 1 are ignored throughout.
struct OperandLayout {
  bool strided = true;       ///< any outer strides
  bool stride_zero = true;   ///< outer axes stored once
  bool reversed = true;      ///< negative outer strides
  bool start_offset = true;  ///< any element-aligned address; else multiples of 16 bytes, outer strides too
  std::vector<std::string> axis_orders{};  ///< axes in memory, outermost first; empty: any
};

/// A tensor that a caller hands over.
struct Operand {
  std::string name;
  bool optional = false;
  std::vector<std::string> dtypes;
  std::vector<std::vector<std::string>> shapes;  ///< in cost symbols; one for each rank
  std::vector<std::string> constraints;          ///< on dtype, extents and values, beside shapes and bounds
  OperandLayout layout;
};

/// A tensor that is written.
struct Output {
  std::string name;
  bool optional = false;
  std::string dtype_rule;  ///< "q", an operand, or "f32, f64 where q is f64"
  std::vector<std::vector<std::string>> shapes;
  OperandLayout layout;
};

/// An option and what may be given for it.
struct OptionField {
  std::string name, kind, unset;
  bool accepted = true;  ///< false: only `unset` is
  std::string values;    ///< what is accepted beside unset
};

/// Figures of one problem on one machine: what a plan would say.
struct Example {
  std::string problem, isa;
  Tile tile;
  std::size_t lane_bytes = 0, shared_bytes = 0;
};

struct Contract {
  const Kernel* row = nullptr;
  bool backward = false;
  std::vector<Operand> inputs;
  std::vector<Output> outputs;
  std::vector<OptionField> options;
  std::map<std::string, Roundings> roundings;  ///< by dtype
  Example example;
};

[[nodiscard]] Contract contract_of(const Kernel& row);

/// The page for people, the whole of docs/kernels.md.
[[nodiscard]] std::string contracts_page(const std::vector<Contract>& contracts);

/// The FKC form: front matter, then a section with one fkc block for each kernel.
[[nodiscard]] std::string contracts_fkc(const std::vector<Contract>& contracts);

/// The row of one kernel in the document below.
[[nodiscard]] std::string contract_object(const Contract& contract);
/// {rows: [...]}, indented by two.
[[nodiscard]] std::string contracts_document(const std::vector<Contract>& contracts);

}  // namespace fresnel
