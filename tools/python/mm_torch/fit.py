# SPDX-License-Identifier: MIT
"""mm.fit: which modules of a net run again in the backward pass, so that what a step saves fits a budget.

    plan = mm.fit(net, loss, x, y, budget="6GiB")
    print(plan)                         # by module: saved, time, verdict, price, reason
    with plan:                          # wraps the modules, and is an mm.budget for all else that is saved
        for x, y in batches: ...        # the loop, as without it

Two forward passes measure the modules (measure.py). The library plans them as a graph, for several ways to cut the net
into modules. A third pass, forward and backward, runs as planned, and proves that it fits."""

from __future__ import annotations

import contextlib
import fnmatch
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch

from . import allocator, layouts, library, measure, paths, planner, session, wrap
from .measure import Call, Measured
from .picture import table

LEAST_SHARE = 512  # of what a step saves: modules that save less than 1/LEAST_SHARE are no candidates
CUTS_MOST = 6
_BACKWARD = 2  # a backward pass computes two products for each one of the forward pass
_PROOFS = 3  # most steps that prove a plan, each with a better measurement
_BESIDE = ("recompute",)  # tried beside auto, whose least budget depends on the times that were measured
_NO_RATE = 10**10  # bytes a second, which policies ask for even where there is no memory to copy to


class Cut:
    """A way to cut the net: the calls of modules that may run again, as a graph for the planner.

        others/0 ─▶ layers.0/1 ─▶ layers.0/1 output ─▶ layers.1/1 ─▶ …          forward
                                                                               backward: the same, from the end

    A call's layer writes what is saved inside of it, and can run again; the layer after it writes what the call
    returns, and cannot. What a call is given is read by its backward step. What is saved around calls is of
    `others`."""

    def __init__(self, measured: Measured, calls: List[Call]):
        self.measured, self.calls = measured, calls
        self.inside: Dict[Call, int] = {c: inside_bytes(measured, c) for c in calls}
        self.graph = planner.Graph("fit")
        self.times: Dict[Tuple[str, str], int] = {}
        self.declared: Dict[Any, str] = {}
        self._build()

    def _boundary(self, key: Any) -> str:
        name = f"boundary {len(self.declared)}"
        self.declared[key] = self.graph.tensor(name, "feature map", [self.measured.sizes[key]], "u8")
        return name

    def _others(self, first: int, last: int, needed: List[Any]) -> None:
        """A layer for what is saved from `first` to before `last`, and for boundaries that nothing has written yet."""
        g, saves, edges = self.graph, self.measured.saves[first:last], self.edges
        nbytes = sum(n for key, n in saves if key not in edges)
        new = [k for k in dict.fromkeys([key for key, _ in saves if key in edges] + needed) if k not in self.declared]
        read = [self.declared[k] for k in dict.fromkeys(key for key, _ in saves) if k in self.declared]
        if not nbytes and not new and not read:
            return
        name = g.layer(f"others/{len(self.backward)}")
        writes = [self._boundary(k) for k in new]
        read += [self.declared[k] for k in new if any(k == key for key, _ in saves)]
        if nbytes:
            read.append(g.tensor(f"saved {name}", "feature map", [nbytes], "u8"))
            writes.append(read[-1])
        before = [self.last] if self.last else []
        g.step(name, "forward", reads=before, writes=writes)
        self.last = writes[-1] if writes and not self.last else self.last
        self.backward.append((name, read))

    def _call(self, call: Call) -> None:
        g, m = self.graph, self.measured
        keys = {key for key, _ in m.saves[call.first:call.last]}
        given = [self.declared[k] for k in call.inputs]
        made = [k for k in call.outputs if k in self.edges and k not in self.declared]
        name = g.layer(call.name, cost="cheap", repeatable=True)
        saved = g.tensor(f"saved {name}", "feature map", [self.inside[call]], "u8")
        g.step(name, "forward", reads=given, writes=[saved], workspace=sum(m.sizes[k] for k in made if k in keys))
        if made:
            output = g.layer(f"{name} output")
            g.step(output, "forward", reads=[saved] + given, writes=[self._boundary(k) for k in made])
        self.times[name, "forward"], self.times[name, "backward"] = call.ns, _BACKWARD * call.ns
        self.backward.append((name, [saved] + given + [self.declared[k] for k in made if k in keys]))

    def _build(self) -> None:
        saved = {key for key, _ in self.measured.saves}
        self.edges = {k for c in self.calls for k in c.inputs}
        self.edges |= {k for c in self.calls for k in c.outputs if k in saved}
        self.backward: List[Tuple[str, List[str]]] = []
        self.last, at = "", 0
        for call in self.calls:
            self._others(at, call.first, call.inputs)
            self._call(call)
            at = call.last
        self._others(at, len(self.measured.saves), [])
        for name, reads in reversed(self.backward):
            self.graph.step(name, "backward", reads=list(dict.fromkeys(reads)))

        for step in self.graph.steps:  # policies that search want a time of each
            self.times.setdefault((self.graph.layers[step["layer"]]["name"], step["phase"]), 1)

    def plan(self, policy: str, budget: int, pinned: int, rate: int, disk: Tuple[int, int] = (0, 0)) -> dict:
        return planner.require(self.graph, policy, budget, pinned, times=self.times,
                               rates=planner.Rates(out_bytes_per_s=rate, in_bytes_per_s=rate), disk=disk)

    def again_bytes(self, call: Call) -> int:
        """What the checkpoint of a call holds once it has run again."""
        inputs = set(call.inputs)
        return sum(nbytes for key, nbytes in self.measured.saves[call.first:call.last] if key not in inputs)


