# SPDX-License-Identifier: MIT
"""Measures the modules of a net in two forward passes: what autograd saves inside of each, what it is given, how long
it takes, and whether it could run again and give the same bits.

Nothing that is saved is held: the hooks are a budget's, whose stash answers that it took the tensor. So a measurement
needs no more memory than a forward pass without gradients. Afterwards buffers, attributes that are numbers, and random
states are as they were. All functions are for the thread that trains."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import random
import sys
import time
import zlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
from torch.nn.modules.batchnorm import _NormBase
from torch.utils import _pytree as pytree

from . import allocator, bridge, library, paths, session, wrap
from .layouts import storage_of

PIECE = 256  # MM_ALIGN: pieces of a stash are multiples of it
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, torch.layout,
          torch.memory_format)
_NUMBERS = (bool, int, float, str, type(None))
_ITS_OWN = frozenset(("forward", "training"))  # attributes of a module that say nothing of its state


def piece(nbytes: int) -> int:
    return -(-nbytes // PIECE) * PIECE


@dataclasses.dataclass(eq=False)
class Call:
    """A call of a module in a forward pass. saves: positions in Measured.saves, from `first` to before `last`. inputs,
    outputs: keys of storages that the stash would take. why: why it must not run again; "": it may."""
    path: str
    module: torch.nn.Module
    around: Optional["Call"]
    number: int
    inputs: List[Any] = dataclasses.field(default_factory=list)
    outputs: List[Any] = dataclasses.field(default_factory=list)
    inside: List["Call"] = dataclasses.field(default_factory=list)
    first: int = 0
    last: int = 0
    ns: int = 0
    why: str = ""
    draws: bool = False
    marks: Tuple = ()

    @property
    def name(self) -> str:
        """The path, and which call of the module it is. A kind of layer has no such name."""
        return f"{self.path}/{self.number}"


@dataclasses.dataclass
class Measured:
    """top: the calls inside of no other one of the net. saves: what was saved, in order: the storage's key, and bytes
    of the stash. sizes: bytes by storage's key, of saved tensors and of what calls are given and return."""
    top: List[Call]
    calls: List[Call]
    saves: List[Tuple[Any, int]]
    sizes: Dict[Any, int]
    names: Dict[Any, str]

    @property
    def total(self) -> int:
        return sum(nbytes for _, nbytes in self.saves)


def call_of(net: torch.nn.Module, x: Any) -> Any:
    """net(x); net(*x) of a tuple, net(**x) of a dict."""
    if isinstance(x, tuple):
        return net(*x)
    if isinstance(x, dict):
        return net(**x)
    return net(x)


def _random_states(device: torch.device) -> Tuple:
    numpy = sys.modules.get("numpy")
    return (torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
            random.getstate(),
            numpy.random.get_state() if numpy is not None and hasattr(numpy, "random") else None)


@contextlib.contextmanager
def as_it_was(net: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """Restores the net's buffers, attributes of its modules that are numbers or text, and random states."""
    buffers = [(b, b.detach().clone()) for b in net.buffers()]
    attributes = [(m, {k: v for k, v in vars(m).items() if isinstance(v, _NUMBERS)}) for m in net.modules()]
    states = _random_states(device)
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in buffers:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)
        for module, values in attributes:
            for key, value in values.items():
                if vars(module).get(key, value) is not value:
                    vars(module)[key] = value
        torch.set_rng_state(states[0])
        if states[1] is not None:
            torch.cuda.set_rng_state(states[1], device)
        random.setstate(states[2])
        if states[3] is not None:
            sys.modules["numpy"].random.set_state(states[3])


class _NoStash:
    """Has a budget's hooks classify what is saved, and hold none of it. Calls saved(storage's key, bytes) for each."""

    def __init__(self, device: torch.device, let_go: frozenset, saved: Callable[[Any, int, str], None]):
        session_ = session.budget(1 << 16, "liveness", host=0, device=device, modes=library.KEEP_ALWAYS, _cuda=None)
        core = session_._core
        self.session, core.let_go, core.coverage = session_, let_go, None

        def observe(storage, entry):
            saved(storage._cdata, entry.layout.bytes, entry.producer.bytes.decode())

        def unpack(_record):
            raise RuntimeError("mm.fit: the forward pass reads what autograd saved (a gradient inside of it?), which "
                               "cannot be measured: use mm.budget")

        core.classifies = core.watched = True
        core.observe, core.unpack = observe, unpack

    def __enter__(self):
        return self.session.__enter__()

    def __exit__(self, *error):
        return self.session.__exit__(*error)


