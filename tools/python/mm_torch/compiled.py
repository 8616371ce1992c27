# SPDX-License-Identifier: MIT
"""A compiled net inside a byte budget: torch.compile(net, backend=mm_torch.backend("6GiB"))

    joint graph of a region ──▶ partition.Region ──▶ cuts ──▶ torch's partitioner ──▶ inner compiler
                                                      ▲
    regions that run in one iteration share one budget┘     what they save goes through a session (mm.budget)

A net with graph breaks has several regions, and torch compiles them one after the other. A region gets what those that
ran before it in the iteration leave of the budget. At the end of an iteration all its regions are known, and how often
each ran: then the budget is divided by one problem that has them all, and regions whose share changes are compiled once
more at their next call."""

import contextlib
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from . import cuts, library, machine as machines, partition, session

_INNER = ("inductor", "aot_eager")


class backend:
    """A backend for torch.compile that keeps what a net saves for its backward pass inside a byte budget.

        net = torch.compile(net, backend=mm.backend("6GiB"))

    budget: bytes for what all compiled regions of a net save together in an iteration: a number, or text such as
    "6GiB". Parameters, buffers and the batch do not count. One backend is for one net: its regions share the budget.
    What does not fit is computed again in the backward pass, the cheapest first by the machine's rates; what draws random
    numbers or changes something is never computed again. inner: "inductor", or "aot_eager", which compiles nothing.
    policy: what a session (mm.budget) does with what is saved and still does not fit; None: no session. host, device,
    log: as for mm.budget. machine: whose rates count: a GPU's name, a machine file, "host" or None: the current device.
    options: settings of torch._inductor.config.

    ValueError: an impossible budget, policy, device or machine. Calls of the net raise mm.Infeasible, with `minimum`, if
    without a session even the least that its regions can save is too large. Inside an mm.budget, that one takes what is
    saved, and this one decides only what that is. Threads: torch compiles in one thread at a time; calls of the net
    belong to the thread that trains."""

    def __init__(self, budget, policy: Optional[str] = "swap-async", inner: str = "inductor", host=None, device=None,
                 machine: Optional[str] = None, log: Optional[Callable[[str], None]] = None,
                 options: Optional[Dict[str, Any]] = None):
        wanted = session.size(budget)
        if wanted is None or wanted < 0:
            raise ValueError(f"budget {budget!r} is not understood: use \"6GiB\", \"1.5GB\" or a number of bytes")
        if inner not in _INNER:
            raise ValueError(f"inner compiler {inner!r} is not known: use {' or '.join(map(repr, _INNER))}")
        torch_device, _ = session._device(device)
        if machine is None and torch_device.type == "cuda":
            machine = torch.cuda.get_device_name(torch_device)
        self.bytes, self.inner, self.options = wanted, inner, options
        self.machine = machines.named(machine)
        self._say = session._sayer(log)
        self.session = session.budget(max(wanted, 1), policy, host, torch_device, log) if policy is not None else None
        self.regions: List[_Region] = []
        self._ran: Dict[_Region, int] = {}  # calls in this iteration
        self._divided: set = set()  # frozen contents of _ran that a division was made for
        self._ended = False  # a backward pass ran since the last call of a region
        self.__name__ = "mm"

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **_) -> Callable:
        """Called by torch.compile for each region."""
        region = _Region(self, gm, example_inputs)
        region.compile()
        self.regions.append(region)
        return region

    @property
    def saved_bytes(self) -> int:
        """What the regions that have run since the last backward pass ended save together, as planned."""
        return sum(region.bytes * count for region, count in self._ran.items())

    def report(self) -> str:
        """A text: what each region saves, and what its backward pass computes again."""
        lines = [f"budget {session.text_of(self.bytes)}, rates of {self.machine.name}: {len(self.regions)} region(s)"]
        lines += [region.line(i) for i, region in enumerate(self.regions)]
        return "\n".join(lines)

    def _rest(self):
        """What the regions that ran in this iteration leave of the budget."""
        return max(0, self.bytes - self.saved_bytes)

    def _begin(self, region):
        """Counts a call of a region, which begins an iteration if a backward pass ran since the last call."""
        if self._ended:
            self._ended = False
            self._divide()
            self._ran = {}
        self._ran[region] = self._ran.get(region, 0) + 1

    def _note(self, *_):
        self._ended = True

    def _divide(self):
        """Divides the budget among the regions of the iteration that has ended."""
        ran = {region: count for region, count in self._ran.items() if region.problem is not None}
        key = frozenset((id(region), count) for region, count in ran.items())
        if key in self._divided or sum(ran.values()) < 2:
            return
        self._divided.add(key)
        union, first = cuts.Problem(), {}
        for region, count in ran.items():
            first[region] = union.add(region.problem, count)
        choice = union.fit(self.bytes) or union.least()
        now = sum(region.choice.ns * count for region, count in ran.items())
        if self.saved_bytes <= self.bytes and choice.ns >= now:
            return
        for region in ran:
            region.share(choice, first[region])


