// SPDX-License-Identifier: Apache-2.0
#include "evidence/judge.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "contracts/document.hpp"
#include "evidence/sha256.hpp"
#include "io/tensor.hpp"
#include "oracle/forward.hpp"
#include "runtime/half.hpp"

namespace fresnel::evidence {
namespace {

Json to_json(const Judgement& judgement, std::size_t rank) {
  Json at = nullptr;
  if (judgement.at[0] >= 0) at = std::vector<std::int64_t>(judgement.at.begin(), judgement.at.begin() + rank);
  return {{"count", judgement.count},
          {"mismatches", judgement.mismatches},
          {"max_error", number(judgement.max_error)},
          {"max_share", number(judgement.max_share)},
          {"at", at}};
}

/// check takes a result as outputs and only reads them.
MutableView writable(const View& view) {
  MutableView same;
  same.data = const_cast<void*>(view.data);
  same.dtype = view.dtype;
  same.rank = view.rank;
  same.sizes = view.sizes;
  same.strides = view.strides;
  return same;
}

/// Calls visit(address) for every element in C order.
template <class Visit>
void for_each_element(const View& view, Visit&& visit) {
  std::array<std::int64_t, View::max_rank> sizes{1, 1, 1, 1}, strides{};
  for (int axis = 0; axis < view.rank; ++axis) {
    sizes[axis] = view.sizes[axis];
    strides[axis] = view.strides[axis];
  }
  const auto* const base = static_cast<const std::byte*>(view.data);
  for (std::int64_t a = 0; a < sizes[0]; ++a)
    for (std::int64_t b = 0; b < sizes[1]; ++b)
      for (std::int64_t c = 0; c < sizes[2]; ++c)
        for (std::int64_t d = 0; d < sizes[3]; ++d)
          visit(base + (a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]) * size_of(view.dtype));
}

std::vector<double> elements_of(const View& view) {
  std::vector<double> values;
  for_each_element(view, [&](const std::byte* at) { values.push_back(load_as_double(at, view.dtype, 0)); });
  return values;
}

/// A dense copy of v with every sign bit cleared.
Result<OwnedTensor> magnitudes_of(const View& v) {
  auto copy = OwnedTensor::zeros(v.dtype, {v.sizes[0], v.sizes[1], v.sizes[2], v.sizes[3]});
  if (!copy) return copy.refusal();
  const auto width = static_cast<std::size_t>(size_of(v.dtype));
  std::byte* place = copy->bytes.data();
  for_each_element(v, [&](const std::byte* at) {
    std::memcpy(place, at, width);
    place[width - 1] &= std::byte{0x7f};  // little endian: the sign is in the last byte
    place += width;
  });
  return copy;
}

/// The problem of the views, which must be the one asked for but for where they lie.
Result<Problem> described(const Problem& asked, const Inputs& inputs, const View& o, const std::optional<View>& lse) {
  Outputs outputs{writable(o), {}};
  if (lse) outputs.lse = writable(*lse);
  auto problem = describe(asked.options, inputs, outputs);
  if (!problem) return problem;
  const auto without_layouts = [](Problem each) {
    each.q = each.k = each.v = each.o = {};
    each.lse = true;
    return each;
  };
  if (without_layouts(*problem) == without_layouts(asked)) return problem;
  return Refusal{Fault::bad_input, "", "arrays", print(*problem), print(asked), ""};
}

}  // namespace

Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Result<Json> judgement_of(const Problem& asked, const Inputs& inputs, const Outcome& outcome,
                          const Roundings& roundings) {
  const auto problem = described(asked, inputs, outcome.o, outcome.lse);
  if (!problem) return problem.refusal();
  const auto verdict = check(*problem, inputs, {writable(outcome.o), writable(outcome.lse)}, roundings);
  if (!verdict) return verdict.refusal();
  return Json{{"ok", verdict->ok()}, {"o", to_json(verdict->o, 4)}, {"lse", to_json(*verdict->lse, 3)}};
}

