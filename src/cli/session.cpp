// SPDX-License-Identifier: Apache-2.0
// Machine and threads of a command: see session.hpp.
#include "cli/session.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "cli/errors.hpp"
#include "controls/controls.hpp"
#include "inputs/inputs.hpp"
#include "kernels/kernel.hpp"
#include "runtime/host.hpp"

namespace fresnel::cli {
namespace {

constexpr const char* accepted_devices = "cpu, cuda, cuda:N, webgpu";

bool is_cuda(const std::string& device) {
  if (device == "cuda") return true;
  if (!device.starts_with("cuda:")) return false;
  const std::string number = device.substr(5);
  return !number.empty() && number.size() <= 4 && number.find_first_not_of("0123456789") == std::string::npos;
}

std::optional<Refusal> refusal_of_device(const std::string& device) {
  if (device == "cpu") return std::nullopt;
  if (is_cuda(device) || device == "webgpu")
    return Refusal{Fault::device, {}, "--device", device + " (no such device here)", "cpu", "cpu"};
  return refuse("--device", "'" + device + "'", accepted_devices, nearest_word(device, {"cpu", "cuda", "webgpu"}));
}

}  // namespace

void Placement::add_to(Usage& usage) {
  usage.option("--threads", threads, "Threads to run on (default: all this process may use)", "N");
  usage.option("--device", device, "cpu (the default), cuda, cuda:N or webgpu", "DEVICE");
}

void add_inputs_option(Usage& usage, Text& kind) {
  std::vector<std::string> names;
  for (const InputKind& each : input_kinds()) names.emplace_back(each.name);
  usage.option("--inputs", kind, "Kind of the inputs (default normal): " + joined(names), "KIND");
}

Status known_kernel(const Text& kernel) {
  if (!kernel || find_kernel(*kernel) != nullptr) return Done{};
  const std::vector<std::string> names = kernel_names();
  return refuse("--kernel", "'" + *kernel + "'", joined(names), nearest_word(*kernel, names));
}

Status known_kernel_or_control(const Text& kernel) {
  if (!kernel || !kernel->starts_with(controls::prefix)) return known_kernel(kernel);
  if (controls::find(*kernel) != nullptr) return Done{};
  std::vector<std::string> names;
  for (const Kernel& control : controls::rows()) names.emplace_back(control.name);
  return refuse("--kernel", "'" + *kernel + "'", joined(names), nearest_word(*kernel, names));
}

Result<Session> open_session(const Placement& placement) {
  if (const auto refusal = refusal_of_device(placement.device.value_or("cpu"))) return *refusal;
  int threads = 0;
  if (placement.threads) {
    const auto given = whole_number("--threads", *placement.threads, 1, most_threads);
    if (!given) return given.refusal();
    threads = static_cast<int>(*given);
  }
  auto machine = Machine::detect();
  if (!machine) return machine.refusal();
  Session session;
  session.machine = std::move(*machine);
  session.threads = threads > 0 ? threads : std::max(1, session.machine.threads);
  session.executor = make_executor(session.threads);
  return session;
}

}  // namespace fresnel::cli
