# SPDX-License-Identifier: MIT
"""Records a training step as torch runs it: operators in their order, and when each storage is made and freed.

    tracer = Tracer()
    with tracer:
        with tracer.phase("forward"): loss = ...
        with tracer.phase("backward"): loss.backward()
    tracer.live()        bytes at each operator

Tensors may be real or fake: autograd's own engine runs in both cases, so the order of operators and of frees is the
same. What a kernel allocates inside is not seen. One thread; the tracer holds no tensor."""

import bisect
import contextlib
import dataclasses
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import operators

_NO_NODE = 2**63  # numbers of nodes that accumulate gradients of leaves are not below


@dataclasses.dataclass
class Storage:
    """A storage. born: the first operator after which it is there (-1: before all). died: the last one at which it is
    (None: it outlives them). role: a kind of mm's tensors. of: the weight of a gradient or a state."""
    index: int
    bytes: int
    shape: Tuple[int, ...]
    dtype: str
    path: str
    born: int
    died: Optional[int] = None
    role: str = "feature map"
    name: str = ""
    of: Optional[int] = None
    first: bool = True  # it is the first output of its operator


@dataclasses.dataclass
class Op:
    """An operator that ran. work: without its tensors. reads, writes, mutates: indexes of storages; writes are new
    ones. node: a number of the autograd node that it made or belongs to (None: none). path: of the module, "" outside
    all. workspace_bytes: what its kernel takes beside. given: the input whose place the output takes."""
    work: operators.Work
    phase: str
    path: str
    node: Optional[int]
    reads: List[int]
    writes: List[int]
    mutates: List[int]
    workspace_bytes: int = 0
    given: Optional[int] = None


