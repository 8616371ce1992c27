#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A GPT trained by PyTorch on the CPU beside mm: tokens a second and memory, in turns.

    peer_gpt.py --mm bazel-bin/tools/mm --data FILE [--threads N] [--rounds N] [--iterations N] [--precision fp32,bf16]

Both train the zoo's gpt (4 layers of width 128, context 128, vocabulary 256; batch 16) by AdamW on the same number of
threads: fp32 against fp32, bf16 against torch's autocast in bfloat16. torch's memory is the process's peak less what it
holds after the import and with the text, which mm reads from its file; mm's is the budget that it took (what the policy
needs) and outside_bytes. Goals: tokens/s of torch's or more, memory 0.6 of torch's or less. Exit status 1: a goal is
missed.

A fair peer needs a fast BLAS: Debian's python3-torch with libopenblas0-pthread, whose products are seven times faster
than those of the default one. Its threads are not OpenMP's, which spin while they have nothing to do: in fp32 that is
switched off (OMP_WAIT_POLICY), which makes torch two to ten times faster; in bf16, where oneDNN computes, it would make
torch slower.

On a GPU peer_pytorch.py trains the same model: --net gpt2:16 --precision bf16.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from gpu_summary import make_parser

FAMILIES = {  # as in the zoo
    "gpt": {"layers": 4, "width": 128, "heads": 4, "context": 128, "vocabulary": 256, "dropout": 0},
    "gpt2": {"layers": 12, "width": 768, "heads": 12, "context": 1024, "vocabulary": 50257, "dropout": 0},
}
NET, BATCH = "gpt", 16
LEAST_SPEED, MOST_MEMORY = 1.0, 0.6
WARM_UP = 3
LEARNING_RATE = 6e-4


def sizes_of(net):
    """Of a network as mm names it, "gpt,layers=2,width=64"; None: it is no GPT that can be built here."""
    family, *options = net.split(",")
    sizes = dict(FAMILIES.get(family, {}))
    for option in options:
        key, _, value = option.partition("=")
        if key not in sizes or not value.isdecimal():
            return None
        sizes[key] = int(value)
    if not sizes or sizes.pop("dropout") or not all(sizes.values()) or sizes["width"] % sizes["heads"]:
        return None
    return sizes


def resident(key):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(key + ":"))


def parts_of(torch, sizes):
    """The network as modules that follow each other: the embedding, each block, and the scores of the next token."""
    nn, functional = torch.nn, torch.nn.functional
    layers, width, heads, context, vocabulary = sizes.values()
    fused = hasattr(functional, "scaled_dot_product_attention")  # PyTorch 2.0: it never holds the square of the context

    class Embedding(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)

        def forward(self, tokens):
            return self.wte(tokens) + self.wpe.weight

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attn, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            if not fused:
                self.register_buffer("hidden", torch.ones(context, context).triu(1).bool(), persistent=False)

        def attend(self, q, k, v):
            if fused:
                return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            scores = (q @ k.transpose(-1, -2) / (width // heads) ** 0.5).masked_fill(self.hidden, float("-inf"))
            return torch.softmax(scores, -1) @ v

        def forward(self, x):
            n, t, w = x.shape
            q, k, v = (part.reshape(n, t, heads, -1).transpose(1, 2) for part in self.attn(self.ln_1(x)).chunk(3, dim=-1))
            x = x + self.out(self.attend(q, k, v).transpose(1, 2).reshape(n, t, w))
            return x + self.proj(functional.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Scores(nn.Module):
        def __init__(self, wte):
            super().__init__()
            self.wte, self.ln_f = wte, nn.LayerNorm(width)

        def forward(self, x):
            return functional.linear(self.ln_f(x), self.wte.weight)

    embedding = Embedding()
    parts = [embedding, *(Block() for _ in range(layers)), Scores(embedding.wte)]
    for values in nn.ModuleList(parts).parameters():
        if values.dim() == 2:
            nn.init.normal_(values, std=0.02)
    return parts


def optimizer_of(torch, net, **options):
    """Weight decay on matrices only, as mm's."""
    values = list(net.parameters())
    return torch.optim.AdamW([{"params": [p for p in values if p.dim() == 2]},
                              {"params": [p for p in values if p.dim() != 2], "weight_decay": 0}],
                             lr=LEARNING_RATE, **options)


def peer(options):
    """In a process of its own: prints tokens/s and bytes."""
    import torch
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    text = bytearray(os.path.getsize(options.data))
    with open(options.data, "rb") as file:
        file.readinto(text)
    text = torch.frombuffer(text, dtype=torch.uint8)
    before = resident("VmRSS")
    sizes = sizes_of(NET)
    context, vocabulary = sizes["context"], sizes["vocabulary"]
    net = torch.nn.Sequential(*parts_of(torch, sizes))
    optimizer = optimizer_of(torch, net)
    seconds = []
    for _ in range(WARM_UP + options.iterations):
        start = time.perf_counter()
        at = torch.randint(len(text) - context - 1, (BATCH,)).unsqueeze(1) + torch.arange(context)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "bf16"):
            scores = net(text[at].long())
            loss = torch.nn.functional.cross_entropy(scores.reshape(-1, vocabulary), text[at + 1].long().reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - start)
    print(json.dumps([BATCH * context / statistics.median(seconds[WARM_UP:]), resident("VmHWM") - before]))


def run_peer(options, precision):
    command = [sys.executable, __file__, "--peer", "--data", options.data, "--precision", precision, "--threads",
               str(options.threads), "--iterations", str(options.iterations)]
    waits = {"OMP_WAIT_POLICY": "PASSIVE"} if precision == "fp32" else {}  # torch's threads make room for the BLAS's
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**waits, **os.environ}).stdout)


def run_mm(options, precision):
    with tempfile.NamedTemporaryFile(suffix=".json") as rows:
        subprocess.run([options.mm, "train", "--net", NET, "--data", "text:" + options.data, "--batch", str(BATCH),
                        "--iterations", str(WARM_UP + options.iterations), "--precision", precision, "--optimizer", "adamw",
                        "--lr", str(LEARNING_RATE), "--policy", "liveness", "--threads", str(options.threads), "--quiet",
                        "--json", rows.name], check=True, stdout=subprocess.DEVNULL)
        row = json.load(open(rows.name))[0]
    return [row["tokens_per_second"], row["budget_bytes"] + row["outside_bytes"]]


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--mm", help="the command")
    parser.add_argument("--data", required=True, help="a text; its bytes are tokens")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--precision", default="fp32,bf16")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return peer(options)
    if not options.mm:
        parser.error("--mm: which command")
    missed = False
    print("%-9s %12s %12s %6s %10s %10s %6s" % ("precision", "torch tok/s", "mm tok/s", "ratio", "torch MiB", "mm MiB",
                                              "ratio"))
    for precision in options.precision.split(","):
        runs = [(run_peer(options, precision), run_mm(options, precision)) for _ in range(options.rounds)]
        theirs, ours = ([statistics.median(run[side][i] for run in runs) for i in range(2)] for side in range(2))
        speed, memory = ours[0] / theirs[0], ours[1] / theirs[1]
        print("%-9s %12.0f %12.0f %6.2f %10.1f %10.1f %6.2f" % (precision, theirs[0], ours[0], speed, theirs[1] / 2**20,
                                                             ours[1] / 2**20, memory))
        missed |= speed < LEAST_SPEED or memory > MOST_MEMORY
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
