// SPDX-License-Identifier: Apache-2.0
// All habits but those of threads, for every row of the catalogue on every instruction set of this host.
#include "habits/register.hpp"

namespace fresnel::test {
namespace {

[[maybe_unused]] const bool registered =
    register_habits("HiddenValues", hidden_value_habits()) && register_habits("Layouts", layout_habits()) &&
    register_habits("Addresses", address_habits()) && register_habits("Company", company_habits()) &&
    register_habits("Options", option_habits()) && register_habits("Scores", score_habits()) &&
    register_habits("Sizes", size_habits()) && register_habits("Workspaces", workspace_habits()) &&
    register_habits("LongRows", long_row_habits());

}  // namespace
}  // namespace fresnel::test
