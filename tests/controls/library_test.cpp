// SPDX-License-Identifier: Apache-2.0
// The library does not know the controls: it plans none, lists none, and holds neither their names nor their symbols.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "controls/controls.hpp"
#include "fresnel/fresnel.hpp"

namespace fresnel::test {
namespace {

std::string contents_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The namespace as compilers spell it in symbols (Itanium ABI, section 5.1.2).
constexpr const char* spelled_namespace = "7fresnel8controls";

TEST(Library, HoldsNoControl) {
  const std::string library = contents_of(FRESNEL_LIBRARY), controls = contents_of(FRESNEL_CONTROLS);
  ASSERT_NE(library.find("cpu.flash"), std::string::npos) << FRESNEL_LIBRARY;
  for (const Kernel& row : controls::rows()) {
    EXPECT_EQ(library.find(row.name), std::string::npos) << row.name;
    EXPECT_NE(controls.find(row.name), std::string::npos) << row.name << ": a search that finds nothing proves nothing";
  }
  EXPECT_EQ(library.find(spelled_namespace), std::string::npos);
  EXPECT_NE(controls.find(spelled_namespace), std::string::npos);
}

TEST(Library, PlansNoControl) {
  const Problem problem = parse_problem("b1 h1 q4 k4 d8 f32").value();
  for (const Kernel& row : controls::rows()) {
    const Result<Plan> planned = plan(problem, Machine::host(), {.kernel = std::string(row.name)});
    ASSERT_FALSE(planned.ok()) << row.name;
    EXPECT_EQ(planned.refusal().argument, "kernel");
    EXPECT_EQ(planned.refusal().given, "'" + std::string(row.name) + "'");
    EXPECT_EQ(find_kernel(row.name), nullptr);
  }
  for (const std::string& name : kernel_names()) EXPECT_FALSE(name.starts_with(controls::prefix)) << name;
}

}  // namespace
}  // namespace fresnel::test
