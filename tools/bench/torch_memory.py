#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Memory and time of training steps in PyTorch on a CPU: plain, with torch.utils.checkpoint around each block, with
save_on_cpu, in budgets of mm_torch (swap-async), and by mm.fit.

Each way is a process of its own. saved: what autograd holds at most in its own memory, or mm in its budget.
resident: the most that training adds to the process, beside what was there before its first step. time: user CPU time
of a step, median. of plain: the median of its ratios to plain steps of the same process, by turns, which a busy machine
disturbs little. Budgets are shares of what a plain step saves. Losses are compared with plain torch's, bit for bit.

On a CPU, moving saves no memory of the process: rows of budgets are to show their cost. It needs torchvision and
transformers. MM_LIBRARY and PYTHONPATH say where mm_torch is. Exits with 1 if a loss differs."""

import argparse
import contextlib
import functools
import json
import os
import statistics
import subprocess
import sys

from gpu_summary import lines_of

SHARES = 0.7, 0.5, 0.3
WAYS = ["plain", "checkpoint", "save_on_cpu"] + [f"{kind} {share:g}" for kind in ("budget", "fit") for share in SHARES]
WARM = 2
# Tensors of 1 MiB or more are then apart from glibc's heap, whose gaps would be counted, too.
HEAP = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}


def resnet50(torch):
    import torchvision
    net = torchvision.models.resnet50()
    blocks = [block for stage in (net.layer1, net.layer2, net.layer3, net.layer4) for block in stage]
    return net, blocks, torch.randn(4, 3, 160, 160), torch.randint(1000, (4,))


def vit_b_16(torch):
    import torchvision
    net = torchvision.models.vit_b_16()
    return net, list(net.encoder.layers), torch.randn(2, 3, 224, 224), torch.randint(1000, (2,))


def gpt2_small(torch):
    import transformers
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))
    tokens = torch.randint(50257, (1, 257))
    return net, list(net.transformer.h), tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


NETS = {"resnet50": resnet50, "vit_b_16": vit_b_16, "gpt2_small": gpt2_small}


def loss_of(output, y):
    from torch.nn import functional as F
    logits = getattr(output, "logits", output)
    return F.cross_entropy(logits.flatten(0, -2), y.flatten())


def status(key):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))


def saved_bytes(mm, step):
    """What a step has autograd hold of what is not the program's."""
    m = mm.budget("16GiB", device="cpu", modes=2, log=lambda text: None)  # MM_STASH_KEEP_ALWAYS: it only counts
    step(m)
    return m.stats.peak_bytes


@contextlib.contextmanager
def checkpointed(torch, blocks):
    """Inside, each block runs again in the backward pass."""
    for block in blocks:
        block.forward = functools.partial(torch.utils.checkpoint.checkpoint, block.forward, use_reentrant=False)
    yield
    for block in blocks:
        del block.forward


def train(options):
    """Prints a row."""
    import torch
    import mm_torch as mm
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    net, blocks, x, y = NETS[options.net](torch)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    context, m, way, figures = contextlib.nullcontext, None, options.way, {}
    if way == "checkpoint":
        context = functools.partial(checkpointed, torch, blocks)
    elif way == "save_on_cpu":
        context = torch.autograd.graph.save_on_cpu
    before = status("VmRSS")
    if way.startswith("budget"):
        m = mm.budget(int(float(way.split()[1]) * options.saved), "swap-async", device="cpu", host=3 * options.saved)
    elif way.startswith("fit"):
        m = mm.fit(net, loss_of, x, y, int(float(way.split()[1]) * options.saved), device="cpu")
        figures = {"saved": m.planned_bytes}

    losses = []

    def step(*inside):
        """Returns its user CPU time."""
        begin = os.times().user
        with contextlib.ExitStack() as stack:
            for each in inside:
                stack.enter_context(each)
            loss = loss_of(net(x), y)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        return os.times().user - begin

    if options.count:
        print(json.dumps({"saved": saved_bytes(mm, lambda budget: step(budget, context()))}))
        return
    torch.manual_seed(1)  # of dropout
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # sets VmHWM to VmRSS
    for i in range(WARM):
        step(m or context())
        if i == 0 and way.startswith("budget"):
            m.settle()
    pairs = [(step(m or context()), status("VmHWM") - before, step()) for _ in range(options.steps)]
    if way.startswith("budget"):
        figures = {"saved": m.stats.predicted_bytes, "planned": m.stats.planned, "moved": m.stats.out_bytes}
    print(json.dumps({"resident": pairs[0][1], "seconds": statistics.median(pair[0] for pair in pairs),
                      "of_plain": statistics.median(pair[0] / pair[2] for pair in pairs), "losses": losses, **figures}))


def apart(options, way, saved=0, count=False):
    """A row of a process of its own; with `error`, if it ended with one."""
    command = [sys.executable, "-W", "ignore", os.path.abspath(__file__), "--net", options.net, "--way", way, "--steps",
               str(options.steps), "--threads", str(options.threads), "--saved", str(saved)] + ["--count"] * count
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, env={**os.environ, **HEAP})
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return {"error": said[-1] if said else f"ended with status {done.returncode}"}
    return json.loads(done.stdout.decode().splitlines()[-1])


def compare(options):
    """Prints a net's table. Returns its rows."""
    saved = {way: apart(options, way, count=True)["saved"] for way in ("plain", "checkpoint")}
    rows, mib = {}, 2**20
    for way in options.ways.split(","):
        row = rows[way] = apart(options, way, saved["plain"])
        row.setdefault("saved", saved.get(way, saved["plain"]))
        row["equal"] = row.get("losses") == rows["plain"]["losses"]
        print(way, row, file=sys.stderr, flush=True)
    cells = [[options.net, "saved", "resident", "time", "of plain", "losses"]]
    for way, row in rows.items():
        cells.append([way] + ([f"{row['saved'] / mib:.0f} MiB", f"{row['resident'] / mib:.0f} MiB", f"{row['seconds']:.2f} s",
                               f"{row['of_plain']:.2f}", "equal" if row["equal"] else "DIFFER"]
                              if "losses" in row else ["-", "-", "-", "-", row["error"]]))
    print("\n".join(lines_of(cells, (0,))), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--steps", type=int, default=5, help="measured steps of each way, and plain ones beside them (5)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ways", default=",".join(WAYS), help="after plain; default: all")
    parser.add_argument("--json", help="file for the rows")
    for name, kind in (("--net", str), ("--way", str), ("--saved", int)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    parser.add_argument("--count", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        train(options)
        return
    found = {}
    if options.ways.split(",")[0] != "plain" or not set(options.ways.split(",")) <= set(WAYS):
        parser.error(f"--ways {options.ways}: plain, then some of {', '.join(WAYS[1:])}")
    for options.net in options.nets.split(","):
        if options.net not in NETS:
            parser.error(f"--nets {options.nets}: there is no {options.net}; there are {', '.join(NETS)}")
        found[options.net] = compare(options)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    sys.exit(any("losses" in row and not row["equal"] for rows in found.values() for row in rows.values()))


if __name__ == "__main__":
    main()
