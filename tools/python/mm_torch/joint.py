# SPDX-License-Identifier: MIT
"""A training step traced on fake tensors: forward, backward and the optimizer, as a graph for mm's planner.

    step = trace(net, loss, x, y, "AdamW", gpu="H100")
    step.saved_bytes, step.peak_bytes, step.graph(), step.times(machine)

Nothing is computed, no memory of tensors is reserved, and no GPU is needed."""

import collections
import contextlib
import re
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils import _pytree as pytree

from . import fakes, gpu_kernels, operators, planner
from .tracer import Op, Storage, Tracer

PERSISTENT = ("weight", "weight gradient", "optimizer state", "state")


class Step:
    """A traced step. tracer: operators and storages. saved_at: the last operator before the backward pass. batch: the
    size of the batch (None: it has none). gpu: whose kernels it is of (None: the CPU's); kernels: those that differ."""

    def __init__(self, tracer: Tracer, saved_at: int, loss: Optional[int], batch: Optional[int], gpu: Optional[str],
                 used: set):
        self.tracer, self.saved_at, self.batch, self.gpu = tracer, saved_at, batch, gpu
        self.kernels = gpu_kernels.listed(used)
        self.live: List[int] = tracer.live()
        self.peak_bytes: int = max(self.live, default=0)
        self.peak_at: int = self.live.index(self.peak_bytes) if self.live else 0
        self.saved: List[Storage] = [s for s in tracer.there(saved_at) if s.born >= 0 and s.died != saved_at
                                     and s.role not in PERSISTENT and s.index != loss]

    @property
    def ops(self) -> List[Op]:
        return self.tracer.ops

    @property
    def saved_bytes(self) -> int:
        """Bytes that wait for the backward pass when it begins, without the batch: what autograd has saved."""
        return sum(s.bytes for s in self.saved)

    def bytes_of(self, role: str) -> int:
        """Bytes of a role: weight, weight gradient, optimizer state, state, input."""
        return sum(s.bytes for s in self.tracer.storages if s.role == role and s.died != -1)

    def holders(self) -> List[Tuple[str, str, int]]:
        """Who holds the peak: (role, path with * for numbers, bytes), the largest first. Persistent tensors are of path
        ""."""
        sums: Dict[Tuple[str, str], int] = collections.Counter()
        for s in self.tracer.there(self.peak_at):
            update = s.born >= 0 and self.ops[s.born].phase == "update" and s.role not in PERSISTENT
            sums["optimizer's own" if update else s.role, "" if s.role in PERSISTENT else pattern(s.path)] += s.bytes
        op = self.ops[self.peak_at]
        sums["workspace", pattern(op.path)] += op.workspace_bytes
        return sorted(((role, path, n) for (role, path), n in sums.items() if n), key=lambda row: -row[2])

    def graph(self) -> "Built":
        """The step as a graph of mm."""
        return Built(self)

    def time_ns(self, machine) -> int:
        """The sum of all operators' times."""
        return sum(op.work.time_ns(machine) for op in self.ops)


