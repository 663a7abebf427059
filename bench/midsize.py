"""A mid-size Qwen3-MoE, made by `moec import --init`, and the same model with ONNX Runtime's com.microsoft::MoE."""
import os
import subprocess

import numpy as np
import onnx
from onnx import helper, numpy_helper

SETTINGS = {"hidden_size": 512, "num_hidden_layers": 8, "num_experts": 32, "num_experts_per_tok": 4,
            "moe_intermediate_size": 384, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
            "vocab_size": 8192, "torch_dtype": "float32"}


def make(moec, config, path):
    """Imports `config` with random weights as `path` (and .safetensors beside it)."""
    sets = [a for k, v in SETTINGS.items() for a in ("--set", f"{k}={v}")]
    subprocess.run([moec, "import", config, "-o", path, "--init", "1", *sets], check=True)


def interleave(stacked):
    """[E, 2I, H], gate rows before up rows: the same in turns, the one order that the operator takes on a CPU."""
    experts, rows, hidden = stacked.shape
    return np.ascontiguousarray(stacked.reshape(experts, 2, rows // 2, hidden).swapaxes(1, 2)).reshape(stacked.shape)


def moe_nodes(call, weights, k):
    """The nodes that take the place of one call of moec::MoE(x, router, gate_up, down). The operator routes by
    softmax over all experts, takes the k best and divides by their sum, as Qwen3 does."""
    x, router, gate_up, down = call.input
    name = call.output[0]
    interleaved = name + ".fc1"
    weights[interleaved] = interleave(weights[gate_up])
    del weights[gate_up]
    return [
        helper.make_node("Transpose", [router], [name + ".router"], perm=[1, 0]),
        helper.make_node("Reshape", [x, "moe.rows"], [name + ".tokens"]),
        helper.make_node("MatMul", [name + ".tokens", name + ".router"], [name + ".logits"]),
        helper.make_node("MoE", [name + ".tokens", name + ".logits", interleaved, "", down, ""], [name + ".sum"],
                         domain="com.microsoft", k=k, activation_type="swiglu", swiglu_fusion=1,
                         activation_alpha=1.0, activation_beta=0.0, normalize_routing_weights=1),
        helper.make_node("Shape", [x], [name + ".shape"]),
        helper.make_node("Reshape", [name + ".sum", name + ".shape"], [name]),
    ]


def with_moe_operator(path, out):
    """Writes the model of `path` as `out`, every MoE layer a node of com.microsoft::MoE."""
    model = onnx.load(path)
    graph = model.graph
    weights = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    weights["moe.rows"] = np.array([-1, SETTINGS["hidden_size"]], np.int64)
    nodes = []
    for n in graph.node:
        nodes += moe_nodes(n, weights, SETTINGS["num_experts_per_tok"]) if n.domain == "moec" else [n]
    new = helper.make_graph(nodes, graph.name, graph.input, graph.output,
                            [numpy_helper.from_array(v, k) for k, v in weights.items()])
    onnx.save(helper.make_model(new, ir_version=model.ir_version, opset_imports=[
        helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]),
        out, save_as_external_data=True, location=os.path.basename(out) + ".data")