class _Region:
    """A compiled region: the callable that torch.compile gets. problem: None if it has no backward pass."""

    def __init__(self, owner, gm, example_inputs):
        self.owner, self.gm, self.inputs = owner, gm, example_inputs
        self.context = torch._guards.TracingContext.try_get()
        self.problem = self.choice = self.wanted = self.refusal = None
        self.graphs = 0
        self.stale = self.sized = False
        self.run = None

    @property
    def bytes(self):
        """What one call saves, as planned."""
        return self.choice.bytes if self.choice is not None else 0

    def __call__(self, *args):
        owner = self.owner
        if self.problem is None or not torch.is_grad_enabled():
            return self.run(*args)
        owner._begin(self)
        if self.stale:
            self.again()
        if self.refusal is not None:
            raise library.Infeasible(*self.refusal)
        own = owner.session is not None and session._active is None
        with owner.session if own else contextlib.nullcontext():
            results = self.run(*args)
        for result in results if isinstance(results, (tuple, list)) else (results,):
            if isinstance(result, torch.Tensor) and result.grad_fn is not None:
                result.grad_fn.register_prehook(owner._note)
                break
        return results

    # ------------------------------------------------------------ compiling

    def compile(self):
        kept = _copy(self.gm)
        with partition.chosen(self._choose), torch._functorch.config.patch(enable_autograd_cache=False):
            if self.owner.inner == "inductor":
                from torch._inductor.compile_fx import compile_fx
                self.run = compile_fx(self.gm, self.inputs, config_patches=self.owner.options)
            else:
                from torch._dynamo.backends.debugging import aot_eager
                self.run = aot_eager(self.gm, self.inputs)
        self.gm = kept

    def again(self):
        """Compiles once more, with another share of the budget. If that fails, the region stays as it is."""
        self.stale = False
        before = self.run, self.gm, self.problem, self.choice
        try:
            with torch._guards.tracing(self.context), torch._dynamo.utils.preserve_rng_state():
                self.compile()
        except Exception as error:  # pylint: disable=broad-except
            self.run, self.gm, self.problem, self.choice = before
            self.owner._say(f"a region keeps its share of the budget, because it could not be compiled again: {error}")

    def _choose(self, graph, info):
        """Called by torch's partitioner: which nodes to save."""
        acts = partition.activations_of(graph, info.static_lifetime_input_nodes)
        region = partition.Region(graph, info, self.owner.machine, acts)
        self.problem, owner = region.problem, self.owner
        least = self.problem.least()
        if self.wanted is not None:
            self.choice = self.problem.finish(self.wanted) or least
        else:
            self.choice = self.problem.fit(owner._rest())
        if self.choice is None:
            self.choice = least
            if owner.session is None and least.peak_bytes > owner.bytes:
                self.refusal = (f"mm.backend: a budget of {owner.bytes} bytes: a compiled region needs {least.peak_bytes} "
                                "bytes at least for what it saves, or computes again at a time", least.peak_bytes)
        return region.saved_nodes(self.choice)

    def share(self, choice, first):
        """Takes its part of a choice for several regions; its values have numbers from `first` on there."""
        wanted = frozenset(i - first for i in choice.saved if first <= i < first + len(self.problem.names))
        if wanted != self.choice.saved:
            self.wanted, self.stale = wanted, True

    def line(self, index):
        if self.problem is None:
            return f"  {index}: no backward pass"
        least, most = self.problem.extremes()
        text_of = session.text_of
        return (f"  {index}: saves {text_of(self.bytes)} in {len(self.choice.saved)} (from {text_of(least.bytes)} to "
                f"{text_of(most.bytes)}), computes again {self.choice.ns / 1e6:.3f} ms "
                f"in {sum(1 for i in self.choice.again if self.problem.again_ns[i])} operations")


def _copy(gm):
    """A copy of a region's graph, because compiling changes it. Attributes are shared."""
    copied = torch.fx.GraphModule(gm, torch.fx.Graph())
    graph = torch.fx.Graph()
    nodes: Dict[torch.fx.Node, torch.fx.Node] = {}
    output = graph.graph_copy(gm.graph, nodes)
    graph.output(output)
    for old, new in nodes.items():
        source = getattr(old, "_dynamo_source", None)
        if source is not None:
            new._dynamo_source = source
    copied.graph = graph
    copied.meta = dict(gm.meta)
    for name, value in vars(gm).items():
        if name.startswith("_param") or name == "compile_subgraph_reason":
            setattr(copied, name, value)
    return copied
