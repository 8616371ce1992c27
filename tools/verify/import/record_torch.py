# SPDX-License-Identifier: MIT
"""Records what a PyTorch program that moves tensors would do on a GPU, as a log for log_to_plan.py. No GPU is needed.

    model, x = ...                                 # made before: on the CPU, recorded as being on the device
    with Recording() as log:
        with MyOffloader(model):                   # made inside: it must get the recording's streams
            loss = model(x).sum()
        loss.backward()
    log.save("my.log")

The tensors are the CPU's, and so are their values. Where a tensor would be, on which stream a kernel would run, and at
which address an allocator would put it is kept beside. Inside, torch.cuda.Stream, Event, current_stream, stream and
their like are stand-ins, and so are `device`, `cpu`, `to`, `cuda`, `pin_memory` and `is_pinned` of tensors. README.md
says what the stand-ins do, and what they do not know. One recording at a time, on one thread. Tried with torch 2.13.
"""
import contextlib
import json
from unittest import mock

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BLOCK = 512  # torch's caching allocator rounds to it
OVERWRITE = {"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_"}  # each writes all that it is given
DEVICE = torch.device("cuda", 0)


class Buffer:
    """A storage: its name in the log, and where it would be."""

    def __init__(self, storage, name, memory, stream, address, size):
        self.life, self.name, self.memory = StorageWeakRef(storage), name, memory
        self.stream, self.address, self.size = stream, address, size
        self.bytes, self.written, self.other_streams = storage.nbytes(), False, False


class Stream:
    """Stands in for torch.cuda.Stream. `log` is the class's: a recording makes a class of its own."""
    log = None

    def __init__(self, *_, **__):
        self.name = f"s{self.log.count('stream')}"
        self.device, self.cuda_stream = DEVICE, self.log.counts["stream"]

    def record_event(self, event=None):
        event = event or torch.cuda.Event()
        event.record(self)
        return event

    def wait_event(self, event):
        self.log.write("wait", stream=self.name, event=event.name)

    def wait_stream(self, other):
        self.wait_event(other.record_event())

    def synchronize(self):
        self.record_event().synchronize()

    def query(self):
        self.synchronize()  # as if it had just ended, which a later reader may then rely on
        return True

    def __enter__(self):
        self.log.entered.append(self.log.stream)
        self.log.stream = self
        return self

    def __exit__(self, *_):
        self.log.stream = self.log.entered.pop()


class Event:
    """Stands in for torch.cuda.Event."""
    log = None

    def __init__(self, *_, **__):
        self.name = f"e{self.log.count('event')}"

    def record(self, stream=None):
        # A wait is for what was recorded before it.
        self.name = f"{self.name.split('.')[0]}.{self.log.count('record')}"
        self.log.write("record", stream=(stream or self.log.stream).name, event=self.name)

    def wait(self, stream=None):
        (stream or self.log.stream).wait_event(self)

    def synchronize(self):
        self.log.write("wait", event=self.name)

    def query(self):
        self.synchronize()
        return True


class Placing(TorchFunctionMode):
    """Says where tensors are, and moves them."""

    def __init__(self, log):
        super().__init__()
        self.log = log

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(func.__self__, "__name__", "")
        if name in ("device", "is_cuda", "is_cpu", "is_pinned", "get_device"):
            device = self.log.device(args[0])
            return {"device": device, "is_cuda": device is DEVICE, "get_device": 0 if device is DEVICE else -1}.get(
                name, device is not DEVICE)
        if name in ("cpu", "pin_memory"):
            return self.move(args[0], "host", kwargs.get("non_blocking", False))
        if name == "cuda":
            return self.move(args[0], "device", kwargs.get("non_blocking", False))
        if name == "to" and not any(isinstance(a, torch.Tensor) for a in args[1:]):
            device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args[1:], **kwargs)
            tensor = args[0] if dtype is None else args[0].to(dtype)
            return tensor if device is None else self.move(tensor, memory_of(device), non_blocking)
        if func is torch.Tensor.backward:  # inside a call the mode is off: hooks of the user's need it
            with self:
                return torch.autograd.backward(args[0], kwargs.pop("gradient", None), **kwargs)
        pinned, device = kwargs.pop("pin_memory", False), kwargs.pop("device", None)
        memory = "host" if pinned else memory_of(device) if device is not None else None
        with mock.patch.object(self.log, "memory", memory or self.log.memory):
            return func(*args, **kwargs)

    def move(self, tensor, memory, non_blocking):
        if self.log.buffer(tensor).memory == memory:
            return tensor
        with mock.patch.object(self.log, "memory", memory):
            moved = torch.empty_like(tensor)
        return moved.copy_(tensor, non_blocking=non_blocking)


