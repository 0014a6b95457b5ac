#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is the page of `fresnel report` whole, right and fit to be looked at?

    tests/report/report_test.py FRESNEL

Whole: one file that refers to nothing outside of it, whatever a case file says. Right: its figures are those that the
other commands print. Fit: a browser shows it in light and dark, on a phone and on a screen, without an error and with
nothing sticking out. Without Chromium (scripts/setup --checks) that last part is skipped and says so.
"""

import html.parser
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
from pathlib import Path

PROGRAM = ""
CASE = Path(__file__).resolve().parent.parent.parent / "examples/smollm2/attention.safetensors"
LIBRARY = Path("/usr/share/javascript/chart.js/chart.min.js")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# Before the page's own scripts: what goes wrong in them. After: what the page came to look like.
WATCH = """<script>window.faults = [];
window.addEventListener("error", (event) => faults.push(String(event.message)));
console.error = (...words) => faults.push(words.join(" "));</script>"""
MEASURE = """<script>window.addEventListener("load", () => setTimeout(() => {
  const out = [], wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) out.push(`page ${wide}`);
  for (const figure of document.querySelectorAll("figure")) {
    const right = figure.getBoundingClientRect().right;
    if (figure.scrollWidth > figure.clientWidth) out.push(`${figure.id} ${figure.scrollWidth}`);
    for (const part of figure.querySelectorAll("*"))
      if (part.getBoundingClientRect().right > right + 0.5) out.push(`${figure.id} ${part.tagName} ${part.className}`);
  }
  const ledger = document.querySelector(".ledger");
  if (ledger.scrollWidth > ledger.clientWidth) out.push(`ledger ${ledger.scrollWidth}`);
  const inked = (canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((v) => v);
  const before = document.querySelector(".now").textContent;
  document.querySelector("#walk button").click();
  parent.postMessage(encodeURIComponent(JSON.stringify({
    out, faults, width: innerWidth, dark: matchMedia("(prefers-color-scheme: dark)").matches,
    charts: [...document.querySelectorAll("figure:not([hidden]) canvas")].map(inked),
    before, after: document.querySelector(".now").textContent,
    keys: document.querySelector("#attention .keys").textContent, scripts: document.scripts.length,
    injected: "injected" in window })), "*");
}, 50));</script>"""
# A window is never as narrow as a phone: the page is looked at in a frame, which may be.
FRAME = """<body style="margin: 0"><script>
addEventListener("message", (event) => { document.documentElement.dataset.measured = event.data; });
</script><iframe src="watched.html" style="border: 0; width: WIDTHpx; height: 2600px"></iframe></body>"""


class Folder(unittest.TestCase):
    """Each test has a folder of its own, and a cache in which no machine has been measured."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="fresnel-report-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = self.folder / "out.html"

    def fresnel(self, *words, code=0, **environment):
        environment = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(self.folder / "cache"), **environment}
        run = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, env=environment, timeout=300)
        self.assertEqual(run.returncode, code, run.stderr)
        return run

    def report(self, *words, code=0, times=False):
        """The figures that the page holds."""
        self.fresnel("report", *words, "-o", self.out, *([] if times else ["--no-times"]), code=code)
        return self.held()

    def held(self):
        block = re.search(r'<script type="application/json" id="data">(.*?)</script>', self.out.read_text(), re.S)
        return json.loads(block[1])

    def printed(self, *words, code=0):
        return json.loads(self.fresnel(*words, "--json", code=code).stdout)


class References(html.parser.HTMLParser):
    """Attributes that make a browser fetch something."""

    def __init__(self):
        super().__init__()
        self.found, self.styles, self.tag = [], "", ""

    def handle_starttag(self, tag, attrs):
        self.tag = tag
        self.found += [value for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]

    def handle_data(self, data):
        if self.tag == "style":
            self.styles += data


