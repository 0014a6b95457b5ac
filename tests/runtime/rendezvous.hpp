// SPDX-License-Identifier: Apache-2.0
// A meeting of tasks: proof that they ran at the same time. It gives up instead of hanging when they cannot.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace fresnel::test {

class Rendezvous {
 public:
  explicit Rendezvous(int expected) : expected_(expected) {}

  /// True once all have arrived; false when some have not come for twenty seconds, and for all who come after that.
  bool arrive() {
    arrived_.fetch_add(1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (arrived_.load() < expected_) {
      if (std::chrono::steady_clock::now() > end) given_up_ = true;
      if (given_up_) return false;
      std::this_thread::yield();
    }
    return true;
  }

 private:
  int expected_;
  std::atomic<int> arrived_{0};
  std::atomic<bool> given_up_{false};
};

}  // namespace fresnel::test
