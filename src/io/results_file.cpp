// SPDX-License-Identifier: Apache-2.0
// From a safetensors file to Results and back.
#include "io/results_file.hpp"

#include <algorithm>
#include <array>

#include "io/shape_check.hpp"
#include "io/words.hpp"
#include "semantics/words.hpp"

namespace fresnel {
namespace {

constexpr std::string_view accepted_names = "o, lse";
constexpr std::array<std::string_view, 6> unsupported_tensors{"dq", "dk", "dv", "dalibi_slopes", "dbias", "dsinks"};

Refusal unknown_name(const std::string& name) {
  const bool gradient =
      std::find(unsupported_tensors.begin(), unsupported_tensors.end(), name) != unsupported_tensors.end();
  Refusal refusal = refuse(readable(name), gradient ? "a gradient, not supported yet" : "an unknown tensor name",
                           std::string(accepted_names));
  if (gradient) refusal.fault = Fault::unsupported;
  return refusal;
}

Result<Results> results_of(SafetensorsFile file, const Problem& problem) {
  Results results;
  results.metadata = std::move(file.metadata);
  bool found = false;
  for (NamedTensor& tensor : file.tensors) {
    if (tensor.name == "o") {
      results.o = std::move(tensor.tensor);
      found = true;
    } else if (tensor.name == "lse") {
      results.lse = std::move(tensor.tensor);
    } else {
      return unknown_name(tensor.name);
    }
  }
  if (!found) return refuse("o", "no such tensor", "a result with tensor o, and lse if it was computed");
  const Axis batch{"B", problem.batch}, heads{"Hq", problem.heads_q}, queries{"Sq", problem.queries};
  const Axis value_dim{"Dv", problem.value_dim};
  if (const Status status = check_tensor("o", results.o, problem.dtype, {{batch, heads, queries, value_dim}}); !status)
    return status.refusal();
  const DType lse_dtype = problem.dtype == DType::f64 ? DType::f64 : DType::f32;
  if (results.lse)
    if (const Status status = check_tensor("lse", *results.lse, lse_dtype, {{batch, heads, queries}}); !status)
      return status.refusal();
  return results;
}

/// The checks of results_of on names and shapes alone, so that a fault is found before any data is read.
Inspect inspection_for(const Problem& problem) {
  return [&problem](SafetensorsFile outline) {
    const Result<Results> outlined = results_of(std::move(outline), problem);
    return outlined ? Status(Done{}) : outlined.refusal();
  };
}

Result<Results> finished(Result<SafetensorsFile> file, const Problem& problem) {
  return file ? results_of(std::move(*file), problem) : file.refusal();
}

}  // namespace

Outputs Results::outputs() {
  Outputs outputs{o.mutable_view(), {}};
  if (lse) outputs.lse = lse->mutable_view();
  return outputs;
}

Status write_results(const std::filesystem::path& path, const View& o, const std::optional<View>& lse,
                     const Metadata& metadata) {
  std::vector<NamedView> tensors{{"o", o}};
  if (lse) tensors.push_back({"lse", *lse});
  return write_safetensors(path, metadata, tensors);
}

Result<Results> read_results(const std::filesystem::path& path, const Problem& problem) {
  return finished(read_safetensors(path, inspection_for(problem)), problem);
}

Result<Results> parse_results(std::span<const std::byte> bytes, const Problem& problem, std::string_view label) {
  return finished(parse_safetensors(bytes, label, inspection_for(problem)), problem);
}

}  // namespace fresnel
