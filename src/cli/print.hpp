// SPDX-License-Identifier: Apache-2.0
// Words and tables for people: units, bars, colours and aligned columns. Nothing here knows about attention.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace fresnel::cli {

/// Colours, where standard output is a terminal and NO_COLOR is unset; plain text elsewhere.
class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}
  [[nodiscard]] static Paint of_stdout();

  [[nodiscard]] std::string good(std::string_view text) const { return wrapped("32", text); }
  [[nodiscard]] std::string bad(std::string_view text) const { return wrapped("1;31", text); }
  [[nodiscard]] std::string strong(std::string_view text) const { return wrapped("1", text); }
  [[nodiscard]] std::string faint(std::string_view text) const { return wrapped("2", text); }
  [[nodiscard]] std::string accent(std::string_view text) const { return wrapped("36", text); }
  /// "RIGHT" or "WRONG".
  [[nodiscard]] std::string verdict(bool ok) const { return ok ? good("RIGHT") : bad("WRONG"); }

 private:
  [[nodiscard]] std::string wrapped(std::string_view code, std::string_view text) const;
  bool on_;
};

/// Bytes in decimal units: "512 B", "1.25 MB".
[[nodiscard]] std::string bytes(double count);
/// Sizes of caches in binary units: "32 KiB".
[[nodiscard]] std::string binary_bytes(std::int64_t count);
/// Seconds: "12.3 ms".
[[nodiscard]] std::string seconds(double value);
/// Operations per second: "44.3 GFLOP/s", "1.21 TFLOP/s".
[[nodiscard]] std::string rate(double operations_per_second);
/// A share as percent: "12%", "0.4%"; infinity is "inf".
[[nodiscard]] std::string percent(double share);
/// Three significant digits: "1.23e-07".
[[nodiscard]] std::string small(double value);
/// Digits in groups of three: "72,000".
[[nodiscard]] std::string grouped(std::int64_t count);

/// A horizontal bar of `share` (0 to 1) of `width` columns, in eighths of a column.
[[nodiscard]] std::string bar(double share, int width);

/// Aligned columns, two spaces apart.
class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string head;
    Align align = Align::left;
  };

  explicit Table(std::vector<Column> head) : head_(std::move(head)) {}
  /// One cell for each column; missing ones are empty.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  [[nodiscard]] std::string text(const Paint& paint) const;
  /// The same table for documents.
  [[nodiscard]] std::string markdown() const;

 private:
  std::vector<Column> head_;
  std::vector<std::vector<std::string>> rows_;
};

/// What a long command is at, on standard error. On a terminal one line that is written over, from the second second
/// on; elsewhere, in a log or a pipe, one plain line for every step that takes longer than that. A thread of its own
/// watches the time, since the work itself may say nothing for long.
class Progress {
 public:
  explicit Progress(std::chrono::milliseconds patience = std::chrono::seconds(2));
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// A step begins, unless it is the same; `detail` changes within a step and is shown on terminals only.
  void say(const std::string& step, const std::string& detail = {});

 private:
  using Clock = std::chrono::steady_clock;
  void rewrite_line();
  void print_lines();

  const std::chrono::milliseconds patience_;
  const bool terminal_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string step_, detail_;
  Clock::time_point since_;  ///< when the step began
  bool news_ = false;        ///< something was said that is not on a terminal's line yet
  bool printed_ = true;      ///< the step has had its plain line, or there is none
  bool over_ = false;
  std::thread watcher_;
};

}  // namespace fresnel::cli
