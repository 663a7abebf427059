#!/usr/bin/env python3
"""Products of experts in bf16 on a GPU: codegen/kernels/grouped_wgmma.cu against torch._grouped_mm. README.md says how
to run it and how to read the table."""
import argparse
import ctypes
import os
import re

import torch

from gpu import Kernels, check, compile_text

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# An activation of a gate and what it lets through, as the compiler prints it for the kernel of the product, and alone.
SWIGLU = """
MOEC_INLINE float swiglu_element(float gate, float up) { return gate * moec_rough_sigmoid(gate) * up; }
MOEC_WG_ACTIVATION(moec_wgmma_dot_t_swiglu, MOEC_WG_DOT_T, MOEC_WG_HALVES, swiglu_element)
MOEC_INLINE uint32_t swiglu_pair(uint32_t gate, uint32_t up) {
  return moec_wg_pack(swiglu_element(moec_wg_low(gate), moec_wg_low(up)),
                      swiglu_element(moec_wg_high(gate), moec_wg_high(up)));
}
extern "C" __global__ void swiglu(const uint4 *__restrict__ y, uint4 *__restrict__ a, int64_t n, int64_t half) {
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n * half; i += gridDim.x * 256ll) {
    const uint4 gate = y[i / half * 2 * half + i % half], up = y[i / half * 2 * half + half + i % half];
    a[i] = uint4{swiglu_pair(gate.x, up.x), swiglu_pair(gate.y, up.y), swiglu_pair(gate.z, up.z),
                 swiglu_pair(gate.w, up.w)};
  }
}
"""
SHAPES = {"gate, up": (2048, 1536), "down": (768, 2048)}  # k, m of Qwen3-30B-A3B's fc1 and fc2
BF16, MAP_OF_BF16, SWIZZLE_128, PROMOTE_256 = ctypes.c_int32(4), 9, 3, 3


def read(path):
    with open(os.path.join(SOURCE, path)) as f:
        return f.read()


def text(path):
    """A file with what it includes."""
    return re.sub(r'^#include "(.*)"$', lambda m: text(m.group(1)), read(path), flags=re.M)


def constant(name):
    return int(re.search(rf"\b{name} = (\d+)", read("include/cuda_abi.h")).group(1))


