# SPDX-License-Identifier: MIT
"""A certified bound of the time of any plan of a small graph, by a mixed-integer program: is a gap the bound's fault?

    tools/instances/milp --net gpt,layers=2 --batch 8 --facts h200-estimated.json --budget 12MiB --seconds 300

Steps run in the graph's order. Before step s is a gap, in which the computation waits, or runs forward steps again. A
map is there at the start of a step (r), is computed again in a gap (c, for a layer), or fetched in it (f). Copies over
the link take their time in steps (x) and gaps (g); a map must be there while it is copied out, and be out as a whole
before it is back. What is fetched in part takes that part of its bytes.

It is a bound, since it leaves out what plans cannot: codes that stay lossless are not in it, so it is of plans
without codes; but masks cost nothing, what runs again needs no memory meanwhile, outputs in place of an input take
none, copies have no latency and do not slow steps, small maps are always there. Homes of weights and states are on
the device. So no plan of `auto:resident=all` without codes takes less than the solver's dual bound. Solved by HiGHS
(scipy.optimize.milp)."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

ALIGN = 256
SMALL = 0.002  # of what maps may take: smaller ones are as if they were always there
SIZES = {"f32": 4, "i32": 4, "u8": 1, "f16": 2, "bf16": 2}


def bytes_of(tensor: dict[str, Any]) -> int:
    size = SIZES[tensor["dtype"]]
    for dim in tensor["dims"]:
        size *= dim
    return -(-size // ALIGN) * ALIGN


class Map:
    """A map, or a saved tensor, that may leave the device and come back."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.made = -1  # the step that writes it first
        self.uses: list[int] = []  # steps that read values
        self.until = -1  # the last step for which it may have to be there, also for what runs again

    def lives(self, step: int) -> bool:
        """Whether it may have to be there at the start of a step."""
        return self.made < step <= self.until


class Graph:
    """What the program needs of a graph file and its facts."""

    def __init__(self, graph: dict[str, Any], facts: dict[str, Any], budget: int) -> None:
        tensors = {t["name"]: t for t in graph["tensors"]}
        same = {}  # outputs that equal an input: that one
        for step in graph["steps"]:
            for pair in step.get("pairs", []):
                if pair["allow"] == "alias":
                    same[pair["output"]] = same.get(pair["input"], pair["input"])
        self.base = sum(bytes_of(t) for t in tensors.values() if t["ownership"] == "persistent")
        least = (budget - self.base) * SMALL
        self.maps = {n: Map(bytes_of(t)) for n, t in tensors.items()
                     if t["ownership"] == "managed" and n not in same and bytes_of(t) > least}
        self.ns = [min(v["ns"] for v in step["variants"]) for step in facts["steps"]]
        link = facts["link"]
        self.out_rate, self.in_rate = link["out_bytes_per_s"] / 1e9, link["in_bytes_per_s"] / 1e9  # bytes a ns
        self.fixed = [0] * len(graph["steps"])  # bytes of outputs
        self.again: dict[int, tuple[list[str], list[str]]] = {}  # forward steps that may run again: reads, writes
        for s, step in enumerate(graph["steps"]):
            reads, writes = [], []
            over = {pair["output"] for pair in step.get("pairs", [])}
            for use in step["uses"]:
                name = same.get(use["tensor"], use["tensor"])
                if name not in self.maps or use["tensor"] in same and use["access"] == "write":
                    continue
                if use["access"] == "write":
                    writes.append(name)
                    if self.maps[name].made < 0:
                        self.maps[name].made = s
                        self.fixed[s] += 0 if name in over else self.maps[name].size
                elif use.get("form", "value") == "value":
                    reads.append(name)
                    self.maps[name].uses.append(s)
            if step["phase"] == "forward" and graph["layers"][step["layer"]]["repeatable"] and writes:
                self.again[s] = reads, [w for w in writes if w in self.maps]
        for m in self.maps.values():
            m.until = m.uses[-1] if m.uses else -1
        for s in sorted(self.again, reverse=True):  # what its outputs may be made from again
            for m in self.again[s][0]:
                self.maps[m].until = max([self.maps[m].until] + [self.maps[w].until for w in self.again[s][1]])


