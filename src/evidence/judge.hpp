// SPDX-License-Identifier: Apache-2.0
// What a record says of its arrays, computed from them: record calls these to write it down, audit calls them again to
// see whether it still comes out. Roundings are read from the record, so that an audit judges by what was declared
// then.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "evidence/protocol.hpp"
#include "fresnel/check.hpp"

namespace fresnel::evidence {

/// The outputs of one kernel.
struct Outcome {
  View o, lse;
};

/// {ok, o: {count, mismatches, max_error, max_share, at}, lse: {...}}.
/// Refuses arrays that are not those of the problem.
[[nodiscard]] Result<Json> judgement_of(const Problem& asked, const Inputs& inputs, const Outcome& outcome,
                                        const Roundings& roundings);

/// Largest |a - b| over sum_j p_j |v_j|, by the oracle; infinite where only that sum is 0.
[[nodiscard]] Result<double> distance_of(const Problem& asked, const Inputs& inputs, const View& a, const View& b);

/// SHA-256 over the elements of all inputs, in C order, q first.
[[nodiscard]] std::string hash_of(const Inputs& inputs);

[[nodiscard]] Json json_of(const Roundings& roundings);
/// Refuses, naming `argument`, what json_of does not write.
[[nodiscard]] Result<Roundings> roundings_from(const Json& json, const std::string& argument);

/// NaN and infinities as text.
[[nodiscard]] Json number(double value);

/// The middle one; the mean of the two in the middle. 0 of none.
[[nodiscard]] double median_of(std::vector<double> samples);

}  // namespace fresnel::evidence
