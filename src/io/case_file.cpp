// SPDX-License-Identifier: Apache-2.0
// From a safetensors file to a Case: every name is looked up in one table, every shape checked against q, k and v.
#include "io/case_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "io/safetensors.hpp"
#include "io/shape_check.hpp"
#include "io/words.hpp"
#include "semantics/words.hpp"

namespace fresnel {
namespace {

struct OptionalTensor {
  std::string_view name;
  std::optional<OwnedTensor> Case::*member;
};
constexpr std::array<OptionalTensor, 9> optional_tensors{{{"alibi_slopes", &Case::alibi_slopes},
                                                          {"seqlens_k", &Case::seqlens_k},
                                                          {"dout", &Case::dout},
                                                          {"expected_o", &Case::expected_o},
                                                          {"expected_lse", &Case::expected_lse},
                                                          {"expected_dq", &Case::expected_dq},
                                                          {"expected_dk", &Case::expected_dk},
                                                          {"expected_dv", &Case::expected_dv},
                                                          {"expected_dalibi_slopes", &Case::expected_dalibi_slopes}}};

struct RequiredTensor {
  std::string_view name;
  OwnedTensor Case::*member;
};
constexpr std::array<RequiredTensor, 3> required_tensors{{{"q", &Case::q}, {"k", &Case::k}, {"v", &Case::v}}};

/// Meaningful names whose features do not exist yet.
constexpr std::array<std::string_view, 9> unsupported_tensors{
    "mask", "bias", "sinks", "cu_seqlens_q", "cu_seqlens_k", "k_cache", "v_cache", "block_table", "context_lens"};

std::string accepted_names() {
  std::string text = "q, k, v";
  for (const OptionalTensor& known : optional_tensors) text += fmt::format(", {}", known.name);
  return text;
}

/// Moves every tensor to its member; refuses names without one.
Status distribute(SafetensorsFile& file, Case& result) {
  const auto named = [](const NamedTensor& tensor) {
    return [&](const auto& known) { return known.name == tensor.name; };
  };
  std::array<bool, required_tensors.size()> found{};
  for (NamedTensor& tensor : file.tensors) {
    const auto* required = std::find_if(required_tensors.begin(), required_tensors.end(), named(tensor));
    const auto* optional = std::find_if(optional_tensors.begin(), optional_tensors.end(), named(tensor));
    if (required != required_tensors.end()) {
      result.*required->member = std::move(tensor.tensor);
      found[static_cast<std::size_t>(required - required_tensors.begin())] = true;
    } else if (optional != optional_tensors.end()) {
      result.*optional->member = std::move(tensor.tensor);
    } else {
      return refuse(readable(tensor.name), "an unknown tensor name", accepted_names());
    }
  }
  for (std::size_t index = 0; index < found.size(); ++index)
    if (!found[index])
      return refuse(std::string(required_tensors[index].name), "no such tensor", "a case with tensors q, k and v");
  return Done{};
}

Status refuse_unsupported(const SafetensorsFile& file) {
  for (const NamedTensor& tensor : file.tensors) {
    if (std::find(unsupported_tensors.begin(), unsupported_tensors.end(), tensor.name) == unsupported_tensors.end())
      continue;
    Refusal refusal = refuse(tensor.name, "a tensor of a feature that is not supported yet", accepted_names());
    refusal.fault = Fault::unsupported;
    return refusal;
  }
  return Done{};
}

/// q, k and v against each other.
Status check_main_shapes(const Case& c) {
  const Axis any_batch{"B"}, any_head_dim{"D"};
  if (!is_attention_dtype(c.q.dtype)) return refuse("q", spell(c.q.dtype), "f64, f32, f16 or bf16");
  if (const Status status = check_tensor("q", c.q, c.q.dtype, {{any_batch, {"Hq"}, {"Sq"}, any_head_dim}}); !status)
    return status;
  const Axis batch{"B", c.q.shape[0]}, head_dim{"D", c.q.shape[3]};
  if (const Status status = check_tensor("k", c.k, c.q.dtype, {{batch, {"Hkv"}, {"Sk"}, head_dim}}); !status)
    return status;
  return check_tensor("v", c.v, c.q.dtype, {{batch, {"Hkv", c.k.shape[1]}, {"Sk", c.k.shape[2]}, {"Dv"}}});
}

/// Everything else against q, k and v, once those fit.
Status check_optional_shapes(const Case& c) {
  const Axis batch{"B", c.q.shape[0]}, heads{"Hq", c.q.shape[1]}, queries{"Sq", c.q.shape[2]}, dim{"D", c.q.shape[3]};
  const Axis heads_kv{"Hkv", c.k.shape[1]}, keys{"Sk", c.k.shape[2]}, value_dim{"Dv", c.v.shape[3]};
  const Forms slopes{{heads}, {batch, heads}};
  const Forms expected_slopes =
      c.alibi_slopes && c.alibi_slopes->shape.size() == 2 ? Forms{{batch, heads}} : Forms{{heads}};
  const struct {
    std::string_view name;
    const std::optional<OwnedTensor>& tensor;
    DType dtype;
    Forms forms;
  } checks[] = {
      {"alibi_slopes", c.alibi_slopes, DType::f32, slopes},
      {"seqlens_k", c.seqlens_k, DType::i32, {{batch}}},
      {"dout", c.dout, c.q.dtype, {{batch, heads, queries, value_dim}}},
      {"expected_o", c.expected_o, DType::f64, {{batch, heads, queries, value_dim}}},
      {"expected_lse", c.expected_lse, DType::f64, {{batch, heads, queries}}},
      {"expected_dq", c.expected_dq, DType::f64, {{batch, heads, queries, dim}}},
      {"expected_dk", c.expected_dk, DType::f64, {{batch, heads_kv, keys, dim}}},
      {"expected_dv", c.expected_dv, DType::f64, {{batch, heads_kv, keys, value_dim}}},
      {"expected_dalibi_slopes", c.expected_dalibi_slopes, DType::f64, expected_slopes},
  };
  for (const auto& check : checks)
    if (check.tensor)
      if (const Status status = check_tensor(check.name, *check.tensor, check.dtype, check.forms); !status)
        return status;
  return Done{};
}

/// Tensors that mean nothing without another one.
Status check_companions(const Case& c) {
  const std::pair<std::string_view, bool> gradients[] = {
      {"expected_dq", c.expected_dq.has_value()},
      {"expected_dk", c.expected_dk.has_value()},
      {"expected_dv", c.expected_dv.has_value()},
      {"expected_dalibi_slopes", c.expected_dalibi_slopes.has_value()}};
  for (const auto& [name, given] : gradients)
    if (given && !c.dout) return refuse(std::string(name), "a gradient without dout", "expected gradients with dout");
  if (c.expected_dalibi_slopes && !c.alibi_slopes)
    return refuse("expected_dalibi_slopes", "a gradient without alibi_slopes",
                  "the gradient of a tensor that is there");
  return Done{};
}

/// Notes of any kind may stand beside `problem`, but not an option: it would be ignored, and the result be of another
/// problem.
Status read_notes(const Metadata& metadata, Case& result) {
  constexpr std::array<std::string_view, 3> known{"problem", "tokens", "show"};
  for (const auto& [key, text] : metadata) {
    if (is_case_option(key))
      return refuse(key, "an option beside metadata key problem", "the same key inside the JSON of problem");
    if (std::find(known.begin(), known.end(), key) == known.end()) result.unread.push_back(key);
  }
  return Done{};
}

Status read_problem(const Metadata& metadata, Case& result) {
  const auto text = metadata.find("problem");
  if (text == metadata.end())
    return refuse("problem", "no such metadata key", "a JSON object with the options, {} for none");
  const Result<CaseOptions> parsed = parse_case_options(text->second);
  if (!parsed) return parsed.refusal();
  if (parsed->block_size)
    return refuse("problem.block_size", fmt::format("{} without a paged cache", *parsed->block_size),
                  "null or absent; it belongs to k_cache and v_cache");
  if (parsed->alibi_given && !result.alibi_slopes)
    return refuse("problem.alibi", "a form without alibi_slopes", "null or absent; it says how alibi_slopes act");
  result.options = parsed->options;
  return Done{};
}

Status read_words(const Metadata& metadata, Case& result) {
  if (const auto text = metadata.find("tokens"); text != metadata.end()) {
    Result<std::vector<std::string>> tokens = parse_tokens(text->second);
    if (!tokens) return tokens.refusal();
    if (tokens->size() != static_cast<std::size_t>(result.k.shape[2]))
      return refuse("tokens", fmt::format("{} strings", tokens->size()),
                    fmt::format("one string for each of the {} keys", result.k.shape[2]));
    result.tokens = std::move(*tokens);
  }
  if (const auto text = metadata.find("show"); text != metadata.end()) {
    const Result<Show> show = parse_show(text->second);
    if (!show) return show.refusal();
    const auto& shape = result.q.shape;
    if (show->batch >= shape[0] || show->head >= shape[1] || show->query >= shape[2])
      return refuse("show", fmt::format("batch {}, head {}, query {}", show->batch, show->head, show->query),
                    fmt::format("a row of q, which has B={}, Hq={} and Sq={}", shape[0], shape[1], shape[2]));
    result.show = *show;
  }
  return Done{};
}

Result<Case> case_of(SafetensorsFile file) {
  Case result;
  // Features first: a paged case has no k, which is not what its reader needs to hear.
  if (const Status status = refuse_unsupported(file); !status) return status.refusal();
  if (const Status status = distribute(file, result); !status) return status.refusal();
  if (const Status status = read_notes(file.metadata, result); !status) return status.refusal();
  if (const Status status = read_problem(file.metadata, result); !status) return status.refusal();
  for (const auto check : {check_companions, check_main_shapes, check_optional_shapes})
    if (const Status status = check(result); !status) return status.refusal();
  if (const Status status = read_words(file.metadata, result); !status) return status.refusal();
  return result;
}

/// The checks of case_of on names and shapes alone, so that a fault is found before any data is read.
Status inspect(SafetensorsFile outline) {
  const Result<Case> outlined = case_of(std::move(outline));
  return outlined ? Status(Done{}) : outlined.refusal();
}

Result<Case> finished(Result<SafetensorsFile> file, std::string path) {
  if (!file) return file.refusal();
  Result<Case> result = case_of(std::move(*file));
  if (result) result->path = std::move(path);
  return result;
}

}  // namespace

Inputs Case::inputs() const {
  Inputs inputs{q.view(), k.view(), v.view(), {}, {}};
  if (alibi_slopes) inputs.alibi_slopes = alibi_slopes->view();
  if (seqlens_k) inputs.seqlens_k = seqlens_k->view();
  return inputs;
}

Result<Case> read_case(const std::filesystem::path& path) {
  return finished(read_safetensors(path, inspect), path.string());
}

Result<Case> parse_case(std::span<const std::byte> bytes, std::string_view label) {
  return finished(parse_safetensors(bytes, label, inspect), std::string(label));
}

}  // namespace fresnel
