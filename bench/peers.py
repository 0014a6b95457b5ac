#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fresnel beside PyTorch and ONNX Runtime: the same problem, the same threads, turn and turn about in one run.

    bench/peers.py [--fresnel PROGRAM] [--threads N,N] [--rounds R] [--seconds S] [--kernel NAME] [--json]
                   [PROBLEM...]

PROBLEM is a problem line (`b1 h16 q2048 k2048 d64 bf16 causal`) of equal head counts, or grouped ones for PyTorch. Each
round times every kernel of fresnel that fits (which verifies it first), then each peer that is installed and has the
dtype, for about S seconds; figures are medians over all rounds. Rates count 2 (D + Dv) operations per visible pair.
Peers that are not installed are named and left out; `scripts/peers` makes a virtual environment that has them.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
import time

LINE = re.compile(r"b(\d+) h(\d+)(?:/(\d+))? q(\d+) k(\d+) d(\d+)(?:/(\d+))? (f32|f16|bf16)( causal)?$")
DEFAULT = ["b1 h16 q2048 k2048 d64 bf16", "b1 h16 q2048 k2048 d64 bf16 causal", "b1 h8 q4096 k4096 d128 bf16",
           "b1 h8 q4096 k4096 d128 bf16 causal", "b1 h16 q2048 k2048 d64 f32", "b1 h16 q2048 k2048 d64 f32 causal"]


class Problem:
    def __init__(self, line):
        match = LINE.match(line)
        if not match:
            sys.exit(f"peers: PROBLEM: given '{line}'; accepted: bB hH[/Hkv] qSq kSk dD[/Dv] f32|f16|bf16 [causal]")
        numbers = [int(group) if group else None for group in match.groups()[:7]]
        self.line, self.dtype, self.causal = line, match[8], bool(match[9])
        self.batch, self.heads, self.kv_heads, self.queries, self.keys, self.dim, self.value_dim = numbers
        self.kv_heads, self.value_dim = self.kv_heads or self.heads, self.value_dim or self.dim


def times_of(call, seconds):
    call()
    taken, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds or len(taken) < 3:
        before = time.perf_counter()
        call()
        taken.append(time.perf_counter() - before)
    return taken


def fresnel(program, problem, threads, seconds, kernel):
    """Seconds per run and rate of each kernel; a wrong kernel has neither."""
    command = [program, "time", problem.line, "--threads", str(threads), "--seconds", str(seconds), "--json"]
    command += ["--kernel", kernel] if kernel else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"peers: {' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    rows = json.loads(done.stdout)["rows"]
    return {row["kernel"]: (row["samples"], row["tflops"] * row["median_seconds"]) for row in rows if row["ok"]}


class Torch:
    name = "PyTorch"

    def __init__(self):
        import torch
        self.torch, self.version = torch, torch.__version__

    def runner(self, p, threads):
        torch = self.torch
        torch.set_num_threads(threads)
        dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[p.dtype]
        random = torch.Generator().manual_seed(1)
        q, k, v = (torch.randn(p.batch, heads, length, dim, generator=random).to(dtype) for heads, length, dim in
                   ((p.heads, p.queries, p.dim), (p.kv_heads, p.keys, p.dim), (p.kv_heads, p.keys, p.value_dim)))
        attention = torch.nn.functional.scaled_dot_product_attention
        grouped = {"enable_gqa": True} if p.heads != p.kv_heads else {}

        def call():
            with torch.no_grad():
                attention(q, k, v, is_causal=p.causal, **grouped)
        return call


class OnnxRuntime:
    name = "ONNX Runtime"

    def __init__(self):
        import numpy
        import onnx
        import onnxruntime
        self.numpy, self.onnx, self.runtime, self.version = numpy, onnx, onnxruntime, onnxruntime.__version__

    def runner(self, p, threads):
        """Its MultiHeadAttention, which has one head count and float32 on CPUs."""
        if p.dtype != "f32" or p.heads != p.kv_heads or (p.causal and p.queries != p.keys):
            return None
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        shapes = {"q": (p.batch, p.queries, p.heads * p.dim), "k": (p.batch, p.keys, p.heads * p.dim),
                  "v": (p.batch, p.keys, p.heads * p.value_dim)}
        node = helper.make_node("MultiHeadAttention", list(shapes), ["o"], domain="com.microsoft", num_heads=p.heads,
                                unidirectional=int(p.causal))
        graph = helper.make_graph([node], "attention",
                                  [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()],
                                  [helper.make_tensor_value_info("o", kind, None)])
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17),
                                                                      helper.make_opsetid("com.microsoft", 1)])
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads = threads
        session = self.runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        random = self.numpy.random.default_rng(1)
        inputs = {name: random.standard_normal(shape, dtype=self.numpy.float32) for name, shape in shapes.items()}
        return lambda: session.run(None, inputs)


def installed_peers():
    peers = []
    for peer in (Torch, OnnxRuntime):
        try:
            peers.append(peer())
        except ImportError as error:
            print(f"{peer.name} is not here ({error.name}) and left out", file=sys.stderr)
    return peers


def measure(problem, threads, peers, options):
    samples, operations = {}, None
    runners = {peer.name: peer.runner(problem, threads) for peer in peers}
    for _ in range(options.rounds):
        for kernel, (taken, work) in fresnel(options.fresnel, problem, threads, options.seconds,
                                               options.kernel).items():
            samples.setdefault(kernel, []).extend(taken)
            operations = work
        for name, call in runners.items():
            if call:
                samples.setdefault(name, []).extend(times_of(call, options.seconds))
    return [{"problem": problem.line, "threads": threads, "who": who, "runs": len(taken),
             "median_seconds": statistics.median(taken), "tflops": operations / statistics.median(taken)}
            for who, taken in samples.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresnel", default="build/release/bin/fresnel")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--kernel", help="this one of ours alone (default: all that fit)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("problems", nargs="*", metavar="PROBLEM")
    options = parser.parse_args()
    peers, rows = installed_peers(), []
    for problem in map(Problem, options.problems or DEFAULT):
        for threads in map(int, options.threads.split(",")):
            found = measure(problem, threads, peers, options)
            rows += found
            if not options.json:
                print(f"{problem.line}  ({threads} threads)")
                for row in sorted(found, key=lambda row: row["median_seconds"]):
                    print(f"  {row['who']:<14}{row['median_seconds'] * 1e3:10.3f} ms{row['tflops'] * 1e3:10.1f} GFLOP/s")
                sys.stdout.flush()
    if options.json:
        print(json.dumps({"peers": {peer.name: peer.version for peer in peers}, "rows": rows}, indent=2))


main()