class Tracer(TorchDispatchMode):
    """See the module. names: {id of a module: its path}. workspace(work): bytes that a kernel takes beside its tensors.
    corrected(func, args, out): what an operator that returned out really returns."""

    def __init__(self, names: Optional[Dict[int, str]] = None, workspace: Optional[Callable] = None,
                 corrected: Optional[Callable] = None):
        super().__init__()
        self._corrected = corrected or (lambda func, args, out: out)
        self._workspace = workspace or (lambda work: 0)
        self.ops: List[Op] = []
        self.storages: List[Storage] = []
        self._names = names or {}
        self._live: Dict[int, int] = {}  # storage's key -> index
        self._watch: Dict[int, Any] = {}
        self._phase = "forward"
        self._stack: List[str] = []
        self._bounds: List[int] = []  # numbers of autograd nodes at which the module changed
        self._bound_paths: List[str] = []
        self._last_node = 0
        self._kernel: Optional[List] = None
        self._hooks: List = []

    # ------------------------------------------------------------ modules and phases

    def __enter__(self):
        module = torch.nn.modules.module
        self._last_node = torch.autograd._get_sequence_nr()
        self._hooks = [module.register_module_forward_pre_hook(lambda m, _: self._enter(self._names.get(id(m)))),
                       module.register_module_forward_hook(lambda m, _, __: self._leave(self._names.get(id(m))),
                                                           always_call=True)]
        return super().__enter__()

    def __exit__(self, *error):
        for hook in self._hooks:
            hook.remove()
        result = super().__exit__(*error)
        for watched in self._watch.values():
            watched.detach()
        self._watch.clear()
        return result

    def _enter(self, path):
        if path is not None:
            self._stack.append(path)
            self._mark()

    def _leave(self, path):
        if path is not None and self._stack:
            self._stack.pop()
            self._mark()

    def _mark(self):
        self._bounds.append(torch.autograd._get_sequence_nr())
        self._bound_paths.append(self._stack[-1] if self._stack else "")

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Operators inside are of this phase: forward, backward or update."""
        before, self._phase = self._phase, name
        try:
            yield
        finally:
            self._phase = before

    def _place(self):
        """Path and autograd node of the operator that runs now."""
        node = torch._C._current_autograd_node()
        if self._phase == "backward" and not self._stack:
            number = node._sequence_nr() if node is not None else _NO_NODE
            if number >= _NO_NODE:
                return "", None
            at = bisect.bisect_right(self._bounds, number) - 1
            return (self._bound_paths[at] if at >= 0 else ""), number
        now = torch.autograd._get_sequence_nr()
        made, self._last_node = (now - 1 if now != self._last_node else None), now
        return (self._stack[-1] if self._stack else ""), made

    # ------------------------------------------------------------ storages

    def watch(self, tensor: torch.Tensor, role: str = "feature map", name: str = "", of: Optional[int] = None) -> int:
        """Registers a tensor's storage, or finds it; returns its index. role, name, of: replace those that it has, if
        it is new or a role other than the default is given."""
        index = self._index(tensor, len(self.ops) - 1, "")
        known = self.storages[index]
        if role != "feature map" and known.role in ("feature map", "gradient map", "saved"):
            known.role, known.name, known.of = role, name, of
        return index

    def add(self, role: str, name: str, size: int) -> None:
        """Adds a storage of `size` bytes that is there all the time."""
        self.storages.append(Storage(len(self.storages), size, (size,), "u8", "", -1, None, role, name))

    def _index(self, tensor, born, path, role="feature map", first=True):
        key = operators.storage_key(tensor)
        if key in self._live:
            index = self._live[key]
            self._grow(index, tensor)
            return index
        storage = tensor.untyped_storage()
        index = len(self.storages)
        whole = operators.bytes_of(tensor) == storage.nbytes() and tensor.dim() <= 8
        dtype = operators.TYPES.get(tensor.dtype, "u8") if whole else "u8"
        dtype = "i32" if whole and tensor.dtype == torch.int32 else "u8" if dtype == "f64" else dtype
        shape = tuple(tensor.shape) if dtype != "u8" and tensor.numel() else (storage.nbytes(),)
        if not tensor.is_floating_point() and role == "feature map":
            role = "saved"
        self.storages.append(Storage(index, storage.nbytes(), shape, dtype, path, born, role=role, first=first))
        self._live[key] = index
        self._watch[index] = weakref.finalize(storage, self._died, key, index)
        self._watch[index].atexit = False
        return index

    def _grow(self, index, tensor):
        """A storage that was resized, as FSDP does, keeps its largest size."""
        self.storages[index].bytes = max(self.storages[index].bytes, tensor.untyped_storage().nbytes())

    def _died(self, key, index):
        if self._live.get(key) == index:
            del self._live[key]
            self._watch.pop(index, None)
            self.storages[index].died = len(self.ops) - 1

    # ------------------------------------------------------------ operators

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = self._corrected(func, args, func(*args, **kwargs))
        work = operators.work_of(func, args, kwargs, out)
        if self._kernel is not None:
            self._kernel.append(work)
        else:
            self._record(work)
        return out

    def _record(self, work):
        path, node = self._place()
        at, role = len(self.ops), "feature map" if self._phase == "forward" else "gradient map"
        reads = [self._index(t, at - 1, path) for t in work.inputs if operators.storage_key(t)]
        known = len(self.storages)
        outputs = [self._index(t, at, path, role if i == 0 or role != "feature map" else "saved", i == 0)
                   for i, t in enumerate(work.outputs) if operators.storage_key(t)]
        writes = sorted({i for i in outputs if i >= known})
        mutates = sorted({reads[i] for i in work.mutates if i < len(reads)})
        if operators.KINDS[work.kind].free and not writes and not mutates:
            return
        self.ops.append(Op(dataclasses.replace(work, inputs=[], outputs=[]), self._phase, path, node,
                           sorted(set(reads)), writes, mutates, self._workspace(work)))

    @contextlib.contextmanager
    def kernel(self, name: str, kind: str, flops: float, reads: Iterable[torch.Tensor]) -> Iterator[None]:
        """What is allocated inside is of one kernel of a GPU of this name and class, which reads `reads`."""
        self._kernel = parts = []
        try:
            yield
        finally:
            self._kernel = None
        inputs = [t for t in reads if t is not None]
        outputs = [t for part in parts for i, t in enumerate(part.outputs) if not any(o == i for _, o in part.aliases)]
        self._record(operators.Work(name, kind, operators.dtype_of(inputs + outputs), flops,
                                    operators.distinct_bytes(inputs), operators.distinct_bytes(outputs), inputs, outputs))

    # ------------------------------------------------------------ what was seen

    def live(self) -> List[int]:
        """Bytes of all storages that are there at each operator, and of its workspace."""
        change = [0] * (len(self.ops) + 1)
        for storage in self.storages:
            first, last = max(storage.born, 0), len(self.ops) - 1 if storage.died is None else storage.died
            if last >= first:
                change[first] += storage.bytes
                change[last + 1] -= storage.bytes
        total, live = 0, []
        for delta, op in zip(change, self.ops):
            total += delta
            live.append(total + op.workspace_bytes)
        return live

    def there(self, at: int) -> List[Storage]:
        """The storages that are there at an operator."""
        return [s for s in self.storages if s.born <= at and (s.died is None or s.died >= at)]

    def give_sums(self) -> None:
        """Autograd adds gradients of one tensor in place where nobody else holds them, but not under a dispatch mode.
        So such a sum takes the place of an input that is freed right after it."""
        for at, op in enumerate(self.ops):
            if op.work.name != "aten.add" or op.phase != "backward" or len(op.reads) != 2 or not op.writes:
                continue
            given = [self.storages[i] for i in op.reads
                     if self.storages[i].died == at and self.storages[i].bytes == self.storages[op.writes[0]].bytes]
            if given:
                given[0].died, op.given = at - 1, given[0].index
