// SPDX-License-Identifier: Apache-2.0
// This thread's last error. A refusal is kept whole; where there is no memory to keep it, constant text stands in.
#include "c_api/error.hpp"

#include <cstring>
#include <exception>
#include <new>
#include <system_error>

namespace fresnel::c_api {
namespace {

struct LastError {
  Refusal refusal;
  std::string message;
  bool out_of_memory = false;  ///< no text could be kept
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

constexpr const char* no_memory = "memory: given an allocation that failed; accepted: a machine with enough memory";

fresnel_status status_of(Fault fault) {
  switch (fault) {
    case Fault::bad_input: return FRESNEL_BAD_INPUT;
    case Fault::unsupported: return FRESNEL_UNSUPPORTED;
    case Fault::device: return FRESNEL_DEVICE;
    case Fault::out_of_memory: return FRESNEL_OUT_OF_MEMORY;
    case Fault::io: return FRESNEL_IO;
  }
  return FRESNEL_DEVICE;
}

fresnel_status fail_without_memory() noexcept {
  last_error().out_of_memory = true;
  return FRESNEL_OUT_OF_MEMORY;
}

const char* part(std::string Refusal::*field) {
  const LastError& error = last_error();
  return error.out_of_memory ? "" : (error.refusal.*field).c_str();
}

}  // namespace

fresnel_status fail(const Refusal& refusal) noexcept {
  try {
    LastError kept{refusal, refusal.message(), false};
    std::swap(last_error(), kept);
    return status_of(refusal.fault);
  } catch (const std::exception&) {
    return fail_without_memory();
  }
}

fresnel_status fail_with_current_exception() noexcept {
  try {
    try {
      throw;
    } catch (const Error& error) {
      return fail(error.refusal());
    } catch (const std::bad_alloc&) {
      return fail_without_memory();
    } catch (const std::exception& error) {  // std::system_error: a thread could not be started
      return fail({Fault::device, "", "system", error.what(), "a system that grants what is asked", ""});
    } catch (...) {  // of a caller's own executor
      return fail({Fault::device, "", "system", "an unknown exception", "an executor that does not throw", ""});
    }
  } catch (...) {
    return fail_without_memory();
  }
}

void refuse(std::string argument, std::string given, std::string accepted) {
  throw Error({Fault::bad_input, "", std::move(argument), std::move(given), std::move(accepted), ""});
}

void require(const void* pointer, const char* name) {
  if (pointer == nullptr) refuse(name, "a null pointer", "an address");
}

void write_text(const std::string& value, char* text, std::size_t capacity, std::size_t* needed) {
  const std::size_t bytes = value.size() + 1;
  if (needed != nullptr) *needed = bytes;
  if (text == nullptr && capacity == 0) return;
  require(text, "text");
  if (capacity < bytes)
    refuse("capacity", std::to_string(capacity) + " bytes", "at least " + std::to_string(bytes) + " bytes");
  std::memcpy(text, value.c_str(), bytes);
}

}  // namespace fresnel::c_api

const char* fresnel_status_name(fresnel_status status) noexcept {
  switch (status) {
    case FRESNEL_OK: return "ok";
    case FRESNEL_BAD_INPUT: return "bad input";
    case FRESNEL_UNSUPPORTED: return "unsupported";
    case FRESNEL_DEVICE: return "device";
    case FRESNEL_OUT_OF_MEMORY: return "out of memory";
    case FRESNEL_IO: return "io";
    default: return "unknown status";
  }
}

const char* fresnel_last_error() noexcept {
  using namespace fresnel::c_api;
  return last_error().out_of_memory ? no_memory : last_error().message.c_str();
}
const char* fresnel_error_argument() noexcept { return fresnel::c_api::part(&fresnel::Refusal::argument); }
const char* fresnel_error_given() noexcept { return fresnel::c_api::part(&fresnel::Refusal::given); }
const char* fresnel_error_accepted() noexcept { return fresnel::c_api::part(&fresnel::Refusal::accepted); }
const char* fresnel_error_nearest() noexcept { return fresnel::c_api::part(&fresnel::Refusal::nearest); }
const char* fresnel_error_kernel() noexcept { return fresnel::c_api::part(&fresnel::Refusal::kernel); }
