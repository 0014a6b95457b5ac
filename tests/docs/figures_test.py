#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Charts and tables of the pages are what bench/chart.py makes of the records beside them: no figure is typed by hand.

    figures_test.py ROOT        ROOT: the repository
"""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop())
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
import chart  # noqa: E402


class Figures(unittest.TestCase):
    def test_charts_are_what_their_records_say(self):
        charts = sorted((ROOT / "docs" / "figures").glob("*.svg"))
        self.assertTrue(charts)
        for svg in charts:
            self.assertEqual(svg.read_text(), chart.chart(chart.read_record(svg.with_suffix(".json"))), svg.name)

    def test_tables_are_what_their_records_say(self):
        for page, least in ((ROOT / "README.md", 1), (ROOT / "docs" / "performance.md", 3)):
            self.assertGreaterEqual(len(chart.MARK.findall(page.read_text())), least)
            self.assertEqual(page.read_text(), chart.updated(page))


unittest.main(verbosity=2)
