#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains a GPT with PyTorch on the CPU and with mm, in turns: tokens a second and memory.

    peer_gpt.py --mm bazel-bin/tools/mm --data FILE [--threads N] [--rounds N] [--iterations N] [--precision fp32,bf16]

Both train the zoo's gpt (4 layers of width 128, context 128, vocabulary 256; batch 16) with AdamW on the same number of
threads: fp32 against fp32, bf16 against torch's autocast in bfloat16. Torch's memory is the process's peak less what it
holds after the import and with the text, which mm reads from its file. mm's memory is the budget (what the policy
needs) and outside_bytes. Goals: at least torch's tokens/s, at most 0.6 of its memory. Exit status 1: a goal is missed.

A fair peer needs a fast BLAS: Debian's python3-torch with libopenblas0-pthread, whose products are seven times faster
than the default's. OpenBLAS has threads of its own, which idle OpenMP threads disturb by spinning. In fp32 spinning is
switched off (OMP_WAIT_POLICY), which makes torch two to ten times faster; in bf16, where oneDNN computes, that would
make torch slower.

On a GPU peer_pytorch.py trains the same model: --net gpt2:16 --precision bf16.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

from gpu_summary import make_parser
from torch_nets import GPT_RATE, build, optimizer_of, sizes_of
from torch_rig import row_apart, step_seconds

NET, BATCH = "gpt", 16
LEAST_SPEED, MOST_MEMORY = 1.0, 0.6
WARM_UP = 3
LIMIT = 3600  # seconds of a run of PyTorch


def resident(key):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(key + ":"))


def measure(data, precision, threads, iterations):
    """Yields None once the text is read, then tokens/s and bytes."""
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    text = bytearray(os.path.getsize(data))
    with open(data, "rb") as file:
        file.readinto(text)
    text = torch.frombuffer(text, dtype=torch.uint8)
    before = resident("VmRSS")
    context, vocabulary = (sizes_of(NET)[key] for key in ("context", "vocabulary"))
    net = build(torch, NET, "keep")
    optimizer = optimizer_of(torch, NET, net, False)
    kept = {}  # tensors live until the next iteration replaces them, as a loop's variables do

    def iterate(_i):
        at = torch.randint(len(text) - context - 1, (BATCH,)).unsqueeze(1) + torch.arange(context)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            scores = net(text[at].long())
            loss = torch.nn.functional.cross_entropy(scores.reshape(-1, vocabulary), text[at + 1].long().reshape(-1))
        kept.update(at=at, scores=scores, loss=loss)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()

    yield None
    seconds = step_seconds(torch, False, iterate, WARM_UP + iterations)[WARM_UP:]
    yield {"status": "ok", "measured": [BATCH * context / statistics.median(seconds), resident("VmHWM") - before]}


def run_peer(options, precision):
    # In fp32 idle OpenMP threads must not spin, so that the BLAS's threads get the cores.
    waits = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")} if precision == "fp32" else {}
    row = row_apart("peer_gpt", "measure", [options.data, precision, options.threads, options.iterations], LIMIT, **waits)
    return row["measured"] if row["status"] == "ok" else sys.exit("peer_gpt: PyTorch, %s: %s" % (precision, row["status"]))


def run_mm(options, precision):
    with tempfile.NamedTemporaryFile(suffix=".json") as rows:
        subprocess.run([options.mm, "train", "--net", NET, "--data", "text:" + options.data, "--batch", str(BATCH),
                        "--iterations", str(WARM_UP + options.iterations), "--precision", precision, "--optimizer", "adamw",
                        "--lr", str(GPT_RATE), "--policy", "liveness", "--threads", str(options.threads), "--quiet",
                        "--json", rows.name], check=True, stdout=subprocess.DEVNULL)
        row = json.load(open(rows.name))[0]
    return [row["tokens_per_second"], row["budget_bytes"] + row["outside_bytes"]]


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--mm", required=True, help="the command")
    parser.add_argument("--data", required=True, help="a text file; its bytes are tokens")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--precision", default="fp32,bf16")
    options = parser.parse_args()
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
