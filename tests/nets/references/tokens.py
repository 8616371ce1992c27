#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Records what PyTorch computes of a transformer's operations, in float64: outputs and gradients, some elements of
each.

    tests/nets/references/tokens.py        writes tokens.safetensors beside itself; needs Debian's python3-torch

tests/nets/token_ops_test.c computes the same in float32 from the same inputs; `number` below is its formula. What
begins with "bf16." is of the same inputs rounded to bfloat16: maps, their gradients, and the weights that maps are
multiplied by.
"""
import json
import math
import os
import struct

import torch

torch.set_default_dtype(torch.float64)
MOST = 997  # recorded elements of a tensor
MOST_BF16 = 251


def number(seed, *shape):
    """Numbers in [-1, 1], rounded to float32."""
    n = 1
    for size in shape:
        n *= size
    i = torch.arange(n, dtype=torch.int64)
    return (((i * 7919 + seed * 104729) % 2003 - 1001).float() / 1001).double().reshape(shape)


recorded = {}


def record(name, tensor):
    flat = tensor.detach().reshape(-1)
    most = MOST_BF16 if name.startswith("bf16.") else MOST
    recorded[name] = flat[:: max(1, flat.numel() // most)].float()


def rounded(tensor):
    """Rounds to bfloat16, to nearest, ties to even."""
    return tensor.float().bfloat16().double()


def leaf(tensor):
    return tensor.clone().requires_grad_()


def case(name, compute, factor=False, **inputs):
    """inputs: x, w, b; the gradient of sum(dy y) by each is recorded, with dy = number(4). factor: x is multiplied by
    w."""
    for bf16 in (False, True):
        leaves = {key: leaf(value) for key, value in inputs.items()}
        if bf16:
            for key in ("x", "w") if factor else ("x",):
                if key in inputs:
                    leaves[key] = leaf(rounded(inputs[key]))
        y = compute(**leaves)
        dy = number(4, *y.shape)
        (y * (rounded(dy) if bf16 else dy)).sum().backward()
        prefix = "bf16." if bf16 else ""
        record(prefix + name + ".y", y)
        for key, value in leaves.items():
            record(prefix + name + ".d" + key, value.grad)


def embedding(vocabulary, width, tokens):
    ids = (torch.arange(tokens) * 5) % vocabulary
    case("embedding", lambda w: torch.nn.functional.embedding(ids.reshape(2, -1), w), w=number(2, vocabulary, width))


def attention(heads, full=False, kv_heads=None):
    kv_heads = kv_heads or heads

    def compute(x):
        n, tokens, width = x.shape
        size = width // (heads + 2 * kv_heads)
        q, k, v = (t.reshape(n, tokens, -1, size).transpose(1, 2)
                   for t in x.split([heads * size, kv_heads * size, kv_heads * size], dim=-1))
        if kv_heads != heads:
            k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if not full:
            scores = scores.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, tokens, heads * size)

    return compute


def rotary(heads, kv_heads, base):
    """As transformers' Llama: channel i of a head and channel i + size / 2 turn together."""
    def compute(x):
        n, tokens, width = x.shape
        size = width // (heads + 2 * kv_heads)
        speeds = base ** -(torch.arange(0, size, 2) / size)
        angles = torch.outer(torch.arange(tokens).double(), speeds).repeat(1, 2)
        turned, rest = x.split([(heads + kv_heads) * size, kv_heads * size], dim=-1)
        turned = turned.reshape(n, tokens, heads + kv_heads, size)
        half = torch.cat((-turned[..., size // 2:], turned[..., :size // 2]), dim=-1)
        turned = turned * angles.cos()[:, None] + half * angles.sin()[:, None]
        return torch.cat((turned.reshape(n, tokens, -1), rest), dim=-1)

    return compute


def token_loss(name, tokens, width, classes):
    labels = (torch.arange(tokens) * 3) % classes
    for prefix, given in (("", lambda t: t), ("bf16.", rounded)):
        x, w = leaf(given(number(1, tokens, width))), leaf(given(number(2, classes, width)))
        loss = torch.nn.functional.cross_entropy(x @ w.T, labels)
        loss.backward()
        record(prefix + name + ".loss", loss)
        record(prefix + name + ".y", x.grad)
        record(prefix + name + ".dw", w.grad)


class Gpt:
    """GPT-2 in float32, its weights by `number`, which tests/nets/gpt_train_test.c trains too; with autocast in
    bfloat16."""

    LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY, BATCH, STEPS, WARMUP, RATE, CLIP = 4, 64, 4, 64, 64, 4, 50, 20, 6e-4, 0.5

    def __init__(self):
        width = self.WIDTH
        self.params, self.matrices = {}, []
        self.add("wte", self.VOCABULARY, width)
        self.add("wpe", self.CONTEXT, width)
        for i in range(self.LAYERS):
            self.norm("h.%d.ln_1" % i)
            self.linear("h.%d.attn.c_attn" % i, width, 3 * width)
            self.linear("h.%d.attn.c_proj" % i, width, width)
            self.norm("h.%d.ln_2" % i)
            self.linear("h.%d.mlp.c_fc" % i, width, 4 * width)
            self.linear("h.%d.mlp.c_proj" % i, 4 * width, width)
        self.norm("ln_f")

    def put(self, name, base, factor, *shape):
        values = base + factor * number(100 + len(self.params), *shape).float()
        self.params[name] = values.float().requires_grad_()

    def add(self, name, *shape):
        self.put(name + ".weight", 0, 0.04, *shape)
        self.matrices.append(name + ".weight")

    def linear(self, name, rows, columns):
        self.add(name, rows, columns)
        self.put(name + ".bias", 0, 0.01, columns)

    def norm(self, name):
        self.put(name + ".weight", 1, 0.1, self.WIDTH)
        self.put(name + ".bias", 0, 0.01, self.WIDTH)

    def apply(self, name, x):
        return x @ self.params[name + ".weight"] + self.params[name + ".bias"]

    def normed(self, name, x):
        p = self.params
        return functional.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"])

    def loss(self, tokens):
        p, attend = self.params, attention(self.HEADS)
        x = p["wte.weight"][tokens[:, :-1]] + p["wpe.weight"]
        for i in range(self.LAYERS):
            h = "h.%d." % i
            y = attend(self.apply(h + "attn.c_attn", self.normed(h + "ln_1", x)))
            x = x + self.apply(h + "attn.c_proj", y)
            y = functional.gelu(self.apply(h + "mlp.c_fc", self.normed(h + "ln_2", x)), approximate="tanh")
            x = x + self.apply(h + "mlp.c_proj", y)
        scores = self.normed("ln_f", x) @ p["wte.weight"].T
        return functional.cross_entropy(scores.reshape(-1, self.VOCABULARY), tokens[:, 1:].reshape(-1))

    def tokens(self, step):
        rows = []
        for sample in range(self.BATCH):
            row = [(sample * 7 + step * 13) % self.VOCABULARY]
            for k in range(self.CONTEXT):
                row.append((5 * row[-1] + 3 + k % 3) % self.VOCABULARY)
            rows.append(row)
        return torch.tensor(rows)

    def rate(self, step):
        if step < self.WARMUP:
            return self.RATE * (step + 1) / self.WARMUP
        return self.RATE * 0.5 * (1 + math.cos(math.pi * (step - self.WARMUP) / (self.STEPS - self.WARMUP)))

    def train(self, autocast=False):
        others = [values for name, values in self.params.items() if name not in self.matrices]
        groups = [{"params": [self.params[name] for name in self.matrices]}, {"params": others, "weight_decay": 0}]
        optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
        losses = []
        for step in range(self.STEPS):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                loss = self.loss(self.tokens(step))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.params.values(), self.CLIP)
            for group in optimizer.param_groups:
                group["lr"] = self.rate(step)
            optimizer.step()
            losses.append(loss.item())
        return losses


def write(path):
    header, data, at = {}, b"", 0
    for name in sorted(recorded):
        blob = struct.pack("<%df" % recorded[name].numel(), *recorded[name].tolist())
        header[name] = {"dtype": "F32", "shape": [recorded[name].numel()], "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        data += blob
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


functional = torch.nn.functional
embedding(11, 20, 30)
case("position", lambda x, w: x + w, x=number(1, 3, 17, 20), w=number(2, 17, 20))
case("layer_norm", lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b), x=3 * number(1, 2, 75, 20) + 1,
     w=number(2, 20), b=number(3, 20))
case("rms_norm", lambda x, w: x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w, x=3 * number(1, 2, 75, 20) + 1,
     w=number(2, 20))
case("class_token", lambda x, w, b: torch.cat([w.expand(3, 1, 20), x], 1) + b, x=number(1, 3, 16, 20),
     w=number(2, 1, 1, 20), b=number(3, 1, 17, 20))
case("leaky_relu", lambda x: functional.leaky_relu(x, 0.1), x=8 * number(1, 2, 65, 20))
case("relu6", lambda x: functional.relu6(x), x=8 * number(1, 2, 65, 20))
case("sigmoid", lambda x: x.sigmoid(), x=8 * number(1, 2, 65, 20))
case("silu", lambda x: functional.silu(x), x=8 * number(1, 2, 65, 20))
case("hard_swish", lambda x: functional.hardswish(x), x=8 * number(1, 2, 65, 20))
case("gelu_tanh", lambda x: functional.gelu(x, approximate="tanh"), x=4 * number(1, 2, 65, 20))
case("gelu_erf", functional.gelu, x=4 * number(1, 2, 65, 20))
case("project", lambda x, w, b: x @ w + b, factor=True, x=number(1, 2, 75, 24), w=number(2, 24, 40), b=number(3, 40))
case("project_by_output", lambda x, w, b: functional.linear(x, w, b), factor=True, x=number(1, 2, 75, 24),
     w=number(2, 40, 24), b=number(3, 40))
case("attention_of_one_block", attention(3), x=2 * number(1, 2, 33, 72))
case("attention_of_blocks", attention(2), x=2 * number(1, 1, 300, 48))
case("attention_of_64_channels", attention(1), x=number(1, 1, 70, 192))
case("full_attention_of_one_block", attention(3, True), x=2 * number(1, 2, 33, 72))
case("full_attention_of_blocks", attention(2, True), x=2 * number(1, 1, 300, 48))
case("full_attention_of_64_channels", attention(1, True), x=number(1, 1, 70, 192))
case("grouped_attention", attention(6, kv_heads=2), x=2 * number(1, 2, 33, 80))
case("grouped_attention_of_blocks", attention(4, kv_heads=1), x=2 * number(1, 1, 300, 144))
case("full_grouped_attention", attention(4, True, kv_heads=2), x=2 * number(1, 2, 70, 128))
case("rotary", rotary(3, 1, 10000.0), x=number(1, 2, 75, 60))
case("rotary_of_a_large_base", rotary(2, 2, 500000.0), x=number(1, 1, 600, 96))
token_loss("token_loss", 150, 16, 37)
token_loss("token_loss_of_chunks", 2100, 8, 19)
torch.set_default_dtype(torch.float32)
record("gpt.losses", torch.tensor(Gpt().train()))
record("gpt.losses_of_autocast", torch.tensor(Gpt().train(autocast=True)))
write(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokens.safetensors"))