class Kernels(TorchDispatchMode):
    """Sees each operation of the forward and the backward pass."""

    def __init__(self, log):
        super().__init__()
        self.log = log

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.log.collect()
        result = func(*args, **(kwargs or {}))
        self.log.operation(func, args, kwargs or {}, result)
        return result


def memory_of(device):
    return "host" if torch.device(device).type == "cpu" else "device"


class Recording:
    """A context manager. `events`: the lines of the log, dictionaries."""

    def __init__(self, name="a recording of torch"):
        self.events = [{"format": "mm events", "version": 1, "name": name}]
        self.counts, self.buffers = {}, {}  # buffers: by storage
        self.memory = None  # where new tensors go: None where their inputs are
        self.top, self.spare = {}, []  # of each memory the lowest address above all buffers; freed blocks of the device
        self.entered, self.closing = [], contextlib.ExitStack()
        self.stream_class = type("Stream", (Stream,), {"log": self})
        self.event_class = type("Event", (Event,), {"log": self})
        self.stream = self.default = self.stream_class()
        self.placing = Placing(self)

    def __enter__(self):
        push = torch._C._autograd._push_saved_tensors_default_hooks
        stand_ins = {
            "Stream": self.stream_class, "Event": self.event_class,
            "current_stream": lambda device=None: self.stream, "default_stream": lambda device=None: self.default,
            "set_stream": lambda stream: setattr(self, "stream", stream), "synchronize": self.synchronize,
            "stream": lambda stream: stream or contextlib.nullcontext(), "is_available": lambda: True,
            "current_device": lambda: 0, "device_count": lambda: 1, "is_current_stream_capturing": lambda: False,
        }
        self.closing.enter_context(mock.patch.multiple(torch.cuda, **stand_ins))
        self.closing.enter_context(mock.patch.object(
            torch._C._autograd, "_push_saved_tensors_default_hooks",
            lambda pack, unpack: push(self.hook("pack", pack), self.hook("unpack", unpack))))
        self.closing.enter_context(mock.patch.object(
            torch.Tensor, "record_stream", lambda tensor, _: setattr(self.buffer(tensor), "other_streams", True)))
        group = torch._C._group_tensors_by_device_and_dtype  # C++, which knows the CPU alone; for optimizers
        self.closing.enter_context(mock.patch.object(
            torch._C, "_group_tensors_by_device_and_dtype", lambda lists, *more: {
                (self.device(found[0][0][0]), dtype): found for (_, dtype), found in group(lists, *more).items()}))
        self.closing.enter_context(Kernels(self))
        self.closing.enter_context(self.placing)
        return self

    def __exit__(self, *_):
        self.closing.close()

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(event) + "\n" for event in self.events)

    # ------------------------------------------------------------ for the stand-ins

    def count(self, what):
        self.counts[what] = self.counts.get(what, -1) + 1
        return self.counts[what]

    def write(self, do, **event):
        self.events.append({"do": do, **event})

    def synchronize(self, device=None):
        for number in range(self.counts["stream"] + 1):
            event = self.event_class()
            self.write("record", stream=f"s{number}", event=event.name)
            event.synchronize()

    def hook(self, what, function):
        """A saved-tensor hook, with a note in the log. Autograd calls hooks inside calls, where the mode is off."""
        def run(value):
            self.write("note", text=f"{what} {self.buffer(value).name}" if what == "pack" else what)
            on = self.placing in _get_current_function_mode_stack()
            with contextlib.nullcontext() if on else self.placing:
                return function(value)
        return run

    # ------------------------------------------------------------ buffers

    def collect(self):
        """Frees the buffers whose storages are gone."""
        for key, buffer in list(self.buffers.items()):
            if buffer.life.expired():
                del self.buffers[key]
                self.write("free", buffer=buffer.name)
                if buffer.memory == "device" and not buffer.other_streams:
                    self.spare.append(buffer)

    def place(self, memory, size, anew):
        """Address and size: of a block of the device that the current stream owns and that is free, or of new bytes."""
        size = (max(size, 1) + BLOCK - 1) // BLOCK * BLOCK
        fit = [b for b in self.spare if b.stream is self.stream and b.size >= size and memory == "device" and not anew]
        if fit:
            block = min(reversed(fit), key=lambda b: b.size)  # of equals, the one that was freed last
            self.spare.remove(block)
            return block.address, block.size
        address = self.top.get(memory, 0)
        self.top[memory] = address + size
        return address, size

    def buffer(self, tensor, made=None, memory="device"):
        """The buffer of a tensor. One that is not known was there before the recording, or `made` by an operation."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self.buffers:
            filled = made is None
            address, size = self.place(memory, storage.nbytes(), anew=filled)
            b = Buffer(storage, made or f"given.{self.count('given')}", memory, self.stream, address, size)
            b.written = filled
            self.buffers[storage._cdata] = b
            self.write("alloc", buffer=b.name, address=address, bytes=max(b.bytes, 1), memory=memory,
                       stream=self.stream.name, filled=filled)
        return self.buffers[storage._cdata]

    def device(self, tensor):
        return DEVICE if self.buffer(tensor).memory == "device" else torch.device("cpu")

    # ------------------------------------------------------------ operations

    def operation(self, func, args, kwargs, result):
        ins = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        outs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        if not ins and not outs:
            return
        op, schema = func._schema.name.split("::")[1], func._schema.arguments
        given = [(a, args[i] if i < len(args) else kwargs.get(a.name)) for i, a in enumerate(schema)]
        changed = [t for a, value in given if a.alias_info and a.alias_info.is_write for t in tree_leaves(value)
                   if isinstance(t, torch.Tensor)]
        known = [t.untyped_storage()._cdata for t in ins]
        made = [t for t in outs if t.untyped_storage()._cdata not in known]
        if outs and not changed and not made:
            return  # a view
        reads = {self.buffer(t).name: self.buffer(t) for t in ins}
        on_device = any(b.memory == "device" for b in reads.values())
        name = f"{op}.{self.count(op)}"
        for number, t in enumerate(made):
            self.buffer(t, f"{name}:{number}" if number else name, self.memory or ("device" if on_device else "host"))
        if op.startswith(("empty", "new_empty")):
            return
        if op == "copy_" and self.buffer(args[0]).memory != self.buffer(args[1]).memory:
            return self.copy(args[0], args[1], blocking=not (len(args) > 2 and args[2]))
        for t in changed:
            b = self.buffer(t)
            whole = op in OVERWRITE and t.numel() * t.element_size() == b.bytes
            if not any(other is not t and self.buffer(other) is b for other in ins) and (whole or not b.written):
                reads.pop(b.name, None)
        writes = {self.buffer(t).name: self.buffer(t) for t in changed + made}
        for b in writes.values():
            b.written = True
        host = all(b.memory == "host" for b in [*reads.values(), *writes.values()])
        self.write("kernel", name=name, stream="host" if host else self.stream.name, reads=list(reads),
                   writes=list(writes), blocking=isinstance(result, (bool, int, float, complex)),
                   phase="backward" if torch._C._current_graph_task_id() >= 0 else "forward")

    def copy(self, target, source, blocking):
        target_buffer, source_buffer = self.buffer(target), self.buffer(source)
        target_buffer.written = True
        self.write("copy", stream=self.stream.name, **{"from": source_buffer.name, "to": target_buffer.name},
                   bytes=max(source.nbytes, 1), blocking=blocking)
