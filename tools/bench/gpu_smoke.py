#!/usr/bin/env python3
"""A minute on a GPU before anything is measured: does training there give what it should?

    gpu_smoke.py MM [--device cuda] [--net resnet20] [--batch 64]

Trains three iterations from the same weights: on the host; on the device step by step; on the device with the last two
replayed, under policies that keep maps, encode them without loss on side streams, copy them to host memory and run layers
again. On the device all must have the same weights and optimizer state, to the bit; the host's are the same to rounding.
Then the same on the device alone in bf16, and of a small GPT with dropout in bf16; and under a lossy codec, whose loss must
be a number. Prints a line for each run and exits with 1 at the first that is wrong. Iterations that could not be replayed are
slower, not wrong: the line says so, and what is measured next shows by how much.
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

from gpu_summary import make_parser

ITERATIONS = 3  # one before anything is recorded, and two replayed
ROUNDING = 1e-3  # of float32 sums in another order, through a network and three updates: error by norm
STEPWISE, REPLAYED = "thread", "inline"
KEPT, CODED, MOVED = "liveness", "freelunch:codec=zvc,eligible=all,when=always", "swap-async:when=always"
LOSSY = "freelunch:rate=4,when=always"
GPT = ["--net", "gpt,layers=2,width=64,heads=2,context=64,vocabulary=256,dropout=0.1", "--batch", "4", "--optimizer", "adamw"]
BF16 = ["--precision", "bf16"]
# What is trained (None: what the caller names), and how: on the device or not, --policy, --issue. Of each group the lossless
# runs on the device have one set of bits.
GROUPS = [
    (None, [], [(False, KEPT, STEPWISE), (True, KEPT, STEPWISE), (True, KEPT, REPLAYED), (True, CODED, REPLAYED),
                (True, MOVED, REPLAYED), (True, "recompute:when=always", REPLAYED), (True, LOSSY, REPLAYED)]),
    (None, BF16, [(True, KEPT, STEPWISE), (True, KEPT, REPLAYED), (True, MOVED, REPLAYED)]),
    (GPT, BF16, [(True, KEPT, STEPWISE), (True, KEPT, REPLAYED), (True, "recompute:mode=sqrt", REPLAYED)]),
]


def train(args, folder, options, on_device, policy, issue):
    """-> its row, the bytes of its tensors. Exits if it fails."""
    state, row = os.path.join(folder, "state"), os.path.join(folder, "row")
    command = [args.mm, "train", *options, "--iterations", str(ITERATIONS),
               "--policy", policy, "--device", args.device if on_device else "host", "--deterministic", "--save", state,
               "--json", row]
    if on_device:
        command += ["--issue", issue, "--algorithms", os.path.join(folder, "algorithms")]
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
    """Of all values together: the norm of the difference, by that of the values."""
    off = norm = 0.0
    for name, data in theirs.items():
        for a, b in zip(struct.iter_unpack("<f", ours[name]), struct.iter_unpack("<f", data)):
            off += (a[0] - b[0]) ** 2
            norm += b[0] ** 2
    return math.sqrt(off / norm)


def verdict(told, tensors, host, first, lossy):
    """What is wrong; None: nothing."""
    if told["status"] != "ok":
        return told["status"]
    if not math.isfinite(told["loss_last"] or math.nan):
        return "the loss is no number"
    if lossy:
        return None
    if first:
        other = [name for name in first if first[name] != tensors[name]]
        return "%d of %d tensors differ from those step by step, the first %s" % (
            len(other), len(first), other[0]) if other else None
    if host:
        for kind in (False, True):  # values; the optimizer's state, which is of gradients
            part = {name: data for name, data in host.items() if name.startswith("momentum.") == kind}
            off = error(tensors, part)
            if not off < ROUNDING * (10 if kind else 1):
                return "%s: error %.2g beside the host's" % ("momentum" if kind else "weights", off)
    return None


def main():
    p = make_parser(__doc__)
    p.add_argument("mm")
    p.add_argument("--device", default="cuda")
    p.add_argument("--net", default="resnet20")
    p.add_argument("--batch", type=int, default=64)
    args = p.parse_args()
    given = ["--net", args.net, "--batch", str(args.batch)]
    with tempfile.TemporaryDirectory() as folder:
        for net, precision, runs in GROUPS:
            host = first = None
            for on_device, policy, issue in runs:
                told, tensors = train(args, folder, (net or given) + precision, on_device, policy, issue)
                wrong = verdict(told, tensors, host, first, policy == LOSSY)
                replays = ITERATIONS - 1 if on_device and issue == REPLAYED else 0
                print("%s, %s%s, %s, %s: loss %.9g, %d replayed%s: %s" % (
                    args.device if on_device else "host", told["net"].split(",")[0], ", bf16" if precision else "", policy,
                    issue, told["loss_last"] or math.nan, told["replays"],
                    " (NOT %d)" % replays if told["replays"] < replays else "", wrong or "ok"), flush=True)
                if wrong:
                    sys.exit(1)
                if on_device:
                    first = first or tensors
                else:
                    host = tensors


if __name__ == "__main__":
    main()
