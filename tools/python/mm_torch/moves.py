# SPDX-License-Identifier: MIT
"""Which saved values of compiled regions leave the device: a choice of cuts.py as a graph for the library's planner.

    plan = moves.plan([(region, 2), (other, 1)], budget, host, "swap-async", machine, device)
    plan.choice, plan.moved, plan.ns

Regions are those that run in one iteration, each as often as it says. The graph has their forward passes one after the
other and their backward passes in the opposite order, with the steps that write or read a saved value; the time of all
others is that of the next such step. What runs again is no map of the graph: its bytes are left free in the budget.

The plans of a family of choices that does not depend on the budget are compared, so a larger budget is not slower, as
far as the policy's own plans are not (policies/README.md)."""

import dataclasses
from typing import Any, Dict, FrozenSet, Optional, Sequence, Tuple

import torch

from . import cuts, leaving, operators, planner

TRIED_MOST = 6  # choices that are planned with moves
_CODED = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}  # types that codecs take


@dataclasses.dataclass
class Plan:
    """choice: of the regions' problems together. moved: its saved values that leave the device. ns: of what runs again
    and of waiting for copies. reserve: bytes of the budget for what runs again, and for what cannot leave; a stash for
    all that can has the rest. first: number of each region's first value. need_bytes: the least budget found that such
    choices fit; `fits`: whether this one does."""
    choice: cuts.Choice
    moved: FrozenSet[int]
    ns: int
    reserve: int
    first: Dict[Any, int]
    need_bytes: int
    fits: bool = True


def union(parts: Sequence[Tuple[Any, int]]) -> Tuple[cuts.Problem, Dict[Any, int]]:
    """The problem of several regions, and the number of each one's first value."""
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0].problem, {parts[0][0]: 0}
    together, first = cuts.Problem(), {}
    for region, count in parts:
        first[region] = together.add(region.problem, count)
    return together, first


def plan(parts: Sequence[Tuple[Any, int]], budget: int, host: int, policy: Optional[str], machine: Any,
         device: torch.device, disk: Tuple[int, int] = (0, 0)) -> Plan:
    """The fastest plan within `budget` bytes of the device and `host` bytes of host memory; if none fits, the one that
    needs least. policy: that moves values; None: nothing moves. disk: as planner.require."""
    problem, first = union(parts)
    least, best = problem.least(), problem.fit(budget)
    need = least.peak_bytes
    found = Plan(best or least, frozenset(), (best or least).ns, 0, first, need, best is not None)
    if policy is None or host <= 0 or best is not None and not best.ns:
        return found
    rates = planner.Rates(out_bytes_per_s=machine.link_bytes_per_s, in_bytes_per_s=machine.link_bytes_per_s,
                          codecs=planner.codecs_of(machine.root, False))
    for choice in _tried(problem, budget):
        if found.fits and choice.ns >= found.ns:
            continue  # slower even if copies take no time
        graph, times, values = graph_of(parts, first, choice, device)
        staying = sum(graph.bytes_of(t["name"]) for t in graph.tensors if t["kind"] == "saved")
        reserve = choice.peak_bytes - choice.bytes
        needs = planner.require(graph, policy, max(budget - reserve, 1), host, times, rates, recompute=False,
                                device="cuda" if device.type == "cuda" else "host", disk=disk)
        need = min(need, reserve + needs["least_bytes"])
        ns = choice.ns + max(0, (needs["iteration_ns"] or 0) - sum(times.values()))
        if needs["fits"] and (not found.fits or ns < found.ns):
            moved = frozenset(values[m["tensor"]] for m in needs["graphs"][0]["stashed"] if m["actions"] != ["keep"])
            found = Plan(choice, moved, ns, reserve + staying if moved else 0, first, 0)
    found.need_bytes = need
    return found


def _tried(problem, budget):
    """Choices whose saved values might fit by leaving: of all those that run the same time again the one with the least
    bytes; evenly spaced ones of these."""
    by_ns: Dict[int, cuts.Choice] = {}
    for choice in problem.family():
        if choice.peak_bytes - choice.bytes < budget:
            other = by_ns.get(choice.ns)
            if other is None or choice.bytes < other.bytes:
                by_ns[choice.ns] = choice
    choices = [by_ns[ns] for ns in sorted(by_ns)]
    step = max(1, -(-len(choices) // TRIED_MOST))
    return choices[::step]


class _Builder:
    """A graph in the making, and the times of its steps."""

    def __init__(self):
        self.graph, self.times, self.waiting = planner.Graph("compiled regions"), {}, 0
        self.values: Dict[str, int] = {}
        self.n = 0

    def step(self, phase, reads, writes, ns):
        self.waiting += ns
        if not reads and not writes:
            return
        layer = self.graph.layer(f"{self.n} {phase}")
        self.n += 1
        self.graph.step(layer, phase, sorted(set(reads) - set(writes)), writes)
        self.times[layer, phase] = self.waiting
        self.waiting = 0


def graph_of(parts: Sequence[Tuple[Any, int]], first: Dict[Any, int], choice: cuts.Choice,
             device: torch.device) -> Tuple[planner.Graph, Dict, Dict[str, int]]:
    """The graph of a choice, times of its steps, and the value that each of its tensors is."""
    build, calls = _Builder(), []
    for region, count in parts:
        calls += [(region, f"{len(calls) + i} ", first[region]) for i in range(count)]
    for region, prefix, base in calls:
        _forward(build, region, prefix, base, choice, device)
    for region, prefix, base in reversed(calls):
        _backward(build, region, prefix, base, choice)
    build.step("backward", [next(iter(build.values))] if build.waiting and build.values else [], [], 0)
    return build.graph, build.times, build.values


def _forward(build, region, prefix, base, choice, device):
    for node in region.order:
        if node in region.backward or not (region.info.is_required_fw(node) or _saved(region, node, base, choice)):
            continue
        writes = []
        if _saved(region, node, base, choice):
            kind = "feature map" if leaving.can_leave(node, device) else "saved"
            value = node.meta.get("val")
            size = max(operators.bytes_of(value) if isinstance(value, torch.Tensor) else 8, 1)
            dtype = _CODED.get(value.dtype, "u8") if kind == "feature map" else "u8"
            writes = [build.graph.tensor(prefix + node.name, kind, size if dtype == "u8" else value.numel(), dtype)]
            build.values[writes[0]] = base + region.number[node]
        reads = {prefix + n.name for n in _shown(region, node.all_input_nodes) if _saved(region, n, base, choice)}
        build.step("forward", reads, writes, region.time_ns(node))


def _backward(build, region, prefix, base, choice):
    done = set()
    for node in region.order:
        if node not in region.backward:
            continue
        reads, stack, ns = set(), list(node.all_input_nodes), region.time_ns(node)
        while stack:
            n = stack.pop()
            if _saved(region, n, base, choice):
                reads.add(prefix + n.name)
            elif n in region.number and n not in done:
                again = region.problem.again_ns[region.number[n]]
                if again:  # what it makes stays, so its inputs are not read again
                    done.add(n)
                    ns += again
                stack += n.all_input_nodes
        build.step("backward", reads, [], ns)


def _saved(region, node, base, choice):
    return node in region.number and base + region.number[node] in choice.saved


def _shown(region, nodes):
    """Nodes, and what they are views of."""
    found, stack = set(), list(nodes)
    while stack:
        n = stack.pop()
        if n not in found:
            found.add(n)
            if n in region.number and region.problem.bytes[region.number[n]] is None:
                stack += n.all_input_nodes
    return found
