#!/usr/bin/env python3
"""A GPT trained by PyTorch on the CPU beside mm: tokens a second and memory, in turns.

    peer_gpt.py --mm bazel-bin/tools/mm --data FILE [--threads N] [--rounds N] [--iterations N] [--precision fp32,bf16]

Both train the zoo's gpt (4 layers of width 128, context 128, vocabulary 256; batch 16) by AdamW on the same number of
threads: fp32 against fp32, bf16 against torch's autocast in bfloat16. torch's memory is the process's peak less what it
holds after the import; mm's is the budget that it took (what the policy needs) and outside_bytes. Goals: tokens/s of
torch's or more, memory 0.6 of torch's or less. Exit status 1: a goal is missed.

A fair peer needs a fast BLAS: Debian's python3-torch with libopenblas0-pthread, whose products are seven times faster than
those of the default one. Its threads are not OpenMP's, which spin while they have nothing to do: in fp32 that is switched off
(OMP_WAIT_POLICY), which makes torch two to ten times faster; in bf16, where oneDNN computes, it would make torch slower.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY, BATCH = 4, 128, 4, 128, 256, 16
NET = "gpt,layers=%d,width=%d,heads=%d,context=%d,vocabulary=%d,dropout=0" % (LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY)
LEAST_SPEED, MOST_MEMORY = 1.0, 0.6
WARM_UP = 3


def resident(key):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(key + ":"))


def build(torch):
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.attn, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.fc, self.proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
            self.register_buffer("hidden", torch.ones(CONTEXT, CONTEXT).triu(1).bool(), persistent=False)

        def forward(self, x):
            n, t, w = x.shape
            q, k, v = (part.reshape(n, t, HEADS, -1).transpose(1, 2) for part in self.attn(self.ln_1(x)).chunk(3, dim=-1))
            scores = (q @ k.transpose(-1, -2) / (w // HEADS) ** 0.5).masked_fill(self.hidden, float("-inf"))
            x = x + self.out((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(n, t, w))
            return x + self.proj(functional.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
            self.blocks, self.ln_f = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
            for values in self.parameters():
                if values.dim() == 2:
                    nn.init.normal_(values, std=0.02)

        def forward(self, tokens, labels):
            x = self.wte(tokens) + self.wpe.weight
            for block in self.blocks:
                x = block(x)
            scores = functional.linear(self.ln_f(x), self.wte.weight)
            return functional.cross_entropy(scores.reshape(-1, VOCABULARY), labels.reshape(-1))

    return Gpt()


def peer(options):
    """In a process of its own: prints tokens/s and bytes."""
    import torch
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    before = resident("VmRSS")
    with open(options.data, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    net = build(torch)
    matrices = [p for p in net.parameters() if p.dim() == 2]
    others = [p for p in net.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": matrices}, {"params": others, "weight_decay": 0}], lr=6e-4)
    seconds = []
    for _ in range(WARM_UP + options.iterations):
        start = time.perf_counter()
        at = torch.randint(len(text) - CONTEXT - 1, (BATCH,)).unsqueeze(1) + torch.arange(CONTEXT)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "bf16"):
            loss = net(text[at], text[at + 1])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - start)
    print(json.dumps([BATCH * CONTEXT / statistics.median(seconds[WARM_UP:]), resident("VmHWM") - before]))


def run_peer(options, precision):
    command = [sys.executable, __file__, "--peer", "--data", options.data, "--precision", precision, "--threads",
               str(options.threads), "--iterations", str(options.iterations)]
    waits = {"OMP_WAIT_POLICY": "PASSIVE"} if precision == "fp32" else {}  # torch's own threads make room for the BLAS's
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**waits, **os.environ}).stdout)


def run_mm(options, precision):
    with tempfile.NamedTemporaryFile(suffix=".json") as rows:
        subprocess.run([options.mm, "train", "--net", NET, "--data", "text:" + options.data, "--batch", str(BATCH),
                        "--iterations", str(WARM_UP + options.iterations), "--precision", precision, "--optimizer", "adamw",
                        "--lr", "6e-4", "--policy", "liveness", "--threads", str(options.threads), "--quiet", "--json",
                        rows.name], check=True, stdout=subprocess.DEVNULL)
        row = json.load(open(rows.name))[0]
    return [row["tokens_per_second"], row["budget_bytes"] + row["outside_bytes"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
