// SPDX-License-Identifier: Apache-2.0
// Reads the host: which processors this process may use, their vector set, cores and caches. Decides nothing; a Machine
// is a value and plans are made from values.
#pragma once

#include <filesystem>
#include <vector>

#include "fresnel/machine.hpp"

namespace fresnel {

/// Most threads that FRESNEL_THREADS or a pool may ask for.
inline constexpr int most_threads = 4096;

/// The processors that the calling thread may run on, ascending; never empty.
[[nodiscard]] std::vector<int> usable_processors();

/// `Machine::detect` with the files of /proc and /sys read below `root`, so that a test can lay out any machine.
[[nodiscard]] Result<Machine> detect_machine(const std::filesystem::path& root);

/// `Machine::detect`, once per process: the value, or the refusal, that `Machine::host` throws.
[[nodiscard]] const Result<Machine>& host_machine();

}  // namespace fresnel