def _mark(module: torch.nn.Module) -> Dict[str, Any]:
    """What a call may change in a module, but for the statistics of norms: buffers by version, attributes by value,
    identity or length."""
    marks: Dict[str, Any] = {}
    for prefix, inner in module.named_modules():
        if not isinstance(inner, _NormBase):
            marks.update((f"buffer {prefix}{'.' if prefix else ''}{name}", (id(b), b._version))
                         for name, b in inner._buffers.items() if b is not None)
    for key, value in vars(module).items():
        if key in _ITS_OWN:
            continue
        if isinstance(value, torch.Tensor):
            marks[f"attribute {key}"] = id(value), value._version
        elif isinstance(value, _NUMBERS):
            marks[f"attribute {key}"] = value
        elif isinstance(value, (list, dict, set)) and not key.startswith("_"):
            marks[f"attribute {key}"] = len(value)
    return marks


def _checksum(value: Any) -> int:
    """A checksum of the tensors in a value."""
    total = 0
    for leaf in pytree.tree_leaves(value):
        if type(leaf) is not torch.Tensor or leaf.layout is not torch.strided or leaf.is_meta:
            continue
        flat = leaf.detach().resolve_conj().resolve_neg().contiguous().cpu()
        size = flat.numel() * flat.element_size()
        if size:
            total = zlib.crc32((ctypes.c_char * size).from_address(flat.data_ptr()), total)
    return total


