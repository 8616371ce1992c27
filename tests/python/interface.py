# SPDX-License-Identifier: MIT
"""What people see of mm_torch: hints and docstrings of all that it exports; snapshots of plans, which torch's own tools
and the viewer at pytorch.org/memory_viz read."""

import copy
import inspect
import os
import pickle
import pickletools
import subprocess
import sys
import tempfile
import types
import typing

import torch

import mm_torch as mm
from checks import expect, run
from mm_torch import snapshot
from torch.cuda import _memory_viz

torch.set_num_threads(1)


# ---- hints and docstrings

def public(name, thing):
    """Yields name and function of what users call of an exported function or class."""
    if inspect.isfunction(thing):
        yield name, thing
        return
    for attribute, value in vars(thing).items():
        value = value.fget if isinstance(value, property) else value
        if inspect.isfunction(value) and (not attribute.startswith("_") or attribute in ("__init__", "__enter__", "__exit__")):
            yield f"{name}.{attribute}", value


def hinted(function):
    """Names of parameters without a hint, and "return". Raises NameError where a hint names nothing."""
    hints = typing.get_type_hints(function, {**vars(inspect.getmodule(function)), "torch": torch, "ModuleType": types.ModuleType})
    return [name for name in (*inspect.signature(function).parameters, "return") if name not in hints and name != "self"]


def exports_have_hints_and_docstrings():
    things = {name: getattr(mm, name) for name in mm.__all__}
    things["Accelerated"] = mm.trainers.Accelerated
    expect("what is exported is in __all__", {n for n, v in vars(mm).items() if not n.startswith("_") and
                                              getattr(v, "__module__", "").startswith("mm_torch")} <= set(mm.__all__))
    for name, thing in things.items():
        expect(f"mm.{name} has a docstring", len(inspect.getdoc(thing) or "") > 60, inspect.getdoc(thing))
        if inspect.isclass(thing) and issubclass(thing, Exception):
            continue
        for path, function in public(name, thing):
            expect(f"mm.{path} has hints", not hinted(function), hinted(function))
            dunder = path.rpartition(".")[2].startswith("__")
            expect(f"mm.{path} has a docstring", dunder or inspect.getdoc(function), "none")
    expect("type checkers read the hints", os.path.exists(os.path.join(os.path.dirname(mm.__file__), "py.typed")))


def an_older_torch_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "torch.py"), "w", encoding="utf-8") as file:
            file.write('__version__ = "2.5.1+cpu"\n')
        path = os.pathsep.join([folder, os.path.dirname(os.path.dirname(mm.__file__))])
        done = subprocess.run([sys.executable, "-c", "import mm_torch"], env={**os.environ, "PYTHONPATH": path}, check=False,
                              stderr=subprocess.PIPE)
    last = done.stderr.decode().strip().rpartition("\n")[2]
    expect("an older torch", last.startswith("ImportError") and "needs torch 2.6" in last and "2.5.1" in last, done.stderr)


# ---- snapshots

OPCODES = set("PROTO FRAME STOP MARK MEMOIZE APPEND APPENDS EMPTY_DICT EMPTY_LIST EMPTY_TUPLE SETITEM SETITEMS BINGET "
              "LONG_BINGET BININT BININT1 BININT2 LONG1 NEWFALSE NEWTRUE NONE SHORT_BINUNICODE BINUNICODE BINFLOAT TUPLE "
              "TUPLE1 TUPLE2 TUPLE3".split())  # those that the viewer knows (torch/utils/viz/MemoryViz.js)