class Products:
    def __init__(self):
        files = ("prelude.cu", "library.cu", "grouped_wgmma.cu", "grouped_activation.cu")
        self.kernels = Kernels(compile_text("".join(text("codegen/kernels/" + f) for f in files) + SWIGLU))
        self.turn = torch.zeros(2, dtype=torch.int32, device="cuda")
        self.threads, self.shared = constant("MOEC_CUDA_WGMMA_THREADS"), constant("MOEC_CUDA_WGMMA_SHARED")
        self.blocks = torch.cuda.get_device_properties(0).multi_processor_count

    def map_of(self, tensor, high, deep=1):
        """A tensor of two or three dimensions for TMA, in boxes of `deep` times `high` rows by 64."""
        count, rows, columns = tensor.shape if tensor.dim() == 3 else (1, *tensor.shape)
        memory = ctypes.create_string_buffer(192)  # 128 bytes of these, at a multiple of 64
        out = (ctypes.c_uint64 * 16).from_buffer(memory, -ctypes.addressof(memory) % 64)
        check(self.kernels.driver.cuTensorMapEncodeTiled(
            out, MAP_OF_BF16, 3, ctypes.c_void_p(tensor.data_ptr()), (ctypes.c_uint64 * 3)(columns, rows, count),
            (ctypes.c_uint64 * 2)(2 * columns, 2 * columns * rows), (ctypes.c_uint32 * 3)(64, high, deep),
            (ctypes.c_uint32 * 3)(1, 1, 1), 0, SWIZZLE_128, PROMOTE_256, 0), "cuTensorMapEncodeTiled")
        return out

    def call(self, name, *arguments):
        return lambda: self.kernels.launch(name, self.blocks, self.threads, *arguments, shared=self.shared)

    def dot(self, rows, w, offsets, y, transposed):
        k, m = (w.shape[2], w.shape[1]) if transposed else (w.shape[1], w.shape[2])
        return self.call("moec_wgmma_dot_t" if transposed else "moec_wgmma_dot", self.map_of(rows, 64),
                         self.map_of(w, 64), self.map_of(y, 16), offsets, None, ctypes.c_int32(0), y, BF16, w.shape[0],
                         k, m, self.turn)

    def swiglu(self, y, a):
        return lambda: self.kernels.launch("swiglu", self.blocks * 8, 256, y, a, y.shape[0], a.shape[1] // 8)

    def dot_swiglu(self, rows, w, offsets, y, a):
        """Of [gate, up]; y: where the product is stored, or None."""
        m, k = w.shape[1:]
        to = self.map_of(a, 16)
        of_y = to if y is None else self.map_of(y.view(-1, 2, m // 2), 1, 16)
        return self.call("moec_wgmma_dot_t_swiglu", self.map_of(rows, 64), self.map_of(w, 64), of_y, to, offsets, None,
                         ctypes.c_int32(0), y, a, w.shape[0], k, m, self.turn)

    def outer(self, dy, x, offsets, y):
        return self.call("moec_wgmma_outer", self.map_of(dy, 64), self.map_of(x, 64), self.map_of(y, 16), offsets, y,
                         BF16, *y.shape, self.turn)


def rows_of_experts(kind, tokens, experts, k):
    """How many rows each expert gets."""
    n = tokens * k
    if kind == "uniform":
        return torch.full((experts,), n // experts)
    if kind == "one":
        return torch.bincount(torch.full((n,), experts // 2), minlength=experts)
    score = torch.randn(tokens, experts)
    if kind == "skewed":
        score += torch.randn(experts)
    if kind == "half empty":
        score[:, ::2] = -1e9
    return torch.bincount(score.topk(k).indices.flatten(), minlength=experts)


def in_turns(calls, rounds, each):
    """Median ms of each call; they take turns, so that heat and clocks fall on all of them."""
    times = [[] for _ in calls]
    for call in calls:
        call()
    for r in range(rounds):
        for i in range(len(calls)):
            at = (i + r) % len(calls)
            for _ in range(each):
                begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
                begin.record(), calls[at](), end.record()
                times[at].append((begin, end))
    torch.cuda.synchronize()
    return [sorted(a.elapsed_time(b) for a, b in t)[len(t) // 2] for t in times]


def difference(a, b):
    return ((a.float() - b.float()).norm() / b.float().norm()).item()


def experts(kind, tokens, options):
    """Rows of each expert, of all, where those of each begin."""
    counts = rows_of_experts(kind, tokens, options.experts, options.k)
    offsets = torch.zeros(options.experts + 1, dtype=torch.int32)
    offsets[1:] = counts.cumsum(0)
    return counts, int(offsets[-1]), offsets.cuda()


def random(*dims):
    return torch.randn(*dims, device="cuda").bfloat16()


def nothing(*dims):
    return torch.full(dims, float("nan"), device="cuda", dtype=torch.bfloat16)


def measure(products, tokens, kind, shape, options):
    k, m = SHAPES[shape]
    counts, n, offsets = experts(kind, tokens, options)
    x, w, dy = random(n, k), random(options.experts, m, k), random(n, m)
    y, dx, dw = nothing(n, m), nothing(n, k), nothing(options.experts, m, k)
    forms = {
        "forward": (lambda: torch._grouped_mm(x, w.transpose(1, 2), offs=offsets[1:]),
                    products.dot(x, w, offsets, y, True), y),
        "dgrad": (lambda: torch._grouped_mm(dy, w, offs=offsets[1:]), products.dot(dy, w, offsets, dx, False), dx),
        "wgrad": (lambda: torch._grouped_mm(dy.t(), x, offs=offsets[1:]), products.outer(dy, x, offsets, dw), dw)}
    for form, (theirs, ours, result) in forms.items():
        want = theirs()
        ours()
        off = difference(result, want)
        assert off < 1e-2, f"{form}: the results differ by {off}"
        flop = 2e-9 * n * k * m
        a, b = in_turns([theirs, ours], options.rounds, options.each)
        print(f"| {tokens} | {kind}, {counts.min()} to {counts.max()} | {shape} | {form} | {b:.3f} | {flop / b:.0f} | "
              f"{flop / a:.0f} | {a / b:.2f} |", flush=True)


def measure_activation(products, tokens, kind, options):
    k, m = SHAPES["gate, up"]
    counts, n, offsets = experts(kind, tokens, options)
    x, w, y, a = random(n, k), random(options.experts, m, k).mul_(k**-0.5), nothing(n, m), nothing(n, m // 2)
    y_kept, a_kept, a_alone = nothing(n, m), nothing(n, m // 2), nothing(n, m // 2)
    product, activation = products.dot(x, w, offsets, y, True), products.swiglu(y, a)
    calls = [product, activation, lambda: (product(), activation()), products.dot_swiglu(x, w, offsets, y_kept, a_kept),
             products.dot_swiglu(x, w, offsets, None, a_alone)]
    for call in calls:
        call()
    for got, want in ((y_kept, y), (a_kept, a), (a_alone, a)):
        assert torch.equal(got.view(torch.int16), want.view(torch.int16)), "not the same bits"
    times = " | ".join(f"{t:.3f}" for t in in_turns(calls, options.rounds, options.each))
    print(f"| {tokens} | {kind}, {counts.min()} to {counts.max()} | {times} |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--tokens", default="4096,16384")
    p.add_argument("--kinds", default="uniform,random,skewed,half empty,one")
    p.add_argument("--experts", type=int, default=128)
    p.add_argument("--k", type=int, default=8)
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--each", type=int, default=3)
    p.add_argument("--activation", action="store_true", help="the first product with SwiGLU in one kernel, and in two")
    options = p.parse_args()
    torch.manual_seed(1)
    products = Products()
    if options.activation:
        print("| tokens | rows of an expert | product | SwiGLU | one after the other | in one, product stored | not "
              "stored |\n" + "|---" * 7 + "|")
        for tokens in options.tokens.split(","):
            for kind in options.kinds.split(","):
                measure_activation(products, int(tokens), kind, options)
        return
    print("| tokens | rows of an expert | product | | ms | TFLOP/s | torch | of torch |\n" + "|---" * 8 + "|")
    for tokens in options.tokens.split(","):
        for kind in options.kinds.split(","):
            for shape in SHAPES:
                measure(products, int(tokens), kind, shape, options)


if __name__ == "__main__":
    main()
