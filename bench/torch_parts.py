#!/usr/bin/env python3
"""Parts of such a step in torch on one GPU, bf16: products of experts and their gradients, the same work as one dense
product, the weighted sum of experts' rows, attention. Median of 20.

    bench/torch_parts.py"""
import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

HIDDEN, INNER, EXPERTS, CHOSEN = 2048, 768, 128, 8
BF16 = dict(device="cuda", dtype=torch.bfloat16)


def median(run, n=20, warmup=5):
    for _ in range(warmup):
        run()
    ms = []
    for _ in range(n):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        ms.append(start.elapsed_time(end))
    return statistics.median(ms)


def report(what, tokens, run, flops=0):
    ms = median(run)
    print(f"{what:34s} {tokens:6d} tokens {ms:8.3f} ms" + (f" {flops / ms / 1e9:6.0f} TFLOP/s" if flops else ""))


def products(tokens):
    rows = tokens * CHOSEN
    ends = torch.arange(1, EXPERTS + 1, device="cuda", dtype=torch.int32) * (rows // EXPERTS)
    x, y = torch.randn(rows, HIDDEN, **BF16), torch.randn(rows, 2 * INNER, **BF16)
    w = torch.randn(EXPERTS, HIDDEN, 2 * INNER, **BF16) * 0.02
    flops = 2 * rows * HIDDEN * 2 * INNER
    report("gate and up", tokens, lambda: torch._grouped_mm(x, w, ends), flops)
    report("gate and up, gradient of rows", tokens, lambda: torch._grouped_mm(y, w.transpose(-1, -2), ends), flops)
    report("gate and up, gradient of weights", tokens, lambda: torch._grouped_mm(x.t(), y, ends), flops)
    down, inner = torch.randn(EXPERTS, INNER, HIDDEN, **BF16), torch.randn(rows, INNER, **BF16)
    report("down", tokens, lambda: torch._grouped_mm(inner, down, ends), flops // 2)
    dense = torch.randn(HIDDEN, 2 * INNER, **BF16)
    report("one dense product of that size", tokens, lambda: x @ dense, flops)


def weighted_sum(tokens):
    rows = torch.randn(tokens * CHOSEN, HIDDEN, requires_grad=True, **BF16)
    weights = torch.rand(tokens, CHOSEN, device="cuda", requires_grad=True)
    order, dy = torch.randperm(tokens * CHOSEN, device="cuda"), torch.randn(tokens, HIDDEN, **BF16)

    def forward():
        mine = rows[order].view(tokens, CHOSEN, HIDDEN).float()
        return (mine * weights.unsqueeze(-1)).sum(1).to(torch.bfloat16)

    def both():
        rows.grad = weights.grad = None
        forward().backward(dy)

    report("weighted sum", tokens, forward)
    report("weighted sum and gradients", tokens, both)


def attention(tokens, seq=1024):
    q = torch.randn(tokens // seq, 32, seq, 128, requires_grad=True, **BF16)
    k, v = (torch.randn(tokens // seq, 4, seq, 128, requires_grad=True, **BF16) for _ in range(2))
    flops = 4 * tokens * seq * 128 * 32 // 2
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        with sdpa_kernel(backend):
            def forward():
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

            dy = torch.randn_like(forward())
            report(f"attention, {backend.name}", tokens, forward, flops)
            report("  and gradients", tokens, lambda: torch.autograd.grad(forward(), (q, k, v), dy))


for n in (4096, 16384):
    products(n)
    weighted_sum(n)
    attention(n)
