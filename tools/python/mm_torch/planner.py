# SPDX-License-Identifier: MIT
"""Graphs for the library's planner, and what it answers: which budget they need, and what becomes of each tensor.

    g = Graph("two layers")
    g.tensor("h", "feature map", [64, 256], "f32")
    ...
    g.layer("linear1", "linear", cost="expensive", repeatable=True)
    g.step("linear1", "forward", reads=["x", "w1"], writes=["h"])
    ...
    needs = require(g, "auto", budget=8 << 20, times={("linear1", "forward"): 12000}, rates=Rates(...))
    for map in needs["graphs"][0]["stashed"]: print(map["tensor"], map["actions"])

A graph is a file of graphs (mm_plan.h says which fields there are); the answer is mm_requirement_json's. Nothing here
needs a device or reserves memory. All functions may be called from any thread."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import tempfile
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from . import library

NAME_MOST = 200  # characters of a name in a graph (mm.h)
NO_LIMIT = 2**63 - 1
_MAPS = ("feature map", "gradient map", "saved")  # kinds whose bytes identify a graph in a file of facts
_SIZES = {"f32": 4, "i32": 4, "u8": 1, "f16": 2, "bf16": 2}


class Limits(ctypes.Structure):
    """mm_plan_limits."""
    _fields_ = [("device", c_char_p), ("device_bytes", c_int64), ("pinned_bytes", c_int64), ("disk_bytes", c_int64),
                ("disk_bytes_per_s", c_int64), ("link_bytes_per_s", c_int64), ("no_recompute", c_bool), ("no_advice", c_bool),
                ("stop_search", POINTER(c_int))]


_SIGNATURES = {
    "mm_graph_load": (c_int, c_char_p, POINTER(c_void_p), POINTER(c_size_t)),
    "mm_graph_list_destroy": (None, c_void_p, c_size_t),
    "mm_facts_load": (c_int, c_char_p, POINTER(c_void_p)),
    "mm_facts_destroy": (None, c_void_p),
    "mm_requirement_get": (c_int, c_void_p, c_size_t, c_void_p, c_char_p, POINTER(Limits), POINTER(c_void_p)),
    "mm_requirement_text": (c_int, c_void_p, POINTER(c_void_p)),
    "mm_requirement_json": (c_int, c_void_p, POINTER(c_void_p)),
    "mm_requirement_destroy": (None, c_void_p),
}


def _lib():
    lib = library.get()
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


@dataclasses.dataclass
class Rates:
    """Rates of a device, for times of copies and codecs. Bytes a second; 0: not known. codecs: by a codec's whole spec
    or its name, (bytes of the map a second encoding, decoding). contention_permille: how much longer steps take beside
    a codec; link_contention_permille: beside a copy."""
    out_bytes_per_s: int = 0
    in_bytes_per_s: int = 0
    out_both_bytes_per_s: int = 0
    in_both_bytes_per_s: int = 0
    issue_ns: int = 0
    launch_ns: int = 0
    contention_permille: int = 0
    link_contention_permille: int = 0
    codecs: Mapping[str, Tuple[float, float]] = dataclasses.field(default_factory=dict)


def codecs_of(root: Mapping, halves: bool) -> Dict[str, Tuple[float, float]]:
    """Rates of codecs in a machine file, for Rates. halves: of maps in bf16."""
    codecs = root.get("types", {}).get("bf16", {}).get("codecs", {}) if halves else root.get("codecs", {})
    return {spec: (c["encode_bytes_per_s"], c["decode_bytes_per_s"]) for spec, c in codecs.items()
            if c.get("encode_bytes_per_s") and c.get("decode_bytes_per_s")}


class Graph:
    """A graph in the making: tensors, layers and steps, in the order in which they are added. Names are unique among
    the tensors, and among the layers. ValueError: a name used twice, too long, or not known. What else makes no sense
    is refused by require()."""

    def __init__(self, name: str):
        self.name = _checked(name)
        self.tensors: List[dict] = []
        self.layers: List[dict] = []
        self.steps: List[dict] = []
        self._layer: Dict[str, int] = {}
        self._tensor: Dict[str, dict] = {}

    def tensor(self, name: str, kind: str, dims: Union[int, Sequence[int]], dtype: str = "u8",
               ownership: str = "managed", weight: Optional[str] = None) -> str:
        """Declares a tensor; returns its name. kind: input, feature map, gradient map, saved, weight, weight gradient,
        optimizer, state. dims: a number of elements, or sizes, outermost first, at most 8. dtype: f32, f16, bf16, i32,
        u8; tensors of other types have their bytes as u8. weight: the weight of a gradient or an optimizer state."""
        if name in self._tensor:
            raise ValueError(f"graph {self.name}: tensor {name!r} is declared twice")
        entry = {"name": _checked(name), "kind": kind, "ownership": ownership, "dtype": dtype,
                 "dims": [int(dims)] if isinstance(dims, int) else [int(n) for n in dims] or [1]}
        if weight is not None:
            entry["weight"] = weight
        self.tensors.append(entry)
        self._tensor[name] = entry
        return name

    def layer(self, name: str, kind: str = "other", cost: str = "cheap", repeatable: bool = False) -> str:
        """Declares a layer; returns its name. cost: "cheap" or "expensive" (it multiplies matrices). repeatable: its
        forward step may run again and then gives the same bits."""
        if name in self._layer:
            raise ValueError(f"graph {self.name}: layer {name!r} is declared twice")
        self._layer[name] = len(self.layers)
        self.layers.append({"name": _checked(name), "kind": kind, "cost": cost, "repeatable": repeatable})
        return name

    def step(self, layer: str, phase: str, reads: Iterable[str] = (), writes: Iterable[str] = (),
             modifies: Iterable[str] = (), signs: Iterable[str] = (), workspace: int = 0,
             inplace: Iterable[Tuple[str, str]] = (), alias: Iterable[Tuple[str, str]] = ()) -> None:
        """Appends the step of a layer in a phase (forward, backward, update), of which there is one each. signs:
        tensors of which it reads the signs alone. workspace: bytes. inplace: pairs of an input and an output that may
        be written over it. alias: pairs of an input and an output that equals it."""
        uses = [{"tensor": name, "access": access, **form}
                for names, access, form in ((reads, "read", {}), (signs, "read", {"form": "sign"}),
                                            (modifies, "modify", {}), (writes, "write", {})) for name in names]
        for use in uses:
            if use["tensor"] not in self._tensor:
                raise ValueError(f"graph {self.name}: {layer} {phase} uses {use['tensor']!r}, which is not declared")
        if layer not in self._layer:
            raise ValueError(f"graph {self.name}: there is no layer {layer!r}")
        pairs = [{"allow": allow, "input": i, "output": o}
                 for allow, given in (("inplace", inplace), ("alias", alias)) for i, o in given]
        self.steps.append({"layer": self._layer[layer], "phase": phase, "workspace_bytes": int(workspace), "uses": uses,
                           **({"pairs": pairs} if pairs else {})})

    def bytes_of(self, name: str) -> int:
        """Bytes of a declared tensor."""
        entry = self._tensor[name]
        elems = 1
        for n in entry["dims"]:
            elems *= n
        return elems * _SIZES[entry["dtype"]]

    def json(self) -> dict:
        """The graph as an entry of a file of graphs."""
        return {"name": self.name, "tensors": self.tensors, "layers": self.layers, "steps": self.steps}

    def save(self, path: str) -> None:
        """Writes a file of this graph, for `mm plan --graph`. OSError."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"format": "mm graph", "version": 1, "graphs": [self.json()]}, file)

    def facts(self, times: Mapping[Tuple[str, str], int], rates: Optional[Rates] = None) -> dict:
        """Facts of this graph, for `mm plan --facts`. times: ns by (layer, phase). Steps that are missing, or take
        none, take one: 0 would mean that the time is not known."""
        rates = rates or Rates()
        steps = []
        for step in self.steps:
            layer, phase = self.layers[step["layer"]]["name"], step["phase"]
            steps.append({"layer": layer, "phase": phase, "variants": [
                {"id": 0, "deterministic": True, "workspace_bytes": step["workspace_bytes"],
                 "ns": max(1, int(times.get((layer, phase), 1)))}]})
        maps = sum(self.bytes_of(t["name"]) for t in self.tensors if t["kind"] in _MAPS)
        both = rates.out_both_bytes_per_s or rates.out_bytes_per_s, rates.in_both_bytes_per_s or rates.in_bytes_per_s
        return {"format": "mm facts", "version": 2,
                "graph": {"name": self.name, "steps": len(self.steps), "tensors": len(self.tensors),
                          "tensor_bytes": maps},
                "link": {"out_bytes_per_s": int(rates.out_bytes_per_s), "in_bytes_per_s": int(rates.in_bytes_per_s),
                         "out_both_bytes_per_s": int(both[0]), "in_both_bytes_per_s": int(both[1])},
                "contention_permille": rates.contention_permille,
                "link_contention_permille": rates.link_contention_permille, "issue_ns": rates.issue_ns, "steps": steps,
                "codecs": [], "codec_rates": {
                    spec: {"encode_bytes_per_s": int(encode), "decode_bytes_per_s": int(decode),
                           "launch_ns": rates.launch_ns}
                    for spec, (encode, decode) in rates.codecs.items()}}


