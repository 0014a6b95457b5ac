#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the fuzz targets: small files that are right, or wrong in one way, to start a search from.

    tests/fuzz/make_seeds.py [FOLDER]

FOLDER (default: corpus/ beside this script) gets one folder per target; files of the same name are replaced, others
stay. The same seeds every time. What a search found is kept by `scripts/fuzz --keep`, not here.
"""

import json
import random
import struct
import sys
from pathlib import Path

WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I32": 4, "BOOL": 1}


def safetensors(tensors, metadata=None, data=None, tail=b""):
    """A file of the given {name: (dtype, shape)}, zeros unless `data` says otherwise."""
    header, begin = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape) in tensors.items():
        size = WIDTHS[dtype]
        for extent in shape:
            size *= extent
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + size]}
        begin += size
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + (data or bytes(begin)) + tail


def case(dtype="F32", options=None, extra=None, metadata=None, shape=(1, 2, 1, 2, 3, 2, 2)):
    batch, heads, heads_kv, queries, keys, width, value_width = shape
    tensors = {"q": (dtype, [batch, heads, queries, width]), "k": (dtype, [batch, heads_kv, keys, width]),
               "v": (dtype, [batch, heads_kv, keys, value_width]), **(extra or {})}
    words = dict(metadata or {})
    if options is not None:
        words["problem"] = json.dumps(options)
    return safetensors(tensors, words)


def cases():
    yield "plain", case()
    for dtype in ("F64", "F16", "BF16"):
        yield dtype.lower(), case(dtype)
    yield "options", case(options={"causal": True, "softcap": 5, "window_size_left": 3, "alignment": "top_left"})
    yield "scale", case(options={"softmax_scale": -0.5, "window_size_right": 0, "causal": None})
    yield "alibi", case(options={"alibi": "distance"}, extra={"alibi_slopes": ("F32", [1, 2])})
    yield "lengths", case(extra={"seqlens_k": ("I32", [1]), "alibi_slopes": ("F32", [2])})
    yield "answers", case(extra={"expected_o": ("F64", [1, 2, 2, 2]), "expected_lse": ("F64", [1, 2, 2])})
    yield "backward", case(extra={"dout": ("F32", [1, 2, 2, 2]), "expected_dq": ("F64", [1, 2, 2, 2])})
    yield "words", case(metadata={"tokens": '["a","b","c"]', "show": '{"batch":0,"head":1,"query":1}'})
    yield "no_keys", case(shape=(1, 2, 1, 2, 0, 2, 2))
    yield "no_heads", case(shape=(1, 0, 0, 2, 3, 2, 2))
    yield "empty_and_vast", case(shape=(1 << 30, 0, 0, 1 << 20, 3, 2, 2))
    yield "mask", case(extra={"mask": ("BOOL", [2, 3])})
    yield "paged", case(extra={"block_table": ("I32", [1, 1])}, options={"block_size": 4})
    yield "spare_byte", safetensors({"q": ("F32", [1])}, tail=b"\0")
    yield "not_boolean", safetensors({"m": ("BOOL", [2])}, data=b"\1\2")
    yield "no_object", struct.pack("<Q", 2) + b"[]"
    yield "vast_header", struct.pack("<Q", 1 << 62) + b"{}"


def npy(descr, shape, order="False", version=1, data=b""):
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    lead = 10 if version == 1 else 12
    header += b" " * (63 - (lead + len(header)) % 64) + b"\n"
    return b"\x93NUMPY" + bytes((version, 0)) + struct.pack("<H" if version == 1 else "<I", len(header)) + header + data


def arrays():
    yield "f4", npy("<f4", "(2, 1)", data=bytes(8))
    yield "f8", npy("<f8", "(1,)", version=2, data=bytes(8))
    yield "f2", npy("<f2", "()", version=3, data=bytes(2))
    yield "i4", npy("<i4", "(0, 3)")
    yield "b1", npy("|b1", "(2,)", data=b"\0\1")
    yield "not_boolean", npy("|b1", "(1,)", data=b"\2")
    yield "fortran", npy("<f4", "(1,)", order="True", data=bytes(4))
    yield "big_endian", npy(">f4", "(1,)", data=bytes(4))
    yield "vast", npy("<f4", "(4611686018427387904, 4)")


LINES = {
    "plain": "b1 h1 q1 k1 d1 f32",
    "all": "b2 h8/2 q128 k1024 d64/32 bf16 causal topleft w16,- cap5 scale0.1 alibi:distance:batch lens bshd unaligned nolse",
    "some": "b2 h2 q3 k5 d8 f16 w-,0 scale-1e-30 q:bshd o:bshd k:unaligned",
    "gradients": "b1 h4/2 q9 k70 d64 f64 causal alibi grad",
    "vast": "b9223372036854775807 h0 q1 k1 d1 f32",
    "large": "b1 h1 q1073741824 k536870912 d1 f32 causal",
    "wide": "b1 h1 q1 k1 d577 f32",
    "misspelt": "b1 h1 q1 k1 d1 f32 cuasal",
    "misplaced": "b1 h1 q1 k1 d1 f32 cap5 causal",
    "subnormal": "b1 h1 q1 k1 d1 f64 cap4.9406564584124654e-324",
    "number": "b1 h1 q1 k1 d1 f64 scale1e999",
}

METADATA = {
    "options": 'p{"softmax_scale":0.5,"causal":true,"alignment":"top_left","window_size_left":3,"window_size_right":0,'
               '"softcap":5,"alibi":"distance","block_size":4}',
    "defaults": 'p{"softmax_scale":null,"causal":null,"alibi":null}',
    "unknown": 'p{"softmax_scal":1}',
    "twice": 'p{"causal":true,"causal":false}',
    "beyond": 'p{"softcap":1e999}',
    "word": 'p{"alignment":"topleft"}',
    "tokens": 't["a","\\u00e9","\\ud83d\\ude00"]',
    "deep": "t[[[[[[[[[[]]]]]]]]]]",
    "show": 's{"batch":0,"head":1,"query":18446744073709551615}',
    "short_show": 's{"batch":0}',
}


def calls():
    """Bytes of any kind are a call; two dozen of them reach every row, dtype and option."""
    numbers = random.Random(1)
    yield "plain", b""
    for index in range(24):
        yield f"call{index}", numbers.randbytes(48)


def main(arguments):
    root = Path(arguments[0]) if arguments else Path(__file__).parent / "corpus"
    targets = {
        "safetensors": cases(),
        "npy": arrays(),
        "problem_line": ((name, text.encode()) for name, text in LINES.items()),
        "case_options": ((name, text.encode()) for name, text in METADATA.items()),
        "kernels": calls(),
    }
    for target, seeds in targets.items():
        (root / target).mkdir(parents=True, exist_ok=True)
        for name, content in seeds:
            (root / target / f"seed_{name}").write_bytes(content)


if __name__ == "__main__":
    main(sys.argv[1:])
