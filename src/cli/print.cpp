// SPDX-License-Identifier: Apache-2.0
// Units, bars and tables: see print.hpp. Numbers keep three significant digits, enough to compare and no more than a
// measurement supports.
#include "cli/print.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "cli/text.hpp"

namespace fresnel::cli {
namespace {

/// Three significant digits without an exponent, for values below 1000.
std::string three_digits(double value) {
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

/// `value` in the largest of `units`, each `step` times the one before, in which it is at least 1.
template <std::size_t N>
std::string scaled(double value, double step, const std::array<const char*, N>& units) {
  if (!std::isfinite(value)) return fmt::format("{} {}", value, units[0]);
  std::size_t unit = 0;
  while (unit + 1 < N && value >= step * 0.9995) {
    value /= step;
    ++unit;
  }
  return fmt::format("{} {}", three_digits(value), units[unit]);
}

}  // namespace

Paint Paint::of_stdout() {
  const char* refused = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool wanted = refused == nullptr || *refused == '\0';
  return Paint(wanted && isatty(STDOUT_FILENO) == 1 && (terminal == nullptr || std::string_view(terminal) != "dumb"));
}

std::string Paint::wrapped(std::string_view code, std::string_view text) const {
  return on_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

std::string bytes(double count) {
  if (count < 1000) return fmt::format("{:.0f} B", count);
  return scaled(count, 1000, std::array{"B", "kB", "MB", "GB", "TB", "PB"});
}

std::string binary_bytes(std::int64_t count) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (unit + 1 < units.size() && count >= 1024 && count % 1024 == 0) {
    count /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", count, units[unit]);
}

std::string seconds(double value) {
  if (value >= 0.9995) return fmt::format("{} s", value < 1000 ? three_digits(value) : fmt::format("{:.0f}", value));
  return scaled(value * 1e9, 1000, std::array{"ns", "us", "ms"});
}

std::string rate(double operations_per_second) {
  return scaled(operations_per_second, 1000,
                std::array{"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"});
}

std::string percent(double share) {
  const double value = 100 * share;
  if (!std::isfinite(value)) return fmt::format("{}", value);
  if (value != 0 && value < 0.005) return "<0.01%";
  if (value > 99999) return fmt::format("{:.2e}%", value);
  return fmt::format("{:.{}f}%", value, value == 0 || value >= 9.95 ? 0 : value >= 0.995 ? 1 : 2);
}

std::string small(double value) { return value == 0 ? "0" : fmt::format("{:.2e}", value); }

std::string grouped(std::int64_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (std::size_t at = 0; at < digits.size(); ++at) {
    const bool boundary = (digits.size() - at) % 3 == 0 && at > 0 && digits[at - 1] != '-';
    if (boundary) text += ',';
    text += digits[at];
  }
  return text;
}

std::string bar(double share, int width) {
  constexpr std::array eighths{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double clamped = share > 0 ? std::min(share, 1.0) : 0.0;  // NaN draws nothing
  const auto total = static_cast<std::size_t>(std::lround(clamped * width * 8));
  std::string text;
  for (std::size_t full = 0; full < total / 8; ++full) text += "█";
  return text + eighths[total % 8];
}

std::string Table::text(const Paint& paint) const {
  std::vector<int> widths;
  for (std::size_t column = 0; column < head_.size(); ++column) {
    int width = columns(head_[column].head);
    for (const auto& row : rows_)
      if (column < row.size()) width = std::max(width, columns(row[column]));
    widths.push_back(width);
  }
  const auto line = [&](auto&& cell_of) {
    std::string out;
    for (std::size_t column = 0; column < head_.size(); ++column) {
      const std::string cell = cell_of(column);
      const std::string gap(static_cast<std::size_t>(widths[column] - columns(cell)), ' ');
      const bool right = head_[column].align == Align::right;
      out += fmt::format("{}{}{}", column == 0 ? "" : "  ", right ? gap : cell, right ? cell : gap);
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
  };
  std::string out = paint.strong(line([&](std::size_t column) { return head_[column].head; })) + "\n";
  for (const auto& row : rows_)
    out += line([&](std::size_t column) { return column < row.size() ? row[column] : std::string(); }) + "\n";
  return out;
}

std::string Table::markdown() const {
  const auto escaped = [](const std::string& text) {
    std::string safe;
    for (const char character : text) {
      if (character == '|') safe += '\\';
      safe += character;
    }
    return safe;
  };
  std::string out = "|", rule = "|";
  for (const Column& column : head_) {
    out += fmt::format(" {} |", escaped(column.head));
    rule += column.align == Align::right ? "---:|" : "---|";
  }
  out += fmt::format("\n{}\n", rule);
  for (const auto& row : rows_) {
    out += "|";
    for (std::size_t column = 0; column < head_.size(); ++column)
      out += fmt::format(" {} |", escaped(column < row.size() ? row[column] : std::string()));
    out += "\n";
  }
  return out;
}

Progress::Progress(std::chrono::milliseconds patience)
    : patience_(patience), terminal_(isatty(STDERR_FILENO) == 1), watcher_([this] {
        if (terminal_)
          rewrite_line();
        else
          print_lines();
      }) {}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  watcher_.join();
}

void Progress::say(const std::string& step, const std::string& detail) {
  {
    const std::lock_guard lock(mutex_);
    if (step == step_ && !terminal_) return;  // no news for a log: what is being timed is not to be disturbed
    if (step != step_) {
      step_ = step;
      since_ = Clock::now();
      printed_ = false;
    }
    detail_ = detail;
    news_ = true;
  }
  changed_.notify_one();
}

void Progress::rewrite_line() {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, patience_, [this] { return over_; })) return;
  while (!over_) {
    const std::string text = detail_.empty() ? step_ : step_ + ": " + detail_;
    const std::string line = fmt::format("\r\x1b[K{}", fitted(printable(text), 78));
    news_ = false;
    std::fputs(line.c_str(), stderr);
    std::fflush(stderr);
    changed_.wait(lock, [this] { return news_ || over_; });
  }
  std::fputs("\r\x1b[K", stderr);
}

void Progress::print_lines() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    if (printed_) {
      changed_.wait(lock, [this] { return !printed_ || over_; });
      continue;
    }
    const Clock::time_point began = since_;
    if (changed_.wait_until(lock, began + patience_, [&] { return since_ != began || over_; })) continue;
    printed_ = true;
    std::fputs(("fresnel: " + printable(step_) + "\n").c_str(), stderr);
    std::fflush(stderr);
  }
}

}  // namespace fresnel::cli
