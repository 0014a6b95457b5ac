#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults planted in kernels, one patch of tests/mutation each: does any test notice?

    mutants.py --check                     every patch still applies to this tree; builds nothing
    mutants.py [--scratch DIR] [--jobs N] [--programs A,B] [NAME...]
                                           plants each fault (or those named) in a copy of the tree, builds the test
                                           programs one by one, most specific first, and runs them until one fails

The time goes into compiling kernels, so it is not done where it can be helped: a fault in a header is first tried on the
tests of that header, compiled with it and linked to the library as it was, and only if they pass is everything that
includes it compiled again. Of programs, those are built that are asked first, the others when a fault survives those; each
is run without a fault once, when it is the first time that it fails with one.

A patch opens with a sentence that says what is wrong. One that can change no result says "Equivalent:" and why on its
second line; it is listed and not run. The exit code is 1 where a fault survives or a patch does not apply or build.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATCHES = ROOT / "tests" / "mutation"
# Cheapest first.
PROGRAMS = ["walk_test", "semantics_test", "kernels_test", "backward_test", "casebook_backward_test", "backward_large_test",
            "agreement_test",
            "runtime_test", "habits_habits_test", "habits_casebook_test", "habits_threads_test", "habits_plans_test",
            "checker_test"]
# Where a fault of these files is noticed first: the tests that are about them.
SPECIFIC = {
    "src/semantics/": ["semantics_test", "walk_test"],
    "src/walk/": ["walk_test"],
    "src/runtime/": ["runtime_test"],
    "src/kernels/cpu/backward": ["backward_test", "casebook_backward_test", "backward_large_test"],
    "src/kernels/cpu/": ["agreement_test", "habits_habits_test"],
}
# A fault may make a test wait for ever; no program takes a tenth of this on its own.
LONGEST_RUN = 300


class Mutant:
    def __init__(self, path):
        self.path, self.name = path, path.stem
        lines = path.read_text(encoding="utf-8").splitlines()
        self.what = lines[0]
        self.equivalent = lines[1].removeprefix("Equivalent: ") if lines[1].startswith("Equivalent: ") else None
        self.file = next(line[6:] for line in lines if line.startswith("+++ b/"))

    def apply(self, tree, *options):
        # In a folder of some other repository, as a scratch tree may be, git would look for the files from its root.
        alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(Path(tree).resolve().parent)}
        return subprocess.run(["git", "apply", *options, str(self.path)], cwd=tree, env=alone, capture_output=True,
                              text=True)


def all_mutants(names):
    mutants = [Mutant(path) for path in sorted(PATCHES.glob("*.patch"))]
    unknown = set(names) - {mutant.name for mutant in mutants}
    if unknown:
        sys.exit(f"mutants: NAME: given {', '.join(sorted(unknown))}; accepted: names of patches in {PATCHES}")
    if not names:
        return mutants
    return sorted((mutant for mutant in mutants if mutant.name in names), key=lambda mutant: names.index(mutant.name))


def check(mutants):
    code = 0
    for mutant in mutants:
        applied = mutant.apply(ROOT, "--check")
        if applied.returncode != 0:
            print(f"{mutant.name} does not apply any more: {applied.stderr.strip()}")
            code = 1
    print(f"mutants: {len(mutants)} patches, {sum(m.equivalent is not None for m in mutants)} of them equivalent")
    return code


def copy_tree(scratch):
    """The tracked and new files of this tree; those that did not change keep their time, so that little is rebuilt."""
    tree = scratch / "tree"
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, listed):
        source, to = ROOT / name, tree / name
        if not source.is_file() or (to.is_file() and to.read_bytes() == source.read_bytes()):
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, to)
    return tree


def ordered(file, programs):
    """The programs, those about the file first."""
    about = next((names for start, names in SPECIFIC.items() if file.startswith(start)), [])
    return sorted(programs, key=lambda program: about.index(program) if program in about else len(about))


