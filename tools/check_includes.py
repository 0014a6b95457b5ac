#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do the includes follow the arrows between the rooms, and do the files keep their house rules?

    tools/check_includes.py [ROOT]

A room may include itself, the public headers, and every room that ROOMS lets it reach. Public headers include nothing
but each other and the standard library. Files open with the licence line and stay short; the rooms that are also
compiled to WebAssembly keep away from what its C++ library lacks. Prints one line per fault, `file:line: what`, and
exits 1 if there is any. Knows nothing about what the code does; clang-tidy reads that.
"""

import re
import sys
from pathlib import Path

# What a room may include directly; whatever those may include, it may include too. docs/architecture.md draws it.
ROOMS = {
    "fresnel": [],  # the public headers, include/fresnel
    "runtime": ["fresnel"],
    "semantics": ["fresnel"],
    "oracle": ["runtime", "semantics"],
    "io": ["runtime", "semantics"],
    "inputs": ["runtime", "semantics"],
    "walk": ["runtime", "semantics"],
    "kernels": ["walk"],
    "traffic": ["kernels"],
    "controls": ["kernels"],
    "contracts": ["kernels"],
    "planner": ["traffic"],
    "checker": ["oracle"],
    "evidence": ["planner", "checker", "contracts", "io", "inputs"],
    "report": ["planner", "checker", "contracts", "io", "inputs"],
    "c_api": ["evidence"],
    "bench": ["evidence"],
    "bindings": ["evidence"],
    "examples": ["evidence"],
    "cli": ["evidence", "report", "controls"],
    "tests": ["evidence", "controls", "cli", "c_api", "examples"],
}

FOLDERS = ["include", "src", "controls", "bench", "bindings", "examples", "tests"]
SOURCES = {".c", ".cpp", ".hpp", ".h", ".cu", ".cuh"}
HEADERS = {".hpp", ".h", ".cuh"}
LONGEST_FILE = 600
LONGEST_HEADER = 200
LICENCE = "SPDX-License-Identifier: Apache-2.0"

WASM_ROOMS = {"semantics", "oracle", "walk", "planner", "traffic"}
WASM_LACKS = re.compile(r"#\s*include\s*<(?:format|ranges|source_location)>|std::(?:bit_cast|views::|ranges::views)")
INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b")


def reachable(room):
    """The room and all that it may include."""
    rooms, waiting = set(), [room]
    while waiting:
        name = waiting.pop()
        if name not in rooms:
            rooms.add(name)
            waiting += ROOMS[name]
    return rooms


def room_of(path):
    """The room that a path, relative to the root, lies in; None when its folder is no known room."""
    parts = path.parts
    if parts[0] == "include":
        return "fresnel"
    name = parts[1] if parts[0] == "src" and len(parts) > 2 else parts[0]
    return name if name in ROOMS else None


def include_fault(root, path, room, target):
    """What is wrong with `#include "target"` in a file of `room`, or None."""
    wanted = target.split("/")[0]
    if wanted == "hwy":  # Highway asks for its headers in quotes
        return None if room != "fresnel" else "public headers include only fresnel/ and the standard library"
    if wanted in ROOMS and wanted != "tests":
        if wanted in reachable(room):
            return None
        return f"{room} may not include {wanted}; it may include {', '.join(sorted(reachable(room)))}"
    if room in ("tests", "bench", "examples", "bindings"):  # their own helpers, named from their own folder
        top = root / path.parts[0]
        if (top / target).exists() or (root / path).parent.joinpath(target).exists():
            return None
    return f'"{target}" names no room: write "room/file"'


def file_faults(root, path):
    """Yields (line number, what is wrong) for one source file; `path` is relative to `root`."""
    lines = (root / path).read_text(encoding="utf-8").splitlines()
    if not lines or LICENCE not in lines[0]:
        yield 1, f"the first line must be // {LICENCE}"
    is_header = path.suffix in HEADERS and not path.name.endswith("-inl.h")  # Highway's name for a kernel's own parts
    limit = LONGEST_HEADER if is_header else LONGEST_FILE
    if len(lines) > limit:
        yield limit, f"{len(lines)} lines; at most {limit}"
    room = room_of(path)
    if room is None:
        yield 1, "lies in no known room: add the room and its arrows to tools/check_includes.py"
        return
    for number, line in enumerate(lines, start=1):
        match = INCLUDE.match(line)
        fault = include_fault(root, path, room, match[1]) if match else None
        if fault:
            yield number, fault
        if room in WASM_ROOMS and WASM_LACKS.search(line):
            yield number, "not in the C++ library this room must also build with (WebAssembly)"
        if UNFINISHED.search(line):
            yield number, "unfinished work is written as an issue, not as a comment"


def sources(root):
    """All source files below the known folders, relative to `root`."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCES and path.is_file():
                yield path.relative_to(root)


def faults(root):
    """All faults as printable lines, and the number of files read."""
    found, count = [], 0
    for path in sources(root):
        count += 1
        found += [f"{path}:{number}: {what}" for number, what in file_faults(root, path)]
    return found, count


def main(arguments):
    root = Path(arguments[0] if arguments else Path(__file__).parent.parent).resolve()
    found, count = faults(root)
    print("\n".join(found + [f"includes and house rules: {count} files, {len(found)} faults"]))
    return 1 if found or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
