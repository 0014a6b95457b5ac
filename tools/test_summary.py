#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts test cases after a run of ctest: test_summary.py FOLDER

FOLDER holds ctest.xml, which ctest wrote, and one JSON file per GoogleTest program that got as far as its end. Prints
`N passed, N failed, N skipped`; a program that wrote no JSON counts as one case, as does one that failed although all
its cases passed. Exits 1 if a case failed or none ran.
"""

import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def count(folder):
    """(passed, failed, skipped) of all programs."""
    passed = failed = skipped = 0
    for test in ElementTree.parse(folder / "ctest.xml").getroot().iter("testcase"):
        program_failed = test.get("status") != "run"
        report = folder / f"{test.get('name')}.json"
        cases = {"passed": 0, "failed": 0, "skipped": 0}
        if report.exists():
            for suite in json.loads(report.read_text(encoding="utf-8"))["testsuites"]:
                for case in suite["testsuite"]:
                    if case["status"] == "RUN":
                        failure = "failures" in case
                        cases["failed" if failure else "skipped" if case["result"] == "SKIPPED" else "passed"] += 1
        elif not program_failed:
            cases["passed"] = 1
        if program_failed and not cases["failed"]:
            cases["failed"] = 1
        passed, failed, skipped = passed + cases["passed"], failed + cases["failed"], skipped + cases["skipped"]
    return passed, failed, skipped


def main(arguments):
    folder = Path(arguments[0])
    if not (folder / "ctest.xml").exists():
        print(f"no tests ran: {folder} holds no ctest.xml")
        return 1
    passed, failed, skipped = count(folder)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
