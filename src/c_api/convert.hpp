// SPDX-License-Identifier: Apache-2.0
// The structs of C as the values of C++. Null pointers, unknown sizes and numbers outside an enumeration are refused
// here, by throwing Error; all that C++ could get wrong as well is left to describe and validate.
#pragma once

#include <atomic>
#include <exception>
#include <optional>
#include <string>

#include "c_api/error.hpp"
#include "fresnel/fresnel.hpp"

// What C sees as opaque. NOLINTBEGIN(readability-identifier-naming): named by the C header
struct fresnel_problem {
  fresnel::Problem problem;
};
struct fresnel_plan {
  fresnel::Plan plan;
  std::string kernel;
};
// NOLINTEND(readability-identifier-naming)

namespace fresnel::c_api {

[[nodiscard]] View view_of(const fresnel_view* given, const std::string& name);
[[nodiscard]] MutableView view_of(const fresnel_mutable_view* given, const std::string& name);
/// Null: the defaults.
[[nodiscard]] Options options_of(const fresnel_options* given);
[[nodiscard]] Inputs inputs_of(const fresnel_inputs* given);
[[nodiscard]] Outputs outputs_of(const fresnel_outputs* given);
[[nodiscard]] Machine machine_of(const fresnel_machine* given);

/// A caller's executor. A task that throws does not unwind the caller's code: the first exception waits until all tasks
/// are done. An executor that leaves tasks out is refused, since the result would be wrong without a word.
class BorrowedExecutor final : public Executor {
 public:
  explicit BorrowedExecutor(const fresnel_executor& given) : given_(given) {}
  [[nodiscard]] int width() const override { return given_.width; }
  void run(int tasks, TaskRef task) override;

 private:
  fresnel_executor given_;
};

/// Null: none, which stands for the pool.
[[nodiscard]] std::optional<BorrowedExecutor> executor_of(const fresnel_executor* given);

}  // namespace fresnel::c_api