def _checked(name: str) -> str:
    if not 0 < len(name) <= NAME_MOST:
        raise ValueError(f"name {name[:40]!r}...: has {len(name)} characters, must have 1 to {NAME_MOST}")
    return name


def require(graph: Graph, policy: str = "liveness", budget: int = 0, pinned: Optional[int] = None,
            times: Optional[Mapping[Tuple[str, str], int]] = None, rates: Optional[Rates] = None, advice: bool = False,
            recompute: bool = True, device: str = "host", disk: Tuple[int, int] = (0, 0)) -> dict:
    """Plans a training step: what it needs, and what becomes of each map, as a dict with mm_requirement's members
    (mm_plan.h). ["least_bytes"]: the least budget; ["fits"]; ["graphs"][0]["stashed"]: for each map that waits for the
    backward pass "tensor", "bytes", "held_bytes" (on the device between the passes), "actions" (keep, mask, compress,
    recompute, swap, compress-swap), "codec", "ns".

    policy: as for the command mm. budget: bytes; 0: none, so the plan is the smallest. pinned: bytes of host memory;
    None: no limit. times: ns by (layer, phase); with them, "iteration_ns" is the predicted time, and `auto` has what it
    needs to choose. rates: of copies and codecs. advice: look for a policy that would fit (slow). recompute: steps of
    repeatable layers may run again. disk: bytes of a disk, 0: none; and its bytes a second, 0: as the library assumes.
    ValueError: the graph or the policy makes no sense. MemoryError."""
    lib = _lib()
    graphs, n, facts, needs, text = c_void_p(), c_size_t(), c_void_p(), c_void_p(), c_void_p()
    with tempfile.TemporaryDirectory(prefix="mm-plan-") as folder:
        path = os.path.join(folder, "graph.json")
        graph.save(path)
        _check(lib, lib.mm_graph_load(path.encode(), byref(graphs), byref(n)))
        try:
            if times is not None:
                path = os.path.join(folder, "facts.json")
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(graph.facts(times, rates), file)
                _check(lib, lib.mm_facts_load(path.encode(), byref(facts)))
            limits = Limits(device.encode(), int(budget), NO_LIMIT if pinned is None else int(pinned), *disk, 0,
                            not recompute, not advice, None)
            _check(lib, lib.mm_requirement_get(graphs, n, facts, policy.encode(), byref(limits), byref(needs)))
            _check(lib, lib.mm_requirement_json(needs, byref(text)))
            return json.loads(ctypes.string_at(text))
        finally:
            _free(text)
            lib.mm_requirement_destroy(needs)
            lib.mm_facts_destroy(facts)
            lib.mm_graph_list_destroy(graphs, n)


def _check(lib, status: int) -> None:
    """library.check; what a graph or facts lack is a ValueError."""
    if status == library.ERR_FORMAT:
        raise ValueError(lib.mm_last_error().decode(errors="replace"))
    library.check(lib, status)


_free = ctypes.CDLL(None).free
_free.restype, _free.argtypes = None, [c_void_p]
