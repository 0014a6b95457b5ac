// SPDX-License-Identifier: Apache-2.0
// Bytes as a safetensors file and as a case. A file that is read covers its bytes exactly; a small case that is read
// goes all the way: described, its arrays checked, computed and judged, or refused with a reason at some step.
#include "io/safetensors.hpp"

#include "fresnel/fresnel.hpp"
#include "fuzz/target.hpp"
#include "io/case_file.hpp"
#include "support/host_tensor.hpp"
#include "support/runner.hpp"

namespace fresnel::test {
namespace {

constexpr std::int64_t most_work = 4096;  // multiply-adds; a fuzzer lives on speed

/// Little to do: small, or empty, whose other extents may then be anything.
bool small(const Case& read) {
  if (read.q.bytes.size() == 0 && read.v.bytes.size() == 0) return true;
  double work = 1;
  for (const std::int64_t extent :
       {read.q.shape[0], read.q.shape[1], read.q.shape[2], read.k.shape[2], read.q.shape[3] + read.v.shape[3]})
    work *= static_cast<double>(std::max<std::int64_t>(extent, 1));
  return work <= most_work;
}

/// No outputs: nothing to write, nothing to point at, and nothing to wait for either.
void compute_nothing(const Options& options, const Inputs& inputs, DType wide) {
  const auto& rows = inputs.q.sizes;
  const Outputs outputs{MutableView(nullptr, inputs.q.dtype, {rows[0], rows[1], rows[2], inputs.v.sizes[3]}),
                        MutableView(nullptr, wide, {rows[0], rows[1], rows[2]})};
  const Result<Report> report = attend(options, inputs, outputs);
  if (!report) return demand_reason(report.refusal());
  const Result<Verdict> verdict = check(report->plan.problem, inputs, outputs, roundings_of(report->plan));
  demand(verdict.ok() && verdict->ok() && verdict->o.count == 0, "nothing is wrong: " + print(report->plan.problem));
}

void compute(const Case& read) {
  const std::int64_t batch = read.q.shape[0], heads = read.q.shape[1], queries = read.q.shape[2];
  const Inputs inputs = read.inputs();
  const DType wide = read.q.dtype == DType::f64 ? DType::f64 : DType::f32;
  if (read.q.bytes.size() == 0) return compute_nothing(read.options, inputs, wide);
  HostTensor o(read.q.dtype, {batch, heads, queries, read.v.shape[3]});
  HostTensor lse(wide, {batch, heads, queries});
  const Outputs outputs{o.mutable_view(), lse.mutable_view()};
  SerialExecutor executor;
  Context context;
  context.executor = &executor;
  const Result<Report> report = attend(read.options, inputs, outputs, context);
  if (!report) return demand_reason(report.refusal());
  demand(o.guards_intact() && lse.guards_intact(), "wrote outside the outputs: " + print(report->plan.problem));
  const Result<Verdict> verdict = check(report->plan.problem, inputs, outputs, roundings_of(report->plan), &executor);
  demand(verdict.ok(), "computed, but not judged: " + print(report->plan.problem));
  demand(verdict->ok(), "wrong: " + print(report->plan.problem));
}

}  // namespace

void one_input(std::span<const std::byte> bytes) {
  const Result<SafetensorsFile> file = parse_safetensors(bytes, "fuzz");
  if (!file) demand_reason(file.refusal());
  const Result<Case> read = parse_case(bytes, "fuzz");
  if (!read) demand_reason(read.refusal());
  demand(file.ok() || !read.ok(), "a case that is no file");
  if (file) {
    std::size_t covered = 0;
    for (const NamedTensor& named : file->tensors) {
      const auto size = byte_size_of(named.tensor.dtype, named.tensor.shape);
      demand(size && static_cast<std::size_t>(*size) == named.tensor.bytes.size(), "a tensor that is not its shape");
      covered += named.tensor.bytes.size();
    }
    demand(covered <= bytes.size(), "more data than the file has bytes");
  }
  if (read && small(*read)) compute(*read);
}

}  // namespace fresnel::test
