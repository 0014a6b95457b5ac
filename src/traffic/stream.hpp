// SPDX-License-Identifier: Apache-2.0
// The addresses that one workgroup asks for, in order, and the workgroups in flight that take turns with theirs. What
// the threads of a workgroup ask for in one step is one block: so many runs of bytes, so far apart.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "traffic/cache.hpp"

namespace fresnel::traffic {

struct Block {
  std::uint64_t address = 0;
  std::int64_t bytes = 0;  ///< of one run
  std::int64_t runs = 1;
  std::int64_t stride = 0;  ///< bytes from run to run
  bool write = false;
};

/// A workgroup's blocks and how far its turns have come.
class Stream {
 public:
  std::vector<Block> blocks;

  /// Calls touch(line, write) for the next line; false when there is none left. Neighbouring runs share no line twice:
  /// a line that was the last one touched is not touched again.
  template <class Touch>
  bool next(std::uint64_t line_bytes, Touch&& touch) {
    for (; at_ < blocks.size(); ++at_, run_ = 0, started_ = false) {
      const Block& block = blocks[at_];
      for (; run_ < block.runs; ++run_, started_ = false) {
        const std::uint64_t first = block.address + static_cast<std::uint64_t>(run_ * block.stride);
        if (!started_) line_ = first / line_bytes;
        const std::uint64_t end = (first + static_cast<std::uint64_t>(block.bytes) - 1) / line_bytes;
        if (!started_ && run_ > 0 && line_ == last_) ++line_;
        started_ = true;
        if (line_ > end || block.bytes == 0) continue;
        last_ = line_++;
        touch(last_, block.write);
        return true;
      }
    }
    return false;
  }

 private:
  std::size_t at_ = 0;
  std::int64_t run_ = 0;
  bool started_ = false;
  std::uint64_t line_ = 0, last_ = 0;
};

/// Runs `count` workgroups through a hierarchy: as many as fit at a time, one line each in turn, the next workgroup in
/// the place of one that ends. record(index, stream) writes a workgroup's blocks when its time comes.
template <class Record>
void take_turns(Hierarchy& hierarchy, std::int64_t count, Record&& record) {
  const auto line_bytes = static_cast<std::uint64_t>(hierarchy.shape().line_bytes);
  hierarchy.begin_kernel();
  const std::int64_t slots = std::min(hierarchy.shape().in_flight, count);
  std::vector<Stream> streams(static_cast<std::size_t>(slots));
  std::vector<std::int64_t> busy;
  std::int64_t started = 0;
  for (; started < slots; ++started) {
    record(started, streams[static_cast<std::size_t>(started)]);
    busy.push_back(started);
  }
  while (!busy.empty()) {
    bool ended = false;
    for (std::int64_t& slot : busy) {
      Stream& stream = streams[static_cast<std::size_t>(slot)];
      const auto touch = [&](std::uint64_t line, bool write) { hierarchy.touch(slot, line, write); };
      while (!stream.next(line_bytes, touch)) {
        stream = {};
        if (started == count) break;
        record(started++, stream);
      }
      if (stream.blocks.empty()) {
        slot = -1;
        ended = true;
      }
    }
    if (ended) busy.erase(std::remove(busy.begin(), busy.end(), -1), busy.end());
  }
  hierarchy.end_kernel();
}

}  // namespace fresnel::traffic
