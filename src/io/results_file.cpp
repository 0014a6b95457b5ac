// SPDX-License-Identifier: Apache-2.0
// From a safetensors file to Results and back.
#include "io/results_file.hpp"

#include <algorithm>
#include <array>

#include "io/shape_check.hpp"
#include "io/words.hpp"
#include "semantics/views.hpp"
#include "semantics/words.hpp"

namespace fresnel {
namespace {

constexpr std::string_view forward_names = "o, lse";
constexpr std::string_view accepted_names = "o, lse, dq, dk, dv, dalibi_slopes";

struct Gradient {
  std::string_view name;
  std::optional<OwnedTensor> Results::*member;
  std::optional<MutableView> Outputs::*output;
};
constexpr std::array<Gradient, 4> gradients{{{"dq", &Results::dq, &Outputs::dq},
                                             {"dk", &Results::dk, &Outputs::dk},
                                             {"dv", &Results::dv, &Outputs::dv},
                                             {"dalibi_slopes", &Results::dalibi_slopes, &Outputs::dalibi_slopes}}};
constexpr std::array<std::string_view, 2> unsupported_tensors{"dbias", "dsinks"};

Refusal unknown_name(const std::string& name, const Problem& problem) {
  const bool unsupported =
      std::find(unsupported_tensors.begin(), unsupported_tensors.end(), name) != unsupported_tensors.end();
  Refusal refusal = refuse(readable(name), unsupported ? "a gradient, not supported yet" : "an unknown tensor name",
                           std::string(problem.grad ? accepted_names : forward_names));
  if (unsupported) refusal.fault = Fault::unsupported;
  return refusal;
}

/// Moves every tensor to its member; refuses names without one, and gradients that nobody asked for.
Status distribute(SafetensorsFile& file, const Problem& problem, Results& results) {
  bool found = false;
  for (NamedTensor& tensor : file.tensors) {
    const auto* gradient = std::find_if(gradients.begin(), gradients.end(),
                                        [&](const Gradient& each) { return each.name == tensor.name; });
    if (tensor.name == "o") {
      results.o = std::move(tensor.tensor);
      found = true;
    } else if (tensor.name == "lse") {
      results.lse = std::move(tensor.tensor);
    } else if (gradient == gradients.end()) {
      return unknown_name(tensor.name, problem);
    } else if (!problem.grad) {
      return refuse(tensor.name, "a gradient of a problem without dout", std::string(forward_names));
    } else {
      results.*gradient->member = std::move(tensor.tensor);
    }
  }
  if (!found) return refuse("o", "no such tensor", "a result with tensor o, and lse if it was computed");
  return Done{};
}

Status check_gradients(const Results& results, const Problem& problem, DType wide) {
  const Axis batch{"B", problem.batch}, heads{"Hq", problem.heads_q}, queries{"Sq", problem.queries};
  const Axis heads_kv{"Hkv", problem.heads_kv}, keys{"Sk", problem.keys};
  const Axis head_dim{"D", problem.head_dim}, value_dim{"Dv", problem.value_dim};
  if (results.dalibi_slopes && problem.alibi_slopes == AlibiSlopes::none)
    return refuse("dalibi_slopes", "a gradient without alibi_slopes", "the gradient of a tensor that is there");
  const Forms slopes = problem.alibi_slopes == AlibiSlopes::per_batch_and_head ? Forms{{batch, heads}} : Forms{{heads}};
  const struct {
    const Gradient& gradient;
    DType dtype;
    Forms forms;
  } checks[] = {{gradients[0], problem.dtype, {{batch, heads, queries, head_dim}}},
                {gradients[1], problem.dtype, {{batch, heads_kv, keys, head_dim}}},
                {gradients[2], problem.dtype, {{batch, heads_kv, keys, value_dim}}},
                {gradients[3], wide, slopes}};
  for (const auto& [gradient, dtype, forms] : checks)
    if (const auto& tensor = results.*gradient.member)
      if (const Status status = check_tensor(gradient.name, *tensor, dtype, forms); !status) return status;
  return Done{};
}

Result<Results> results_of(SafetensorsFile file, const Problem& problem) {
  Results results;
  results.metadata = std::move(file.metadata);
  if (const Status status = distribute(file, problem, results); !status) return status.refusal();
  const Axis batch{"B", problem.batch}, heads{"Hq", problem.heads_q}, queries{"Sq", problem.queries};
  const Axis value_dim{"Dv", problem.value_dim};
  if (const Status status = check_tensor("o", results.o, problem.dtype, {{batch, heads, queries, value_dim}}); !status)
    return status.refusal();
  const DType lse_dtype = problem.dtype == DType::f64 ? DType::f64 : DType::f32;
  if (results.lse)
    if (const Status status = check_tensor("lse", *results.lse, lse_dtype, {{batch, heads, queries}}); !status)
      return status.refusal();
  if (const Status status = check_gradients(results, problem, lse_dtype); !status) return status.refusal();
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
  for (const Gradient& gradient : gradients)
    if (auto& tensor = this->*gradient.member) outputs.*gradient.output = tensor->mutable_view();
  return outputs;
}

Status write_results(const std::filesystem::path& path, const View& o, const std::optional<View>& lse,
                     const Metadata& metadata) {
  std::vector<NamedView> tensors{{"o", o}};
  if (lse) tensors.push_back({"lse", *lse});
  return write_safetensors(path, metadata, tensors);
}

Status write_results(const std::filesystem::path& path, const Outputs& outputs, const Metadata& metadata) {
  std::vector<NamedView> tensors{{"o", as_input(outputs.o)}};
  if (outputs.lse) tensors.push_back({"lse", as_input(*outputs.lse)});
  for (const Gradient& gradient : gradients)
    if (const auto& view = outputs.*gradient.output) tensors.push_back({std::string(gradient.name), as_input(*view)});
  return write_safetensors(path, metadata, tensors);
}

Result<Results> read_results(const std::filesystem::path& path, const Problem& problem) {
  return finished(read_safetensors(path, inspection_for(problem)), problem);
}

Result<Results> parse_results(std::span<const std::byte> bytes, const Problem& problem, std::string_view label) {
  return finished(parse_safetensors(bytes, label, inspection_for(problem)), problem);
}

}  // namespace fresnel
