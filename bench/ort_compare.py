#!/usr/bin/env python3
"""Forward on the CPU: moec against ONNX Runtime. README.md says how to run it and how to read the table."""
import argparse
import datetime
import glob
import json
import os
import platform
import subprocess
import sys

import onnxruntime as ort

import midsize
from paired import MoecModel, OrtModel, Refused, check, compare

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(HERE)
SIZES = [{"batch": 2, "seq": 16}, {"batch": 4, "seq": 128}, {"batch": 1, "seq": 512}]
MID = {"batch": 1, "seq": 256}
TOLERANCE = 1e-3


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--moec", required=True, help="the executable, of a release build")
    p.add_argument("--golden", default=f"{SOURCE}/tests/data", help="folder of */model*.onnx")
    p.add_argument("--work", required=True, help="folder for models and executables; the mid-size model stays there")
    p.add_argument("--rounds", type=int, default=11)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--only", default="", help="only cases whose name contains this")
    p.add_argument("--json", help="also write the figures here")
    return p.parse_args()


def command_output(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def machine():
    with open("/proc/cpuinfo") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    cpu = f"{len(names)} x {names[0] if names else platform.machine()}"
    return {"command": "bench/" + " ".join([os.path.basename(sys.argv[0])] + sys.argv[1:]),
            "date": datetime.date.today().isoformat(), "cpu": cpu,
            "commit": command_output("git", "-C", SOURCE, "rev-parse", "--short=12", "HEAD"),
            "onnxruntime": ort.__version__, "load": os.getloadavg()[0]}


def golden_cases(a):
    """(name, files of both sides, sizes): every exported model of the folder; None: the file's own sizes."""
    for path in sorted(glob.glob(f"{a.golden}/*/model*.onnx")):
        name = os.path.relpath(path, a.golden)[:-5]
        yield name, path, path, SIZES, None


def mid_cases(a):
    names = ["midsize standard operators", "midsize com.microsoft::MoE"]
    if not any(a.only in n for n in names):
        return
    path, moe = f"{a.work}/midsize.onnx", f"{a.work}/midsize_moe.onnx"
    if not os.path.exists(path):
        midsize.make(a.moec, f"{SOURCE}/models/configs/qwen3-30b-a3b", path)
    if not os.path.exists(moe):
        midsize.with_moe_operator(path, moe)
    yield names[0], path, path, [MID], 1
    yield names[1], path, moe, [MID], None


def run_case(a, name, ours, theirs, sizes, slow_steps):
    session = OrtModel(theirs, a.threads)
    compiled = MoecModel(a.moec, ours, a.work, a.threads)
    symbols = session.symbols()
    for dims in sizes if symbols else [{}]:
        row = {"name": name, "dims": dims}
        inputs = session.inputs(dims, 64)
        row["shape"] = "x".join(map(str, next(iter(inputs.values())).shape))
        try:
            row["off"] = check(compiled, session, inputs, TOLERANCE)
            row.update(compare(compiled, session, dims, a.rounds, a.warmup, a.steps, slow_steps))
        except Refused as e:
            row["refused"] = str(e)
        yield row


def print_row(row):
    if "refused" in row:
        print(f"| {row['name']} | {row.get('shape', '')} | refused by {row['refused']} | | | |", flush=True)
        return
    def three(t):
        return " / ".join(f"{t[k]:.2f}" for k in ("mean", "median", "p95"))
    print(f"| {row['name']} | {row['shape']} | {three(row['moec'])} | {three(row['ort'])} | {row['ratio']:.2f} |"
          f" {row['off']:.1e} |", flush=True)


def main():
    a = parse_arguments()
    os.makedirs(a.work, exist_ok=True)
    facts = machine()
    for k, v in facts.items():
        print(f"{k}: {v}")
    print(f"\nms, mean / median / p95 of {a.rounds} paired rounds of {a.steps} steps, {a.threads} threads\n")
    print("| model | ids | moec | ONNX Runtime | moec / ONNX Runtime | largest difference |\n|---|---|---|---|---|---|")
    rows = []
    for cases in (golden_cases, mid_cases):
        for name, ours, theirs, sizes, slow_steps in cases(a):
            if a.only not in name:
                continue
            try:
                for row in run_case(a, name, ours, theirs, sizes, slow_steps):
                    rows.append(row)
                    print_row(row)
            except Refused as e:
                rows.append({"name": name, "refused": str(e)})
                print_row(rows[-1])
    if a.json:
        with open(a.json, "w") as f:
            json.dump({**facts, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
