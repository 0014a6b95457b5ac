#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does tools/test_summary.py count what ran, and does it call a crash a failure?"""

import importlib.util
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "test_summary.py"
SPEC = importlib.util.spec_from_file_location("test_summary", SCRIPT)
test_summary = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(test_summary)

PASSED = {"status": "RUN", "result": "COMPLETED"}
FAILED = {"status": "RUN", "result": "COMPLETED", "failures": [{"failure": "1 is not 2"}]}
SKIPPED = {"status": "RUN", "result": "SKIPPED"}
DISABLED = {"status": "NOTRUN", "result": "SUPPRESSED"}


class TestSummary(unittest.TestCase):
    def count(self, programs):
        """Counts programs given as name: (status of ctest, GoogleTest's cases or None)."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            lines = [f'<testcase name="{program}" status="{status}"/>' for program, (status, _) in programs.items()]
            (folder / "ctest.xml").write_text(f"<testsuite>{''.join(lines)}</testsuite>", encoding="utf-8")
            for program, (_, cases) in programs.items():
                if cases is not None:
                    report = {"testsuites": [{"testsuite": cases}]}
                    (folder / f"{program}.json").write_text(json.dumps(report), encoding="utf-8")
            return test_summary.count(folder), test_summary.main([name])

    def test_cases_are_counted_not_programs(self):
        programs = {"a": ("run", [PASSED, PASSED, SKIPPED]), "b": ("run", [PASSED, DISABLED])}
        self.assertEqual(self.count(programs), ((3, 0, 1), 0))

    def test_a_failed_case_fails_the_run(self):
        self.assertEqual(self.count({"a": ("fail", [PASSED, FAILED])}), ((1, 1, 0), 1))

    def test_a_program_without_cases_counts_as_one(self):
        self.assertEqual(self.count({"script": ("run", None)}), ((1, 0, 0), 0))

    def test_a_crash_is_a_failure(self):
        self.assertEqual(self.count({"a": ("fail", None)}), ((0, 1, 0), 1))
        self.assertEqual(self.count({"a": ("fail", [PASSED])}), ((1, 1, 0), 1))

    def test_nothing_ran_is_a_failure(self):
        self.assertEqual(self.count({}), ((0, 0, 0), 1))
        self.assertEqual(test_summary.main(["/nowhere"]), 1)


if __name__ == "__main__":
    unittest.main()
