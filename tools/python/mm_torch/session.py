# SPDX-License-Identifier: MIT
"""mm.budget, with its statistics, report and picture."""

from __future__ import annotations

import ctypes
import decimal
import logging
import os
import re
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from ctypes import byref
from typing import Any

import torch

from . import active, allocator, bridge, coverage, layouts, library, paths, picture, snapshot

_UNITS = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_active_lock = threading.Lock()
_logger = logging.getLogger("mm_torch")


def size(text):
    """Parses bytes: a whole number, or text such as "6GiB", "1.5GB" or "300MiB". None: it is neither."""
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return int(text) if text == text // 1 else None
    found = re.fullmatch(r"(-?[0-9]+(?:\.[0-9]+)?) *([A-Za-z]*)", text) if isinstance(text, str) else None
    if not found or found.group(2) not in _UNITS:
        return None
    return int(decimal.Decimal(found.group(1)) * _UNITS[found.group(2)] + decimal.Decimal(0.5))


def text_of(value):
    """Formats bytes: 23.8MiB."""
    if value is None:
        return "-"
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(value) >= unit:
            return f"{value / unit:.3g}{name}" if value < 999.5 * unit else f"{value / unit:.0f}{name}"
    return f"{value}B"


def _memory(device):
    """Bytes of the device, of the host, and free on the host: as this process's control groups allow."""
    host = library.HostMemory()
    library.get().mm_host_memory_get(byref(host))
    total = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else host.total_bytes
    return total, host.total_bytes, host.free_bytes


def _most(device):
    """The largest budget that is surely granted: an eighth is left for what others take meanwhile; half on a GPU."""
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else _memory(device)[2] // 8 * 7


