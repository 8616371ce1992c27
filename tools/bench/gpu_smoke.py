#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks in a minute, before anything is measured, that training on a GPU gives correct results.

    gpu_smoke.py MM [--device cuda] [--net resnet20] [--batch 64]

First it runs one iteration on the host and on the device: gradients must agree within rounding. Rounding has a large
effect, since a ReLU passes a gradient or not where its input is near 0: an error of 0.006 for ResNet-20 at batch 64,
and the same between two instruction sets of the host. Then it runs three iterations on the device from the same
weights, step by step, and again with the last two replayed, under policies that keep maps, encode them without loss on
side streams, copy them to host memory, and run layers again. All must end with the same weights and optimizer state,
bit for bit. Then it does the same in bf16, also for a small GPT with dropout. Under a lossy codec the loss must be
finite. What each run issues on the device must be what its plan says (--verify-issued). It prints a line for each run,
and exits with 1 at the first wrong one. If iterations could not be replayed, the line says so; that is slower, but not
wrong.
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

from gpu_summary import make_parser

ITERATIONS = 3  # one that is not recorded, and two that are replayed
ROUNDING = 3e-2  # allowed error of gradients, by norm. Measured: fp32 0.006, also on an H100; TF32 0.06; bf16 0.2
STEPWISE, REPLAYED = "thread", "inline"
KEPT, CODED, MOVED = "liveness", "freelunch:codec=zvc,eligible=all,when=always", "swap-async:when=always"
LOSSY = "freelunch:rate=4,when=always"
GPT = ["--net", "gpt,layers=2,width=64,heads=2,context=64,vocabulary=256,dropout=0.1", "--batch", "4",
       "--optimizer", "adamw"]
FP32, BF16 = ["--precision", "fp32"], ["--precision", "bf16"]  # not TF32, to which the host does not round
# Groups: the network (None: the caller's), options, and a (--policy, --issue) for each run. The lossless runs of a
# group must agree bit for bit.
GROUPS = [
    (None, FP32, [(KEPT, STEPWISE), (KEPT, REPLAYED), (CODED, REPLAYED), (MOVED, REPLAYED),
                  ("recompute:when=always", REPLAYED), (LOSSY, REPLAYED)]),
    (None, BF16, [(KEPT, STEPWISE), (KEPT, REPLAYED), (MOVED, REPLAYED)]),
    (GPT, BF16, [(KEPT, STEPWISE), (KEPT, REPLAYED), ("recompute:mode=sqrt", REPLAYED)]),
]


def train(args, folder, options, on_device, policy, issue, iterations=ITERATIONS):
    """Trains. Returns the row, and the bytes of each saved tensor. Exits if training fails."""
    state, row = os.path.join(folder, "state"), os.path.join(folder, "row")
    command = [args.mm, "train", *options, "--iterations", str(iterations),
               "--policy", policy, "--device", args.device if on_device else "host", "--deterministic", "--save", state,
               "--json", row]
    if on_device:
        command += ["--verify-issued", "--issue", issue, "--algorithms", os.path.join(folder, "algorithms")]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if ended.returncode:
        sys.exit("%s\ngpu_smoke: %s: status %d" % (ended.stdout, " ".join(command), ended.returncode))
    with open(row, encoding="utf-8") as file:
        told = json.load(file)[0]
    with open(state, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return told, {name: data[slice(*t["data_offsets"])] for name, t in header.items()
                  if name != "__metadata__" and t["dtype"] == "F32"}


def error(ours, theirs):
    """The norm of the difference of all values, divided by the norm of `theirs`."""
    off = norm = 0.0
    for name, data in theirs.items():
        for a, b in zip(struct.iter_unpack("<f", ours[name]), struct.iter_unpack("<f", data)):
            off += (a[0] - b[0]) ** 2
            norm += b[0] ** 2
    return math.sqrt(off / norm) if norm else math.sqrt(off)


def verdict(told, tensors, first, lossy):
    """Says what is wrong with a run; None: nothing."""
    if told["status"] != "ok":
        return told["status"]
    if not math.isfinite(told["loss_last"] or math.nan):
        return "the loss is not finite"
    if lossy or not first:
        return None
    other = [name for name in first if first[name] != tensors[name]]
    return "%d of %d tensors differ from those step by step, the first %s" % (
        len(other), len(first), other[0]) if other else None


def as_the_host(args, folder, options):
    """Whether an iteration on the device gives the host's gradients. After one iteration they are the momentum."""
    (_, host), (_, device) = (train(args, folder, options, on_device, KEPT, STEPWISE, 1) for on_device in (False, True))
    gradients = {name: data for name, data in host.items() if name.startswith("momentum.")}
    off = error(device, gradients)
    print("%s beside the host, an iteration: gradients' error %.2g: %s" % (
        args.device, off, "ok" if off < ROUNDING else "wrong: more than %g" % ROUNDING), flush=True)
    if off >= ROUNDING:
        each = sorted(((error(device, {name: data}), name) for name, data in gradients.items()), reverse=True)
        print("  most of all: " + ", ".join("%s %.2g" % (name[9:], part) for part, name in each[:4]), flush=True)
    return off < ROUNDING


def main():
    p = make_parser(__doc__)
    p.add_argument("mm")
    p.add_argument("--device", default="cuda")
    p.add_argument("--net", default="resnet20")
    p.add_argument("--batch", type=int, default=64)
    args = p.parse_args()
    given = ["--net", args.net, "--batch", str(args.batch)]
    with tempfile.TemporaryDirectory() as folder:
        if not as_the_host(args, folder, given + FP32):
            sys.exit(1)
        for net, precision, runs in GROUPS:
            first = None
            for policy, issue in runs:
                told, tensors = train(args, folder, (net or given) + precision, True, policy, issue)
                wrong = verdict(told, tensors, first, policy == LOSSY)
                replays = ITERATIONS - 1 if issue == REPLAYED else 0
                print("%s, %s%s, %s, %s: loss %.9g, %d replayed%s: %s" % (
                    args.device, told["net"].split(",")[0], ", bf16" if precision == BF16 else "", policy,
                    issue, told["loss_last"] or math.nan, told["replays"],
                    " (NOT %d)" % replays if told["replays"] < replays else "", wrong or "ok"), flush=True)
                if wrong:
                    sys.exit(1)
                first = first or tensors


if __name__ == "__main__":
    main()
