// SPDX-License-Identifier: Apache-2.0
// The wall between C++ and C: refusals and exceptions end here, as a status and this thread's last error. Nothing that
// stands behind `guarded` can throw past it, running out of memory while wording an error included.
#pragma once

#include <cstddef>
#include <string>

#include "fresnel/fresnel.h"
#include "fresnel/result.hpp"

namespace fresnel::c_api {

/// Makes the refusal this thread's last error.
fresnel_status fail(const Refusal& refusal) noexcept;

/// The same for the exception that is being handled.
fresnel_status fail_with_current_exception() noexcept;

/// Runs `function`, which returns a Status, on this side of the wall.
template <class Function>
fresnel_status guarded(Function&& function) noexcept {
  try {
    const Status status = function();
    return status ? FRESNEL_OK : fail(status.refusal());
  } catch (...) {
    return fail_with_current_exception();
  }
}

/// Throws the refusal of an argument that only C can get wrong: null pointers, sizes of structs, numbers of enums.
[[noreturn]] void refuse(std::string argument, std::string given, std::string accepted);

/// Refuses a null pointer by name.
void require(const void* pointer, const char* name);

/// Refuses null, and a struct of a size that this version does not know.
template <class Struct>
const Struct& known(const Struct* given, const std::string& name) {
  require(given, name.c_str());
  if (given->size != sizeof(Struct))
    refuse(name + ".size", std::to_string(given->size), std::to_string(sizeof(Struct)) + ", the size of the struct");
  return *given;
}
template <class Struct>
Struct& known(Struct* given, const std::string& name) {
  return const_cast<Struct&>(known(const_cast<const Struct*>(given), name));
}

/// Hands text to a caller's buffer, as fresnel_problem_print documents it.
void write_text(const std::string& value, char* text, std::size_t capacity, std::size_t* needed);

/// Fills a struct's fixed field, cut off where it is too long.
template <std::size_t Length>
void fill(char (&field)[Length], const std::string& value) {
  field[value.copy(field, Length - 1)] = '\0';
}

}  // namespace fresnel::c_api
