// SPDX-License-Identifier: Apache-2.0
// The casebook: one test per row that dense attention can express, on every row of the catalogue.
#include "habits/casebook.hpp"
#include "habits/register.hpp"

namespace fresnel::test {
namespace {

[[maybe_unused]] const bool registered =
    register_habits("Casebook", casebook_mask_rows()) && register_habits("Casebook", casebook_number_rows()) &&
    register_habits("Casebook", casebook_shape_rows()) && register_habits("Casebook", casebook_serving_rows());

}  // namespace
}  // namespace fresnel::test
