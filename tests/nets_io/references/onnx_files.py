#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Records small ONNX files, as torch's two exporters write them and as made by hand, and what onnxruntime computes.

    tests/nets_io/references/onnx_files.py     writes *.onnx and scores.safetensors beside itself; needs torch 2.9 or
                                               later, onnx, onnxscript, onnxruntime and safetensors (all of PyPI)

tests/nets_io/onnx_test.c imports the files and computes the same from the same inputs, `number` below.
"""
import logging
import os
import tempfile
import warnings

import numpy
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper
from safetensors.numpy import save_file
from torch import nn
from torch.nn import functional

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
HERE = os.path.dirname(os.path.abspath(__file__))
scores = {}


def number(seed, *shape):
    """Numbers in [-1, 1]."""
    i = numpy.arange(int(numpy.prod(shape)), dtype=numpy.int64)
    return (((i * 7919 + seed * 104729) % 2003 - 1001).astype(numpy.float32) / numpy.float32(1001)).reshape(shape)


class Images(nn.Module):
    """Convolutions and what is around them."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm = nn.GroupNorm(2, 8)
        self.down, self.up = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.grow = nn.ModuleList([nn.Conv2d(8, 4, 1), nn.Conv2d(12, 4, 1), nn.Conv2d(16, 4, 1)])
        self.back = nn.ConvTranspose2d(20, 6, 2, stride=2)
        self.drop = nn.Dropout(0.2)
        self.fc1, self.fc2 = nn.Linear(6 * 4 * 4, 9), nn.Linear(9, 5)

    def forward(self, x):
        x = self.stem(x)
        y = functional.silu(self.norm(self.deep(x)))
        gate = torch.sigmoid(self.up(functional.leaky_relu(self.down(y.mean((2, 3), keepdim=True)), 0.2)))
        x = functional.relu6(x + y * gate)
        x = functional.max_pool2d(x, 3, 2, 1)
        maps = [x]
        for conv in self.grow:
            maps.append(functional.hardswish(conv(torch.cat(maps, 1))))
        x = functional.avg_pool2d(torch.cat(maps, 1), 3, 2, 1)
        x = functional.interpolate(self.back(x)[:, :, :2, 1:3], scale_factor=2, mode="nearest")
        return torch.softmax(self.fc2(self.drop(functional.gelu(self.fc1(x.flatten(1))))), 1)


class Block(nn.Module):
    """Of a transformer; the attention is written out, or torch's."""

    def __init__(self, width, heads, written_out, causal):
        super().__init__()
        self.heads, self.written_out, self.causal = heads, written_out, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        if written_out:
            self.qkv = nn.Linear(width, 3 * width)
        else:
            self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU("tanh"), nn.Linear(2 * width, width))

    def forward(self, x):
        n, tokens, width = x.shape
        y = self.norm1(x)
        q, k, v = self.qkv(y).split(width, 2) if self.written_out else (self.q(y), self.k(y), self.v(y))
        q, k, v = (t.view(n, tokens, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        if self.written_out:
            a = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
            if self.causal:
                ahead = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
                a = a.masked_fill(ahead, float("-inf"))
            y = a.softmax(-1) @ v
        else:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(n, tokens, width))
        return x + self.mlp(self.norm2(x))


class Tokens(nn.Module):
    def __init__(self, written_out, tied):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(23, 12), nn.Embedding(7, 12)
        self.blocks = nn.Sequential(Block(12, 3, written_out, True), Block(12, 2, written_out, True))
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 23, bias=False)
        if tied:
            self.head.weight = self.wte.weight

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.wte(x) + self.wpe(torch.arange(x.shape[1])))))


class Patches(nn.Module):
    """A vision transformer."""

    def __init__(self):
        super().__init__()
        self.patch, self.blocks = nn.Conv2d(3, 12, 4, 4), nn.Sequential(Block(12, 2, False, False))
        self.class_token, self.positions = nn.Parameter(torch.zeros(1, 1, 12)), nn.Parameter(torch.zeros(1, 5, 12))
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 5)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def fill(model):
    """No weight is zero or one, so that none is left out, and no two are equal."""
    for seed, (name, tensor) in enumerate(list(model.named_parameters()) + list(model.named_buffers())):
        if tensor.is_floating_point():
            values = torch.from_numpy(number(seed + 11, *tensor.shape))
            positive = tensor.dim() == 1 and not name.endswith(("bias", "mean"))
            with torch.no_grad():
                tensor.copy_(1 + 0.4 * values if positive else 0.3 * values)


def strip(model):
    """An exporter's notes have paths of the machine that it ran on."""
    model.producer_name = model.producer_version = model.doc_string = ""
    del model.metadata_props[:]
    graph = model.graph
    graph.doc_string = ""
    del graph.value_info[:]
    for item in list(graph.node) + list(graph.input) + list(graph.output) + list(graph.initializer):
        item.doc_string = ""
        kept = [p for p in item.metadata_props if p.key == "pkg.torch.onnx.name_scopes"]
        kept = [(p.key, p.value) for p in kept]
        del item.metadata_props[:]
        for key, value in kept:
            item.metadata_props.add(key=key, value=value)
    return model