def _pinned(device, budget, free):
    """The default for moved tensors. On the CPU the budget comes from the same memory."""
    return min(4 * budget, free // 2, max(0, free - budget) if device.type == "cpu" else free)


def disk_of(disk: tuple | None) -> tuple[str, int, int] | None:
    """Parses the argument disk: (folder, size) or (folder, size, rate). None: there is none. Rate 0: not given."""
    if disk is None:
        return None
    given = list(disk) if isinstance(disk, (tuple, list)) else []
    folder = os.fspath(given[0]) if given and isinstance(given[0], (str, os.PathLike)) else None
    sizes = [size(n) for n in given[1:]]
    if not isinstance(folder, str) or "\0" in folder or len(sizes) not in (1, 2) or \
            any(n is None or not 0 < n < 2**63 for n in sizes):
        raise ValueError(f"disk {disk!r} is not understood: use a folder and a size, (\"/scratch\", \"8GiB\"), or also "
                         "the bytes a second to plan by, (\"/scratch\", \"8GiB\", \"2GB\")")
    return folder, sizes[0], sizes[1] if len(sizes) == 2 else 0


def _device(device):
    device = torch.device(device if device is not None else "cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(f"device {device}: torch sees no GPU; use device=\"cpu\"")
        index = device.index if device.index is not None else torch.cuda.current_device()
        return torch.device("cuda", index), f"cuda:{index}"
    if device.type == "cpu":
        return torch.device("cpu"), "host"
    raise ValueError(f"device {device}: mm has the devices cpu and cuda")


class budget:
    """Keeps what autograd saves inside a byte budget.

        with mm.budget("6GiB", policy="freelunch:rate=4,eligible=all") as m:
            for x, y in batches:
                loss = criterion(net(x), y)
                loss.backward()
                optimizer.step()

    bytes: the budget for what operations on `device` save inside the `with`: a number, or text such as "6GiB". Not
    counted, and left alone: parameters and their views, tensors that the program holds (buffers, the batch), tensors
    below 4 KiB, subclasses, sparse tensors, other devices. policy: as for the command mm; policies that recompute are
    refused. A dict {path: action}, such as {"*.attn": "keep", "*": "swap-async"}, says what becomes of what modules
    save. net: the net whose named_modules() has these paths; default: the outermost module that is called. host: host
    memory for moved tensors; default: four times the budget, at most half of what is free. disk: a place for what host
    memory has no room for: a folder and a size, ("/scratch", "8GiB"), or also the bytes a second to plan by,
    ("/scratch", "8GiB", "2GB"); one file without a name, which is gone at the end. device: default: the current GPU, or
    the CPU. The first iteration of an order is unplanned, exact, and learned; later ones are planned. On a GPU the
    budget includes all that torch's allocator holds, which is capped (allocator.Share). log: gets
    messages, a line each; default: the logger "mm_torch". After the first iteration m.coverage says what share of the
    saved bytes is managed (coverage.Coverage). If it is less than `need`, there is one CoverageWarning; with strict,
    Uncovered is raised, by the next operation that saves, or when the `with` is left.

    ValueError: an impossible budget, policy or device; a folder of a disk in which no file can be made. RuntimeError:
    inside another mm.budget, of any thread; in a forked child. Operations inside raise Infeasible if the order needs
    more than the budget; OSError if the disk is full or fails, which its message names. Leaving the `with` does not
    touch what was saved: backward() may follow.

    options: members of mm_stash_options for tests and measurements (measure_touched, unplanned, delay_seed,
    delay_max_ns, link_bytes_per_s, codec_threads); _cuda: an object with torch.cuda's functions, None if torch's
    allocator has no share in the budget."""

    def __init__(self, bytes: str | int, policy: str | dict[str, str] = "swap-async", host: str | int | None = None,
                 device: torch.device | str | None = None, log: Callable[[str], Any] | None = None,
                 net: torch.nn.Module | None = None, need: float = coverage.NEED, strict: bool = False,
                 disk: tuple | None = None, **options: Any) -> None:
        self._core = None
        policy = paths.spec(policy, net)
        if net is not None:
            paths.register(net)
        layouts.check_process()
        lib = library.get()
        torch_device, name = _device(device)
        total, host_total, free = _memory(torch_device)
        wanted = size(bytes)
        if wanted is None:
            raise ValueError(f"budget {bytes!r} is not understood: use \"6GiB\", \"1.5GB\" or a number of bytes, up to the "
                             f"{total} bytes ({text_of(total)}) that {torch_device} has")
        if not 0 < wanted <= total:
            raise ValueError(f"budget {bytes!r}, {wanted} bytes: must be from 1 to the {total} bytes ({text_of(total)}) that "
                             f"{torch_device} has")
        pinned = size(host) if host is not None else _pinned(torch_device, wanted, free)
        if pinned is None or pinned < 0:
            raise ValueError(f"host {host!r} is not understood: use \"6GiB\", \"1.5GB\" or a number of bytes")
        if pinned > host_total:
            raise ValueError(f"host {host!r}, {pinned} bytes: must be from 0 to the {host_total} bytes ({text_of(host_total)}) "
                             "that the host has")
        stored = disk_of(disk)
        if not isinstance(policy, str) or "\0" in policy:
            raise ValueError(f"policy {policy!r} is not understood: use text as of the command mm, such as \"swap-async\"")
        if not 0 <= need <= 1:
            raise ValueError(f"need {need!r}: must be a share from 0 to 1")
        cuda = options.pop("_cuda", torch.cuda if torch_device.type == "cuda" else None)
        for name in options.keys() - {name for name, _ in library.Options._fields_}:  # ctypes would accept any name
            raise TypeError(f"mm.budget has no option {name!r}")
        self.bytes, self.policy, self.device = wanted, policy, torch_device
        self._need, self._strict, self._log_given, self._coverage = need, strict, log, None
        self._say = say = _sayer(log)
        self._log = library.LOG_FN(lambda _ctx, _level, message: say(message.decode(errors="replace")))
        settings = library.Options(device=name.encode(), device_bytes=wanted, pinned_bytes=pinned, policy=policy.encode(),
                                   log=library.Log(self._log, None, library.LOG_WARNING), **options)
        if stored is not None:
            settings.disk, settings.disk_bytes, settings.disk_bytes_per_s = os.fsencode(stored[0]), *stored[1:]
        share = None
        if cuda is not None:
            share = allocator.Share(cuda, torch_device, wanted)
            settings.reclaim = library.RECLAIM_FN(lambda _ctx: cuda.empty_cache())
            settings.device_bytes, settings.device_most_bytes = share.first(), wanted
        if torch_device.type == "cpu" and not settings.modes:
            allocator.keep_heap()
        settings.modes |= library.REFUSE_LATER
        try:
            self._core = bridge.Core(lib, settings, torch_device, share)
        except ValueError as error:
            if "recompute" in policy:
                raise ValueError(f"{error}; torch.utils.checkpoint recomputes, and nests with mm.budget") from None
            raise
        self._core.called = self._log, settings  # kept alive as long as the stash may call them
        self._core.coverage = coverage.Coverage(self._core, self._covered)
        self._core.refusals.say = say
        self._hooks = self._unwatch = None
        self._told = set()

    def __enter__(self) -> budget:
        layouts.check_process()
        with _active_lock:
            if active.Active.session is not None:
                raise RuntimeError("mm.budget: another one is active in " +
                                   ("this thread: they do not nest; use one for both" if active.here() else
                                    "another thread: forward passes of one process enter one after the other"))
            active.begin(self)
        hooks = torch.autograd.graph.saved_tensors_hooks(self._core.pack, self._core.unpack)
        try:
            hooks.__enter__()
        except BaseException:
            active.end()
            raise
        self._hooks = hooks
        if self._core.coverage is not None:
            self._unwatch = self._core.coverage.watch()
        return self

    def __exit__(self, *error: Any) -> None:
        hooks, self._hooks = self._hooks, None
        hooks.__exit__(*error)
        active.end()
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        core = self._core
        if error[0] is not None:
            _drain()
        elif core.coverage is not None and core.coverage.leave():
            self.tell("nothing", "autograd saved nothing inside mm.budget: is the forward pass inside the `with`, on this "
                      "thread, and not under torch.no_grad()?")
        if core.share is not None and isinstance(error[1], core.share.cuda.OutOfMemoryError):
            self._say(core.share.ran_out())

    def tell(self, what: str, text: str) -> None:
        """Sends a message, the first time that it is about `what`."""
        if what not in self._told:
            self._told.add(what)
            self._say(text)

    def _covered(self, found):
        """Takes the figures of the first iteration."""
        self._coverage = found
        _logger.info("mm.budget %s", coverage.line(found))
        hint = coverage.whole(found.region_bytes, found.managed_bytes)
        if hint and found.managed_bytes > self.bytes:
            self.tell("whole", hint)
        text = coverage.complaint(found, self._need)
        if text and self._strict:
            raise coverage.Uncovered(text, found)
        if text:
            warnings.warn(text, coverage.CoverageWarning, stacklevel=3)
            if self._log_given:
                self._log_given(text)

    @property
    def coverage(self) -> types.SimpleNamespace | None:
        """Bytes that autograd saved in the first iteration, each storage once: saved_bytes; of them managed_bytes
        (of these compiled_bytes by compiled regions, at most region_bytes by one), let_go_bytes (managed from the
        second iteration on), and those of coverage.CLASSES; share: what is managed of what is not the program's
        own. None: it has not ended yet."""
        core = self._core
        if core.coverage is not None and core.coverage.passes and (core.between or not core.entries):
            core.coverage.end()
        return self._coverage

    def settle(self) -> None:
        """Waits until all learned orders are planned. Infeasible: the last order does not fit. Does nothing while the
        budget of a GPU is not divided: orders are planned again in what the stash gets then."""
        layouts.check_process()
        core = self._core
        if core.share is not None and not core.share.needs:
            return
        core.refusals.settle(core)

    @property
    def stats(self) -> types.SimpleNamespace:
        """Figures since the budget was created: those of mm_stash_stats (mm_stash.h), and numbers of tensors: saved; of
        these left alone (params, small, held by the program, other), or in the stash already (duplicates; of these
        views of another shape). held_bytes: storages of held tensors, each time one is saved. torch_bytes: what torch's
        allocator may take of the budget; 0: it has no share."""
        core = self._core
        stats = core.stats()
        figures = {name: getattr(stats, name) for name, _ in library.Stats._fields_}
        for name in bridge.COUNTS:
            figures[name] = getattr(core, name)
        figures["saved"] = stats.puts + sum(figures[name] for name in ("params", "small", "held", "other", "duplicates"))
        figures["torch_bytes"] = core.share.allowed if core.share else 0
        return types.SimpleNamespace(**figures)

    @property
    def touched(self) -> types.SimpleNamespace:
        """Bytes of the arena written under plans, and stray ones among them (measure_touched=True)."""
        core, touched = self._core, library.Touched()
        library.check(core.lib, core.lib.mm_stash_touched_get(core.stash, byref(touched)))
        return types.SimpleNamespace(bytes=touched.total_bytes, stray=touched.stray_bytes)

    def entries(self) -> Iterator[types.SimpleNamespace]:
        """Yields the tensors put in the last complete iteration, in order: producer, bytes, fate, codec, code_bytes,
        lossy, gets, signs and exact (what readers need)."""
        core, line, i = self._core, library.Line(), 0
        while core.lib.mm_stash_report(core.stash, i, byref(line)):
            yield types.SimpleNamespace(producer=(line.producer or b"").decode(), bytes=line.bytes,
                                        fate=library.FATES[line.fate], codec=(line.codec or b"").decode(),
                                        code_bytes=line.code_bytes, lossy=line.lossy, gets=line.gets, signs=bool(line.flags & library.SIGNS),
                                        exact=bool(line.flags & library.EXACT))
            i += 1

    def segments(self) -> Iterator[types.SimpleNamespace]:
        """Yields what the plan of the last complete iteration has in memory: entry (index in entries(); -1: scratch or
        a pool of codes), pinned (in host memory, else in the arena), code, offset and bytes there, first and last
        event. What it has on a disk is not among them."""
        core, segment, i = self._core, library.Segment(), 0
        while core.lib.mm_stash_plan_segment(core.stash, i, byref(segment)):
            yield types.SimpleNamespace(**{name: getattr(segment, name) for name, _ in library.Segment._fields_})
            i += 1

    def report(self) -> str:
        """A text about the last complete iteration: who holds the memory, and what became of it."""
        return picture.report(self)

    def svg(self, path: str) -> None:
        """Draws where and when the plan of the last iteration has each tensor. Raises OSError."""
        picture.svg(self, path)

    def snapshot(self, path: str) -> None:
        """Writes the plan of the last iteration as torch.cuda.memory._dump_snapshot would: for pytorch.org/memory_viz.
        Device 0: the arena; device 1: host memory. RuntimeError: it has no plan, or one that keeps all. Raises
        OSError."""
        snapshot.write(self, path)


def _sayer(log):
    """The function that takes messages: log, or the logger's. Without a handler, logging prints them to standard
    error."""
    return log or (lambda text: _logger.warning("mm: %s", text))


def _drain():
    """Runs an empty backward pass: after a pass that failed, torch holds the tasks of that pass, and so a part of its
    graph, until the next pass."""
    torch.zeros((), requires_grad=True).backward()
