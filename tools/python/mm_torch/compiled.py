# SPDX-License-Identifier: MIT
"""A compiled net inside a byte budget: torch.compile(net, backend=mm_torch.backend("6GiB"))

    joint graph of a region ──▶ partition ──▶ cuts ──▶ moves ──▶ torch's partitioner ──▶ inner compiler
                                values and    what to  what to   which makes the two
                                their prices  save     move      passes

A net with graph breaks has several regions, and torch compiles them one after the other. A region gets what those that
ran before it in the iteration leave of the budget. At the end of an iteration all its regions are known, and how often
each ran: then the budget is divided by one problem that has them all, and regions whose part of it changes are compiled
once more, at their next call."""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch

from . import breaks, leaving, library, machine as machines, moves, partition, planner, session

_INNER = ("inductor", "aot_eager")
_numbers = itertools.count(1)


class backend:
    """A backend for torch.compile that keeps what a net saves for its backward pass inside a byte budget.

        net = torch.compile(net, backend=mm.backend("6GiB"))

    budget: bytes for what all compiled regions of a net save in an iteration, and compute again at a time: a number, or
    text such as "6GiB". Parameters, buffers and the batch do not count. One backend is for one net: its regions share
    the budget. What does not fit is computed again in the backward pass, or moved to host memory, whatever takes less
    time by the machine's rates; what draws random numbers or changes something is never computed again.

    inner: "inductor", or "aot_eager", which compiles nothing. policy: how values move, as for mm.budget, also in
    lossless codes ("rules:*=compress-swap(zvc)"); None: none does. host, device, log, disk: as for mm.budget. machine:
    whose rates count: a GPU's name, a machine file, "host", or None: the current device. options: settings of
    torch._inductor.config.

    ValueError: an impossible budget, policy, device or machine. Calls of the net raise mm.Infeasible, with `minimum`,
    if the budget is too small for the regions that ran together. Inside an mm.budget, that one's stash takes what
    moves.
    Threads: torch compiles in one thread at a time; calls of the net belong to the thread that trains."""

    def __init__(self, budget: Union[int, str], policy: Optional[str] = "swap-async", inner: str = "inductor",
                 host: Union[int, str, None] = None, device: Union[torch.device, str, None] = None,
                 machine: Optional[str] = None, log: Optional[Callable[[str], None]] = None,
                 options: Optional[Dict[str, Any]] = None, disk: Optional[tuple] = None) -> None:
        if inner not in _INNER:
            raise ValueError(f"inner compiler {inner!r} is not known: use {' or '.join(map(repr, _INNER))}")
        self.device, _ = session._device(device)
        if machine is None and self.device.type == "cuda":
            machine = torch.cuda.get_device_name(self.device)
        self.machine = machines.named(machine)
        self.inner, self.options, self.policy, self.log = inner, options, policy, log
        self.host_given, self.disk = host, disk
        self.session = self._stash(budget)  # also checks the arguments
        _check_lossless(policy)
        self.bytes = self.session.bytes
        given = session.size(host) if host is not None else None
        self.host = given if given is not None else session._pinned(self.device, self.bytes,
                                                                    session._memory(self.device)[2])
        self.regions: List[_Region] = []
        self.number = next(_numbers)
        leaving.owners[self.number] = self
        self.left: List[str] = []  # why torch did not compile parts of the net
        breaks.watch()
        self._reserve = 0  # bytes of the budget that the session's stash does not have
        self._ran: Dict[_Region, int] = {}  # calls in this iteration
        self._divided: set = set()  # contents of _ran that a division was made for
        self._ended = False  # a backward pass ran since the last call of a region
        self._open: weakref.WeakSet = weakref.WeakSet()  # calls whose backward pass may come
        self._refusal = None
        self.__name__ = "mm"

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **_) -> Callable:
        """Called by torch.compile for each region."""
        region = _Region(self, gm, example_inputs)
        region.compile()
        if region.part is not None:
            self.regions.append(region)
        return region

    def left_to_torch(self, reasons: Sequence[str]) -> None:
        """Called by breaks.py. Says the first reason, once."""
        new = [reason for reason in reasons if reason not in self.left]
        if new and not self.left:
            session._sayer(self.log)(f"torch.compile leaves a part of the net to plain torch ({new[0].rstrip('.')}): what that "
                                     "part saves is not in mm.backend's budget; for all to be in one, put the loop in an "
                                     "mm.budget, too")
        self.left += new

    @property
    def saved_bytes(self) -> int:
        """What the regions that ran in this iteration, or in the one that has ended, save together, as planned; moved
        values count, too."""
        return sum(region.choice.bytes * count for region, count in self._ran.items())

    def report(self) -> str:
        """A text: what each region saves, moves, and computes again."""
        lines = [f"budget {session.text_of(self.bytes)}, rates of {self.machine.name}: "
                 f"{len(self.regions)} compiled region{'s' if len(self.regions) != 1 else ''} with a backward pass"]
        return "\n".join(lines + [region.line(i) for i, region in enumerate(self.regions)] +
                         [f"  left to plain torch: {reason}" for reason in self.left])

    def _stash(self, budget):
        """A session whose `with` nobody enters: only the operators of leaving.py put tensors into its stash."""
        made = session.budget(budget, self.policy or "liveness", self.host_given, self.device, self.log, disk=self.disk)
        made._core.coverage = None  # it is of what autograd saves
        return made

    def plan(self, parts: Sequence[Tuple[partition.Region, int]], budget: int) -> moves.Plan:
        """Plans regions and how often each runs, within a budget in bytes."""
        stored = session.disk_of(self.disk)[1:] if self.disk is not None else (0, 0)
        return moves.plan(parts, budget, self.host, self.policy, self.machine, self.device, stored)

    def rest(self) -> int:
        """What the regions that ran in this iteration leave of the budget. If one moves values, it takes all."""
        if any(region.moved for region in self._ran):
            return 0
        return max(0, self.bytes - self.saved_bytes)

    def begin(self, region: _Region) -> None:
        """Counts a call of a region. It begins an iteration if a backward pass ran since the last call, and no call
        waits for one, as that of a GAN's generator does while the discriminator is trained."""
        if self._ended and not self._open:
            self._divide()
            self._ran = {}
        self._ended = False
        self._ran[region] = self._ran.get(region, 0) + 1
        if self._refusal is not None:
            raise library.Infeasible(*self._refusal)

    def refuse(self, need: int) -> None:
        """Lets the next call of a region raise Infeasible: together they need so many bytes at least."""
        self._refusal = (f"mm.backend: a budget of {self.bytes} bytes: compiled regions that run together need {need} bytes "
                         "at least for what they save, or compute again at a time", need)

    def _divide(self):
        """Divides the budget among the regions of the iteration that has ended."""
        key = frozenset((id(region), count) for region, count in self._ran.items())
        if key in self._divided or not self._ran:
            return
        self._divided.add(key)
        if sum(self._ran.values()) == 1:
            need = next(iter(self._ran)).need
            if need > self.bytes:
                self.refuse(need)
            return
        parts = [(region.part, count) for region, count in self._ran.items()]
        plan = self.plan(parts, self.bytes)
        if not plan.fits:
            self.refuse(plan.need_bytes)
            return
        now = sum(region.ns * count for region, count in self._ran.items())
        if plan.ns >= now and self.saved_bytes <= self.bytes and not plan.moved:
            return
        for region in self._ran:
            region.share(plan)
        if plan.moved:
            self.reserve(plan.reserve)

    def reserve(self, reserve: int) -> None:
        """Gives the stash all of the budget but so many bytes."""
        if reserve > self._reserve:
            self._reserve = reserve
            self.session = self._stash(max(self.bytes - reserve, 1))
            self.session._core.refusals.beside = reserve

    def follow(self, node: Any) -> None:
        """Notes when a region's backward pass begins, or is not to come any more. node: of autograd, of its results."""
        call = _Call()
        node.metadata["mm_torch"] = call  # lives as long as the node
        self._open.add(call)
        open_calls, waiting = self._open, weakref.ref(call)

        def begins(*_):
            self._ended = True
            open_calls.discard(waiting())
        node.register_prehook(begins)


