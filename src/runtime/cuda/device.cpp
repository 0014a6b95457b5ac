// SPDX-License-Identifier: Apache-2.0
// The CUDA device runtime: see device.hpp. Host code alone; kernels are compiled elsewhere.
#include "runtime/cuda/device.hpp"

#include <cuda_runtime_api.h>

#include <utility>

namespace fresnel::cuda {
namespace {

Refusal refusal_of(cudaError_t error, const char* what, const char* accepted) {
  const Fault fault = error == cudaErrorMemoryAllocation ? Fault::out_of_memory : Fault::device;
  return {fault, {}, what, std::string(cudaGetErrorName(error)) + ", " + cudaGetErrorString(error), accepted, {}};
}

Status status_of(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return Done{};
  return refusal_of(error, what, "a call that CUDA takes");
}

Result<cudaEvent_t> new_event() {
  cudaEvent_t event = nullptr;
  if (const cudaError_t error = cudaEventCreate(&event); error != cudaSuccess)
    return refusal_of(error, "event", "a CUDA event");
  return event;
}

cudaEvent_t event_of(const void* event) { return static_cast<cudaEvent_t>(const_cast<void*>(event)); }

}  // namespace

Result<DeviceFacts> use_device(int index) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess)
    return refusal_of(error, "device", "a CUDA device and its driver");
  if (index < 0 || index >= count)
    return Refusal{Fault::device,
                   {},
                   "device",
                   "cuda:" + std::to_string(index),
                   count == 0 ? "none, there is no CUDA device here" : "cuda:0 to cuda:" + std::to_string(count - 1),
                   {}};
  cudaDeviceProp properties{};
  cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, index);
  DeviceFacts facts;
  if (error == cudaSuccess) error = cudaDriverGetVersion(&facts.driver);
  if (error == cudaSuccess) error = cudaRuntimeGetVersion(&facts.runtime);
  if (error != cudaSuccess) return refusal_of(error, "device", "a CUDA device that works");
  facts.name = properties.name;
  facts.index = index;
  facts.major = properties.major;
  facts.minor = properties.minor;
  facts.multiprocessors = properties.multiProcessorCount;
  facts.l2_bytes = properties.l2CacheSize;
  facts.shared_bytes = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin);
  return facts;
}

void DeviceBuffer::Free::operator()(void* memory) const { static_cast<void>(cudaFree(memory)); }

Result<DeviceBuffer> DeviceBuffer::allocate(std::size_t bytes) {
  DeviceBuffer buffer;
  void* memory = nullptr;
  if (const cudaError_t error = cudaMalloc(&memory, bytes); error != cudaSuccess)
    return refusal_of(error, "device memory", "as many bytes as are free");
  buffer.memory_.reset(memory);
  buffer.size_ = bytes;
  return buffer;
}

Status DeviceBuffer::upload(std::span<const std::byte> from) {
  if (from.size() != size_)
    return Refusal{Fault::bad_input, {}, "upload", std::to_string(from.size()) + " bytes", std::to_string(size_), {}};
  return status_of(cudaMemcpy(data(), from.data(), size_, cudaMemcpyHostToDevice), "upload");
}

Status DeviceBuffer::download(std::span<std::byte> to) const {
  if (to.size() != size_)
    return Refusal{Fault::bad_input, {}, "download", std::to_string(to.size()) + " bytes", std::to_string(size_), {}};
  return status_of(cudaMemcpy(to.data(), data(), size_, cudaMemcpyDeviceToHost), "download");
}

Status DeviceBuffer::fill(int value) { return status_of(cudaMemset(data(), value, size_), "fill"); }

Status synchronize(const char* what) { return status_of(cudaDeviceSynchronize(), what); }

Status launched(const char* what) { return status_of(cudaGetLastError(), what); }

void Stopwatch::Destroy::operator()(void* event) const { static_cast<void>(cudaEventDestroy(event_of(event))); }

Result<Stopwatch> Stopwatch::create() {
  const auto begin = new_event(), end = new_event();
  Stopwatch stopwatch;
  if (begin) stopwatch.begin_.reset(*begin);
  if (end) stopwatch.end_.reset(*end);
  if (!begin) return begin.refusal();
  if (!end) return end.refusal();
  return stopwatch;
}

Status Stopwatch::start() { return status_of(cudaEventRecord(event_of(begin_.get())), "start"); }

Result<double> Stopwatch::seconds() {
  float milliseconds = 0;
  cudaError_t error = cudaEventRecord(event_of(end_.get()));
  if (error == cudaSuccess) error = cudaEventSynchronize(event_of(end_.get()));
  if (error == cudaSuccess) error = cudaEventElapsedTime(&milliseconds, event_of(begin_.get()), event_of(end_.get()));
  if (error != cudaSuccess) return refusal_of(error, "seconds", "launches that end");
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace fresnel::cuda
