// SPDX-License-Identifier: Apache-2.0
// From a problem, a kind and a seed to tensors in memory: placing, filling, rounding.
#include "inputs/inputs.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "inputs/kinds.hpp"
#include "runtime/half.hpp"
#include "semantics/words.hpp"

namespace fresnel {
namespace {

/// Rounds a row to elements; what lies beyond the dtype's largest number becomes that number, NaN stays NaN.
template <class Element, class Round>
void store_as(std::span<const double> row, double largest, std::byte* to, Round round) {
  auto* elements = reinterpret_cast<Element*>(to);
  for (std::size_t d = 0; d < row.size(); ++d) elements[d] = round(std::clamp(row[d], -largest, largest));
}

void store(std::span<const double> row, DType dtype, std::byte* to) {
  switch (dtype) {
    case DType::f64:
      return store_as<double>(row, std::numeric_limits<double>::max(), to, [](double value) { return value; });
    case DType::f32:
      return store_as<float>(row, std::numeric_limits<float>::max(), to,
                             [](double value) { return static_cast<float>(value); });
    case DType::f16:
      return store_as<std::uint16_t>(row, 65504, to,
                                     [](double value) { return float_to_f16(static_cast<float>(value)); });
    default:
      return store_as<std::uint16_t>(row, 0x1.fep127, to,
                                     [](double value) { return float_to_bf16(static_cast<float>(value)); });
  }
}

/// Writes every row of q, k, v or dout.
void fill(GuardedTensor& tensor, const Recipe& recipe, Role role,
          void (*row_of)(const Recipe&, const RowPlace&, std::span<double>)) {
  const View view = tensor.view();
  if (view.elements() == 0) return;
  std::vector<double> row(static_cast<std::size_t>(view.sizes[3]));
  for (std::int64_t b = 0; b < view.sizes[0]; ++b)
    for (std::int64_t h = 0; h < view.sizes[1]; ++h)
      for (std::int64_t i = 0; i < view.sizes[2]; ++i) {
        row_of(recipe, {role, b, h, i}, row);
        store(row, view.dtype, tensor.row(b, h, i));
      }
}

/// Slopes like those in use, 2^-1 to 2^-8, but with full mantissas.
void fill_slopes(GuardedTensor& tensor, std::uint64_t seed) {
  const View view = tensor.view();
  const std::int64_t batches = view.rank == 2 ? view.sizes[0] : 1;
  const std::int64_t heads = view.sizes[static_cast<std::size_t>(view.rank - 1)];
  auto* slopes = reinterpret_cast<float*>(tensor.row(0, 0, 0));
  if (view.elements() == 0) return;
  for (std::int64_t b = 0; b < batches; ++b)
    for (std::int64_t h = 0; h < heads; ++h) {
      const double mantissa = 1 + std::fabs(RowRandom(seed, Role::alibi_slopes, b, h, 0).uniform(0)) * 0.5;
      slopes[b * heads + h] = static_cast<float>(std::ldexp(mantissa, -1 - static_cast<int>(h % 8)));
    }
}

/// In turn a random length, Sk, 0 and another random length; where the turn begins depends on the seed.
void fill_lengths(GuardedTensor& tensor, std::int64_t keys, std::uint64_t seed) {
  const std::int64_t batches = tensor.view().sizes[0];
  auto* lengths = reinterpret_cast<std::int32_t*>(tensor.row(0, 0, 0));
  for (std::int64_t b = 0; b < batches; ++b) {
    const std::uint64_t turn = (static_cast<std::uint64_t>(b) + seed) % 4;
    const std::int64_t random = RowRandom(seed, Role::seqlens_k, b, 0, 0).below(keys + 1);
    lengths[b] = static_cast<std::int32_t>(turn == 1 ? keys : turn == 2 ? 0 : random);
  }
}

Result<const InputKind*> find_kind(std::string_view name, DType dtype) {
  std::string names;
  for (const InputKind& kind : input_kinds()) {
    if (!kind.halves && size_of(dtype) < 4) {
      if (kind.name == name)
        return refuse("inputs", fmt::format("{} with {}", name, spell(dtype)), "f32 or f64 for this kind");
      continue;
    }
    if (kind.name == name) return &kind;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", kind.name);
  }
  return refuse("inputs", fmt::format("\"{}\"", name.substr(0, 64)), names);
}

/// All tensors of a problem, before any memory is asked for.
struct Placements {
  std::optional<Placement> q, k, v, o, lse, alibi_slopes, seqlens_k, dout, dq, dk, dv, dalibi_slopes;
  bool possible = true;  ///< none is beyond what can be addressed
  double bytes = 0;
};

Placements placements_of(const Problem& p) {
  Placements all;
  const auto add = [&](std::optional<Placement>& to, std::optional<Placement> placement) {
    to = placement;
    all.possible = all.possible && placement;
    all.bytes += placement ? static_cast<double>(placement->bytes) : 0;
  };
  const DType wide = p.dtype == DType::f64 ? DType::f64 : DType::f32;
  add(all.q, place(p.dtype, {p.batch, p.heads_q, p.queries, p.head_dim}, p.q));
  add(all.k, place(p.dtype, {p.batch, p.heads_kv, p.keys, p.head_dim}, p.k));
  add(all.v, place(p.dtype, {p.batch, p.heads_kv, p.keys, p.value_dim}, p.v));
  add(all.o, place(p.dtype, {p.batch, p.heads_q, p.queries, p.value_dim}, p.o));
  if (p.lse) add(all.lse, place(wide, {p.batch, p.heads_q, p.queries}, AxisOrder::bhsd, Rows::dense));
  const bool per_head = p.alibi_slopes == AlibiSlopes::per_head;
  const auto slopes = [&](DType dtype) {
    return per_head ? place(dtype, {p.heads_q}, AxisOrder::bhsd, Rows::dense)
                    : place(dtype, {p.batch, p.heads_q}, AxisOrder::bhsd, Rows::dense);
  };
  if (p.alibi_slopes != AlibiSlopes::none) add(all.alibi_slopes, slopes(DType::f32));
  if (p.seqlens_k) add(all.seqlens_k, place(DType::i32, {p.batch}, AxisOrder::bhsd, Rows::dense));
  if (!p.grad) return all;
  add(all.dout, all.o);
  add(all.dq, all.q);
  add(all.dk, all.k);
  add(all.dv, all.v);
  if (p.alibi_slopes != AlibiSlopes::none) add(all.dalibi_slopes, slopes(wide));
  return all;
}

/// Half of the machine's memory: systems promise more than they have and stop the process when it is used.
double most_bytes() {
  return 0.5 * static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

Status check_size(const Placements& all) {
  if (all.possible && all.bytes <= most_bytes()) return Done{};
  constexpr double mebibyte = 1 << 20;
  Refusal refusal =
      refuse("problem",
             all.possible ? fmt::format("tensors of {:.0f} MiB", all.bytes / mebibyte) : "tensors beyond 2^60 bytes",
             fmt::format("at most {:.0f} MiB, half of this machine's memory", most_bytes() / mebibyte));
  refusal.fault = Fault::out_of_memory;
  return refusal;
}

Status allocate(std::optional<GuardedTensor>& tensor, const std::optional<Placement>& placement,
                std::string_view owner) {
  if (!placement) return Done{};
  Result<GuardedTensor> allocated = GuardedTensor::allocate(*placement, owner);
  if (!allocated) return allocated.refusal();
  tensor = std::move(*allocated);
  return Done{};
}

}  // namespace

GeneratedInputs::GeneratedInputs(const Problem& problem, GuardedTensor q, GuardedTensor k, GuardedTensor v,
                                 GuardedTensor o)
    : problem_(problem), q_(std::move(q)), k_(std::move(k)), v_(std::move(v)), o_(std::move(o)) {}

Inputs GeneratedInputs::inputs() const {
  Inputs inputs{q_.view(), k_.view(), v_.view(), {}, {}};
  if (alibi_slopes_) inputs.alibi_slopes = alibi_slopes_->view();
  if (seqlens_k_) inputs.seqlens_k = seqlens_k_->view();
  if (dout_) inputs.dout = dout_->view();
  return inputs;
}

Outputs GeneratedInputs::outputs() {
  Outputs outputs{o_.mutable_view(), {}};
  const std::pair<std::optional<MutableView>*, std::optional<GuardedTensor>*> optional_outputs[] = {
      {&outputs.lse, &lse_},
      {&outputs.dq, &dq_},
      {&outputs.dk, &dk_},
      {&outputs.dv, &dv_},
      {&outputs.dalibi_slopes, &dalibi_slopes_}};
  for (const auto& [view, tensor] : optional_outputs)
    if (*tensor) *view = (*tensor)->mutable_view();
  return outputs;
}

void GeneratedInputs::reset_outputs() {
  o_.reset();
  for (auto* tensor : {&lse_, &dq_, &dk_, &dv_, &dalibi_slopes_})
    if (*tensor) (*tensor)->reset();
}

bool GeneratedInputs::guards_intact() const {
  for (const GuardedTensor* tensor : {&q_, &k_, &v_, &o_})
    if (!tensor->guards_intact()) return false;
  for (const auto* tensor : {&lse_, &alibi_slopes_, &seqlens_k_, &dout_, &dq_, &dk_, &dv_, &dalibi_slopes_})
    if (*tensor && !(*tensor)->guards_intact()) return false;
  return true;
}

Result<GeneratedInputs> make_inputs(const Problem& problem, std::string_view kind, std::uint64_t seed) {
  if (const Status valid = validate(problem); !valid) return valid.refusal();
  const Result<const InputKind*> found = find_kind(kind, problem.dtype);
  if (!found) return found.refusal();
  if (problem.seqlens_k && problem.keys > std::numeric_limits<std::int32_t>::max())
    return refuse("keys", fmt::format("{} with seqlens_k", problem.keys), "fewer than 2^31, since lengths are i32");
  const Placements placements = placements_of(problem);
  if (const Status status = check_size(placements); !status) return status.refusal();

  std::optional<GuardedTensor> q, k, v, o;
  for (const auto& [tensor, placement, name] : {std::tuple(&q, &placements.q, "q"),
                                                {&k, &placements.k, "k"},
                                                {&v, &placements.v, "v"},
                                                {&o, &placements.o, "o"}})
    if (const Status status = allocate(*tensor, *placement, name); !status) return status.refusal();
  GeneratedInputs result(problem, std::move(*q), std::move(*k), std::move(*v), std::move(*o));
  for (const auto& [tensor, placement, name] : {std::tuple(&result.lse_, &placements.lse, "lse"),
                                                {&result.alibi_slopes_, &placements.alibi_slopes, "alibi_slopes"},
                                                {&result.seqlens_k_, &placements.seqlens_k, "seqlens_k"},
                                                {&result.dout_, &placements.dout, "dout"},
                                                {&result.dq_, &placements.dq, "dq"},
                                                {&result.dk_, &placements.dk, "dk"},
                                                {&result.dv_, &placements.dv, "dv"},
                                                {&result.dalibi_slopes_, &placements.dalibi_slopes, "dalibi_slopes"}})
    if (const Status status = allocate(*tensor, *placement, name); !status) return status.refusal();
  // Lengths first: what is hidden depends on them.
  if (result.seqlens_k_) fill_lengths(*result.seqlens_k_, problem.keys, seed);
  if (result.alibi_slopes_) fill_slopes(*result.alibi_slopes_, seed);
  const auto* lengths = result.seqlens_k_ ? static_cast<const std::int32_t*>(result.seqlens_k_->view().data) : nullptr;
  const Recipe recipe{problem, seed, lengths};
  fill(result.q_, recipe, Role::q, (*found)->q);
  fill(result.k_, recipe, Role::k, (*found)->k);
  fill(result.v_, recipe, Role::v, (*found)->v);
  if (result.dout_) fill(*result.dout_, recipe, Role::dout, normal_row);
  return result;
}

}  // namespace fresnel