Result<double> distance_of(const Problem& asked, const Inputs& inputs, const View& a, const View& b) {
  const auto problem = described(asked, inputs, a, {});
  if (!problem) return problem.refusal();
  if (const auto other = described(asked, inputs, b, {}); !other) return other.refusal();
  const auto magnitudes = magnitudes_of(inputs.v);
  if (!magnitudes) return magnitudes.refusal();
  Inputs weighed = inputs;
  weighed.v = magnitudes->view();
  Problem dense = *problem;
  dense.v = {};
  const auto truth = reference(dense, weighed);
  if (!truth) return truth.refusal();
  const std::vector<double> left = elements_of(a), right = elements_of(b);
  double largest = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] == right[i]) continue;
    const double distance = std::fabs(left[i] - right[i]) / truth->o[i];
    largest = std::isnan(distance) ? std::numeric_limits<double>::infinity() : std::max(largest, distance);
  }
  return largest;
}

std::string hash_of(const Inputs& inputs) {
  std::vector<std::byte> bytes;
  const auto add = [&](const View& view) {
    const auto width = static_cast<std::size_t>(size_of(view.dtype));
    for_each_element(view, [&](const std::byte* at) { bytes.insert(bytes.end(), at, at + width); });
  };
  for (const View* view : {&inputs.q, &inputs.k, &inputs.v}) add(*view);
  for (const auto* view : {&inputs.alibi_slopes, &inputs.seqlens_k})
    if (*view) add(**view);
  return sha256(bytes);
}

Json json_of(const Roundings& roundings) { return Json(fresnel::to_json(roundings)); }

Result<Roundings> roundings_from(const Json& json, const std::string& argument) {
  Roundings roundings;
  const auto refusal = [&](const char* key) {
    return Refusal{Fault::bad_input,      "", argument + "." + key, "nothing that roundings have",
                   "as record writes it", ""};
  };
  // A binding, so that a field added to the struct does not compile until it is read here.
  auto& [name, unit, unit_p, least_p, sums_rounded_p, least, least_exp, flushes_inputs, exp_constant, exp_slope,
         rescale, tanh, log, log2_scores, tile_keys, running_sum, splits, split, dot_lanes] = roundings;
  const std::pair<const char*, double*> numbers[] = {{"unit", &unit},           {"unit_p", &unit_p},
                                                     {"least_p", &least_p},     {"least", &least},
                                                     {"least_exp", &least_exp}, {"exp_constant", &exp_constant},
                                                     {"exp_slope", &exp_slope}, {"rescale", &rescale},
                                                     {"tanh", &tanh},           {"log", &log},
                                                     {"split", &split}};
  const std::pair<const char*, bool*> flags[] = {{"sums_rounded_p", &sums_rounded_p},
                                                 {"flushes_inputs", &flushes_inputs},
                                                 {"log2_scores", &log2_scores},
                                                 {"running_sum", &running_sum}};
  const std::pair<const char*, std::int64_t*> counts[] = {
      {"tile_keys", &tile_keys}, {"splits", &splits}, {"dot_lanes", &dot_lanes}};
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) return refusal("name");
  name = json["name"].get<std::string>();
  const auto take = [&](const char* key, auto* value, auto fits) {
    if (!json.contains(key)) return true;  // younger than the record: its default is what the record meant
    if (!fits(json[key])) return false;
    json[key].get_to(*value);
    return true;
  };
  for (const auto& [key, value] : numbers)
    if (!take(key, value, [](const Json& given) { return given.is_number(); })) return refusal(key);
  for (const auto& [key, value] : flags)
    if (!take(key, value, [](const Json& given) { return given.is_boolean(); })) return refusal(key);
  for (const auto& [key, value] : counts)
    if (!take(key, value, [](const Json& given) { return given.is_number_unsigned(); })) return refusal(key);
  const Json known = json_of(roundings);
  for (const auto& [key, value] : json.items())
    if (!known.contains(key) || known[key] != value) return refusal(key.c_str());
  return roundings;
}

double median_of(std::vector<double> samples) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
}

}  // namespace fresnel::evidence