def _check_lossless(policy):
    """Refuses a policy with lossy codes: what a compiled region saves also holds statistics and seeds."""
    graph = planner.Graph("a map")
    graph.tensor("h", "feature map", 1 << 20, "f32")
    for layer, phase in (("made", "forward"), ("read", "backward")):
        graph.layer(layer)
        graph.step(layer, phase, ["h"] if phase == "backward" else [], ["h"] if phase == "forward" else [])
    if policy is not None and planner.require(graph, policy, recompute=False)["lossy"]:
        raise ValueError(f"mm.backend: policy {policy!r} is lossy, and values of compiled regions are moved exactly: take a "
                         "lossless code, such as \"rules:*=compress-swap(zvc)\"")


class _Call:
    """A call of a region."""


class _Region:
    """A compiled region: the callable that torch.compile gets. part: partition.Region; None if it has no backward pass.
    choice: what it saves. moved: names of its values that go through the stash. ns: what the plan costs a call. need:
    the least budget for it alone."""

    def __init__(self, owner, gm, example_inputs):
        self.owner, self.gm, self.inputs = owner, gm, example_inputs
        self.context = torch._guards.TracingContext.try_get()
        self.part = self.choice = self.wanted = self.run = None
        self.moved, self.ns, self.need, self.stale = frozenset(), 0, 0, False

    def __call__(self, *args):
        owner = self.owner
        if self.part is None or not torch.is_grad_enabled():
            return self.run(*args)
        owner.begin(self)
        if self.stale:
            self.compile_again()
        results = self.run(*args)
        for result in results if isinstance(results, (tuple, list)) else (results,):
            if isinstance(result, torch.Tensor) and result.grad_fn is not None:
                owner.follow(result.grad_fn)
                break
        return results

    # ------------------------------------------------------------ compiling

    def compile(self):
        kept, names, owner = _copy(self.gm), set(), self.owner
        compiled = owner.inner == "inductor"
        with partition.chosen(lambda graph, info: self._choose(graph, info, names)), \
                leaving.passing(names, owner.number, compiled), \
                torch._functorch.config.patch(enable_autograd_cache=False):
            if compiled:
                from torch._inductor.compile_fx import compile_fx
                self.run = compile_fx(self.gm, self.inputs, config_patches=owner.options)
            else:
                from torch._dynamo.backends.debugging import aot_eager
                self.run = aot_eager(self.gm, self.inputs)
        self.gm = kept

    def compile_again(self):
        """Compiles once more, for another part of the budget. If that fails, the region stays as it is."""
        self.stale = False
        before = dict(vars(self))
        try:
            with torch._guards.tracing(self.context), torch._dynamo.utils.preserve_rng_state():
                self.compile()
        except Exception as error:  # torch's compilers raise whatever they like
            vars(self).update(before)
            session._sayer(self.owner.log)(
                f"a compiled region keeps its part of the budget, because it could not be compiled again: {error}")

    def _choose(self, graph, info, names):
        """Called by torch's partitioner: which nodes to save. Adds the names of those that move to `names`."""
        owner = self.owner
        part = partition.Region(graph, info, owner.machine, partition.activations_of(graph, info, self.inputs))
        self.part = part
        if self.wanted is not None:
            saved, moves_any = self.wanted
            self.choice = part.problem.finish(saved)
        else:
            plan = owner.plan([(part, 1)], owner.rest())
            self.choice, moves_any, self.ns, self.need = plan.choice, bool(plan.moved), plan.ns, plan.need_bytes
            if moves_any:
                owner.reserve(plan.reserve)
        if moves_any:  # those that stay, too: so the stash knows all, and when each is read
            nodes = {i: node for node, i in part.number.items() if i in self.choice.saved}
            names.update(node.name for node in nodes.values() if leaving.can_leave(node, owner.device))
        self.moved = frozenset(names)
        return part.saved_nodes(self.choice)

    def share(self, plan):
        """Takes its part of a plan for several regions."""
        first = plan.first[self.part]
        saved = frozenset(i - first for i in plan.choice.saved if first <= i < first + len(self.part.problem.names))
        if saved != self.choice.saved or bool(plan.moved) != bool(self.moved):
            self.wanted, self.stale = (saved, bool(plan.moved)), True

    def line(self, index):
        problem, text_of = self.part.problem, session.text_of
        least, most = problem.extremes()
        again = sum(1 for i in self.choice.again if problem.again_ns[i])
        return (f"  {index}: saves {text_of(self.choice.bytes)} (from {text_of(least.bytes)} to {text_of(most.bytes)}), of this "
                f"{len(self.moved)} values through the stash; computes {again} operations again, "
                f"{self.choice.ns / 1e6:.3f} ms")


def _copy(gm):
    """A copy of a region's graph, because compiling changes it. Attributes are shared."""
    copied, graph, nodes = torch.fx.GraphModule(gm, torch.fx.Graph()), torch.fx.Graph(), {}
    graph.output(graph.graph_copy(gm.graph, nodes))
    for old, new in nodes.items():
        source = getattr(old, "_dynamo_source", None)
        if source is not None:
            new._dynamo_source = source
    copied.graph, copied.meta = graph, dict(gm.meta)
    for name, value in vars(gm).items():
        if name.startswith("_param") or name == "compile_subgraph_reason":
            setattr(copied, name, value)
    return copied