class Builder:
    def __init__(self, scratch, tree, jobs):
        self.build, self.jobs = scratch / "build", jobs
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DFRESNEL_WERROR=OFF"]
        if shutil.which("ccache"):
            options.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
        subprocess.run(["cmake", "-S", tree, "-B", self.build, "-G", "Ninja", *options], check=True,
                       stdout=subprocess.DEVNULL)

    def make(self, *programs):
        made = subprocess.run(["ninja", "-C", self.build, f"-j{self.jobs}", *(f"bin/{name}" for name in programs)],
                              capture_output=True, text=True)
        return None if made.returncode == 0 else made.stdout[-2000:]

    def make_alone(self, program):
        """Compiles the program's own files and links them to the library as it was; what went wrong, or None."""
        listed = subprocess.run(["ninja", "-C", self.build, "-t", "commands", f"bin/{program}"], capture_output=True,
                                text=True, check=True).stdout.splitlines()
        own = [line for line in listed if f"CMakeFiles/{program}.dir/" in line]
        for line in own:
            made = subprocess.run(line, shell=True, cwd=self.build, capture_output=True, text=True)
            if made.returncode != 0:
                return made.stdout + made.stderr
        return None

    def run(self, program):
        """The first test that fails, or None."""
        try:
            ran = subprocess.run([self.build / "bin" / program, "--gtest_brief=1", "--gtest_fail_fast"],
                                 capture_output=True, text=True, errors="replace", timeout=LONGEST_RUN)
        except subprocess.TimeoutExpired:
            return f"{program} (did not end)"
        if ran.returncode == 0:
            return None
        failed = re.search(r"\[  FAILED  \] ([\w./]+)", ran.stdout)
        return f"{program}, {failed[1]}" if failed else f"{program} (crashed)"


def verdict(mutant, builder, tree, programs):
    """Who notices the fault: ("killed", test), ("survived", "") or ("broken", why)."""
    if (applied := mutant.apply(tree)).returncode != 0:
        return "broken", applied.stderr.strip()
    programs = ordered(mutant.file, programs)
    alone = programs[:2] if mutant.file.endswith(".hpp") else []
    try:
        for make, program in [(builder.make_alone, each) for each in alone] + [(builder.make, each) for each in programs]:
            if failure := make(program):
                if f"{tree}/tests" in failure and "static assertion failed" in failure:
                    return "killed", f"{program}, an assertion at compile time"
                return "broken", failure
            if test := builder.run(program):
                return "killed", test
        return "survived", ""
    finally:
        shutil.copy(ROOT / mutant.file, tree / mutant.file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--scratch", type=Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--programs", type=lambda words: words.split(","), default=PROGRAMS)
    parser.add_argument("names", nargs="*", metavar="NAME")
    given = parser.parse_args()
    mutants = all_mutants(given.names)
    if given.check:
        return check(mutants)
    given.scratch.mkdir(parents=True, exist_ok=True)
    tree = copy_tree(given.scratch.resolve())
    builder = Builder(given.scratch.resolve(), tree, given.jobs)
    first = {ordered(mutant.file, given.programs)[0] for mutant in mutants if not mutant.equivalent}
    if failure := builder.make(*sorted(first)):
        sys.exit(f"mutants: the tree does not build without any fault: {failure}")
    right = set()  # programs that were seen to pass without a fault
    counts = {"killed": 0, "survived": 0, "broken": 0}
    for mutant in mutants:
        if mutant.equivalent:
            print(f"equivalent  {mutant.name}: {mutant.equivalent}", flush=True)
            continue
        start = time.monotonic()
        outcome, by = verdict(mutant, builder, tree, given.programs)
        counts[outcome] += 1
        program = by.split(",")[0].split(" ")[0]
        if outcome == "killed" and program not in right:
            if failure := builder.make(program) or builder.run(program):
                sys.exit(f"mutants: {program} fails without any fault: {failure}")
            right.add(program)
        print(f"{outcome:<10}  {mutant.name}{': ' if by else ''}{by} ({time.monotonic() - start:.0f} s)", flush=True)
    planted = sum(counts.values())
    print(f"mutants: {counts['killed']} of {planted} killed, {counts['survived']} survived, {counts['broken']} broken")
    return 0 if counts["killed"] == planted else 1


if __name__ == "__main__":
    sys.exit(main())
