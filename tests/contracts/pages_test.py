#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The printed forms of the contracts: docs/kernels.md is up to date, and the FKC form is YAML that says what the JSON says.

    pages_test.py FRESNEL docs/kernels.md

Needs PyYAML (Debian: python3-yaml).
"""

import difflib
import json
import platform
import re
import subprocess
import sys
import unittest
from pathlib import Path

import yaml

PROGRAM, PAGE = "", Path()


def printed(form):
    return subprocess.run([PROGRAM, "kernels", "--format", form], check=True, capture_output=True, text=True).stdout


def blocks_of(text):
    return [yaml.safe_load(block) for block in re.findall(r"^```fkc\n(.*?)^```$", text, re.S | re.M)]


class Page(unittest.TestCase):
    @unittest.skipUnless(platform.machine() in ("x86_64", "AMD64"), "the page is that of x86, which has every CPU row")
    def test_is_up_to_date(self):
        now, kept = printed("markdown"), PAGE.read_text(encoding="utf-8")
        changed = "".join(list(difflib.unified_diff(kept.splitlines(True), now.splitlines(True), "docs/kernels.md", "now"))[:40])
        self.assertEqual(changed, "", "regenerate it: fresnel kernels --format markdown > docs/kernels.md")

    def test_tables_are_rectangular(self):
        for table in re.findall(r"(?:^\|.*\n)+", printed("markdown"), re.M):
            self.assertEqual(len({line.count("|") for line in table.splitlines()}), 1, table)


class Fkc(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = printed("fkc")
        cls.rows = json.loads(printed("json"))["rows"]
        cls.blocks = blocks_of(cls.text)

    def test_front_matter(self):
        front = yaml.safe_load(self.text.split("---\n")[1])
        self.assertEqual(front["fkc_version"], 1)
        self.assertEqual(front["provider"]["name"], "fresnel")
        self.assertRegex(front["provider"]["revision_base"], r"^\d+\.\d+\.\d+$")

    def test_one_section_and_block_for_each_row(self):
        names = [row["name"] for row in self.rows]
        self.assertEqual([block["kernel"] for block in self.blocks], names)
        self.assertEqual(re.findall(r"^## (\S+) \(", self.text, re.M), names)

    def test_every_block_has_the_fields_of_the_form(self):
        wanted = ["kernel", "fused_op", "blurb", "backend", "kernel_source", "entry_point", "kernel_revision_hash",
                  "accept", "op_params", "return", "caps", "cost", "precision", "determinism"]
        for block in self.blocks:
            self.assertEqual(list(block), wanted)
            self.assertEqual(block["determinism"], "same_hardware_bitwise")
            for operand in block["accept"]["inputs"]:
                for flag in ("contiguous", "strided", "broadcast_stride0", "start_offset", "reverse_strides"):
                    self.assertIn(operand["layout"][flag], ("accepted", "rejected", "required"))

    def test_operands_options_and_outputs_are_those_of_the_json(self):
        flags = {"strided": "strided", "stride_zero": "broadcast_stride0", "reversed": "reverse_strides",
                 "start_offset": "start_offset"}
        for block, row in zip(self.blocks, self.rows):
            operands = block["accept"]["inputs"]
            self.assertEqual([operand["name"] for operand in operands], [operand["name"] for operand in row["inputs"]])
            for operand, said in zip(operands, row["inputs"]):
                self.assertEqual([dtype.lower() for dtype in operand["dtypes"]], said["dtypes"])
                ranks = [len(shape) for shape in said["shapes"]]
                self.assertEqual(operand["rank"], ranks[0] if len(ranks) == 1 else ranks)
                self.assertEqual(operand.get("shape_constraint", ""), "; ".join(said["constraints"]))
                self.assertEqual(operand.get("optional", False), said["optional"])
                for flag, word in flags.items():
                    self.assertEqual(operand["layout"][word] == "accepted", said["layout"][flag], operand["name"])
            fields = block["op_params"]["fields"]
            self.assertEqual({name: field["accepted"] for name, field in fields.items()},
                             {option["name"]: option["accepted"] for option in row["options"]})
            outputs = block["return"]["bundle" if row["pass"] == "backward" else "outputs"]
            self.assertEqual([output["name"] for output in outputs], [output["name"] for output in row["outputs"]])

    def test_costs_and_roundings_are_numbers_and_those_of_the_json(self):
        for block, row in zip(self.blocks, self.rows):
            self.assertEqual(block["cost"]["flops"], row["cost"]["operations"])
            self.assertEqual(block["cost"]["bytes_moved"], row["cost"]["bytes"])
            for name in re.findall(r"[a-z_]+", block["cost"]["flops"] + block["cost"]["bytes_unfused"]):
                self.assertIn(name, block["cost"]["symbols"])
            said = {dtype.upper(): roundings for dtype, roundings in row["roundings"].items()}
            self.assertEqual(set(block["precision"]["roundings"]), set(said))
            for dtype, roundings in block["precision"]["roundings"].items():
                for field, value in roundings.items():
                    self.assertEqual(value, said[dtype][field], f"{row['name']} {dtype} {field}")


if __name__ == "__main__":
    PROGRAM, PAGE = sys.argv[1], Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
