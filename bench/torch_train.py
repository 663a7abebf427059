#!/usr/bin/env python3
"""Qwen3-30B-A3B shapes through transformers on one GPU: forward, loss and backward in bf16, without an optimizer.

    ARMS=layer-compile LAYERS=4,8 STEPS=20 bench/torch_train.py OUT.json

Arms: eager; regional (decoder layers compiled, their experts not); layer-compile (all of every layer compiled). All with
grouped matrix products for experts and scaled_dot_product_attention. A row for each arm, number of layers, length and
recompute (gradient checkpointing of every layer), as JSON lines."""
import json
import os
import statistics
import sys

import torch
import torch._dynamo
from transformers import AutoConfig, AutoModelForCausalLM

BATCH, VOCABULARY = 4, 151936
SHAPE = dict(hidden_size=2048, intermediate_size=6144, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
             vocab_size=VOCABULARY, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768,
             decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True, max_position_embeddings=8192,
             rms_norm_eps=1e-6, tie_word_embeddings=False, output_router_logits=False)

# Steps before the timed ones have so many together, 3 seconds and more: until then a device at its limit of power
# swings between clocks.
WARM_TOKENS = 409600


def numbers(name, default):
    return [int(x) for x in os.environ.get(name, default).split(",")]


def make(layers):
    config = AutoConfig.for_model("qwen3_moe")
    for key, value in dict(SHAPE, num_hidden_layers=layers).items():
        setattr(config, key, value)
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.bfloat16)
    model.set_experts_implementation("grouped_mm")
    return model


def times(step, n, warmup):
    for _ in range(warmup):
        step()
    ms = []
    for _ in range(n):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        ms.append(start.elapsed_time(end))
    return sorted(ms)


def launches(step):
    from torch.profiler import profile, ProfilerActivity
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        step()
        torch.cuda.synchronize()
    names = [e.name for e in p.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return sum(not n.startswith(("Memcpy", "Memset")) for n in names), len(names)


def run(model, arm, layers, seq, recompute, n):
    model.train()
    model.zero_grad(set_to_none=True)
    if recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    else:
        model.gradient_checkpointing_disable()
    ids = torch.randint(0, VOCABULARY, (BATCH, seq), device="cuda")

    def step():
        model.zero_grad(set_to_none=True)
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    ms = times(step, n, WARM_TOKENS // (BATCH * seq))
    kernels, everything = launches(step)
    return {"arm": arm, "layers": layers, "seq": seq, "recompute": recompute, "steps": n, "mean": statistics.mean(ms),
            "median": statistics.median(ms), "p95": ms[-(-95 * n // 100) - 1], "max": ms[-1], "kernels": kernels,
            "launches": everything, "peak_bytes": torch.cuda.max_memory_allocated(), "torch": torch.__version__}


def arm_model(arm, layers):
    model = make(layers)
    for layer in model.model.layers:
        if arm == "regional":
            layer.mlp.forward = torch.compiler.disable(layer.mlp.forward)
        if arm != "eager":
            layer.compile()
    return model


def main():
    arms = os.environ.get("ARMS", "eager,regional,layer-compile").split(",")
    with open(sys.argv[1], "a") as out:
        for layers in numbers("LAYERS", "4,8"):
            for arm in arms:
                model = arm_model(arm, layers)
                for seq in numbers("SEQS", "1024,4096"):
                    for recompute in (False, True):
                        row = run(model, arm, layers, seq, recompute, int(os.environ.get("STEPS", "20")))
                        print(json.dumps(row), file=out, flush=True)
                del model
                torch.cuda.empty_cache()
                torch._dynamo.reset()


main()