def inside_bytes(measured: Measured, call: Call) -> int:
    """What is saved inside of a call, beside what it is given and returns."""
    edges = {*call.inputs, *call.outputs}
    return sum(nbytes for key, nbytes in measured.saves[call.first:call.last] if key not in edges)


def cut_at(measured: Measured, most: int, least: int) -> List[Call]:
    """The outermost calls that may run again and save at most so many bytes inside; or, if nothing inside of them may
    be cut, more."""
    chosen: List[Call] = []

    def visit(calls: List[Call]) -> None:
        for call in calls:
            nbytes = inside_bytes(measured, call)
            if nbytes < least:
                continue
            before = len(chosen)
            if call.why or nbytes > most:
                visit(call.inside)
            if not call.why and len(chosen) == before:
                chosen.append(call)
    visit(measured.top)
    return chosen


def cuts_of(measured: Measured) -> List[Cut]:
    """Ways to cut the net, from its largest modules to its smallest."""
    least = max(measured.total // LEAST_SHARE, measure.PIECE)
    cuts: List[List[Call]] = []
    for halvings in range(12):
        chosen = cut_at(measured, measured.total >> halvings, least)
        if chosen and chosen not in cuts:
            cuts.append(chosen)
    return [Cut(measured, chosen) for chosen in cuts[-CUTS_MOST:]]


def cut_by_rules(measured: Measured, rules: Dict[str, str], net: torch.nn.Module) -> Tuple[Cut, str]:
    """The cut at the modules that patterns of paths name, and the library's policy for it. The first pattern that
    matches counts; "*" is for modules of which no other pattern names a part. ValueError: as paths.spec."""
    patterns = {p: set(paths.match(p, net)) for p in rules if p != "*"}
    acts = {p: "keep" if a == "recompute" else a for p, a in rules.items()}
    paths.spec(acts)
    chosen: List[Tuple[Call, str]] = []

    def named(call: Call) -> Optional[str]:
        return next((p for p in rules if p == "*" or call.path in patterns[p]), None)

    def parts(call: Call) -> bool:
        return any(named(c) not in (None, "*") or parts(c) for c in call.inside)

    def visit(calls: List[Call]) -> None:
        for call in calls:
            pattern = named(call)
            if pattern is None or pattern == "*" and (parts(call) or call.why and call.inside):
                visit(call.inside)
            elif inside_bytes(measured, call) >= measure.PIECE:
                chosen.append((call, rules[pattern]))
    visit(measured.top)
    cut = Cut(measured, [call for call, _ in chosen])
    texts = [f"{call.name}={'keep' if call.why and action == 'recompute' else paths.ACTIONS.get(action, action)}"
             for call, action in chosen]
    return cut, "rules:" + ";".join(texts + ["*=keep"])


class Verdict:
    """What becomes of a module. saved: bytes inside; ns: forward time; action: recompute, keep, swap, ...; price: ns
    that a step takes longer; why: the reason, if it must not run again."""
    __slots__ = ("path", "module", "saved", "ns", "action", "price", "why")

    def __init__(self, path: str, module: torch.nn.Module, saved: int, ns: int, action: str, why: str):
        self.path, self.module, self.saved, self.ns, self.action, self.why = path, module, saved, ns, action, why
        self.price = ns if action == "recompute" else 0


def _milliseconds(ns: int) -> str:
    return f"{ns / 1e6:.3g}" if ns else "-"


def verdicts_of(cut: Cut, needs: dict) -> List[Verdict]:
    """By module, in the order of the forward pass: those that the plan is about, and outermost ones that must not run
    again."""
    actions = {m["tensor"]: m["actions"] for m in needs["graphs"][0]["stashed"]}
    found: Dict[str, Verdict] = {}
    chosen = set(map(id, cut.calls))

    def visit(calls: List[Call]) -> None:
        for call in calls:
            if id(call) not in chosen and not call.why:
                visit(call.inside)
                continue
            action = "+".join(actions.get(f"saved {call.name}", ["keep"])) if id(call) in chosen else "keep"
            nbytes = inside_bytes(cut.measured, call)
            before = found.get(call.path)
            if before is None:
                if nbytes >= measure.PIECE:
                    found[call.path] = Verdict(call.path, call.module, nbytes, call.ns, action, call.why)
                if id(call) not in chosen:
                    visit(call.inside)
                continue
            before.saved, before.ns = before.saved + nbytes, before.ns + call.ns
            if action == "recompute" or before.action == "recompute":  # all calls of a module run again, or none
                before.action, before.price = "recompute", before.ns
    visit(cut.measured.top)
    return list(found.values())


class fit(session.budget):
    """Fits a step into a budget: mm.fit(net, loss, x, y, budget="6GiB").

    Runs loss(net(x), y) two times forward, without holding what is saved, and once forward and backward, as planned;
    then everything is as before: gradients, buffers, random states. x: what net is called with; a tuple: its arguments;
    a dict: its arguments by name. budget: bytes of all that autograd saves at any time, with what runs again; a number,
    or "6GiB". policy: the library's (policies/README.md): "auto", "recompute-swap", ...; or {path: action}, such as
    {"layers.*.mlp": "recompute", "*.attn": "keep", "*": "swap-async"}: the first pattern that matches a module counts.
    host: host memory for what is swapped; default on a GPU: as mm.budget; on the CPU none, where it would be the same
    memory, but with a disk as much as the budget, for what is on its way there. disk: as mm.budget. device: default:
    that of the net's weights.

    `with plan:` wraps the modules with verdict recompute by torch.utils.checkpoint, and is an mm.budget for the rest
    (report(), stats, svg()); at the end, also after an exception, the net is as it was. Weights are plain torch's, bit
    for bit. A module is never wrapped if it would not give the same bits, or if running it twice would show: the table
    says why.

    Attributes: verdicts: list of Verdict; minimum: the least budget in bytes; planned_bytes: the most that is saved at
    a time, as planned; price_ns: what running again adds to a step.

    Infeasible: the budget is too small; `minimum` would do. ValueError: as mm.budget; a path that names no module.
    RuntimeError: inside another budget; a net whose forward passes differ, or read what they save. For the thread that
    trains."""

    def __init__(self, net: torch.nn.Module, loss: Callable, x: Any, y: Any, budget: Union[int, str],
                 policy: Union[str, Dict[str, str]] = "auto", host: Union[int, str, None] = None, device: Any = None,
                 log: Optional[Callable[[str], None]] = None, disk: Optional[tuple] = None) -> None:
        self._core, self._wrapped = None, None
        layouts.check_process()
        weights = [p for p in net.parameters() if p.requires_grad]
        if not weights:
            raise ValueError("mm.fit: the net has no weight that requires a gradient")
        if not net.training:
            raise ValueError("mm.fit: the net is in evaluation mode: call net.train() first")
        torch_device, _ = session._device(device if device is not None else weights[0].device)
        # Checks the budget, and what is given, before any pass.
        wanted = session.budget(budget, "liveness", host=host, device=torch_device, modes=library.KEEP_ALWAYS,
                                _cuda=None, disk=disk).bytes
        paths.register(net)
        if host is not None:
            pinned = session.size(host)
        elif torch_device.type == "cuda":
            pinned = session._pinned(torch_device, wanted, session._memory(torch_device)[2])
        else:
            pinned = wanted if disk is not None else 0
        self._disk = disk
        rate = measure.copy_rate(torch_device) if pinned else _NO_RATE
        self.net, self.plan_policy, self.peak_again_bytes = net, policy, 0
        excess, let_go = 0, frozenset()
        for _ in range(_PROOFS):
            self._measured = measure.measure(net, loss, x, y, torch_device, let_go)
            self._choose(wanted, pinned, rate, excess)
            super().__init__(self._rest_bytes(wanted), **self._rest(pinned), device=torch_device, log=log, net=net)
            self.bytes, self.policy, self._core.let_go = wanted, str(policy), let_go
            found = self._prove(loss, x, y, weights)
            learned = let_go | self._core.let_go
            if found <= wanted and learned == let_go:
                return
            excess += max(found - wanted, 0)
            let_go = learned  # the stash takes these tensors from now on: they must be in the plan
        self._refuse(wanted, self.minimum + excess, "")

    # ---- planning

    def _choose(self, budget: int, pinned: int, rate: int, excess: int) -> None:
        """Plans every cut, and takes the plan with the least price that fits. excess: bytes that a step was found to
        take beyond its plan."""
        policy = self.plan_policy
        if isinstance(policy, dict):
            cut, text = cut_by_rules(self._measured, policy, self.net)
            tried = [(cut, text)]
        else:
            cuts = cuts_of(self._measured) or [Cut(self._measured, [])]
            tried = [(cut, text) for cut in cuts for text in (policy, *(_BESIDE if policy == "auto" else ()))]
        stored = session.disk_of(self._disk)[1:] if self._disk is not None else (0, 0)
        plans = [(cut, cut.plan(text, max(budget - excess, 1), pinned, rate, stored)) for cut, text in tried]
        fitting = [(sum(v.price for v in verdicts_of(cut, needs)), i)
                   for i, (cut, needs) in enumerate(plans) if needs["fits"]]
        self.minimum = min(needs["least_bytes"] for _, needs in plans) + excess
        if not fitting:
            _, needs = min(plans, key=lambda plan: plan[1]["least_bytes"])
            self._refuse(budget, self.minimum, needs["graphs"][0]["held_by"].split("/")[0])
        cut, needs = plans[min(fitting)[1]]
        self.cut, self.verdicts = cut, verdicts_of(cut, needs)
        self.planned_bytes = needs["planned_bytes"] + excess
        self.price_ns = sum(v.price for v in self.verdicts)
        self._moves = any(a not in ("keep", "recompute") for m in needs["graphs"][0]["stashed"] for a in m["actions"])

    def _refuse(self, budget: int, minimum: int, held: str) -> None:
        by = f", held by {held}" if held else ""
        raise library.Infeasible(
            f"mm.fit: {type(self.net).__name__} needs at least {minimum} bytes ({session.text_of(minimum)}) for what a "
            f"step saves, under policy {self.plan_policy}{by}; the budget is {budget} bytes "
            f"({session.text_of(budget)})", minimum, producer=held)

    def _rest_bytes(self, budget: int) -> int:
        """The part of the budget for what does not run again. Where nothing is moved, it is all of it: when a module
        runs again, less is saved than at the end of the forward pass, as planned."""
        again = {v.path for v in self.verdicts if v.action == "recompute"} if self._moves else ()
        most = max((self.cut.again_bytes(c) for c in self.cut.calls if c.path in again), default=0)
        return max(budget - most, 1)

    def _rest(self, pinned: int) -> dict:
        """What becomes of all that is saved and does not run again: arguments of mm.budget."""
        policy = self.plan_policy
        if not self._moves:
            return {"policy": "liveness", "host": 0, "modes": library.KEEP_ALWAYS, "_cuda": None}
        if isinstance(policy, dict):
            rules = {p: "keep" if a == "recompute" else a for p, a in policy.items()}
            return {"policy": rules, "host": pinned, "disk": self._disk, "_cuda": None}
        return {"policy": "swap-async", "host": pinned, "disk": self._disk, "_cuda": None}

    def _prove(self, loss: Callable, x: Any, y: Any, weights: List[torch.Tensor]) -> int:
        """Runs a step as planned. Returns the most bytes that it was found to need."""
        try:
            with measure.as_it_was(self.net, self.device), self:
                result = loss(measure.call_of(self.net, x), y)
                torch.autograd.grad(result, weights, allow_unused=True)
                del result
            self.settle()
        except library.Infeasible as error:
            if self._moves or not error.minimum:
                raise
            return error.minimum
        finally:
            allocator.trim_heap()
        return self.peak_bytes

    # ---- running

    @property
    def peak_bytes(self) -> int:
        """The most that was saved at a time, with what ran again."""
        return max(self.stats.peak_bytes, self.peak_again_bytes)

    def _counter(self, verdict: Verdict) -> Callable[[], None]:
        """Called when a module runs again: counts what its checkpoint will hold beside what is saved."""
        nbytes = max(self.cut.again_bytes(c) for c in self.cut.calls if c.path == verdict.path)
        core = self._core

        def begins() -> None:
            self.peak_again_bytes = max(self.peak_again_bytes, core.stats().kept_bytes + nbytes)
        return begins

    def __enter__(self) -> "fit":
        super().__enter__()
        wrapped = contextlib.ExitStack()
        try:
            for v in self.verdicts:
                if v.action == "recompute":
                    wrapped.enter_context(wrap.replaced(v.module, wrap.checkpointed(v.module, self._counter(v))))
        except BaseException as error:
            wrapped.close()
            super().__exit__(type(error), error, error.__traceback__)
            raise
        self._wrapped = wrapped
        return self

    def __exit__(self, *error: Any) -> None:
        wrapped, self._wrapped = self._wrapped, None
        try:
            super().__exit__(*error)
        finally:
            wrapped.close()

    def __str__(self) -> str:
        rows = [("module", "saved", "forward ms", "verdict", "price ms", "reason")]
        rows += [(v.path, session.text_of(v.saved), _milliseconds(v.ns), v.action, _milliseconds(v.price), v.why)
                 for v in self.verdicts]
        again = sum(v.action == "recompute" for v in self.verdicts)
        forward = sum(c.ns for c in self._measured.top) or 1
        lines = [f"{type(self.net).__name__}: a step saves {session.text_of(self._measured.total)}; planned "
                 f"{session.text_of(self.planned_bytes)} in {session.text_of(self.bytes)}, needs "
                 f"{session.text_of(self.minimum)} at least",
                 f"{again} of {len(self.verdicts)} modules run again: {_milliseconds(self.price_ns)} ms a step, "
                 f"{self.price_ns / forward:.0%} of the forward pass" if again else "no module has to run again"]
        if not self.verdicts:
            lines.append("no module's call was seen to save anything: a net that is compiled or scripted as one stays as it is")
        return "\n".join(lines + table(rows, (1, 2, 4)) if self.verdicts else lines)
