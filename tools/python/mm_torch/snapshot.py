# SPDX-License-Identifier: MIT
"""Writes a plan as torch.cuda.memory._dump_snapshot writes what torch's allocator did, for pytorch.org/memory_viz.

  device 0   the budget's arena         device 1   host memory, if the plan moves tensors there
  segment    that memory as a whole     block      a tensor, a code, or scratch of codecs, while the plan has it there

An event of the order (a save, a read, a return) frees what it is the last to need as soon as its place is wanted, so
that blocks never overlap. Memory that torch has (what the plan leaves where it is, and all else) is not shown: torch's
own recorder shows it."""

from __future__ import annotations

import os
import pickle
from typing import Any

PROTOCOL = 4  # the viewer reads protocols 2 to 4
BASES = 1 << 44, 1 << 45  # addresses of the arena and of host memory: any, but apart
# The viewer fails on categories without this one.
UNKNOWN = "unknown"


def write(m: Any, path: str | os.PathLike[str]) -> None:
    """See mm.budget.snapshot. m: a budget."""
    snapshot = of(list(m.entries()), list(m.segments()), m.stats.arena_bytes)
    with open(path, "wb") as file:
        pickle.dump(snapshot, file, protocol=PROTOCOL)


def of(entries: list[Any], segments: list[Any], arena_bytes: int) -> dict[str, Any]:
    """The snapshot of a plan, from what budget.entries() and budget.segments() yield. RuntimeError: no segment."""
    if not segments:
        raise RuntimeError("mm_torch: there is no plan to show: the iteration that ended last ran unplanned, or its plan leaves "
                           "every tensor where torch has it; report() says which")
    devices = [[s for s in segments if s.pinned is pinned and s.bytes] for pinned in (False, True)]
    sizes = [max([least] + [s.offset + s.bytes for s in device]) for device, least in zip(devices, (arena_bytes, 0))]
    return {
        "segments": [_segment(device, sizes[device]) for device in (0, 1) if sizes[device]],
        "device_traces": [_trace(entries, segments, device, sizes[device]) for device, segments in enumerate(devices)],
        "allocator_settings": {},
    }


def _frame(name: str, what: str, number: int = 0) -> dict[str, Any]:
    """What the viewer shows as one line of a stack: WHAT:NUMBER:NAME."""
    return {"name": name, "filename": what, "line": number}


def _event(action: str, address: int, size: int, time: int, frames: list[Any], category: str) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": frames, "category": category}


def _segment(device: int, size: int) -> dict[str, Any]:
    """The memory as it is when the iteration has ended: all free."""
    block = {"address": BASES[device], "size": size, "requested_size": 0, "state": "inactive", "frames": []}
    return {"device": device, "address": BASES[device], "total_size": size, "allocated_size": 0, "active_size": 0,
            "requested_size": 0, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
            "frames": _frames(device), "blocks": [block]}


def _frames(device: int) -> list[dict[str, Any]]:
    return [_frame("host memory of mm.budget" if device else "arena of mm.budget", "mm_torch")]


def _trace(entries: list[Any], segments: list[Any], device: int, size: int) -> list[dict[str, Any]]:
    """Allocations and frees in the order of events. time_us: the event's number."""
    base = BASES[device]
    trace = [_event("segment_alloc", base, size, 0, _frames(device), UNKNOWN)] if size else []
    starting: dict[int, list[Any]] = {}
    ending: dict[int, list[Any]] = {}  # of those that are allocated
    for segment in segments:
        starting.setdefault(segment.first, []).append(segment)

    def free(segment, time):
        ending[time].remove(segment)
        for action in "free_requested", "free_completed":
            trace.append(_event(action, base + segment.offset, segment.bytes, time, *_described(entries, segment)))

    for time in range(max((s.last for s in segments), default=-1) + 1):
        for segment in starting.get(time, ()):
            for other in [s for s in ending.get(time, ()) if _overlap(s, segment)]:
                free(other, time)
            trace.append(_event("alloc", base + segment.offset, segment.bytes, time, *_described(entries, segment)))
            ending.setdefault(segment.last, []).append(segment)
        for segment in list(ending.get(time, ())):
            free(segment, time)
    return trace


def _overlap(a: Any, b: Any) -> bool:
    return a.offset < b.offset + b.bytes and b.offset < a.offset + a.bytes


def _described(entries: list[Any], segment: Any) -> tuple[list[dict[str, Any]], str]:
    """Frames and category of a block: what is in it, and what becomes of the tensor."""
    if not 0 <= segment.entry < len(entries):
        what = "codes" if segment.code else "scratch"
        return [_frame(f"{what} of codecs", what)], what
    entry = entries[segment.entry]
    name = entry.producer or "(no gradient)"
    frame = _frame(f"{name}, {entry.codec}" if segment.code else name, "code" if segment.code else "tensor", segment.entry)
    return [frame, _frame(entry.fate, "fate")], "code" if segment.code else entry.fate
