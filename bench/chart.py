#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws records of bench/peers.py: rate against the length of the sequence, ours and the peers'.

    bench/chart.py RECORD.json -o CHART.svg      a panel per type and mask, for the problems with as many queries as keys
    bench/chart.py RECORD.json --table           the same record as rows of markdown, every problem of it
    bench/chart.py --update PAGE.md              writes the tables that the page marks, from the records it names:
                                                 <!-- table: figures/NAME.json --> ... <!-- end of table -->

A chart is text: the same record gives the same bytes. Nothing is needed beside Python.
"""
import argparse
import json
import os
import pathlib
import re
import sys
from html import escape

LINE = re.compile(r"b(\d+) h(\S+) q(\d+) k(\d+) d(\S+) (\w+)( causal)?$")
MARK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.S)
COLOURS = {"fresnel": "#d9480f", "PyTorch": "#1c7ed6", "ONNX Runtime": "#2b8a3e", "OpenVINO": "#9c36b5"}
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 360, 250, 52, 34, 14, 40


def read_record(path):
    try:
        return json.loads(pathlib.Path(path).read_text())
    except (OSError, json.JSONDecodeError) as error:
        sys.exit(f"chart: RECORD: given '{path}': {error}; accepted: what bench/peers.py --out writes")


def series_of(record):
    """{(type, mask, threads): {who: [(length, GFLOP/s)]}}; ours is the fastest of the rows that were timed."""
    panels = {}
    for row in record["rows"]:
        _, _, queries, keys, _, dtype, causal = LINE.match(row["problem"]).groups()
        if queries != keys:
            continue
        panel = panels.setdefault((dtype, (causal or " full").strip(), row["threads"]), {})
        line = panel.setdefault(row["who"] if row["peer"] else "fresnel", {})
        line[int(queries)] = max(line.get(int(queries), 0), row["tflops"] * 1e3)
    return {key: {who: sorted(line.items()) for who, line in panel.items()}
            for key, panel in panels.items() if max(map(len, panel.values())) > 1}


def round_top(value):
    """The next of 1, 2, 2.5, 5 times a power of ten, so that four lines divide the panel evenly."""
    scale = 10 ** (len(str(int(value))) - 1)
    return next(step * scale for step in (1, 2, 4, 6, 8, 10) if step * scale >= value)


def panel_svg(title, lines, x0, y0):
    lengths = sorted({length for line in lines.values() for length, _ in line})
    top = round_top(max(rate for line in lines.values() for _, rate in line))
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    across = lambda length: x0 + LEFT + inner_width * lengths.index(length) / (len(lengths) - 1)
    up = lambda rate: y0 + TOP + inner_height * (1 - rate / top)
    out = [f'<text class="title" x="{x0 + LEFT}" y="{y0 + 20}">{escape(title)}</text>']
    for part in range(5):
        y = up(top * part / 4)
        out.append(f'<line class="grid" x1="{x0 + LEFT}" y1="{y:.1f}" x2="{x0 + WIDTH - RIGHT}" y2="{y:.1f}"/>')
        out.append(f'<text class="number" x="{x0 + LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{top * part / 4:g}</text>')
    for length in lengths:
        out.append(f'<text class="number" x="{across(length):.1f}" y="{y0 + HEIGHT - BOTTOM + 16}" '
                   f'text-anchor="middle">{length}</text>')
    for who in [name for name in COLOURS if name in lines]:
        points = " ".join(f"{across(length):.1f},{up(rate):.1f}" for length, rate in lines[who])
        out.append(f'<polyline fill="none" stroke="{COLOURS[who]}" stroke-width="{3 if who == "fresnel" else 1.6}" '
                   f'points="{points}"/>')
        out += [f'<circle cx="{across(length):.1f}" cy="{up(rate):.1f}" r="3" fill="{COLOURS[who]}">'
                f"<title>{who}, {length}: {rate:.0f} GFLOP/s</title></circle>" for length, rate in lines[who]]
    return out


def chart(record):
    panels = series_of(record)
    if not panels:
        sys.exit("chart: RECORD: given no two lengths of one kind; accepted: at least two with as many queries as keys")
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    width, height = columns * WIDTH, rows * HEIGHT + 58
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
           "<style>text{fill:#212529}.title{font-size:14px;font-weight:bold}.number{font-size:11px}"
           ".back{fill:#fff}.grid{stroke:#ced4da;stroke-width:1}"
           "@media(prefers-color-scheme:dark){text{fill:#f1f3f5}.back{fill:#1b1e22}.grid{stroke:#495057}}</style>",
           f'<rect class="back" width="{width}" height="{height}" rx="6"/>']
    for index, ((dtype, mask, threads), lines) in enumerate(panels.items()):
        title = f"{dtype}, {mask}, {threads} thread{'s' if threads > 1 else ''}"
        out += panel_svg(title, lines, index % columns * WIDTH, index // columns * HEIGHT)
    x, y = LEFT, rows * HEIGHT + 16
    for who in [name for name in COLOURS if any(name in lines for lines in panels.values())]:
        out.append(f'<rect x="{x}" y="{y - 9}" width="14" height="10" fill="{COLOURS[who]}"/>'
                   f'<text class="number" x="{x + 20}" y="{y}">{who}</text>')
        x += 44 + 7 * len(who)
    out.append(f'<text class="number" x="{LEFT}" y="{y + 24}">GFLOP/s against the length of the sequence; '
               f"{escape(record['processor'])}</text>")
    return "\n".join(out) + "\n</svg>\n"


def time_text(seconds):
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def table(record):
    """A line per problem and number of threads: ours, every peer, and the best peer's time over ours."""
    names = [name for name in COLOURS if name != "fresnel" and any(row["who"] == name for row in record["rows"])]
    out = ["| Problem | threads | chosen | " + " | ".join(names) + " | best peer / ours |",
           "|---" * (len(names) + 4) + "|"]
    found = {}
    for row in record["rows"]:
        found.setdefault((row["problem"], row["threads"]), []).append(row)
    for (problem, threads), rows in found.items():
        ours = min((row for row in rows if not row["peer"]), key=lambda row: row["median_seconds"])
        peers = {row["who"]: row["median_seconds"] for row in rows if row["peer"]}
        ratio = f"{min(peers.values()) / ours['median_seconds']:.2f}" if peers else "-"
        cells = [time_text(peers[name]) if name in peers else "-" for name in names]
        out.append(f"| {problem} | {threads} | {ours['who']} {time_text(ours['median_seconds'])}, "
                   f"{ours['tflops'] * 1e3:.0f} GFLOP/s | {' | '.join(cells)} | {ratio} |")
    return "\n".join(out) + "\n"


def updated(page):
    text = page.read_text()
    return MARK.sub(lambda mark: mark[1] + table(read_record(page.parent / mark[2])) + mark[3], text)


def write_whole(path, text):
    partial = pathlib.Path(f"{path}.partial")
    partial.write_text(text)
    os.replace(partial, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", nargs="?", metavar="RECORD.json")
    parser.add_argument("-o", dest="out", metavar="CHART.svg")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--update", type=pathlib.Path, metavar="PAGE.md")
    options = parser.parse_args()
    if options.update:
        return write_whole(options.update, updated(options.update))
    if not options.record:
        parser.error("RECORD.json: given nothing; accepted: a record, or --update PAGE.md")
    record = read_record(options.record)
    if options.table:
        print(table(record), end="")
    if options.out:
        write_whole(options.out, chart(record))


if __name__ == "__main__":
    main()
