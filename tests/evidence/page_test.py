#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are the figures of docs/evidence.md those of the record beside it?

    page_test.py RECORD PAGE [--write]

Compares what stands between the page's two markers with the tables made from RECORD/results.json; --write puts them
there.
"""

import json
import sys
from pathlib import Path
from statistics import median

BEGIN, END = "<!-- tables begin: tests/evidence/page_test.py --write -->\n", "<!-- tables end -->\n"


def seconds(value):
    return f"{value * 1e6:,.1f} µs"


def rows_of(groups, run):
    """By number of keys: kernels' verdicts, medians over seeds, largest distances by name of the result."""
    rows = {}
    for group in groups:
        if group["run"] != run:
            continue
        keys = int(next(word[1:] for word in group["problem"].split() if word[0] == "k"))
        row = rows.setdefault(keys, {"medians": {}, "ok": {}, "largest": {}})
        for kernel in group["kernels"]:
            row["medians"].setdefault(kernel["name"], []).append(kernel["median_seconds"])
            row["ok"].setdefault(kernel["name"], []).append(kernel["ok"])
        for each in group["comparisons"]:
            row["largest"][each["result"]] = max(row["largest"].get(each["result"], 0), each["largest"])
    return rows


def verdict(flags):
    return "right" if all(flags) else "wrong" if not any(flags) else "both"


def tables(results):
    lines = ["| keys | all scores | one block | dense, median | tiled, median | tiled off dense | averaged off dense |",
             "|---|---|---|---|---|---|---|"]
    for keys, row in rows_of(results["groups"], "blocks_of_32").items():
        medians = {name: seconds(median(row["medians"][name])) for name in ("dense", "tiled")}
        assert verdict(row["ok"]["tiled"]) == "right" and verdict(row["ok"]["averaged"]) == "wrong"
        lines.append(f"| {keys} | {8 * keys * 8:,} B | {8 * 32 * 8:,} B | {medians['dense']} | {medians['tiled']} | "
                     f"{row['largest']['tiled']:.2e} | {row['largest']['averaged']:.2g} |")
    lines += ["", "| exercise | keys | judged | off dense |", "|---|---|---|---|"]
    for run, name, words in (("blocks_of_7", "tiled", "blocks of seven"), ("large_scores", "tiled", "large scores"),
                             ("rescale_forgotten", "forgetful", "no rescale")):
        for keys, row in rows_of(results["groups"], run).items():
            lines.append(f"| {words} | {keys} | {verdict(row['ok'][name])} | {row['largest'][name]:.2e} |")
    return "\n".join(lines) + "\n"


def main(record, page, *options):
    made = tables(json.loads((Path(record) / "results.json").read_text(encoding="utf-8")))
    text = Path(page).read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    kept, tail = rest.split(END)
    if "--write" in options:
        Path(page).write_text(head + BEGIN + made + END + tail, encoding="utf-8")
    elif kept != made:
        print(f"{page} does not show what {record} holds; write it: tests/evidence/page_test.py {record} {page} --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
