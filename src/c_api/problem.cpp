// SPDX-License-Identifier: Apache-2.0
// Problems and machines for C.
#include <memory>

#include "c_api/convert.hpp"

using namespace fresnel;
using c_api::guarded;

namespace {

/// Hands a new handle to the caller, whose pointer is null after a failure.
template <class Make>
fresnel_status make_problem(fresnel_problem** problem, const Make& make) noexcept {
  return guarded([&]() -> Status {
    c_api::require(problem, "problem");
    *problem = nullptr;
    const Result<Problem> made = make();
    if (!made) return made.refusal();
    *problem = std::make_unique<fresnel_problem>(fresnel_problem{*made}).release();
    return Done{};
  });
}

}  // namespace

fresnel_status fresnel_problem_parse(const char* line, fresnel_problem** problem) noexcept {
  return make_problem(problem, [&] {
    c_api::require(line, "line");
    return parse_problem(line);
  });
}

fresnel_status fresnel_problem_describe(const fresnel_options* options, const fresnel_inputs* inputs,
                                        const fresnel_outputs* outputs, fresnel_problem** problem) noexcept {
  return make_problem(problem, [&] {
    return describe(c_api::options_of(options), c_api::inputs_of(inputs), c_api::outputs_of(outputs));
  });
}

fresnel_status fresnel_problem_print(const fresnel_problem* problem, char* text, size_t capacity,
                                     size_t* needed) noexcept {
  return guarded([&]() -> Status {
    c_api::require(problem, "problem");
    c_api::write_text(print(problem->problem), text, capacity, needed);
    return Done{};
  });
}

void fresnel_problem_destroy(fresnel_problem* problem) noexcept { delete problem; }

fresnel_status fresnel_machine_detect(fresnel_machine* machine) noexcept {
  return guarded([&]() -> Status {
    c_api::known(machine, "machine");
    const Result<Machine> detected = Machine::detect();
    if (!detected) return detected.refusal();
    machine->device = static_cast<int>(detected->device);
    machine->isa = static_cast<int>(detected->isa);
    machine->tile_unit = static_cast<int>(detected->tile_unit);
    machine->cores = detected->cores;
    machine->threads = detected->threads;
    machine->l1_bytes = detected->l1_bytes;
    machine->l2_bytes = detected->l2_bytes;
    machine->l3_bytes = detected->l3_bytes;
    c_api::fill(machine->name, detected->name);
    return Done{};
  });
}
