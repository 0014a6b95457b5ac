#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fresnel beside PyTorch, ONNX Runtime and OpenVINO: the same problem, the same threads, turn and turn about in one run.

    bench/peers.py [--fresnel PROGRAM] [--threads N,N] [--rounds R] [--seconds S] [--kernel NAME] [--out FILE] [--json]
                   [PROBLEM...]

PROBLEM is a problem line (`b1 h16 q2048 k2048 d64 bf16 causal`) of equal head counts, or grouped ones for PyTorch. Each
round times the row of fresnel that planning chooses (which verifies it first; --kernel NAME: that row, --kernel all:
every row that fits) and each peer that is installed and takes the problem, in an order that moves on by one from round
to round, for about S seconds each; figures are medians over all rounds. Rates count 2 (D + Dv) operations per visible
pair. Peers that are not installed are named and left out; `scripts/peers` makes a virtual environment that has them.
--out writes the record that bench/chart.py draws, whole or not at all.
"""
import argparse
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

LINE = re.compile(r"b(\d+) h(\d+)(?:/(\d+))? q(\d+) k(\d+) d(\d+)(?:/(\d+))? (f32|f16|bf16)( causal)?$")
ACCEPTED = "bB hH[/Hkv] qSq kSk dD[/Dv] f32|f16|bf16 [causal]"
DEFAULT = ["b1 h16 q2048 k2048 d64 bf16", "b1 h16 q2048 k2048 d64 bf16 causal", "b1 h8 q4096 k4096 d128 bf16",
           "b1 h8 q4096 k4096 d128 bf16 causal", "b1 h16 q2048 k2048 d64 f32", "b1 h16 q2048 k2048 d64 f32 causal"]


class Problem:
    def __init__(self, line):
        match = LINE.match(line)
        if not match:
            sys.exit(f"peers: PROBLEM: given '{line}'; accepted: {ACCEPTED}")
        numbers = [int(group) if group else None for group in match.groups()[:7]]
        self.line, self.dtype, self.causal = line, match[8], bool(match[9])
        self.batch, self.heads, self.kv_heads, self.queries, self.keys, self.dim, self.value_dim = numbers
        self.kv_heads, self.value_dim = self.kv_heads or self.heads, self.value_dim or self.dim

    @property
    def grouped(self):
        return self.heads != self.kv_heads

    @property
    def shifted(self):
        """Peers align causal to the top left, fresnel to the bottom right: another problem unless it is square."""
        return self.causal and self.queries != self.keys


def times_of(call, seconds):
    call()
    taken, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds or len(taken) < 3:
        before = time.perf_counter()
        call()
        taken.append(time.perf_counter() - before)
    return taken


class Fresnel:
    """Ours, as its own program: it verifies a result before it times it, and a wrong one has no time."""

    def __init__(self, program, kernel):
        self.program, self.kernel, self.operations = program, kernel, {}

    def asked(self, *arguments, accepted=(0,)):
        done = subprocess.run([self.program, *arguments, "--json"], capture_output=True, text=True)
        if done.returncode not in accepted:
            sys.exit(f"peers: {self.program} {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return json.loads(done.stdout)

    def times(self, problem, threads, seconds):
        kernel = self.kernel
        if kernel is None:
            kernel = next(row["kernel"] for row in self.asked("explain", problem.line)["rows"] if row["chosen"])
        choice = [] if kernel == "all" else ["--kernel", kernel]
        rows = self.asked("time", problem.line, "--threads", str(threads), "--seconds", str(seconds), *choice,
                          accepted=(0, 1))["rows"]
        right = [row for row in rows if row["ok"]]
        for row in right:
            self.operations[problem.line] = row["tflops"] * row["median_seconds"]
        return {row["kernel"]: row["samples"] for row in right}


class Torch:
    name = "PyTorch"

    def __init__(self):
        import torch
        self.torch, self.version = torch, torch.__version__

    def runner(self, p, threads):
        if p.shifted:
            return None
        torch = self.torch
        torch.set_num_threads(threads)
        dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[p.dtype]
        random = torch.Generator().manual_seed(1)
        q, k, v = (torch.randn(p.batch, heads, length, dim, generator=random).to(dtype) for heads, length, dim in
                   ((p.heads, p.queries, p.dim), (p.kv_heads, p.keys, p.dim), (p.kv_heads, p.keys, p.value_dim)))
        attention = torch.nn.functional.scaled_dot_product_attention
        grouped = {"enable_gqa": True} if p.grouped else {}

        def call():
            torch.set_num_threads(threads)
            with torch.no_grad():
                attention(q, k, v, is_causal=p.causal, **grouped)
        return call


class OnnxRuntime:
    """Its MultiHeadAttention where nothing is masked; causal, its GroupQueryAttention, which is the faster one there."""
    name = "ONNX Runtime"

    def __init__(self):
        import numpy
        import onnx
        import onnxruntime
        self.numpy, self.onnx, self.runtime, self.version = numpy, onnx, onnxruntime, onnxruntime.__version__

    def runner(self, p, threads):
        if p.dtype != "f32" or p.grouped or p.value_dim != p.dim or p.shifted:
            return None
        helper, numpy = self.onnx.helper, self.numpy
        random = numpy.random.default_rng(1)
        inputs = {name: random.standard_normal((p.batch, length, p.heads * p.dim), dtype=numpy.float32)
                  for name, length in (("q", p.queries), ("k", p.keys), ("v", p.keys))}
        if p.causal:
            inputs |= {"last": numpy.full(p.batch, p.keys - 1, numpy.int32), "total": numpy.array([p.keys], numpy.int32)}
            node = helper.make_node("GroupQueryAttention", ["q", "k", "v", "", "", "last", "total"],
                                    ["o", "new_k", "new_v"], domain="com.microsoft", num_heads=p.heads,
                                    kv_num_heads=p.heads)
        else:
            node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["o"], domain="com.microsoft",
                                    num_heads=p.heads)
        kind = {numpy.dtype(numpy.float32): self.onnx.TensorProto.FLOAT,
                numpy.dtype(numpy.int32): self.onnx.TensorProto.INT32}
        graph = helper.make_graph(
            [node], "attention", [helper.make_tensor_value_info(name, kind[array.dtype], array.shape)
                                  for name, array in inputs.items()],
            [helper.make_tensor_value_info(name, self.onnx.TensorProto.FLOAT, None) for name in node.output])
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17),
                                                                      helper.make_opsetid("com.microsoft", 1)])
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads = threads
        session = self.runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return lambda: session.run(["o"], inputs)


class OpenVino:
    """Its scaled dot product attention, computed in the problem's type, between inputs and outputs of float32."""
    name = "OpenVINO"
    precision = {"f32": "FP32", "f16": "FP16", "bf16": "BF16"}

    def __init__(self):
        import numpy
        import openvino
        self.numpy, self.openvino, self.version = numpy, openvino, openvino.__version__.split("-")[0]
        self.core = openvino.Core()
        self.capable = self.core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")

    def runner(self, p, threads):
        if p.grouped or p.shifted or self.precision[p.dtype] not in self.capable:
            return None
        openvino, opset = self.openvino, self.openvino.opset13
        shapes = [(p.batch, p.heads, length, dim) for length, dim in
                  ((p.queries, p.dim), (p.keys, p.dim), (p.keys, p.value_dim))]
        parameters = [opset.parameter(shape, openvino.Type.f32) for shape in shapes]
        model = openvino.Model([opset.scaled_dot_product_attention(*parameters, causal=p.causal)], parameters)
        options = {"INFERENCE_PRECISION_HINT": p.dtype, "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
        request = self.core.compile_model(model, "CPU", options).create_infer_request()
        random = self.numpy.random.default_rng(1)
        inputs = [random.standard_normal(shape, dtype=self.numpy.float32) for shape in shapes]
        return lambda: request.infer(inputs, share_inputs=True, share_outputs=True)


def installed_peers():
    peers = []
    for peer in (Torch, OnnxRuntime, OpenVino):
        try:
            peers.append(peer())
        except ImportError as error:
            print(f"{peer.name} is not here ({error.name}) and left out", file=sys.stderr)
    return peers


def runners_of(problem, threads, peers):
    found = {}
    for peer in peers:
        try:
            found[peer.name] = peer.runner(problem, threads)
        except Exception as error:  # a peer that refuses a problem is left out of it, whatever it throws
            print(f"{peer.name} refuses {problem.line}: {str(error).splitlines()[0]}", file=sys.stderr)
    return {name: call for name, call in found.items() if call}


def measure(problem, threads, peers, ours, options):
    calls = runners_of(problem, threads, peers)
    turns = [("fresnel", lambda: ours.times(problem, threads, options.seconds))]
    turns += [(name, lambda name=name, call=call: {name: times_of(call, options.seconds)})
              for name, call in calls.items()]
    samples = {}
    for turn in range(options.rounds):
        for index in range(len(turns)):
            for who, taken in turns[(turn + index) % len(turns)][1]().items():
                samples.setdefault(who, []).extend(taken)
    rows = []
    for who, taken in samples.items():
        low, median, high = statistics.quantiles(taken, n=4)
        rows.append({"problem": problem.line, "threads": threads, "who": who, "peer": who in calls, "runs": len(taken),
                     "median_seconds": median, "quartiles": [low, high],
                     "tflops": ours.operations.get(problem.line, 0) / median})
    return rows


def show(problem, threads, rows):
    print(f"{problem.line}  ({threads} thread{'s' if threads > 1 else ''})")
    best = min((row["median_seconds"] for row in rows if row["peer"]), default=None)
    for row in sorted(rows, key=lambda row: row["median_seconds"]):
        ratio = "" if row["peer"] or best is None else f"{best / row['median_seconds']:8.2f} x the best peer"
        print(f"  {row['who']:<14}{row['median_seconds'] * 1e3:10.3f} ms{row['tflops'] * 1e3:10.1f} GFLOP/s{ratio}")
    sys.stdout.flush()


def processor():
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def write_whole(path, text):
    """All of it under its name, or nothing."""
    partial = pathlib.Path(f"{path}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        sys.exit(f"peers: --out: given '{path}': {error.strerror}; accepted: a file that can be written")


def counts(text):
    if not re.fullmatch("[1-9][0-9]{0,3}(,[1-9][0-9]{0,3})*", text):
        raise argparse.ArgumentTypeError(f"given '{text}'; accepted: whole numbers from 1 to 9999, separated by commas")
    return [int(part) for part in text.split(",")]


def count(text):
    if not re.fullmatch("[1-9][0-9]{0,3}", text):
        raise argparse.ArgumentTypeError(f"given '{text}'; accepted: a whole number from 1 to 9999")
    return int(text)


def duration(text):
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0.001 <= seconds <= 3600:  # no NaN either
        raise argparse.ArgumentTypeError(f"given '{text}'; accepted: a number from 0.001 to 3600")
    return seconds


def program(path):
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"given '{path}'; accepted: the program, which scripts/build makes")
    return path


def new_file(path):
    """Refused before anything is measured rather than after it."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise argparse.ArgumentTypeError(f"given '{path}'; accepted: a file in a folder that can be written")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresnel", type=program, default="build/release/bin/fresnel", metavar="PROGRAM")
    parser.add_argument("--threads", type=counts, default=[1, 2], metavar="N,N")
    parser.add_argument("--rounds", type=count, default=5, metavar="R")
    parser.add_argument("--seconds", type=duration, default=0.5, metavar="S")
    parser.add_argument("--kernel", metavar="NAME", help="this row of ours, or all of them (default: what planning chooses)")
    parser.add_argument("--out", type=new_file, metavar="FILE", help="write the record here")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("problems", nargs="*", metavar="PROBLEM")
    options = parser.parse_args()
    problems = [Problem(line) for line in options.problems or DEFAULT]
    peers, rows, ours, load = installed_peers(), [], Fresnel(options.fresnel, options.kernel), os.getloadavg()
    for problem in problems:
        for threads in options.threads:
            found = measure(problem, threads, peers, ours, options)
            rows += found
            if not options.json:
                show(problem, threads, found)
    record = {"processor": processor(), "processors": os.cpu_count(), "system": platform.platform(),
              "python": platform.python_version(), "peers": {peer.name: peer.version for peer in peers},
              "load_before": [round(each, 2) for each in load], "load": [round(each, 2) for each in os.getloadavg()],
              "threads": options.threads, "rounds": options.rounds, "seconds": options.seconds, "rows": rows}
    if options.json:
        print(json.dumps(record, indent=1))
    if options.out:
        write_whole(options.out, json.dumps(record, indent=1) + "\n")


main()
