#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares auto on this host with the two fastest other lossless policies, in turns.

    host_auto.py NET:BATCH:BUDGET[,BUDGET..]... [--mm MM] [--rates host|nominal] [--rounds N] [--iterations N]
                 [--sub-batches]

For each budget a first pass runs all lossless policies once. Then auto and the two fastest of them run in turn, each
round in another order; the ratio is auto's images/s (median iteration, once it has planned again) over the other's in
the same round. A line for each pair has the median of the ratios, the least and the largest. Exit status 1: a median is
below 0.95. Run it on an idle machine: the spread tells whether it was.

By default every policy computes whole batches. --sub-batches lets modnn compute parts of them, and auto too
(auto:subbatch=auto); in networks with batch norms that is another computation.

    host_auto.py resnet20:32:16MiB gpt:64:60MiB,70MiB --mm bazel-bin/tools/mm
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

from gpu_summary import make_parser

GOAL = 0.95
POLICIES = ("liveness", "swap", "swap-async", "vdnn-all", "vdnn-conv", "modnn", "recompute", "recompute:mode=sqrt",
            "recompute:mode=nested", "recompute:mode=memory", "recompute-swap", "cdma:codec=zvc")


def read_options():
    parser = make_parser(__doc__)
    parser.add_argument("cells", nargs="+", metavar="NET:BATCH:BUDGETS")
    parser.add_argument("--mm", default="bazel-bin/tools/mm")
    parser.add_argument("--rates", default="host")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--sub-batches", action="store_true")
    return parser.parse_args()


def speeds(options, net, batch, budget, policies):
    """Images/s of each policy that fits, by its name."""
    with tempfile.TemporaryDirectory() as folder:
        rows = os.path.join(folder, "rows.json")
        command = [options.mm, "bench", "--net", net, "--batch", batch, "--budgets", budget, "--policies",
                   ",".join(policies), "--iterations", str(options.iterations), "--rates", options.rates, "--quiet",
                   "--json", rows]
        if not options.sub_batches:
            command += ["--sub-batch", batch]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if not os.path.exists(rows):
            sys.exit(done.stderr.strip())
        with open(rows) as file:
            return {row["policy"]: row["images_per_second"] for row in json.load(file) if row["status"] == "ok"}


def compare(options, net, batch, budget):
    """Prints a line for each of the two; returns the smaller median."""
    auto = "auto:subbatch=auto" if options.sub_batches else "auto"
    first = speeds(options, net, batch, budget, POLICIES)
    others = sorted(first, key=first.get, reverse=True)[:2]
    ratios = {other: [] for other in others}
    for turn in range(options.rounds):
        order = [auto] + others
        order = order[turn % len(order):] + order[:turn % len(order)]
        found = {}
        for policy in order:
            found.update(speeds(options, net, batch, budget, [policy]))
        for other in others:
            ratios[other].append(found[auto] / found[other])
    for other in others:
        print("%-10s %4s %8s  %s / %-24s %.2f  (%.2f to %.2f, %d rounds)" % (
            net, batch, budget, auto, other, statistics.median(ratios[other]), min(ratios[other]), max(ratios[other]),
            options.rounds), flush=True)
    if not others:
        print("%-10s %4s %8s  no other policy fits" % (net, batch, budget), flush=True)
    return min((statistics.median(r) for r in ratios.values()), default=GOAL)


def main():
    options = read_options()
    least = GOAL
    for cell in options.cells:
        net, batch, budgets = cell.rsplit(":", 2)
        for budget in budgets.split(","):
            least = min(least, compare(options, net, batch, budget))
    return least < GOAL


if __name__ == "__main__":
    sys.exit(main())
