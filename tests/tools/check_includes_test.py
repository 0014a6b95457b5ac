#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does tools/check_includes.py see what it is there to see? Each test plants one fault in a small tree of its own."""

import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "check_includes.py"
SPEC = importlib.util.spec_from_file_location("check_includes", SCRIPT)
check_includes = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_includes)

LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"


class CheckIncludes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("src/walk/walk.hpp", '#include <vector>\n#include "fresnel/plan.hpp"\n')

    def write(self, path, text, licence=LICENCE):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(licence + text, encoding="utf-8")

    def faults(self):
        return check_includes.faults(self.root)[0]

    def expect_fault(self, *words):
        found = self.faults()
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_a_clean_tree_has_no_faults(self):
        self.write("src/planner/plan.cpp", '#include "kernels/kernel.hpp"\n#include "walk/walk.hpp"\n')
        self.write("src/kernels/cpu/flash.cpp", '#include "hwy/highway.h"\n#include "kernels/kernel.hpp"\n')
        self.write("tests/support/guard.hpp", "")
        self.write("tests/walk/walk_test.cpp", '#include "controls/controls.hpp"\n#include "support/guard.hpp"\n')
        self.assertEqual(self.faults(), [])

    def test_an_include_against_the_arrows(self):
        self.write("src/oracle/forward.cpp", '\n#include "kernels/kernel.hpp"\n')
        self.expect_fault("src/oracle/forward.cpp:3", "oracle may not include kernels")

    def test_arrows_reach_through_rooms_but_never_back(self):
        self.write("src/kernels/row.cpp", '#include "semantics/mask.hpp"\n')
        self.assertEqual(self.faults(), [])
        self.write("src/semantics/back.cpp", '  #  include "runtime/half.hpp"\n')
        self.expect_fault("src/semantics/back.cpp:2")

    def test_only_cli_and_tests_see_controls(self):
        self.write("src/cli/check.cpp", '#include "controls/controls.hpp"\n')
        self.write("controls/rescale.cpp", '#include "kernels/kernel.hpp"\n')
        self.assertEqual(self.faults(), [])
        self.write("bench/time.cpp", '#include "controls/controls.hpp"\n')
        self.expect_fault("bench/time.cpp:2", "controls")

    def test_public_headers_include_only_each_other(self):
        self.write("include/fresnel/plan.hpp", '#include "semantics/mask.hpp"\n')
        self.expect_fault("include/fresnel/plan.hpp:2")
        self.write("include/fresnel/plan.hpp", '#include "hwy/base.h"\n')
        self.expect_fault("include/fresnel/plan.hpp:2")

    def test_an_include_that_names_no_room(self):
        self.write("src/walk/order.cpp", '#include "walk.hpp"\n')
        self.expect_fault("src/walk/order.cpp:2", "room/file")

    def test_an_unknown_room(self):
        self.write("src/attic/old.cpp", "")
        self.expect_fault("src/attic/old.cpp:1", "no known room")

    def test_a_missing_licence_line(self):
        self.write("src/walk/order.cpp", "int walk;\n", licence="")
        self.expect_fault("src/walk/order.cpp:1", "SPDX")

    def test_lengths(self):
        self.write("src/walk/order.cpp", "\n" * 599)
        self.write("src/walk/order.hpp", "\n" * 199)
        self.write("src/kernels/cpu/rows-inl.h", "\n" * 599)
        self.assertEqual(self.faults(), [])
        self.write("src/walk/order.cpp", "\n" * 600)
        self.expect_fault("src/walk/order.cpp:600", "601 lines")
        self.write("src/walk/order.cpp", "")
        self.write("src/walk/order.hpp", "\n" * 200)
        self.expect_fault("src/walk/order.hpp:200", "201 lines")

    def test_what_webassembly_lacks(self):
        self.write("src/oracle/forward.cpp", "#include <format>\n")
        self.expect_fault("src/oracle/forward.cpp:2")
        self.write("src/oracle/forward.cpp", "auto bits = std::bit_cast<int>(x);\n")
        self.expect_fault("src/oracle/forward.cpp:2")
        self.write("src/oracle/forward.cpp", "")
        self.write("src/io/json.cpp", "#include <format>\n")
        self.assertEqual(self.faults(), [])

    def test_unfinished_work(self):
        self.write("src/walk/order.cpp", "// TO" "DO later\n")
        self.expect_fault("src/walk/order.cpp:2", "unfinished")

    def test_a_tree_without_sources_is_a_fault(self):
        with tempfile.TemporaryDirectory() as empty:
            self.assertEqual(check_includes.main([empty]), 1)


if __name__ == "__main__":
    unittest.main()
