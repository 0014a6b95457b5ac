// SPDX-License-Identifier: Apache-2.0
// How fresnel says no. Every refusal names the argument, what was given and what is accepted; results cannot be
// ignored. Nothing here knows about attention.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#pragma GCC visibility push(default)  // what stands below is what a shared library exports

namespace fresnel {

/// The kind of a refusal; it decides exit codes, never the wording.
enum class Fault {
  bad_input,      ///< an argument is outside what attention means
  unsupported,    ///< meaningful, but no kernel here does it
  device,         ///< a device is absent or failed
  out_of_memory,  ///< an allocation failed
  io,             ///< a file could not be written
};

/// A "no" with its reason.
struct Refusal {
  Fault fault = Fault::bad_input;
  std::string kernel;    ///< the row that refuses; empty when the argument is wrong for every kernel
  std::string argument;  ///< name of the argument or field
  std::string given;     ///< what it was
  std::string accepted;  ///< what would have been accepted
  std::string nearest;   ///< nearest accepted value, when there is one

  /// One sentence: "[kernel: ]argument: given X, accepted Y[, nearest Z]".
  [[nodiscard]] std::string message() const {
    std::string text = kernel.empty() ? std::string() : kernel + ": ";
    text += argument + ": given " + given + "; accepted: " + accepted;
    if (!nearest.empty()) text += "; nearest: " + nearest;
    return text;
  }

  bool operator==(const Refusal&) const = default;
};

/// Thrown by `Result::value()` and by the convenience functions; carries the refusal's own text.
class Error : public std::runtime_error {
 public:
  explicit Error(Refusal refusal) : std::runtime_error(refusal.message()), refusal_(std::move(refusal)) {}
  [[nodiscard]] const Refusal& refusal() const { return refusal_; }

 private:
  Refusal refusal_;
};

/// Either a T or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::in_place_index<0>, std::move(value)) {}
  Result(Refusal refusal) : content_(std::in_place_index<1>, std::move(refusal)) {}

  [[nodiscard]] bool ok() const { return content_.index() == 0; }
  explicit operator bool() const { return ok(); }

  /// The value; throws Error with the refusal's text when there is none.
  [[nodiscard]] const T& value() const& {
    if (!ok()) throw Error(refusal());
    return *std::get_if<0>(&content_);
  }
  [[nodiscard]] T&& value() && {
    if (!ok()) throw Error(refusal());
    return std::move(*std::get_if<0>(&content_));
  }

  /// Unchecked access, for callers that have just tested `ok()`.
  const T& operator*() const { return *std::get_if<0>(&content_); }
  T& operator*() { return *std::get_if<0>(&content_); }
  const T* operator->() const { return std::get_if<0>(&content_); }
  T* operator->() { return std::get_if<0>(&content_); }

  [[nodiscard]] const Refusal& refusal() const { return *std::get_if<1>(&content_); }

 private:
  std::variant<T, Refusal> content_;
};

/// Success without a value.
struct Done {
  bool operator==(const Done&) const = default;
};
using Status = Result<Done>;

}  // namespace fresnel

#pragma GCC visibility pop