def pattern(path: str) -> str:
    """A module's path with * for numbers: those of blocks that are alike."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", path)


# ---------------------------------------------------------------- tracing

def _call(net, x):
    if isinstance(x, dict):
        return net(**x)
    return net(*x) if isinstance(x, (tuple, list)) else net(x)


def _loss_of(loss, out, y):
    if loss is not None:
        return loss(out, y)
    value = out.loss if hasattr(out, "loss") else out["loss"] if isinstance(out, dict) else out
    if not isinstance(value, torch.Tensor):
        raise ValueError("loss is None, but the net returns no tensor, and nothing with a member .loss")
    return value


def batch_of(tree: Any) -> Optional[int]:
    """The size of the batch: that of the first dimension of the first tensor which has one."""
    return next((t.shape[0] for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor) and t.dim()), None)


def _make_states(optimizer, net):
    """Lets the optimizer make its states, as its first step does."""
    for p in net.parameters():
        if p.requires_grad:
            p.grad = torch.empty_like(p)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _watch_persistent(tracer, net, optimizer):
    weights = {}
    for name, p in net.named_parameters():
        weights[id(p)] = tracer.watch(p, "weight", name), name
    for name, b in net.named_buffers():
        tracer.watch(b, "state", name)
    states = collections.defaultdict(list)
    for p, state in (optimizer.state if optimizer is not None else {}).items():
        index, name = weights.get(id(p), (None, "weight"))
        for key, value in state.items():
            for n, tensor in enumerate(operators.tensors_of(value)):
                states[id(p)].append(tracer.watch(tensor, "optimizer state", f"{name} {key}{n or ''}", index))
    return weights, states


def _run(tracer, net, loss, x, y, optimizer, autocast):
    """One step; returns (the last operator before the backward pass, the loss's storage)."""
    weights, states = _watch_persistent(tracer, net, optimizer)
    for tensor in operators.tensors_of((x, y)):
        tracer.watch(tensor, "input", "batch")
    cast = torch.autocast("cpu", autocast) if autocast is not None else contextlib.nullcontext()
    with tracer:
        with tracer.phase("forward"), cast:
            value = _loss_of(loss, _call(net, x), y)
        saved_at = len(tracer.ops) - 1
        at = tracer.watch(value) if operators.storage_key(value) else None
        with tracer.phase("backward"):
            value.backward()
        for name, p in net.named_parameters():
            if p.grad is not None:
                tracer.watch(p.grad, "weight gradient", f"{name}.grad", weights[id(p)][0])
        with tracer.phase("update"):
            if optimizer is not None:
                optimizer.step()
        for p in net.parameters():
            if p.grad is None:  # torch makes no states for it
                for index in states[id(p)]:
                    tracer.storages[index].died = -1
    return saved_at, at


def trace(net: torch.nn.Module, loss: Optional[Callable], x: Any, y: Any = None, optimizer: Any = None,
          gpu: Optional[str] = "H100", batch: Optional[int] = None, autocast: Any = None) -> Step:
    """Traces a step of loss(net(x), y) on fake tensors; the net, its gradients and the optimizer stay as they are, and
    no random numbers are drawn. loss None: the net returns it, or something with .loss. x: a tensor, a tuple or list of
    arguments, or a dict of them; all may be on the meta device. optimizer: as fakes.Fakes.optimizer takes it. gpu:
    whose kernels save and allocate; None: the CPU's. batch: instead of the size that x has. autocast: a dtype.

    Compiled nets are traced as if they were not. While it runs, other threads must use neither the net nor torch's
    functions. ValueError: the step cannot be traced; the message says why."""
    now = batch_of((x, y))
    used: set = set()
    names = {id(m): name.replace("_orig_mod", "").strip(".") for name, m in net.named_modules()}
    tracer = Tracer(names, lambda work: _workspace(work, used) if gpu else 0, fakes.corrected)
    standing = {**fakes.assumptions(), **(gpu_kernels.stand_ins(tracer, used) if gpu else {})}
    made = fakes.Fakes()
    with torch.compiler.set_stance("force_eager"), FakeTensorMode(allow_non_fake_inputs=True), made.instead(net), \
            fakes.replaced(standing), fakes.silent("torch._subclasses.fake_tensor"):
        own = made.optimizer(optimizer, net, bool(gpu))
        try:
            if own is not None:
                _make_states(own, net)
            x, y = made.batch(x, batch, now), made.batch(y, batch, now)
            saved_at, value = _run(tracer, net, loss, x, y, own, autocast)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise ValueError(f"{type(net).__name__} cannot be planned without running: it asks for a tensor's values, by "
                             f"{error.func}, which fakes do not have") from None
        except (RuntimeError, NotImplementedError) as error:
            raise ValueError(f"{type(net).__name__} cannot be traced on fake tensors: {str(error).splitlines()[0]}") from error
        finally:
            for p in net.parameters():
                p.grad = None
    if gpu and own is not None:
        used.add("optimizer")
    if gpu:
        used.update(_plain_kernels(tracer))
        if "linear" in used:
            tracer.add("state", "cuBLAS workspace", gpu_kernels.cublas_workspace_bytes(gpu))
    tracer.give_sums()
    return Step(tracer, saved_at, value, batch or now, gpu, used)


def _workspace(work, used):
    name, size = gpu_kernels.workspace(work)
    if size:
        used.add(name)
    return size


def _plain_kernels(tracer):
    """Names of kernels that differ without a stand-in."""
    kinds = {op.work.kind for op in tracer.ops}
    return {name for name, kind in (("batch norm", "norm"), ("linear", "linear")) if kind in kinds}


# ---------------------------------------------------------------- the graph

class Built:
    """A step as a graph of mm. graph: planner.Graph. parts: {(layer, phase): its operators}. path: {tensor: its
    module's path}. A layer is what made an autograd node; its backward step is all that the node does. Operators in
    place write a new tensor that may take the old one's place. What only one step uses is its workspace."""

    def __init__(self, step: Step):
        self.step, self.graph = step, planner.Graph("step")
        self.parts: Dict[Tuple[str, str], List[Op]] = {}
        self.path: Dict[str, str] = {}
        self._names: Dict[int, str] = {}  # storage -> its present tensor
        self._taken: collections.Counter = collections.Counter()
        self._of_node: Dict[int, str] = {}
        self._empty: set = set()  # storages that nothing has written yet
        self._last = self._last_uses()
        self._build()

    def times(self, machine) -> Dict[Tuple[str, str], int]:
        """Times of all steps on a machine, in ns by (layer, phase). 0 would be a time that is not known."""
        return {key: max(1, sum(op.work.time_ns(machine) for op in ops)) for key, ops in self.parts.items()}

    def _last_uses(self):
        last = {}
        for at, op in enumerate(self.step.ops):
            for index in (*op.reads, *op.writes, *op.mutates):
                last[index] = at
        return last

    def _unique(self, name):
        name = name[-180:]
        self._taken[name] += 1
        return name if self._taken[name] == 1 else f"{name} {self._taken[name]}"

    def _groups(self):
        """Ranges of operators that are one step: an operator; in the backward pass, all of a node."""
        start, ops = 0, self.step.ops
        for at in range(1, len(ops) + 1):
            if at < len(ops) and ops[at].phase == ops[start].phase == "backward" and ops[at].node is not None \
                    and ops[at].node == ops[start].node and ops[at].given is None and ops[start].given is None:
                continue
            yield start, at
            start = at

    def _declare(self, storage: Storage):
        """Declares a storage's tensor; returns its name."""
        role = storage.role if storage.role in PERSISTENT or storage.role == "input" else self._map_role(storage)
        own = "persistent" if role in PERSISTENT else "managed"
        name = self._unique(f"{storage.name or storage.path or 'step'}" if own == "persistent" or role == "input" else
                            f"{storage.path or 'step'}.{self._producer(storage)}")
        elements = 1
        for n in storage.shape:
            elements *= n
        sizes = {"f32": 4, "i32": 4, "f16": 2, "bf16": 2, "u8": 1}
        exact = elements * sizes[storage.dtype] == storage.bytes
        self.graph.tensor(name, role, storage.shape if exact else storage.bytes,
                          storage.dtype if exact else "u8", own)
        self.path[name] = storage.path
        self._names[storage.index] = name
        return name

    @staticmethod
    def _map_role(storage):
        return storage.role if storage.role in ("feature map", "gradient map", "saved") else "feature map"

    def _producer(self, storage):
        return _short(self.step.ops[storage.born].work.name) if storage.born >= 0 else "input"

    def _name(self, index):
        return self._names.get(index) or self._declare(self.step.tracer.storages[index])

    def _build(self):
        storages = self.step.tracer.storages
        written = {i for op in self.step.ops for i in op.writes}
        first = [s for s in storages if s.bytes and s.index not in written and s.role not in PERSISTENT
                 and s.index in self._last]
        unused = [s for s in storages
                  if s.bytes and s.role in PERSISTENT and s.index not in self._last and s.died != -1]
        for s in first:
            s.role = "input"
        if first or unused:
            self.graph.layer("batch", "data")
            self.graph.step("batch", "forward", [self._declare(s) for s in unused], [self._declare(s) for s in first])
            self.parts["batch", "forward"] = []
        for start, end in self._groups():
            ops = self.step.ops[start:end]
            if len(ops) == 1 and ops[0].work.kind == "allocation":
                self._empty.update(ops[0].writes)  # the operator that fills it writes it
            else:
                self._add(ops, start, end)

    def _add(self, ops, start, end):
        storages = self.step.tracer.storages
        used = {i for op in ops for i in (*op.reads, *op.writes, *op.mutates) if storages[i].bytes}
        born = {i for op in ops for i in op.writes if storages[i].bytes} | used & self._empty
        self._empty -= born
        inner = {i for i in born if self._last[i] < end and storages[i].died is not None and storages[i].died < end
                 and storages[i].role not in PERSISTENT and (len(ops) > 1 or self._last[i] > start)}
        reads, writes, modifies, inplace = [], [], [], []
        changed = {i for op in ops for i in op.mutates if storages[i].bytes}
        for i in sorted({i for op in ops for i in op.reads if storages[i].bytes} - born - changed):
            reads.append(self._name(i))
        for i in sorted(changed - born):
            before = self._name(i)
            if storages[i].role in PERSISTENT:
                modifies.append(before)
            else:
                reads.append(before)
                writes.append(self._declare(storages[i]))
                inplace.append((before, writes[-1]))
        for i in sorted(born - inner):
            writes.append(self._name(i))
        pair = (ops[0].given, ops[0].writes[0]) if ops[0].given is not None else ()
        if pair and not {storages[i].role for i in pair} & {*PERSISTENT}:
            inplace.append((self._name(pair[0]), self._name(pair[1])))
        layer, phase = self._layer(ops), ops[0].phase
        self.graph.step(layer, phase, reads, writes, modifies, workspace=self._inner_bytes(inner, ops, start, end),
                        inplace=inplace)
        self.parts[layer, phase] = ops

    def _inner_bytes(self, inner, ops, start, end):
        """The most bytes of values inside a step that are there at once, with the kernels' workspaces."""
        storages = self.step.tracer.storages
        return max(op.workspace_bytes
                   + sum(storages[i].bytes for i in inner if storages[i].born <= at <= storages[i].died)
                   for at, op in zip(range(start, end), ops))

    def _layer(self, ops):
        """The layer of a step: that of its node's forward step, or a new one."""
        op = ops[0]
        known = self._of_node.get(op.node) if op.node is not None else None
        if known is not None and (known, op.phase) not in self.parts:
            return known
        main = max(ops, key=lambda o: o.work.flops)
        name = self._unique(f"{op.path or op.phase}.{_short(main.work.name)}")
        kind = operators.KINDS[main.work.kind]
        self.graph.layer(name, kind.layer, "expensive" if kind.expensive else "cheap", self._repeatable(op))
        if op.phase == "forward" and op.node is not None and known is None:
            self._of_node[op.node] = name
        return name

    def _repeatable(self, op):
        """In a graph, an operator in place gives a new tensor; a batch norm that runs again leaves its statistics."""
        if op.phase != "forward" or op.work.random or op.work.unordered:
            return False
        fixed = [i for i in op.mutates if self.step.tracer.storages[i].role in PERSISTENT]
        return not fixed or op.work.kind == "norm"


def _short(name):
    return name.split(".")[-1].strip("_")
