#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains six networks on this CPU with PyTorch and with mm in alternating rounds; writes the README's tables.

    peer_host.py --mm bazel-bin/tools/mm                        prints the table of speeds
    peer_host.py --mm bazel-bin/tools/mm --write README.md      and writes it between the two comments there
    peer_host.py --mm bazel-bin/tools/mm --table memory         PyTorch's checkpoint beside mm's policies

Speeds: PyTorch runs eagerly in channels-last order and compiled (inductor), in f32 and under bf16 autocast; mm runs
liveness. Memory, in f32: PyTorch keeps all maps, or runs blocks again (checkpoint); mm runs policies that take less.
All use as many threads, one after the other. A figure is the median of rounds; memory is the process's resident peak.
Three rounds of all speeds take about an hour on two cores, which must have nothing else to do.
"""
import re
import signal
import sys
import types

from gpu_summary import make_parser, rate_of
from peer_pytorch import medians, rounds_of, save, usable_threads

CASES = [  # name, network, batch
    ("ResNet-20, batch 128", "resnet20", 128),
    ("ResNet-50, batch 8", "resnet50", 8),
    ("VGG-16, batch 8", "vgg16", 8),
    ("MobileNetV2, batch 16", "mobilenet_v2", 16),
    ("GPT-2, 1×512 tokens", "gpt2,context=512", 1),
    ("GPT 4×128, 16×128 tokens", "gpt", 16),
]
END = "<!-- to here -->"


def figures(row):
    """Speed and MiB as text."""
    if row["status"] != "ok":
        return row["status"], "-"
    rate, mib = rate_of(row)[0], row.get("host_peak_bytes", 0) / (1 << 20)
    return "%.*f" % (0 if rate >= 100 else 1, rate), "%.0f" % mib


def speed_cells(rows):
    """Cells of the table of speeds: PyTorch's rows in the order of its modes, then mm's."""
    speeds = [rate_of(row)[0] if row["status"] == "ok" else 0 for row in rows]
    peers = max(speeds[:-1])
    cells = [figures(row) for row in rows]
    ratio = "%.2f" % (speeds[-1] / peers) if peers and speeds[-1] else "-"
    return [*(speed for speed, _ in cells), ratio, ", ".join(mib for _, mib in cells)]


def memory_cells(rows):
    """Cells of the table of memory. The last compares with checkpoint the fastest of mm's that takes no more memory."""
    cells = ["%s in %s" % figures(row) if row["status"] == "ok" else row["status"] for row in rows]
    base, ours = rows[1], [row for row in rows[2:] if row["status"] == "ok"]
    if base["status"] != "ok":
        return [*cells, "-"]
    fit = [row for row in ours if row["host_peak_bytes"] <= base["host_peak_bytes"]]
    if not fit:
        return [*cells, "none takes so little"]
    best = max(fit, key=lambda row: rate_of(row)[0])
    return [*cells, "%.2f: `%s`" % (rate_of(best)[0] / rate_of(base)[0], best["policy"])]


TABLES = {
    "speed": {"modes": ["channels_last", "compile:1.0"], "policies": "liveness", "precision": "fp32,bf16",
              "cells": speed_cells,
              "head": ["images/s; tokens/s", "PyTorch, eager", "compiled", "`mm`, `liveness`", "to the faster",
                       "resident MiB"]},
    "memory": {"modes": ["channels_last", "checkpoint"], "policies": "liveness;recompute;freelunch:rate=4",
               "precision": "fp32", "cells": memory_cells,
               "head": ["images/s; tokens/s in MiB resident", "PyTorch", "`checkpoint`", "`liveness`", "`recompute`",
                        "`freelunch:rate=4`", "to `checkpoint`, in no more memory"]},
}


def machine(rows, threads):
    """Where and with what it was measured."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "a CPU")
    torch = next((row["torch"] for row in rows if row.get("torch")), "none")
    return "On %d threads of: %s; PyTorch %s." % (threads, model, torch)


def begin_of(table):
    """The comment behind which the table goes."""
    return "<!-- peer_host.py%s writes this -->" % ("" if table == "speed" else " --table " + table)


def write(path, begin, text):
    """Replaces what is between the two comments in the file."""
    with open(path, encoding="utf-8") as file:
        whole = file.read()
    between = re.compile(re.escape(begin) + ".*?" + re.escape(END), re.DOTALL)
    if not between.search(whole):
        sys.exit("peer_host: %s has no lines '%s' and '%s', between which the table goes" % (path, begin, END))
    with open(path, "w", encoding="utf-8") as file:
        file.write(between.sub(lambda _: "%s\n%s\n%s" % (begin, text, END), whole))


def main():
    for number in (signal.SIGINT, signal.SIGTERM):  # closes the child, too, whose group gets no signal
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    p = make_parser(__doc__)
    p.add_argument("--mm", required=True, help="the command mm")
    p.add_argument("--write", metavar="FILE", help="the file that has the table")
    p.add_argument("--nets", help="some of " + ", ".join(case[1] for case in CASES) + "; separated by ; (all)")
    p.add_argument("--table", choices=TABLES, default="speed", help="speed or memory (speed)")
    p.add_argument("--precision", help="fp32, bf16 or both (both; of memory fp32)")
    p.add_argument("--threads", type=int, default=0, help="threads (as many as may be scheduled)")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--iterations", type=int, default=30, help="measured iterations of a round, at most (30)")
    p.add_argument("--seconds", type=float, default=20, help="for these iterations (20)")
    p.add_argument("--json", help="all rows, as an array")
    given = p.parse_args()
    names = given.nets.split(";") if given.nets else [case[1] for case in CASES]
    if unknown := set(names) - {case[1] for case in CASES}:
        p.error("--nets: there is no %s" % ", ".join(sorted(unknown)))
    table = TABLES[given.table]
    precisions = (given.precision or table["precision"]).split(",")
    args = types.SimpleNamespace(**vars(given), device="cpu", modes=table["modes"], run=None,
                                 policies=table["policies"], cap=0, limit=1800, image_size=224, end=0)
    args.threads = args.threads or usable_threads()
    lines, everything = [], []
    for name, net, batch in (case for case in CASES if case[1] in names):
        for args.precision in precisions:
            rounds = []
            for rows in rounds_of(args, net, batch):
                if not rounds or rounds[-1] is not rows:
                    rounds.append(rows)
            by = {row["policy"]: row for row in medians(rounds)}
            ordered = [by["pytorch " + mode] for mode in args.modes] + [row for p, row in by.items() if "pytorch" not in p]
            everything += ordered
            lines.append("| %s |" % " | ".join(["%s, %s" % (name, args.precision), *table["cells"](ordered)]))
            print(lines[-1], file=sys.stderr, flush=True)
            if args.json:
                save(args.json, everything)
    head = ["| %s |" % " | ".join(table["head"]), "|---" * len(table["head"]) + "|"]
    text = "\n".join([machine(everything, args.threads), "", *head, *lines])
    print(text)
    if args.write:
        write(args.write, begin_of(given.table), text)
    bad = [row for row in everything if row["status"] != "ok"]
    sys.exit("peer_host: %s, %s: %s" % tuple(bad[0][key] for key in ("net", "policy", "status")) if bad else 0)


if __name__ == "__main__":
    main()