class Program:
    """The mixed-integer program: columns with costs, rows of terms."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.most: list[float] = []
        self.whole: list[int] = []
        self.terms: list[tuple[int, int, float]] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def column(self, whole: bool = False, cost: float = 0.0, most: float = 1.0) -> int:
        self.cost.append(cost)
        self.most.append(most)
        self.whole.append(int(whole))
        return len(self.cost) - 1

    def row(self, terms: list[tuple[int, float]], low: float, high: float) -> None:
        for column, factor in terms:
            self.terms.append((len(self.low), column, factor))
        self.low.append(low)
        self.high.append(high)

    def solve(self, seconds: float) -> Any:
        import numpy
        from scipy import optimize, sparse
        rows, columns, factors = zip(*self.terms)
        matrix = sparse.csr_matrix((factors, (rows, columns)), shape=(len(self.low), len(self.cost)))
        return optimize.milp(
            numpy.array(self.cost), integrality=numpy.array(self.whole), bounds=optimize.Bounds(0, numpy.array(self.most)),
            constraints=optimize.LinearConstraint(matrix, numpy.array(self.low), numpy.array(self.high)),
            options={"time_limit": seconds, "mip_rel_gap": 0.005})


def program_of(g: Graph, budget: int) -> Program:
    """Times are in units of the iteration without waiting, bytes in units of the budget for maps."""
    p, inf, n = Program(), float("inf"), len(g.ns)
    unit, room = float(sum(g.ns)), float(budget - g.base)
    links = g.out_rate > 0 and g.in_rate > 0
    gap = [p.column(cost=1.0, most=inf) for _ in range(n)]
    names = [m for m in g.maps if g.maps[m].until > g.maps[m].made >= 0]
    r: dict[tuple[str, int], int] = {}
    f: dict[tuple[str, int], int] = {}
    q: dict[tuple[str, int], int] = {}
    copy: dict[tuple[str, str, int], int] = {}  # (out or in, g or x of the step, map, step)
    last_use = max(g.maps[m].until for m in names)
    c = {(s, t): p.column(whole=True) for s in g.again for t in range(s + 1, last_use + 1)
         if any(g.maps[w].lives(t) for w in g.again[s][1])}
    makers: dict[str, int] = {w: s for s, (_, writes) in g.again.items() for w in writes if g.maps[w].made == s}
    for m in names:
        for s in range(g.maps[m].made + 1, g.maps[m].until + 1):
            r[m, s] = p.column(whole=True)
            if s in g.maps[m].uses:
                p.row([(r[m, s], 1.0)], 1.0, 1.0)
            if links and s > g.maps[m].made + 1:
                f[m, s] = p.column(whole=True)
            if links:
                q[m, s] = p.column()
                for way in ("out", "in"):
                    copy[way, "g" + m, s], copy[way, "x" + m, s] = p.column(), p.column()

    def there(m: str, s: int) -> list[tuple[int, float]]:
        """Columns of which one is 1 if the map is available in the gap before step s, besides its producer there."""
        found = [(col, 1.0) for col in (r.get((m, s - 1)), f.get((m, s))) if col is not None]
        if m in makers and (makers[m], s) in c:
            found.append((c[makers[m], s], 1.0))
        return found

    def minus(terms: list[tuple[int, float]]) -> list[tuple[int, float]]:
        return [(col, -factor) for col, factor in terms]

    for m in names:
        first, last = g.maps[m].made + 1, g.maps[m].until
        for s in range(first, last + 1):
            made = 1.0 if s == first else 0.0
            p.row([(r[m, s], 1.0)] + minus(there(m, s)), -inf, made)
            if not links:
                continue
            p.row([(copy["out", "g" + m, s], 1.0)] + minus(there(m, s)), -inf, made)
            p.row([(copy["out", "x" + m, s], 1.0), (r[m, s], -1.0)], -inf, 0.0)
            before = [(q[m, s - 1], 1.0), (copy["in", "x" + m, s - 1], 1.0)] if s > first else []
            fetched = before + [(copy["in", "g" + m, s], 1.0)]
            p.row([(q[m, s], 1.0)] + minus(fetched) + ([(f[m, s], 1.0)] if (m, s) in f else []), 0.0, 0.0)
            out = [(copy["out", "x" + m, t], 1.0) for t in range(first, s)] + \
                  [(copy["out", "g" + m, t], 1.0) for t in range(first, s + 1)]
            if (m, s) in f:
                p.row([(f[m, s], 1.0)] + minus(out), -inf, 0.0)
    for (s, t), col in c.items():
        for m in g.again[s][0]:
            if m in g.maps and g.maps[m].made >= 0:
                p.row([(col, 1.0)] + minus(there(m, t)), -inf, 1.0 if t == g.maps[m].made + 1 else 0.0)
    for s in range(n):
        held = [(r[m, s], g.maps[m].size / room) for m in names if (m, s) in r] + \
               [(q[m, s], g.maps[m].size / room) for m in names if (m, s) in q]
        if held:
            p.row(held, -inf, 1.0 - g.fixed[s] / room)
        p.row([(gap[s], 1.0)] + [(col, -g.ns[a] / unit) for (a, t), col in c.items() if t == s], 0.0, inf)
        for way, rate in (("out", g.out_rate), ("in", g.in_rate)):
            for part, length in (("g", None), ("x", g.ns[s] / unit)):
                moved = [(copy[way, part + m, s], g.maps[m].size / rate / unit) for m in names if (way, part + m, s) in copy]
                if moved:
                    p.row(moved + ([(gap[s], -1.0)] if length is None else []), -inf, length or 0.0)
    return p


def planned(mm: str, arguments: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Plans by mm; writes the graph and its facts into the folder. Returns the figures."""
    paths = [os.path.join(folder, name) for name in ("row.json", "graph.json", "facts.json")]
    command = [mm, "plan", "--net", arguments.net, "--batch", str(arguments.batch), "--facts", arguments.facts, "--budget",
               arguments.budget, "--policy", "auto:resident=all", "--threads", "1", "--no-advice", "--json", paths[0],
               "--save-graph", paths[1], "--save-facts", paths[2]]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1) or not os.path.exists(paths[0]):
        sys.exit(f"milp: {(run.stderr.strip() or 'mm plan failed').splitlines()[-1]}")
    with open(paths[0], encoding="utf-8") as file:
        return json.load(file)[0]


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tools/instances/milp", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", required=True, help="a network, as of mm plan")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--facts", required=True, help="a machine file, or a GPU's name")
    parser.add_argument("--budget", required=True, help="as of mm plan")
    parser.add_argument("--seconds", type=float, default=120.0, help="of the solver (120)")
    parser.add_argument("--mm", default="bazel-bin/tools/mm")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        row = planned(arguments.mm, arguments, folder)
        files = [json.load(open(os.path.join(folder, name), encoding="utf-8")) for name in ("graph.json", "facts.json")]
    g = Graph(files[0]["graphs"][0], files[1], row.get("budget_bytes", 0))
    if row.get("budget_bytes", 0) <= g.base:
        sys.exit(f"milp: {arguments.net}: the budget is below the persistent tensors")
    found = program_of(g, row["budget_bytes"]).solve(arguments.seconds)
    unit = sum(g.ns)
    bound = (1 + max(found.mip_dual_bound or 0.0, 0.0)) * unit
    best = (1 + found.fun) * unit if found.fun is not None else None
    print(json.dumps({"net": arguments.net, "batch": arguments.batch, "budget_bytes": row["budget_bytes"], "steps": len(g.ns),
                      "codes": "pools" in row,
                      "least_bytes": row["minimum_bytes"], "status": row["status"],
                      "auto_us": round(1e6 * (row["iteration_seconds_predicted"] or 0), 1),
                      "bound_us": round(1e6 * row.get("bound_seconds", 0), 1), "milp_bound_us": round(bound / 1e3, 1),
                      "milp_best_us": round(best / 1e3, 1) if best else None, "solver": found.message}))


if __name__ == "__main__":
    main(sys.argv[1:])
