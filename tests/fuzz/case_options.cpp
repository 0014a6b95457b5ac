// SPDX-License-Identifier: Apache-2.0
// Text as the three pieces of JSON in a case file's metadata, the first byte saying which. Options that are read and
// that mean something survive the problem line, the other spelling they have.
#include "io/case_options.hpp"

#include "fresnel/fresnel.hpp"
#include "fuzz/target.hpp"

namespace fresnel::test {
namespace {

void as_options(std::string_view text) {
  const Result<CaseOptions> read = parse_case_options(text);
  if (!read) return demand_reason(read.refusal());
  demand(!read->block_size || *read->block_size >= 0, "a negative count was read");
  Problem problem;
  problem.queries = 2;
  problem.keys = 3;
  problem.head_dim = problem.value_dim = 4;
  problem.options = read->options;
  problem.alibi_slopes = read->alibi_given ? AlibiSlopes::per_head : AlibiSlopes::none;
  if (const Status meaning = validate(problem); !meaning) return demand_reason(meaning.refusal());
  const Result<Problem> again = parse_problem(print(problem));
  demand(again.ok() && *again == problem, "options lost on the line: " + print(problem));
}

void as_tokens(std::string_view text) {
  const auto read = parse_tokens(text);
  if (!read) return demand_reason(read.refusal());
  demand(read->size() <= text.size(), "more tokens than characters");
}

void as_show(std::string_view text) {
  const Result<Show> read = parse_show(text);
  if (!read) return demand_reason(read.refusal());
  demand(read->batch >= 0 && read->head >= 0 && read->query >= 0, "a negative place was read");
}

}  // namespace

void one_input(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const std::string_view text = text_of(bytes.subspan(1));
  switch (std::to_integer<int>(bytes.front())) {
    case 't': return as_tokens(text);
    case 's': return as_show(text);
    default: return as_options(text);
  }
}

}  // namespace fresnel::test
