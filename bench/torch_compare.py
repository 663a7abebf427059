#!/usr/bin/env python3
"""Forward and backward on the CPU: moec against torch, eager and compiled, in paired runs of one process.

    bench/torch_compare.py --moec build/release/moec --work /tmp/bench

The model is the mid-size Qwen3-MoE of midsize.py. transformers loads the weights that `moec import --init` made, so both sides
compute the same: before anything is timed, loss and gradients are compared. A step is forward, loss and backward into
gradients that are there already; no optimizer. Blocks of steps take turns, as in paired.py."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoModelForCausalLM

import midsize
from paired import summary


def make_checkpoint(moec, config, work):
    """The imported model, and the folder from which transformers loads the same weights."""
    model = os.path.join(work, "midsize.onnx")
    midsize.make(moec, config, model)
    folder = os.path.join(work, "hub")
    os.makedirs(folder, exist_ok=True)
    settings = json.load(open(os.path.join(config, "config.json")))
    settings.update(midsize.SETTINGS, num_local_experts=midsize.SETTINGS["num_experts"])
    json.dump(settings, open(os.path.join(folder, "config.json"), "w"))
    link = os.path.join(folder, "model.safetensors")
    if os.path.lexists(link):
        os.remove(link)
    os.symlink(os.path.join(work, "midsize.safetensors"), link)
    return model, folder


class Torch:
    def __init__(self, folder, ids, compiled):
        config = AutoConfig.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32)
        self.model.train()
        self.run = torch.compile(self.model, dynamic=False) if compiled else self.model
        self.ids = torch.from_numpy(ids)

    def step(self):
        self.model.zero_grad(set_to_none=False)
        loss = self.run(input_ids=self.ids, labels=self.ids, use_cache=False).loss
        loss.backward()
        return float(loss.detach())

    def gradients(self):
        return {n: p.grad.numpy() for n, p in self.model.named_parameters() if p.grad is not None}

    def block(self, warmup, steps):
        times = []
        for i in range(warmup + steps):
            start = time.perf_counter()
            self.step()
            if i >= warmup:
                times.append((time.perf_counter() - start) * 1e3)
        return times


class Moec:
    def __init__(self, moec, model, work, ids, threads, recompute):
        self.exe, self.work, self.ids, self.threads = os.path.join(work, "train-" + recompute), work, ids, threads
        subprocess.run([moec, "compile", model, "-o", self.exe, "--target", "cpu", "--train", "--recompute", recompute], check=True)

    def results(self):
        path, out = os.path.join(self.work, "ids.npy"), os.path.join(self.work, "grads.safetensors")
        np.save(path, self.ids)
        subprocess.run([self.exe, "grad", "--input", f"input_ids={path}", "--input", f"labels={path}", "-o", out,
                        "--threads", str(self.threads)], check=True)
        return load_file(out)

    def block(self, warmup, steps):
        out = os.path.join(self.work, "bench.json")
        batch, seq = self.ids.shape
        subprocess.run([self.exe, "bench", "--mode", "train", "--dim", f"batch={batch}", "--dim", f"seq={seq}", "--steps",
                        str(steps), "--threads", str(self.threads), "--json", out, "--trust-weights"],
                       check=True, stdout=subprocess.DEVNULL)
        return json.load(open(out))["ms"]["all"]


def check(moec, torch_model):
    """Largest relative difference of a gradient, after the loss was found equal."""
    ours, loss = moec.results(), torch_model.step()
    if abs(float(ours["loss"].ravel()[0]) - loss) > 1e-4:
        sys.exit(f"loss: moec {ours['loss']}, torch {loss}")
    worst = 0.0
    for name, want in torch_model.gradients().items():
        norm = float(np.linalg.norm(want))
        worst = max(worst, float(np.linalg.norm(ours["grad." + name] - want)) / (norm if norm > 1e-7 else 1))
    return worst


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--moec", required=True)
    arguments.add_argument("--config", default="tests/data/qwen3_moe")
    arguments.add_argument("--work", required=True)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--steps", type=int, default=3)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--batch", type=int, default=1)
    arguments.add_argument("--seq", type=int, default=256)
    arguments.add_argument("--no-compile", action="store_true", help="without torch.compile")
    a = arguments.parse_args()
    torch.set_num_threads(a.threads)
    os.makedirs(a.work, exist_ok=True)
    ids = np.random.default_rng(0).integers(0, midsize.SETTINGS["vocab_size"], (a.batch, a.seq))
    model, folder = make_checkpoint(a.moec, a.config, a.work)
    sides = {"moec": Moec(a.moec, model, a.work, ids, a.threads, "none"),
             "moec, recompute block": Moec(a.moec, model, a.work, ids, a.threads, "block"),
             "torch eager": Torch(folder, ids, False)}
    if not a.no_compile:
        sides["torch compiled"] = Torch(folder, ids, True)
    print(f"largest relative difference of a gradient: {check(sides['moec'], sides['torch eager']):.2g}")
    times = {name: [] for name in sides}
    ratios = {name: [] for name in sides}
    for r in range(a.rounds):
        order = list(sides) if r % 2 == 0 else list(sides)[::-1]
        medians = {}
        for name in order:
            block = sides[name].block(2 if r == 0 else 1, a.steps)
            times[name] += block
            medians[name] = statistics.median(block)
        fastest = min(v for n, v in medians.items() if n.startswith("torch"))
        for name in sides:
            ratios[name].append(medians[name] / fastest)
    print("| | mean / median / p95, ms | of the faster torch |\n|---|---|---|")
    for name in sides:
        s = summary(times[name])
        print(f"| {name} | {s['mean']:.1f} / {s['median']:.1f} / {s['p95']:.1f} | {statistics.median(ratios[name]):.2f} |")


if __name__ == "__main__":
    main()
