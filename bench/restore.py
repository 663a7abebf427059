#!/usr/bin/env python3
"""The weighted restore on a GPU: y[token] = sum over slots of weight * rows[inv], bf16, hidden 2048, 8 slots a token.

    bench/restore.py --moec build/release/moec --work /tmp/bench

compiles one layer of Qwen3-30B-A3B with --target cuda, which needs no GPU, and times the kernel that its restore
launches (moec_combine_bf16) beside eager torch (gather, multiplication in f32, sum, cast). Backward is the same
function as one kernel (restore.cu), and, what compiled models do instead: a dispatch of dy; there the weights and
their gradient are behind the second product, in kernels that are there anyway. Without --moec, kernels.cu in --work is
taken, from a run elsewhere with --compile."""
import argparse
import ctypes
import os
import subprocess

WIDTH, SLOTS, EXPERTS = 2048, 8, 128
F32, BF16 = ctypes.c_int32(1), ctypes.c_int32(4)
BYTES_A_SECOND = 4.3e12  # what a copy reaches on an H200


def make_text(moec, work):
    source = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    model = os.path.join(work, "restore.onnx")
    subprocess.run([moec, "import", os.path.join(source, "models/configs/qwen3-30b-a3b"), "--init", "zeros", "--set",
                    "num_hidden_layers=1", "-o", model], check=True)
    subprocess.run([moec, "compile", model, "--target", "cuda", "--precision", "bf16", "--train", "-o",
                    os.path.join(work, "restore"), "--dump-dir", work], check=True)
    path = os.path.join(work, "kernels.cu")
    text = open(path).read() + open(os.path.join(source, "bench/restore.cu")).read()
    open(path, "w").write(text)


def measure(kernels, tokens):
    import torch
    from gpu import milliseconds
    n = tokens * SLOTS
    rows = torch.randn(n, WIDTH, device="cuda").bfloat16().requires_grad_()
    weights = torch.rand(tokens, SLOTS, device="cuda", requires_grad=True)
    experts = torch.rand(tokens, EXPERTS, device="cuda").topk(SLOTS).indices.flatten()
    perm = experts.argsort(stable=True)
    inv = perm.argsort()
    dy = torch.randn(tokens, WIDTH, device="cuda").bfloat16()
    p32, i32 = perm.int(), inv.int()
    y, d_rows = torch.full_like(dy, float("nan")), torch.full_like(rows, float("nan"))
    d_w = torch.full_like(weights, float("nan"))
    fault = torch.zeros(1, dtype=torch.int32, device="cuda")
    blocks = 132 * 8 * 8

    def restore():
        return (rows[inv].view(tokens, SLOTS, WIDTH).float() * weights.unsqueeze(-1)).sum(1).bfloat16()

    def eager():
        rows.grad = weights.grad = None
        restore().backward(dy)

    def forward():
        kernels.launch("moec_combine_bf16", blocks, 256, rows.detach(), i32, weights.detach(), F32, None, y, BF16,
                       tokens, SLOTS, WIDTH, fault)

    def backward():
        kernels.launch("bench_restore_grad", blocks, 256, dy, rows.detach(), i32, weights.detach(), d_rows, d_w, n,
                       SLOTS, WIDTH)

    def emitted():
        kernels.launch("moec_dispatch_bf16", blocks, 256, dy, p32, None, F32, d_rows, n, SLOTS, WIDTH, fault)

    def both():
        forward()
        backward()

    forward()
    backward()
    eager()
    want = restore()
    off = ((y.float() - want.float()).norm() / want.float().norm()).item()
    off_rows = ((d_rows.float() - rows.grad.float()).norm() / rows.grad.float().norm()).item()
    off_w = ((d_w - weights.grad).norm() / weights.grad.norm()).item()
    times = [milliseconds(f) for f in (restore, eager, forward, both, emitted)]
    floors = [rows_moved * WIDTH * 2 / BYTES_A_SECOND * 1e3 for rows_moved in (n + tokens, 3 * n + 2 * tokens)]
    print(f"| {tokens} | {times[0]:.3f} | {times[2]:.3f} | {times[0] / times[2]:.1f} | {floors[0]:.3f} | {times[1]:.3f} "
          f"| {times[3]:.3f} | {times[1] / times[3]:.1f} | {floors[1]:.3f} | {times[4]:.3f} |")
    return off, off_rows, off_w


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moec")
    parser.add_argument("--work", required=True)
    parser.add_argument("--compile", action="store_true", help="no more than that")
    options = parser.parse_args()
    os.makedirs(options.work, exist_ok=True)
    if options.moec:
        make_text(options.moec, options.work)
    if options.compile:
        return
    import torch
    from gpu import Kernels, compile_text
    kernels = Kernels(compile_text(open(os.path.join(options.work, "kernels.cu")).read()))
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    print("| tokens | eager forward, ms | moec | times | floor | eager forward + backward | moec | times | floor "
          "| dispatch of dy |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for tokens in (4096, 16384):
        off = measure(kernels, tokens)
        print(f"  off (relative L2): y {off[0]:.1e}, d_rows {off[1]:.1e}, d_weights {off[2]:.1e}")


if __name__ == "__main__":
    main()
