#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do the faults of tests/mutation still apply to the tree, and does tools/mutants.py notice one that does not?"""

import contextlib
import importlib.util
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "mutants.py"
SPEC = importlib.util.spec_from_file_location("mutants", SCRIPT)
mutants = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutants)

PATCH = """What is wrong.
{second}--- a/src/kernel.cpp
+++ b/src/kernel.cpp
@@ -1,3 +1,3 @@
 first
-{old}
+wrong
 last
"""


class TestPatches(unittest.TestCase):
    def test_every_fault_still_applies(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = mutants.check(mutants.all_mutants([]))
        self.assertEqual(code, 0, said.getvalue())

    def test_there_are_many_and_the_backward_has_its_own(self):
        planted = [mutant for mutant in mutants.all_mutants([]) if not mutant.equivalent]
        self.assertGreaterEqual(len(planted), 30)
        self.assertGreaterEqual(sum("backward" in mutant.file for mutant in planted), 8)


class TestOrder(unittest.TestCase):
    def test_the_tests_of_a_file_come_first_and_none_is_left_out(self):
        for mutant in mutants.all_mutants([]):
            order = mutants.ordered(mutant.file, mutants.PROGRAMS)
            self.assertEqual(sorted(order), sorted(mutants.PROGRAMS))
        self.assertEqual(mutants.ordered("src/kernels/cpu/backward.cpp", mutants.PROGRAMS)[0], "backward_test")
        self.assertEqual(mutants.ordered("src/kernels/cpu/flash.cpp", mutants.PROGRAMS)[0], "agreement_test")
        self.assertEqual(mutants.ordered("src/semantics/mask.hpp", mutants.PROGRAMS)[0], "semantics_test")

    def test_the_first_tests_exist(self):
        for names in mutants.SPECIFIC.values():
            self.assertLessEqual(set(names), set(mutants.PROGRAMS))


class TestMutants(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Path(folder.name)
        (self.tree / "src").mkdir()
        (self.tree / "src" / "kernel.cpp").write_text("first\nsecond\nlast\n", encoding="utf-8")

    def mutant(self, old="second", second=""):
        path = self.tree / "fault.patch"
        path.write_text(PATCH.format(old=old, second=second), encoding="utf-8")
        return mutants.Mutant(path)

    def test_a_fault_is_planted(self):
        mutant = self.mutant()
        self.assertEqual((mutant.name, mutant.what, mutant.file), ("fault", "What is wrong.", "src/kernel.cpp"))
        self.assertIsNone(mutant.equivalent)
        self.assertEqual(mutant.apply(self.tree, "--check").returncode, 0)
        self.assertEqual(mutant.apply(self.tree).returncode, 0)
        self.assertEqual((self.tree / "src" / "kernel.cpp").read_text(encoding="utf-8"), "first\nwrong\nlast\n")

    def test_a_fault_whose_code_is_gone_does_not_apply(self):
        self.assertNotEqual(self.mutant(old="what is not there").apply(self.tree, "--check").returncode, 0)

    def test_an_equivalent_fault_says_why(self):
        self.assertEqual(self.mutant(second="Equivalent: no reason.\n").equivalent, "no reason.")

    def test_a_tree_inside_another_repository_is_its_own(self):
        (self.tree / ".git").mkdir()
        inner = self.tree / "build" / "tree"
        (inner / "src").mkdir(parents=True)
        (inner / "src" / "kernel.cpp").write_text("first\nsecond\nlast\n", encoding="utf-8")
        self.assertEqual(self.mutant().apply(inner).returncode, 0)
        self.assertIn("wrong", (inner / "src" / "kernel.cpp").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