@unittest.skipUnless(LIBRARY.exists(), f"{LIBRARY} is missing: Debian's package libjs-chart.js")
class Whole(Folder):
    def test_refers_to_nothing_outside(self):
        self.report(CASE)
        page = References()
        page.feed(self.out.read_text())
        self.assertEqual(page.found, ["data:,"])
        self.assertNotRegex(page.styles, r"url\(|@import")
        ours = self.out.read_text().replace(LIBRARY.read_text(), "")
        self.assertEqual(set(re.findall(r"https?://[^\"\s]+", ours)), {"http://www.w3.org/2000/svg"})  # SVG's name

    def test_no_token_ends_the_block(self):
        case = hostile_case(self.folder / "case.safetensors")
        held = self.report(case)
        self.assertEqual(held["attention"]["rows"][0]["keys"][0][2], HOSTILE)
        self.assertEqual(self.out.read_text().count("</script"), 6)

    def test_all_or_nothing(self):
        self.out.write_text("before")
        run = self.fresnel("report", CASE, "-o", self.out, code=2, FRESNEL_CHART_JS="/nowhere/chart.js")
        self.assertIn("/nowhere/chart.js", run.stderr)
        self.assertIn("libjs-chart.js", run.stderr)
        self.fresnel("report", CASE, "-o", self.out, "--query", "125", code=2)
        self.assertEqual(self.out.read_text(), "before")
        self.fresnel("report", CASE, "-o", self.folder / "none/out.html", "--no-times", code=3)
        self.assertEqual(os.listdir(self.folder), ["out.html"])

    def test_refuses_by_name(self):
        line = "b1 h1 q4 k4 d8 f32"
        for words, name in (
            (["report", CASE], "--output"),
            (["report", CASE, "-o", "page.txt"], "--output"),
            (["report", "-o", self.out], "CASE"),
            (["report", CASE, "--problem", line, "-o", self.out], "CASE"),
            (["report", CASE, "--seed", "2", "-o", self.out], "--seed"),
            (["report", "--problem", "b1 h1 q0 k4 d8 f32", "-o", self.out], "problem"),
            (["report", "--problem", line, "--head", "1", "-o", self.out], "--head"),
        ):
            self.assertIn(f"fresnel: {name}: given", self.fresnel(*words, code=2).stderr)
        self.assertFalse(self.out.exists())


