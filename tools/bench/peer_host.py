#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains six networks on this CPU with PyTorch and with mm in alternating rounds; writes the README's tables.

    peer_host.py --mm bazel-bin/tools/mm                        prints the table of speeds
    peer_host.py --mm bazel-bin/tools/mm --write README.md      and writes it between the two comments there
    peer_host.py --mm bazel-bin/tools/mm --table memory         PyTorch's checkpoint beside mm's policies
    peer_host.py --rows speed.json --table short                a table of rows that --json has saved

Speeds: PyTorch runs eagerly in channels-last order and compiled (inductor), in f32 and under bf16 autocast; mm runs
liveness. Short: of them a line a network. Memory, in f32: PyTorch keeps all maps, or runs blocks again (checkpoint); mm
runs policies that take less. All use as many threads, one after the other. A figure is the median of rounds; the spread
is the largest difference between two rounds of one program over its median; memory is the process's resident peak.
With the defaults, all speeds take about an hour on two cores, which must have nothing else to do.
"""
import json
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


def ratio_of(rows):
    """mm's speed, the last row's, over that of the faster of PyTorch's."""
    speeds = [rate_of(row)[0] if row["status"] == "ok" else 0 for row in rows]
    return "%.2f" % (speeds[-1] / max(speeds[:-1])) if max(speeds[:-1]) and speeds[-1] else "-"


def speed_cells(rows):
    """Cells of the table of speeds: PyTorch's rows in the order of its modes, then mm's."""
    cells, rates = [figures(row) for row in rows], [row["rounds"] for row in rows if row["status"] == "ok"]
    spread = max((max(r) - min(r)) / sorted(r)[len(r) // 2] for r in rates)
    mib = ", ".join(mib for _, mib in cells)
    return [*(speed for speed, _ in cells), ratio_of(rows), "%.0f %%" % (100 * spread), mib]


def short_lines(name, groups):
    """A network's line: of each precision mm's speed and its ratio; of each its memory over PyTorch's."""
    cells = ["%s (%s)" % (figures(rows[-1])[0], ratio_of(rows)) for rows in groups.values()]
    for rows in groups.values():
        mib = [row["host_peak_bytes"] if row["status"] == "ok" else 0 for row in rows]
        least = min((x for x in mib[:-1] if x), default=0)
        cells.append("%.2f" % (mib[-1] / least) if mib[-1] and least else "-")
    return [[name, *cells]]


def lines_by_precision(cells):
    return lambda name, groups: [["%s, %s" % (name, precision), *cells(rows)] for precision, rows in groups.items()]


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


SPEED = {"modes": ["channels_last", "compile:1.0"], "policies": "liveness", "precision": "fp32,bf16"}
TABLES = {
    "speed": {**SPEED, "lines": lines_by_precision(speed_cells),
              "head": ["images/s; tokens/s", "PyTorch, eager", "compiled", "`mm`, `liveness`", "to the faster", "spread",
                       "resident MiB"]},
    "short": {**SPEED, "lines": short_lines,
              "head": ["images/s; tokens/s", "f32", "bf16", "memory: f32", "bf16"]},
    "memory": {"modes": ["channels_last", "checkpoint"], "policies": "liveness;recompute;freelunch:rate=4",
               "precision": "fp32", "lines": lines_by_precision(memory_cells),
               "head": ["images/s; tokens/s in MiB resident", "PyTorch", "`checkpoint`", "`liveness`", "`recompute`",
                        "`freelunch:rate=4`", "to `checkpoint`, in no more memory"]},
}


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "a CPU")


def machine(rows):
    """Where and with what it was measured."""
    torch = next((row["torch"] for row in rows if row.get("torch")), "none")
    return "On %d threads of: %s; PyTorch %s." % (rows[0]["threads"], rows[0]["cpu"], torch)


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


def measure(args, net, batch):
    """Rows of a network: PyTorch's in the order of its modes, then mm's."""
    rounds = []
    for rows in rounds_of(args, net, batch):
        if not rounds or rounds[-1] is not rows:
            rounds.append(rows)
    by = {row["policy"]: dict(row, cpu=cpu_model(), threads=args.threads) for row in medians(rounds)}
    return [by["pytorch " + mode] for mode in args.modes] + [row for p, row in by.items() if "pytorch" not in p]


def read_rows(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as e:
        sys.exit("peer_host: %s: %s" % (path, e))


def find(saved, args, net):
    """The same of saved rows, which are in this order."""
    rows = [row for row in saved if (row["net"], row["precision"]) == (net, args.precision)]
    if [row["policy"] for row in rows] != ["pytorch " + mode for mode in args.modes] + args.policies.split(";"):
        sys.exit("peer_host: %s has no rows of %s in %s for --table %s" % (args.rows, net, args.precision, args.table))
    return rows


def main():
    for number in (signal.SIGINT, signal.SIGTERM):  # closes the child, too, whose group gets no signal
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    p = make_parser(__doc__)
    p.add_argument("--mm", help="the command mm")
    p.add_argument("--rows", metavar="FILE", help="rows of an earlier run (--json); nothing is run")
    p.add_argument("--write", metavar="FILE", help="the file that has the table")
    p.add_argument("--nets", help="some of " + ", ".join(case[1] for case in CASES) + "; separated by ; (all)")
    p.add_argument("--table", choices=TABLES, default="speed", help="speed, short or memory (speed)")
    p.add_argument("--precision", help="fp32, bf16 or both (both; of memory fp32)")
    p.add_argument("--threads", type=int, default=0, help="threads (as many as may be scheduled)")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--iterations", type=int, default=30, help="measured iterations of a round, at most (30)")
    p.add_argument("--seconds", type=float, default=20, help="for these iterations (20)")
    p.add_argument("--json", help="all rows, as an array")
    given = p.parse_args()
    if (given.mm is None) == (given.rows is None):
        p.error("one of --mm and --rows is needed")
    names = given.nets.split(";") if given.nets else [case[1] for case in CASES]
    if unknown := set(names) - {case[1] for case in CASES}:
        p.error("--nets: there is no %s" % ", ".join(sorted(unknown)))
    table = TABLES[given.table]
    args = types.SimpleNamespace(**vars(given), device="cpu", modes=table["modes"], run=None,
                                 policies=table["policies"], cap=0, limit=1800, image_size=224, end=0)
    args.threads = args.threads or usable_threads()
    saved = read_rows(given.rows) if given.rows else None
    lines, everything = [], []
    for name, net, batch in (case for case in CASES if case[1] in names):
        groups = {}
        for args.precision in (given.precision or table["precision"]).split(","):
            groups[args.precision] = find(saved, args, net) if saved else measure(args, net, batch)
            everything += groups[args.precision]
            if args.json:
                save(args.json, everything)
        new = ["| %s |" % " | ".join(line) for line in table["lines"](name, groups)]
        print(*new, sep="\n", file=sys.stderr, flush=True)
        lines += new
    head = ["| %s |" % " | ".join(table["head"]), "|---" * len(table["head"]) + "|"]
    text = "\n".join([machine(everything), "", *head, *lines])
    print(text)
    if args.write:
        write(args.write, begin_of(given.table), text)
    bad = [row for row in everything if row["status"] != "ok"]
    sys.exit("peer_host: %s, %s: %s" % tuple(bad[0][key] for key in ("net", "policy", "status")) if bad else 0)


if __name__ == "__main__":
    main()
