"""Paired timing of forward: a model compiled by moec against ONNX Runtime, in alternating blocks of one run.

A block is a few untimed steps and then timed ones; which side goes first changes from round to round, so that whatever
else the machine does meanwhile falls on both. A block of moec is one run of `EXE bench`, which reports the time of
every step; ONNX Runtime keeps its session, inputs and outputs stay bound."""
import json
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnxruntime as ort

DTYPES = {"tensor(int64)": np.int64, "tensor(float)": np.float32, "tensor(bool)": np.bool_}


class Refused(Exception):
    """One of the two does not take the model; the text says which and why."""


def quantile(times, percent):
    """The smallest time that `percent` of the times do not exceed."""
    ordered = sorted(times)
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]


def summary(times):
    return {"mean": statistics.fmean(times), "median": statistics.median(times), "p95": quantile(times, 95)}


def first_line(text):
    return " ".join(str(text).split())[:120]


class OrtModel:
    def __init__(self, path, threads):
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        try:
            self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as e:
            raise Refused(f"ONNX Runtime: {first_line(e)}") from e

    def symbols(self):
        return sorted({d for i in self.session.get_inputs() for d in i.shape if isinstance(d, str)})

    def inputs(self, dims, ids):
        """Token ids below `ids`; a mask that hides nothing."""
        random = np.random.default_rng(0)
        out = {}
        for i in self.session.get_inputs():
            shape = [dims[d] if isinstance(d, str) else d for d in i.shape]
            ones = i.name == "attention_mask"
            values = np.ones(shape) if ones else random.integers(0, ids, shape)
            out[i.name] = values.astype(DTYPES[i.type])
        return out

    def bind(self, inputs):
        self.binding = self.session.io_binding()
        for name, value in inputs.items():
            self.binding.bind_cpu_input(name, value)
        for o in self.session.get_outputs():
            self.binding.bind_output(o.name, "cpu")
        try:
            self.session.run_with_iobinding(self.binding)
        except Exception as e:
            raise Refused(f"ONNX Runtime: {first_line(e)}") from e
        return self.binding.copy_outputs_to_cpu()[0]

    def block(self, warmup, steps):
        times = []
        for i in range(warmup + steps):
            start = time.perf_counter()
            self.session.run_with_iobinding(self.binding)
            if i >= warmup:
                times.append((time.perf_counter() - start) * 1e3)
        return times


class MoecModel:
    """Compiles `path`; `weights`: the folder of external data, if it is not the model's."""

    def __init__(self, moec, path, folder, threads):
        self.exe = os.path.join(folder, os.path.basename(path) + ".exe")
        self.common = ["--threads", str(threads), "--weights", os.path.dirname(path) or "."]
        self.run([moec, "compile", path, "-o", self.exe])

    @staticmethod
    def run(command):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Refused(first_line(done.stderr))

    def outputs(self, inputs, name):
        with tempfile.TemporaryDirectory() as folder:
            arguments = []
            for key, value in inputs.items():
                np.save(f"{folder}/in.{key}.npy", value)
                arguments += ["--input", f"{key}={folder}/in.{key}.npy"]
            self.run([self.exe, "run", *arguments, "--output", f"{name}={folder}/out.npy", *self.common])
            return np.load(f"{folder}/out.npy")

    def block(self, dims, warmup, steps):
        sizes = [a for k, v in dims.items() for a in ("--dim", f"{k}={v}")]
        self.run([self.exe, "bench", *sizes, "--warmup", str(warmup), "--steps", str(steps), "--json",
                  self.exe + ".json", "--trust-weights", *self.common])
        with open(self.exe + ".json") as f:
            return json.load(f)["ms"]["all"]


def check(ours, theirs, inputs, tolerance):
    """Largest difference of the first output; refused where it is more than rounding."""
    expected = theirs.bind(inputs)
    name = theirs.session.get_outputs()[0].name
    off = float(np.abs(ours.outputs(inputs, name) - expected).max())
    if not off <= tolerance * max(1.0, float(np.abs(expected).max())):
        raise Refused(f"results differ by {off:g}")
    return off


def compare(ours, theirs, dims, rounds, warmup, steps, slow_steps=None):
    """Times of both, and the median of the rounds' ratios of medians. `slow_steps`: fewer steps for ONNX Runtime."""
    times, ratios = ([], []), []
    for r in range(rounds):
        def run(side):
            if side == 0:
                return ours.block(dims, warmup, steps)
            return theirs.block(1 if slow_steps else warmup, slow_steps or steps)
        block = {}
        for side in ((0, 1) if r % 2 == 0 else (1, 0)):
            block[side] = run(side)
            times[side].extend(block[side])
        ratios.append(statistics.median(block[0]) / statistics.median(block[1]))
    return {"moec": summary(times[0]), "ort": summary(times[1]), "ratio": statistics.median(ratios)}
