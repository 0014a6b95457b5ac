// SPDX-License-Identifier: Apache-2.0
// Units, bars, tables and escapes, value by value.
#include "cli/print.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include "cli/text.hpp"

namespace fresnel::cli {
namespace {

TEST(Print, Units) {
  EXPECT_EQ(bytes(0), "0 B");
  EXPECT_EQ(bytes(999), "999 B");
  EXPECT_EQ(bytes(1000), "1.00 kB");
  EXPECT_EQ(bytes(1.25e6), "1.25 MB");
  EXPECT_EQ(bytes(999.9e6), "1.00 GB");
  EXPECT_EQ(binary_bytes(32 << 10), "32 KiB");
  EXPECT_EQ(binary_bytes(1000), "1000 B");
  EXPECT_EQ(seconds(0), "0.00 ns");
  EXPECT_EQ(seconds(1.234e-7), "123 ns");
  EXPECT_EQ(seconds(0.0123), "12.3 ms");
  EXPECT_EQ(seconds(0.9999), "1.00 s");
  EXPECT_EQ(seconds(75), "75.0 s");
  EXPECT_EQ(seconds(12345), "12345 s");
  EXPECT_EQ(rate(44.3e9), "44.3 GFLOP/s");
  EXPECT_EQ(rate(1.2e12), "1.20 TFLOP/s");
  EXPECT_EQ(rate(0), "0.00 FLOP/s");
}

TEST(Print, Shares) {
  EXPECT_EQ(percent(0), "0%");
  EXPECT_EQ(percent(1), "100%");
  EXPECT_EQ(percent(0.123), "12%");
  EXPECT_EQ(percent(0.0123), "1.2%");
  EXPECT_EQ(percent(0.00123), "0.12%");
  EXPECT_EQ(percent(1e-9), "<0.01%");
  EXPECT_EQ(percent(1e9), "1.00e+11%");
  EXPECT_EQ(percent(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(percent(std::nan("")), "nan");
}

TEST(Print, Counts) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(-100), "-100");
}

TEST(Print, Bars) {
  EXPECT_EQ(bar(0, 10), "");
  EXPECT_EQ(bar(1, 4), "████");
  EXPECT_EQ(bar(0.5, 4), "██");
  EXPECT_EQ(bar(1.0 / 32, 4), "▏");
  EXPECT_EQ(bar(7, 4), "████");
  EXPECT_EQ(bar(-1, 4), "");
  EXPECT_EQ(bar(std::nan(""), 4), "");
}

TEST(Print, NothingThatATerminalActsUponSurvives) {
  EXPECT_EQ(printable("plain \"text\" ü 漢 🙂"), "plain \"text\" ü 漢 🙂");
  EXPECT_EQ(printable("\x1b[2J\a\x7f"), "\\x1b[2J\\x07\\x7f");
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(printable("\u202e\u2066\u200b\ufeff"), "\\u202e\\u2066\\u200b\\ufeff");
  EXPECT_EQ(printable("\u0085\u009b"), "\\x85\\x9b") << "control characters of the second block";
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3") << "not UTF-8";
  EXPECT_EQ(printable("\xc0\xaf\xed\xa0\x80\xf5\x80\x80\x80"), "\\xc0\\xaf\\xed\\xa0\\x80\\xf5\\x80\\x80\\x80")
      << "overlong, surrogate, beyond Unicode";
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Print, Widths) {
  EXPECT_EQ(columns("abc"), 3);
  EXPECT_EQ(columns("é漢字"), 5);
  EXPECT_EQ(columns("e\u0301"), 1);
  EXPECT_EQ(columns(Paint(true).bad("ab")), 2);
  EXPECT_EQ(fitted("abcdef", 6), "abcdef");
  EXPECT_EQ(fitted("abcdefg", 6), "abcde…");
  EXPECT_EQ(fitted("漢字漢字", 5), "漢字…");
  EXPECT_EQ(quoted("abcdefgh", 8), "\"abcde…\"");
}

TEST(Print, ShellWords) {
  EXPECT_EQ(shell_word("cpu.flash"), "cpu.flash");
  EXPECT_EQ(shell_word("b1 h2"), "'b1 h2'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(Print, Tables) {
  Table table({{"name"}, {"n", Table::Align::right}, {"last"}});
  table.add({"a", "1", "x"});
  table.add({"longer", "100"});
  EXPECT_EQ(table.text(Paint(false)), "name      n  last\na         1  x\nlonger  100\n");
  EXPECT_EQ(table.markdown(), "| name | n | last |\n|---|---:|---|\n| a | 1 | x |\n| longer | 100 |  |\n");
  Table coloured({{"x"}, {"y"}});
  coloured.add({Paint(true).good("ok"), "z"});
  EXPECT_EQ(coloured.text(Paint(false)), "x   y\n\x1b[32mok\x1b[0m  z\n") << "colours take no columns";
}

/// In a log: a line for each step that takes longer than the patience, and none for others.
TEST(Progress, OnePlainLineForEveryLongStep) {
  using std::chrono::milliseconds;
  testing::internal::CaptureStderr();
  {
    Progress progress(milliseconds(400));
    progress.say("quick");
    progress.say("slow", "run 1");
    for (int turn = 2; turn < 8; ++turn) {
      std::this_thread::sleep_for(milliseconds(120));
      progress.say("slow", "run " + std::to_string(turn));
    }
    progress.say("slow\x1b[2J, too");
    std::this_thread::sleep_for(milliseconds(1000));
    progress.say("quick again");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "fresnel: slow\nfresnel: slow\\x1b[2J, too\n");
}

}  // namespace
}  // namespace fresnel::cli