def record(name, model, inputs, outputs=None):
    path = os.path.join(HERE, name + ".onnx")
    if outputs is None:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        outputs = session.run(None, {session.get_inputs()[0].name: inputs})[0]
    onnx.save(model, path)
    scores[name] = numpy.ascontiguousarray(outputs.astype(numpy.float32).reshape(-1, outputs.shape[-1]))


def export(name, model, inputs, **options):
    fill(model)
    model.train(options.get("training") is torch.onnx.TrainingMode.TRAINING)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        if options.get("dynamo"):
            options = {**options, "external_data": False, "verbose": False}
        torch.onnx.export(model, (torch.from_numpy(inputs),), path, **options)
        exported = strip(onnx.load(path))
    trained = options.get("training") is torch.onnx.TrainingMode.TRAINING
    outputs = model.eval()(torch.from_numpy(inputs)).detach().numpy() if trained else None
    record(name, exported, inputs, outputs)


def by_hand(name, nodes, shape, weights, classes, opset=24):
    """Operations that torch's exporters write rarely."""
    graph = helper.make_graph(
        nodes, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(value, key) for key, value in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    record(name, model, number(1, *shape))


def main():
    images, tokens = number(1, 2, 3, 16, 16), (numpy.arange(14).reshape(2, 7) * 5 % 23).astype(numpy.int64)
    batch = ({0: torch.export.Dim("batch")},)
    axes = {"dynamic_axes": {"x": {0: "batch"}}, "input_names": ["x"]}
    export("images_older", Images(), images, dynamo=False, **axes)
    export("images_newer", Images(), images, dynamo=True)
    export("images_training", Images(), images, dynamo=False, training=torch.onnx.TrainingMode.TRAINING,
           do_constant_folding=False)
    export("tokens_older", Tokens(True, False), tokens, dynamo=False)
    export("tokens_newer", Tokens(True, True), tokens, dynamo=True, dynamic_shapes=batch)
    export("tokens_sdpa", Tokens(False, True), tokens, dynamo=True)
    export("tokens_attention", Tokens(False, True), tokens, dynamo=True, opset_version=23)
    export("patches_older", Patches(), number(1, 2, 3, 8, 8), dynamo=False, **axes)
    export("patches_newer", Patches(), number(1, 2, 3, 8, 8), dynamo=True)
    node = helper.make_node
    by_hand("norms", [
        node("LRN", ["x"], ["a"], size=3, alpha=0.2, beta=0.6, bias=1.5),
        node("InstanceNormalization", ["a", "s", "t"], ["b"], epsilon=0.01),
        node("GroupNormalization", ["b", "s", "t"], ["c"], num_groups=2, epsilon=0.02),
        node("Pad", ["c", "pads"], ["d"]),
        node("Conv", ["d", "w"], ["e"], strides=[2, 2]),
        node("HardSigmoid", ["e"], ["f"], alpha=1 / 6, beta=0.5),
        node("Resize", ["f", "", "scales"], ["g"], mode="linear", coordinate_transformation_mode="half_pixel"),
        node("Flatten", ["g"], ["h"]),
        node("MatMul", ["h", "m"], ["i"]),
        node("Add", ["n", "i"], ["y"]),
    ], [2, 4, 6, 6], {
        "s": 1 + number(3, 4) / 2, "t": number(4, 4), "pads": numpy.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "w": number(5, 3, 4, 3, 3) / 3, "scales": numpy.array([1, 1, 2, 2], numpy.float32), "m": number(6, 108, 5) / 9,
        "n": number(7, 5)}, 5)
    by_hand("heads", [
        node("RMSNormalization", ["x", "s"], ["a"], epsilon=0.01),
        node("MatMul", ["a", "q"], ["b"]), node("MatMul", ["a", "k"], ["c"]), node("MatMul", ["a", "v"], ["d"]),
        node("Attention", ["b", "c", "d"], ["e"], is_causal=1, q_num_heads=2, kv_num_heads=2),
        node("Add", ["e", "x"], ["f"]),
        node("ReduceMean", ["f", "axes"], ["g"], keepdims=0),
        node("Gemm", ["g", "w", "t"], ["y"], transB=1),
    ], [2, 5, 8], {
        "s": 1 + number(3, 8) / 2, "q": number(4, 8, 8), "k": number(5, 8, 8), "v": number(6, 8, 8),
        "axes": numpy.array([1]), "w": number(7, 5, 8), "t": number(8, 5)}, 5)
    save_file(scores, os.path.join(HERE, "scores.safetensors"))


if __name__ == "__main__":
    main()
