#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a GPU's counters say of the lesson's kernels, beside what `fresnel count` says: needs a GPU, Nsight Compute (ncu), and
the programs of the `cuda` preset.

    bench/lesson_counters.py [--program build/cuda/bin/cuda_lesson] [--fresnel build/cuda/bin/fresnel]
                             [--n 1024,4096,16384] [--width 16,64] [--out FILE]

Every kernel starts with cold caches (ncu empties them). Bytes that threads ask for, from the instructions, are compared
with the count word for word; then come the sectors that reach the first and the second level, and the bytes of device
memory. --out writes everything as one JSON document.
"""
import argparse
import csv
import io
import json
import os
import subprocess
import sys

METRICS = {
    "asked_read": "smsp__sass_data_bytes_mem_global_op_ld.sum",
    "asked_write": "smsp__sass_data_bytes_mem_global_op_st.sum",
    "workgroup_read": "smsp__sass_data_bytes_mem_shared_op_ld.sum",
    "workgroup_write": "smsp__sass_data_bytes_mem_shared_op_st.sum",
    "l1_read_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1_write_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l2_read_sectors": "lts__t_sectors_op_read.sum",
    "l2_write_sectors": "lts__t_sectors_op_write.sum",
    "dram_read": "dram__bytes_read.sum",
    "dram_write": "dram__bytes_write.sum",
    "nanoseconds": "gpu__time_duration.sum",
}
UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "sector": 1, "nsecond": 1, "ns": 1, "usecond": 1e3, "us": 1e3,
         "msecond": 1e6, "ms": 1e6, "second": 1e9, "s": 1e9, "": 1}


def fail(text):
    sys.exit(f"lesson_counters: {text}")


def profile(program, metrics, n, width, kind):
    """{metric: sum over the kernels of one launch}; None where ncu does not know a metric."""
    command = ["ncu", "--clock-control", "none", "--csv", "--print-units", "base", "--metrics", ",".join(metrics), program,
               str(n), str(width), kind, "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return None, (done.stdout + done.stderr).strip()
    text = done.stdout
    start = text.find('"ID"')
    if start < 0:
        return None, text.strip()
    sums = dict.fromkeys(metrics, 0.0)
    for row in csv.DictReader(io.StringIO(text[start:])):
        value = row["Metric Value"].replace(",", "")
        if row["Metric Name"] in sums and value not in ("", "n/a"):
            sums[row["Metric Name"]] += float(value) * UNITS.get(row["Metric Unit"], 1)
    return sums, ""


def count(fresnel, n, width, kind):
    done = subprocess.run([fresnel, "count", "--n", str(n), "--d", str(width), "--kind", kind, "--json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["rows"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/cuda/bin/cuda_lesson")
    parser.add_argument("--fresnel", default="build/cuda/bin/fresnel")
    parser.add_argument("--n", default="1024,4096,16384")
    parser.add_argument("--width", default="16,64")
    parser.add_argument("--out")
    options = parser.parse_args()

    known = {}
    for name, metric in METRICS.items():
        sums, why = profile(options.program, [metric], 64, 16, "fused")
        if sums is None:
            print(f"lesson_counters: no {metric}: {why.splitlines()[-1] if why else '?'}", file=sys.stderr)
        else:
            known[name] = metric
    if not known:
        fail("ncu reads no counter here")

    rows = []
    print("      n   d  kind      asked read/write MB   counted       L2 read/write MB    DRAM read/write MB        us")
    for width in map(int, options.width.split(",")):
        for n in map(int, options.n.split(",")):
            for kind in ("unfused", "fused", "broken"):
                sums, why = profile(options.program, list(known.values()), n, width, kind)
                if sums is None:
                    fail(why)
                row = {"n": n, "d": width, "kind": kind, **{name: sums[metric] for name, metric in known.items()}}
                counted = count(options.fresnel, n, width, kind)
                row["counted_read"], row["counted_write"] = 4 * counted["global_reads"], 4 * counted["global_writes"]
                row["counted_workgroup_read"] = 4 * counted["shared_reads"]
                row["counted_workgroup_write"] = 4 * counted["shared_writes"]
                rows.append(row)
                equal = (row.get("asked_read"), row.get("asked_write")) == (row["counted_read"], row["counted_write"])
                mega = lambda key, unit=1: f"{row.get(key, float('nan')) * unit / 1e6:9.2f}"
                print(f"{n:7} {width:3}  {kind:8}{mega('asked_read')} {mega('asked_write')}   "
                      f"{'equal' if equal else 'DIFFERENT':9} {mega('l2_read_sectors', 32)} "
                      f"{mega('l2_write_sectors', 32)}  {mega('dram_read')} {mega('dram_write')} "
                      f"{row.get('nanoseconds', float('nan')) / 1e3:10.1f}", flush=True)
    if options.out:
        with open(options.out + ".partial", "w") as file:
            json.dump({"rows": rows, "metrics": METRICS}, file, indent=1)
        os.replace(options.out + ".partial", options.out)


if __name__ == "__main__":
    main()