class _Meter:
    """Wraps the forward functions of a net's modules for one forward pass."""

    def __init__(self, net: torch.nn.Module, device: torch.device, let_go: frozenset, before: Optional[Measured]):
        self.net, self.device, self.let_go, self.before = net, device, let_go, before
        self.found = Measured([], [], [], {}, {})
        self.open: List[Call] = []
        self.counts: Dict[str, int] = {}
        self.watched: List[Tuple[Call, torch.Tensor, int]] = []  # inputs, as aliases without data, and versions
        self.pinned: List[int] = []  # weak references of storages, so that no other one gets their address

    def saved(self, key: Any, nbytes: int, name: str) -> None:
        self.found.saves.append((key, piece(nbytes)))
        self.found.sizes[key] = max(piece(nbytes), self.found.sizes.get(key, 0))
        self.found.names.setdefault(key, name)

    def keys(self, value: Any, call: Call, watch: bool) -> List[Any]:
        """Keys of the storages in a value that a checkpoint would have the stash take."""
        keys: List[Any] = []
        for leaf in pytree.tree_leaves(value):
            if type(leaf) is not torch.Tensor or leaf.layout is not torch.strided:
                continue
            if watch:
                alias = leaf.detach()
                self.watched.append((call, alias, leaf._version))
                alias.data = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
            base = leaf._base if leaf._is_view() else leaf
            storage = storage_of(leaf)
            small = storage.nbytes() < bridge.SMALL_BYTES
            if base.is_leaf and base.requires_grad or leaf.device != self.device or small:
                continue  # a batch or a mask counts, although the program may hold it: the hooks cannot always tell
            own = leaf.numel() * leaf.element_size()
            nbytes = own if leaf._is_view() and own * bridge.SHARE < storage.nbytes() else storage.nbytes()
            self.pinned.append(storage._weak_ref())
            self.found.sizes[storage._cdata] = max(piece(nbytes), self.found.sizes.get(storage._cdata, 0))
            keys.append(storage._cdata)
        return list(dict.fromkeys(keys))

    def begin(self, path: str, module: torch.nn.Module, given: Any) -> Tuple[Call, Dict, List[torch.Tensor], Any]:
        number = self.counts[path] = self.counts.get(path, 0) + 1
        call = Call(path, module, self.open[-1] if self.open else None, number, first=len(self.found.saves))
        (call.around.inside if call.around else self.found.top).append(call)
        self.found.calls.append(call)
        for leaf in pytree.tree_leaves(given):
            if not isinstance(leaf, (torch.Tensor, *_PLAIN)):
                call.why = call.why or f"is given a {type(leaf).__name__}"
        call.inputs = self.keys(given, call, True)
        state = self.state()
        call.marks = _checksum(given), _checksum(state)
        self.open.append(call)
        return call, _mark(module), state, random.getstate()

    def end(self, call: Call, marks: Dict, state: List[torch.Tensor], python: Any, returned: Any) -> None:
        self.open.pop()
        call.last, call.outputs = len(self.found.saves), self.keys(returned, call, False)
        call.draws = not all(map(torch.equal, state, self.state()))
        call.marks += (_checksum(returned),)
        if python != random.getstate():
            call.why = call.why or "draws from Python's random numbers"
        after = _mark(call.module)
        for key in after.keys() | marks.keys():
            if after.get(key) != marks.get(key):
                call.why = call.why or f"changes its {key}"
        hooked = any(m._forward_hooks or m._forward_pre_hooks for m in call.module.modules() if m is not call.module)
        call.why = call.why or next((inner.why if " inside" in inner.why else f"{inner.why} ({inner.path} inside)"
                                     for inner in call.inside if inner.why),
                                    "has forward hooks inside" if hooked else "")

    def metered(self, path: str, module: torch.nn.Module) -> Callable:
        inner = wrap.function_of(module)

        def forward(*args, **kwargs):
            begun = self.begin(path, module, (args, kwargs))
            self.sync()
            started = time.perf_counter_ns()
            try:
                returned = inner(*args, **kwargs)
            except BaseException:
                self.open.pop()
                raise
            self.sync()
            begun[0].ns = time.perf_counter_ns() - started
            self.end(*begun, returned)
            return returned
        return forward

    def state(self) -> List[torch.Tensor]:
        """States of torch's random numbers."""
        return [torch.get_rng_state()] + ([torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else [])

    def sync(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def run(self, loss: Callable, x: Any, y: Any) -> Measured:
        try:
            with contextlib.ExitStack() as wrapped:
                for path, module in measurable(self.net):
                    wrapped.enter_context(wrap.replaced(module, self.metered(path, module)))
                with as_it_was(self.net, self.device), _NoStash(self.device, self.let_go, self.saved):
                    result = loss(call_of(self.net, x), y)
                    self.look_back()
                    del result
        finally:
            for weak in self.pinned:
                torch.UntypedStorage._free_weak_ref(weak)
            allocator.trim_heap()  # a training that follows is not to begin with the gaps of this pass
        return self.found

    def look_back(self) -> None:
        """Finds inputs that were modified after their call began, and what differs from the pass before."""
        for call, alias, version in self.watched:
            if alias._version != version:
                call.why = call.why or "has an input that is modified in place"
        if self.before is None:
            return
        if [c.name for c in self.before.calls] != [c.name for c in self.found.calls]:
            raise RuntimeError("mm.fit: two forward passes from the same state call other modules: use mm.budget")
        for was, now in zip(self.before.calls, self.found.calls):
            now.why = now.why or was.why
            now.ns = min(now.ns, was.ns)
            if was.marks[:2] == now.marks[:2] and was.marks[2] != now.marks[2]:
                now.why = now.why or "gives other bits when it runs again"


def copy_rate(device: torch.device) -> int:
    """Bytes a second of a copy from the device to host memory (on the CPU: within it), the best of three."""
    size, best = 16 << 20, float("inf")
    here = torch.zeros(size, dtype=torch.uint8, device=device)
    there = torch.zeros(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
    for _ in range(3):
        started = time.perf_counter()
        there.copy_(here)
        best = min(best, time.perf_counter() - started)
    return int(size / best)


def measurable(net: torch.nn.Module) -> Iterator[Tuple[str, torch.nn.Module]]:
    """Modules of the net but itself, with paths. Of a compiled or scripted module only the whole: what is inside is
    never called."""
    closed: set = set()
    for path, module in paths.modules_of(net):
        if id(module) in closed:
            continue
        if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod") or \
                module._compiled_call_impl is not None:
            closed.update(id(inner) for inner in module.modules())
        if module is not net and not isinstance(module, torch.jit.ScriptModule):
            yield path, module


def measure(net: torch.nn.Module, loss: Callable, x: Any, y: Any, device: torch.device,
            let_go: frozenset = frozenset()) -> Measured:
    """Runs loss(net(x), y) twice from the same state, without holding what is saved. let_go: places of the program
    whose tensors it does not keep (bridge.Core). Raises what the net raises."""
    first = _Meter(net, device, let_go, None).run(loss, x, y)
    return _Meter(net, device, let_go, first).run(loss, x, y)
