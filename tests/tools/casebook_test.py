#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does docs/casebook.md name tests that exist, and is every test of a casebook row on its line there?"""

import re
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]

LINE = re.compile(r"^\| *(\d+) *\|([^|]*)\|([^|]*)\|([^|]*)\|$")
GOOGLE_TEST = re.compile(r"\b(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\s*\)")
HABIT = re.compile(r"\{\"(\w+)\",\s*\w+\}")
CTEST = re.compile(r"\badd_test\(NAME (\w+)")
ROW = re.compile(r"^Row(\d+)_")


def defined_tests(folder):
    """Names of habits and of tests known to ctest as they stand, GoogleTest's as Suite.Name; rows by their own name."""
    names = set()
    for path in folder.rglob("*"):
        if path.suffix == ".cpp":
            text = path.read_text(encoding="utf-8")
            names.update(name if ROW.match(name) else f"{suite}.{name}" for suite, name in GOOGLE_TEST.findall(text))
            names.update(HABIT.findall(text))
        elif path.name == "CMakeLists.txt":
            names.update(CTEST.findall(path.read_text(encoding="utf-8")))
    return names


def faults(page, tests):
    """What is wrong with the page's table, one sentence each."""
    found, numbers, named = [], [], {}
    for line in page.splitlines():
        if not re.match(r"^\| *\d", line):
            continue
        match = LINE.match(line)
        if match is None:
            found.append(f"not a line of four cells: {line}")
            continue
        number, story, cell, waits = int(match[1]), *(part.strip() for part in match.groups()[1:])
        numbers.append(number)
        named[number] = re.findall(r"`([^`]+)`", cell)
        if not story:
            found.append(f"row {number} says nothing")
        if not named[number] and not waits:
            found.append(f"row {number} has neither a test nor a feature that it waits for")
        for name in named[number]:
            row = ROW.match(name)
            if name not in tests:
                found.append(f"row {number} names {name}, which is no test")
            if row and int(row[1]) != number:
                found.append(f"row {number} names {name}, which belongs to another")
    if numbers != sorted(set(numbers)):
        found.append("rows are not in ascending order, each once")
    for name in sorted(tests):
        row = ROW.match(name)
        if row and name not in named.get(int(row[1]), []):
            found.append(f"{name} is not on the line of its row")
    return found


class TheCasebook(unittest.TestCase):
    def test_page_and_tests_agree(self):
        page = (ROOT / "docs" / "casebook.md").read_text(encoding="utf-8")
        tests = defined_tests(ROOT / "tests")
        self.assertGreater(len([name for name in tests if ROW.match(name)]), 40)
        self.assertEqual(faults(page, tests), [])


class Faults(unittest.TestCase):
    TESTS = {"Row5_band", "Suite.Other"}
    GOOD = "| 5 | a band | `Row5_band` | |\n| 7 | a mask | | mask tensors |\n| 9 | more | `Suite.Other` | |\n"

    def expect(self, page, *words, tests=None):
        found = faults(page, self.TESTS if tests is None else tests)
        self.assertEqual(len(found), len(words), found)
        for fault, word in zip(found, words):
            self.assertIn(word, fault)

    def test_a_good_page_has_none(self):
        self.expect("# Title\n\n| Row | What | Test | Waits for |\n|---|---|---|---|\n" + self.GOOD)

    def test_a_test_that_is_none(self):
        self.expect(self.GOOD.replace("Suite.Other", "Suite.Gone"), "Suite.Gone, which is no test")

    def test_a_row_without_its_line(self):
        self.expect(self.GOOD, "Row11_new is not", tests=self.TESTS | {"Row11_new"})
        self.expect(self.GOOD, "Row5_second is not", tests=self.TESTS | {"Row5_second"})

    def test_a_test_on_the_line_of_another_row(self):
        self.expect(self.GOOD.replace("`Suite.Other`", "`Row5_band`"), "belongs to another")

    def test_a_line_that_says_nothing(self):
        self.expect(self.GOOD.replace("mask tensors", ""), "row 7 has neither")
        self.expect(self.GOOD.replace("a mask", ""), "row 7 says nothing")

    def test_lines_out_of_order_or_twice(self):
        self.expect(self.GOOD + "| 8 | late | | sinks |\n", "ascending")
        self.expect(self.GOOD + "| 9 | again | | sinks |\n", "ascending")

    def test_a_line_of_other_cells(self):
        self.expect(self.GOOD + "| 12 | three | cells |\n", "not a line of four cells")


class DefinedTests(unittest.TestCase):
    def test_tests_are_found_where_they_are_defined(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "room").mkdir()
            (folder / "room" / "a.cpp").write_text(
                'TEST(Suite, Plain) {}\nTEST_P(With, Row3_x) {}\nTYPED_TEST(Of, Types) {}\n'
                'constexpr Habit rows[] = {{"Row4_y", row4}, {"habit", check}};\n'
                'constexpr Catch catches[] = {{Mistake::none, "Row9_mentioned"}};\n', encoding="utf-8")
            (folder / "room" / "CMakeLists.txt").write_text("add_test(NAME package_test COMMAND x)\n", encoding="utf-8")
            self.assertEqual(defined_tests(folder),
                             {"Suite.Plain", "Row3_x", "Of.Types", "Row4_y", "habit", "package_test"})


if __name__ == "__main__":
    unittest.main()