@unittest.skipUnless(LIBRARY.exists(), f"{LIBRARY} is missing: Debian's package libjs-chart.js")
class Right(Folder):
    def test_traffic_is_what_count_prints(self):
        held = self.report(CASE)["traffic"]
        lengths = ",".join(str(64 << power) for power in range(11))
        counted = self.printed("count", "--n", lengths, "--d", "64")["rows"]
        fields = ("n", "d", "b", "kind", "global_bytes", "extra_memory_bytes")
        self.assertEqual(held, [{field: row[field] for field in fields} for row in counted])

    def test_shares_are_what_check_prints(self):
        line = "b2 h4/2 q50 k70 d24/16 bf16 causal lens"
        held = self.report("--problem", line, "--seed", "7", "--inputs", "large")["check"]
        checked = self.printed("check", "--problem", line, "--seed", "7", "--inputs", "large")
        self.assertTrue(held["ok"])
        for name in ("o", "lse"):
            output = held["outputs"][name]
            for field in ("count", "mismatches", "max_error", "max_share"):
                self.assertEqual(output[field], checked["outputs"][name][field])
            self.assertEqual(output["exact"] + sum(output["by_octave"]), output["count"])
            top = max(place for place, count in enumerate(output["by_octave"]) if count)
            self.assertLessEqual(2.0 ** (top - 16), output["max_share"])
            self.assertLess(output["max_share"], 2.0 ** (top - 15))

    def test_a_wrong_kernel_is_shown_and_not_timed(self):
        words = ["--problem", "b1 h2 q200 k200 d16 f32", "--kernel", "control.rescale_forgotten"]
        self.fresnel("report", *words, "-o", self.out, code=1)
        held = self.held()
        self.assertFalse(held["check"]["ok"])
        self.assertGreater(held["check"]["outputs"]["o"]["by_octave"][16], 0)
        self.assertIsNone(held["roofline"])

    def test_a_record_brings_its_own_times(self):
        record = CASE.parent.parent.parent / "docs/evidence/tiled_attention"
        held = self.report(record)
        groups = json.loads((record / "results.json").read_text())["groups"]
        first = [group for group in groups if group["run"] == groups[0]["run"]]
        longest = max(first, key=lambda group: int(re.search(r"k(\d+)", group["problem"])[1]))
        self.assertEqual(held["problem"], longest["problem"])
        self.assertIn(str(record), held["source"])
        for line in held["times"]["series"]:
            for point in line["points"]:
                medians = [kernel["median_seconds"] for group in first if f" k{point['s']} " in group["problem"]
                           for kernel in group["kernels"] if kernel["name"] == line["kernel"]]
                self.assertIn(point["seconds"], medians)
                self.assertEqual(point["runs"], 31 * len(medians))
        self.assertEqual(len(held["times"]["series"]), 2)
        self.assertEqual([len(line["points"]) for line in held["times"]["series"]], [3, 3])
        self.assertIn("results.json", self.fresnel("report", CASE.parent, "-o", self.out, code=2).stderr)

    def test_peers_are_further_series(self):
        peers = self.folder / "peers.json"
        row = {"problem": "b1 h1 q128 k128 d16 f32", "threads": 1, "who": "PyTorch", "runs": 9, "median_seconds": 1e-3}
        other = dict(row, problem="b1 h1 q128 k128 d32 f32")
        rows = [row, dict(row, problem="b1 h1 q64 k64 d16 f32"), other]
        peers.write_text(json.dumps({"peers": {"PyTorch": "2"}, "rows": rows}))
        words = ["--problem", "b1 h1 q100 k100 d16 f32", "--peers", peers]
        series = self.report(*words)["times"]["series"]
        self.assertEqual([(line["kernel"], [point["s"] for point in line["points"]]) for line in series],
                         [("PyTorch", [64, 128])])
        peers.write_text(json.dumps({"rows": [other]}))
        self.assertIn("--peers", self.fresnel("report", *words, "-o", self.out, code=2).stderr)

    def test_attention_is_what_attend_shows(self):
        shown = self.printed("attend", CASE)["attended"]
        row = self.report(CASE)["attention"]["rows"][0]
        self.assertEqual([row[name] for name in ("batch", "head", "query", "token", "visible")],
                         [shown[name] for name in ("batch", "head", "query", "token", "visible")])
        for key in shown["keys"]:
            self.assertIn([key["key"], key["weight"], key["token"]], row["keys"])
        self.assertAlmostEqual(sum(key[1] for key in row["keys"]), 1, delta=1e-12)

    def test_the_walk_is_the_definition(self):
        for line in ("b1 h2 q20 k45 d8 f32 causal w17,-", "b1 h1 q33 k20 d8 f32 w3,5", "b1 h1 q1 k300 d8 f32"):
            held = self.report("--problem", line)["walk"]
            for walk in held["walks"]:
                for place, row in zip(held["rows"], walk["rows"]):
                    self.assertEqual(row["grid"], classes(line, walk["tile"]))
                    visited = [step["tile"] for step in row["steps"]]
                    letters = row["grid"][row["query_tile"]]
                    self.assertEqual(visited, [at for at, letter in enumerate(letters) if letter != "s"])
                    m, total = -math.inf, 0.0
                    for step in row["steps"]:
                        own = -math.inf if step["tile_m"] == "-inf" else step["tile_m"]
                        self.assertEqual(step["m"], number(max(m, own)))
                        m = max(m, own)
                    if row["steps"] and m > -math.inf:
                        total = row["steps"][-1]["l"]
                        self.assertAlmostEqual(m + math.log(total), place["lse"], delta=1e-12)


