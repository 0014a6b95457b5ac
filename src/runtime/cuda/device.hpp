// SPDX-License-Identifier: Apache-2.0
// The CUDA device runtime as host code sees it: which device there is or why there is none, owned device memory,
// copies, and times between two points of the default stream. No CUDA header is needed to include this; every CUDA
// error becomes a Refusal with CUDA's own words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "fresnel/result.hpp"

namespace fresnel::cuda {

struct DeviceFacts {
  std::string name;
  int index = 0;
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t shared_bytes = 0;  ///< workgroup memory that a kernel may ask for
  int driver = 0, runtime = 0;    ///< versions as CUDA numbers them, 13000 for 13.0
};

/// Device `index`, made current for this thread. Refuses with Fault::device where there is none.
[[nodiscard]] Result<DeviceFacts> use_device(int index = 0);

/// Owned device memory. Moves, never copies.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  [[nodiscard]] static Result<DeviceBuffer> allocate(std::size_t bytes);
  [[nodiscard]] Status upload(std::span<const std::byte> from);
  [[nodiscard]] Status download(std::span<std::byte> to) const;
  /// Every byte set to `value`: 0xff makes every float a NaN.
  [[nodiscard]] Status fill(int value);

  [[nodiscard]] void* data() const { return memory_.get(); }
  [[nodiscard]] float* floats() const { return static_cast<float*>(memory_.get()); }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t size_ = 0;
};

/// Waits for the device; an error of anything launched before is the answer.
[[nodiscard]] Status synchronize(const char* what);

/// A launch's own error (a configuration the device does not take), without waiting.
[[nodiscard]] Status launched(const char* what);

/// Device time between `start` and `seconds`.
class Stopwatch {
 public:
  [[nodiscard]] static Result<Stopwatch> create();
  [[nodiscard]] Status start();
  /// Waits for what was launched since.
  [[nodiscard]] Result<double> seconds();

 private:
  struct Destroy {
    void operator()(void* event) const;
  };
  std::unique_ptr<void, Destroy> begin_, end_;
};

}  // namespace fresnel::cuda
