#!/usr/bin/env python3
"""What bench/gpu_train.sh runs on the GPU: moec's executables and torch by turns, one table, and the bars."""
import json
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GIB = 2**30
LAUNCHES = {False: 400, True: 550}  # of 4 layers, without and with recompute
MEMORY, LONGEST = 0.6, 4096  # of torch's peak, 4 layers with recompute, sequences of that length
STEADY = 1.05  # p95 of the median, 4 layers
BATCH, WARM_TOKENS = 4, 409600  # as torch_train.py has them
LIMIT = 300  # seconds a program may take


def setting(name, default):
    return os.environ.get(name, default).split(",")


def run(command, log, limit, environment=None):
    """Whether it came to its end; else says what happened."""
    with open(log, "w") as f:
        try:
            status = subprocess.run(command, stdout=f, stderr=subprocess.STDOUT, timeout=limit,
                                    env=environment).returncode
        except subprocess.TimeoutExpired:
            status = f"not ended after {limit} s"
    if status:
        print(f"{' '.join(command[:2])}: {status}: {open(log).read().strip()[-300:]}", flush=True)
    return status == 0


def moec_cell(exes, out, layers, seq, recompute):
    """One run of `EXE bench`: its report, and its table of kernels in a file."""
    exe = os.path.join(exes, f"q{layers}{'r' if recompute else ''}")
    name = os.path.join(out, f"{os.path.basename(exe)}-{seq}")
    command = [exe, "bench", "--mode", "train", "--dim", f"batch={BATCH}", "--dim", f"seq={seq}", "--steps",
               os.environ.get("STEPS", "100"), "--warmup", str(WARM_TOKENS // (BATCH * seq)), "--kernels", "--json",
               name + ".json"]
    if not run(command, name + ".txt", int(os.environ.get("CELL_LIMIT", LIMIT))):
        return None
    r = json.load(open(name + ".json"))
    return {"arm": "moec", "layers": layers, "seq": seq, "recompute": recompute, "steps": r["steps"],
            "kernels": r["census"]["all"]["kernels"], "peak_bytes": r["device_peak_bytes"],
            "launches": sum(r["census"]["all"][k] for k in ("kernels", "copies", "fills", "others")),
            **{k: r["ms"][k] for k in ("mean", "median", "p95", "max")}}


def torch_rows(out):
    """What torch came to within its time."""
    arms = os.environ.get("ARMS", "layer-compile")
    path = os.path.join(out, "torch.jsonl")
    if arms == "none":
        return []
    open(path, "w").close()
    environment = dict(os.environ, ARMS=arms, STEPS=os.environ.get("TORCH_STEPS", "20"))
    command = [sys.executable, os.path.join(HERE, "torch_train.py"), path]
    run(command, os.path.join(out, "torch.log"), int(os.environ.get("TORCH_LIMIT", LIMIT)), environment)
    return [json.loads(line) for line in open(path)]


def gpu():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    if not shutil.which(query[0]):
        return "no nvidia-smi"
    return subprocess.run(query, capture_output=True, text=True).stdout.strip()


def print_rows(rows):
    for r in rows:
        print(f"| {r['arm']} | {r['layers']} | {r['seq']} | {'block' if r['recompute'] else 'none'} | "
              f"{r['mean']:.2f} / {r['median']:.2f} / {r['p95']:.2f} / {r['max']:.2f} | "
              f"{r['p95'] / r['median']:.3f} | {r['kernels']} | "
              f"{r['peak_bytes'] / GIB:.2f} |", flush=True)


class Bars:
    """Each with what was asked for and what was got; a bar that cannot be told is not met."""

    def __init__(self, rows):
        self.rows, self.met = rows, True

    def row(self, arm, layers, seq, recompute):
        for r in self.rows:
            if (r["arm"], r["layers"], r["seq"], r["recompute"]) == (arm, layers, seq, recompute):
                return r
        return None

    def per_layer(self, arm, seq, recompute):
        few, many = self.row(arm, 4, seq, recompute), self.row(arm, 8, seq, recompute)
        return (many["median"] - few["median"]) / 4 if few and many else None

    def say(self, what, got, bound, unit):
        known = got is not None and bound is not None
        good = known and got <= bound
        self.met = self.met and good
        numbers = f"{got:.2f} of at most {bound:.2f} {unit}" if known else "not measured"
        print(f"{'met    ' if good else 'NOT MET'} {what}: {numbers}")

    def cell(self, seq, recompute):
        name = f"seq {seq}, recompute {'block' if recompute else 'none'}"
        for layers in (4, 8):
            ours, torch = self.row("moec", layers, seq, recompute), self.row("layer-compile", layers, seq, recompute)
            self.say(f"{layers} layers, {name}", ours and ours["median"], torch and torch["median"], "ms")
        self.say(f"a layer, {name}", self.per_layer("moec", seq, recompute),
                 self.per_layer("layer-compile", seq, recompute), "ms")
        ours = self.row("moec", 4, seq, recompute)
        self.say(f"p95, {name}", ours and ours["p95"], ours and STEADY * ours["median"], "ms")
        self.say(f"launches, {name}", ours and ours["kernels"], LAUNCHES[recompute], "kernels")

    def memory(self, seq):
        ours, torch = self.row("moec", 4, seq, True), self.row("layer-compile", 4, seq, True)
        self.say(f"memory, seq {seq}, recompute block", ours and ours["peak_bytes"] / GIB,
                 torch and MEMORY * torch["peak_bytes"] / GIB, "GiB")


def main():
    exes = os.path.abspath(sys.argv[1])
    out = os.path.join(exes, "gpu_train")
    os.makedirs(out, exist_ok=True)
    layers, seqs = [[int(x) for x in setting(*x)] for x in (("LAYERS", "4,8"), ("SEQS", "1024,4096"))]
    print(f"{time.strftime('%Y-%m-%d')}, {gpu()}; batch 4, bf16, forward, loss and backward")
    print("| | layers | seq | recompute | mean / median / p95 / max, ms | p95 / median | kernels | peak, GiB |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    for cell in [(n, seq, r) for n in layers for seq in seqs for r in (False, True)]:
        row = moec_cell(exes, out, *cell)
        rows += [row] if row else []
        print_rows(rows[-1:] if row else [])
    of_torch = torch_rows(out)
    print_rows(of_torch)
    rows += of_torch
    json.dump(rows, open(os.path.join(out, "rows.json"), "w"), indent=1)
    bars = Bars(rows)
    for seq in seqs:
        for recompute in (False, True):
            bars.cell(seq, recompute)
    if LONGEST in seqs:
        bars.memory(LONGEST)
    return 0 if bars.met else 1


sys.exit(main())