def planned(policy, size):
    """A budget whose last iteration ran as planned."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.ReLU()) for _ in range(6)])
    x = torch.randn(64, 64)
    m = mm.budget(size, policy=policy, device="cpu")
    with m:
        for _ in range(4):
            net(x).sum().backward()
            m.settle()
    expect(f"{policy}: planned", m.stats.planned >= 2, m.stats)
    return m


def replay(trace, segments):
    """Replays a trace as an allocator: checks that blocks lie in the segment and never overlap. Returns the peak."""
    live, peak = {}, 0
    for event in trace:
        begin, end = event["addr"], event["addr"] + event["size"]
        if event["action"] == "alloc":
            expect("a block has a place of its own", all(e <= begin or end <= b for b, e in live.items()), event)
            expect("a block lies in a segment", any(s["address"] <= begin and end <= s["address"] + s["total_size"]
                                                    for s in segments), event)
            live[begin] = end
        elif event["action"] == "free_completed":
            expect("what is freed was allocated", live.pop(begin, None) == end, event)
        peak = max(peak, sum(e - b for b, e in live.items()))
    expect("all is freed at the end", not live, live)
    return peak


def snapshots_are_read_by_torch():
    lines = lambda text: text  # noqa: E731  in place of a flame graph, whose program torch would download
    with tempfile.TemporaryDirectory() as folder:
        for policy, size, moves in (("swap-async", "100KiB", True), ("freelunch:codec=zvc,eligible=all", "170KiB", False),
                                    ("freelunch:rate=4,eligible=all", "120KiB", False), ("auto", "120KiB", True)):
            m, path = planned(policy, size), os.path.join(folder, "plan.pickle")
            m.snapshot(path)
            with open(path, "rb") as file:
                written = file.read()
            opcodes = {opcode.name for opcode, _, _ in pickletools.genops(written)}
            expect(f"{policy}: the viewer knows the pickle's operations", opcodes <= OPCODES, opcodes - OPCODES)
            expect(f"{policy}: the viewer knows the protocol", 2 <= written[1] <= 4, written[1])
            data = pickle.loads(written)
            segments = list(m.segments())
            for device, pinned in enumerate((False, True)):
                own = [s for s in data["segments"] if s["device"] == device]
                peak = replay(data["device_traces"][device], own)
                # What an event needs at once is held at once; a block may be freed before the next one is allocated.
                events = range(max(s.last for s in segments) + 1)
                most = max(sum(s.bytes for s in segments if s.pinned is pinned and s.first < t < s.last) for t in events)
                expect(f"{policy}, device {device}: peak", most <= peak <= sum(s["total_size"] for s in own), (most, peak))
            allocated = sum(e["action"] == "alloc" for trace in data["device_traces"] for e in trace)
            expect(f"{policy}: each segment once", allocated == sum(s.bytes > 0 for s in segments), allocated)
            expect(f"{policy}: moved tensors are in host memory", bool(data["device_traces"][1]) >= moves)
            names = {f["name"] for trace in data["device_traces"] for e in trace for f in e["frames"]}
            expect(f"{policy}: producers are named", any("Backward" in name for name in names), names)
            categories = {e["category"] for trace in data["device_traces"] for e in trace}
            expect(f"{policy}: fates are categories", "unknown" in categories and len(categories) > 1, categories)

            for plot in (_memory_viz.trace_plot(data), _memory_viz.trace_plot(data, plot_segments=True),
                         _memory_viz.segment_plot(data)):
                expect(f"{policy}: a page", "snapshot.pickle" in plot)
            for text in _memory_viz.memory(data, lines), _memory_viz.segments(data, lines):
                expect(f"{policy}: lines for a flame graph", text.count("inactive") >= len(data["segments"]), text)
            expect(f"{policy}: a sum of segments", "segments >=" in _memory_viz.segsum(copy.deepcopy(data)))
            expect(f"{policy}: a trace", "Device 0" in _memory_viz.trace(copy.deepcopy(data)))
            if not hasattr(_memory_viz, "filter_alloc_free_pairs"):
                continue  # torch 2.6
            left = _memory_viz.filter_alloc_free_pairs(copy.deepcopy(data))["device_traces"]
            expect(f"{policy}: pairs of alloc and free", all(e["action"] == "segment_alloc" for t in left for e in t), left)


def without_a_plan_a_snapshot_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.pickle")
        for m in mm.budget("1MiB", device="cpu"), planned("liveness", "4MiB"):
            try:
                m.snapshot(path)
                expect("refused", False, "written")
            except RuntimeError as error:
                expect("says why", "no plan to show" in str(error), error)
            expect("nothing is written", not os.path.exists(path))
        segment = types.SimpleNamespace(entry=-1, pinned=False, code=False, offset=0, bytes=8, first=0, last=0)
        scratch = snapshot.of([], [segment], 8)["device_traces"][0][1]
        expect("scratch has a name", scratch["frames"][0]["name"] == "scratch of codecs", scratch)
        try:
            planned("swap-async", "100KiB").snapshot(os.path.join(folder, "none", "plan.pickle"))
            expect("an OSError", False, "written")
        except OSError:
            pass


if __name__ == "__main__":
    run(exports_have_hints_and_docstrings, an_older_torch_is_refused, snapshots_are_read_by_torch,
        without_a_plan_a_snapshot_is_refused)