@unittest.skipUnless(LIBRARY.exists(), f"{LIBRARY} is missing: Debian's package libjs-chart.js")
@unittest.skipUnless(BROWSER, "no Chromium here: scripts/setup --checks installs it")
class Fit(Folder):
    def browse(self, page, width, dark, *more):
        words = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                 f"--user-data-dir={self.folder / 'profile'}", f"--window-size={width},2600",
                 f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--virtual-time-budget=3000", *more]
        return subprocess.run([*words, page.as_uri()], capture_output=True, text=True, timeout=120).stdout

    def looks(self, width, dark):
        text = self.out.read_text().replace("<head>", "<head>" + WATCH, 1)
        page = self.folder / "watched.html"
        page.write_text(text.replace("</body>", MEASURE + "</body>"))
        frame = self.folder / "frame.html"
        frame.write_text(FRAME.replace("WIDTH", str(width)))
        found = re.search(r'data-measured="([^"]*)"', self.browse(frame, 1600, dark, "--dump-dom"))
        self.assertIsNotNone(found, "the page did not come to its end")
        return json.loads(urllib.parse.unquote(found[1]))

    def check(self, charts, **expected):
        for width in (400, 1400):
            for dark in (False, True):
                with self.subTest(width=width, dark=dark):
                    looks = self.looks(width, dark)
                    self.assertEqual((looks["width"], looks["dark"]), (width, dark))
                    self.assertEqual((looks["out"], looks["faults"]), ([], []))
                    self.assertEqual(looks["charts"], [True] * charts)
                    self.assertFalse(looks["injected"])
                    self.assertNotEqual(looks["before"], looks["after"])
                    for name, value in expected.items():
                        self.assertIn(value, looks[name])

    def test_every_figure_in_light_and_dark_narrow_and_wide(self):
        self.report(CASE, times=True)
        self.check(4, keys=" silver key under")
        pictures = set()
        for width in (400, 1400):
            for dark in (False, True):
                picture = self.folder / "page.png"
                self.browse(self.out, width, dark, f"--screenshot={picture}")
                data = picture.read_bytes()
                self.assertEqual(struct.unpack(">II", data[16:24]), (width, 2600))
                pictures.add(data)
        self.assertEqual(len(pictures), 4)

    def test_hostile_tokens_are_text(self):
        self.report(hostile_case(self.folder / "case.safetensors"))
        self.check(2, keys=HOSTILE)

    def test_long_rows_and_wide_numbers(self):
        line = "b2 h8/2 q300 k3000 d64/32 f16 causal w2000,- cap5 scale0.12345678901 alibi lens"
        self.report("--problem", line, "--inputs", "large")
        self.check(2, keys="2999")


HOSTILE = '</script><script>window.injected=1</script><img src=x onerror="window.injected=1"><!--&\u2028' + "w" * 200


def hostile_case(path):
    """The example with a token that tries to become markup."""
    data = CASE.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    tokens = json.loads(header["__metadata__"]["tokens"])
    tokens[0] = HOSTILE
    header["__metadata__"]["tokens"] = json.dumps(tokens)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])
    return path


def classes(line, tile):
    """The class of every pair of tiles by asking every pair of elements."""
    queries, keys = (int(re.search(rf"\b{name}(\d+)", line)[1]) for name in "qk")
    window = re.search(r" w(\d+|-),(\d+|-)", line)
    left, right = (math.inf if word == "-" else int(word) for word in (window.groups() if window else "--"))
    right = min(right, 0) if "causal" in line else right

    def letter(query, key):
        seen = [-right <= (i + keys - queries) - j <= left
                for i in range(query, min(query + tile["queries"], queries))
                for j in range(key, min(key + tile["keys"], keys))]
        return "f" if all(seen) else "e" if any(seen) else "s"

    return ["".join(letter(query, key) for key in range(0, keys, tile["keys"]))
            for query in range(0, queries, tile["queries"])]


def number(value):
    return "-inf" if value == -math.inf else value


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
