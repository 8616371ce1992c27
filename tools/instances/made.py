# SPDX-License-Identifier: MIT
"""Instances that no network gives: odd graphs, and tiny ones whose optimum a search finds (exact.py).

A graph is a list of layers. Layer 0 makes the data's map; each later one reads maps of earlier layers and writes one.
Its backward step reads the gradient of its map, and what `saves` says: "in", the maps that it read; "out", the map that
it wrote; "sign", the signs of that. It adds to the gradients of the maps that it read. The file formats are those of
mm/mm_plan.h and mm/core/facts/facts_file.c.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Callable, Iterator

UNIT = 256  # bytes; a map is a whole number of units, the alignment of plans


@dataclass(frozen=True)
class Layer:
    """A layer: kind and inputs; units of its map; ns of its forward step (backward takes twice that); what it saves."""

    kind: str
    inputs: tuple[int, ...]
    units: int
    ns: int
    saves: str = "in"
    weight: int = 0  # units of its weight; 0: it has none


def numbers(seed: int) -> Iterator[int]:
    """Random numbers of 64 bits, the same everywhere: splitmix64, as the tests' tests/core/random.h."""
    mask = (1 << 64) - 1
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


# ---------------------------------------------------------------- the graphs


def tiny(inputs: list[tuple[int, ...]], units: list[int], us: list[int], saves: str) -> list[Layer]:
    """Few layers, with maps of the units and steps of the microseconds given."""
    kinds = {"i": ("conv", "in"), "o": ("pool", "out"), "n": ("conv", "none")}
    layers = [Layer("data", (), units[0], 1000, "none")]
    for k, reads in enumerate(inputs, 1):
        kind, saved = kinds[saves[k - 1]]
        layers.append(Layer(kind, reads, units[k], 1000 * us[k], saved))
    return layers


def chain(n: int) -> list[tuple[int, ...]]:
    """Layer k reads layer k - 1."""
    return [(k - 1,) for k in range(1, n + 1)]


def ladder(n: int, seed: int) -> list[Layer]:
    """Two chains of convolutions side by side; each rung adds a map of one to the other."""
    layers, random = [Layer("data", (), 256, 2000, "none")], numbers(seed)
    left = right = 0
    for _ in range(n):
        size = 128 * (1 + next(random) % 4)
        layers.append(Layer("conv", (left,), size, 20000 + next(random) % 60000, "in", 16))
        layers.append(Layer("conv", (right,), size, 20000 + next(random) % 60000, "in", 16))
        layers.append(Layer("add", (len(layers) - 2, len(layers) - 1), size, 3000, "none"))
        layers.append(Layer("relu", (len(layers) - 1,), size, 3000, "sign"))
        left, right = len(layers) - 4, len(layers) - 1
    layers.append(Layer("add", (left, right), layers[left].units, 3000, "none"))
    return layers


def hourglass(depth: int, seed: int) -> list[Layer]:
    """Maps halve on the way down and double on the way up, where those of the way down are read again."""
    layers, random, down = [Layer("data", (), 1024, 4000, "none")], numbers(seed), []
    for k in range(2 * depth):
        falls = k < depth
        level = k if falls else 2 * depth - 1 - k
        size, at = 1024 >> level, len(layers) - 1
        if falls:
            down.append(at)
            reads: tuple[int, ...] = (at,)
        else:
            layers.append(Layer("upsample", (at,), size, 4000, "none"))
            reads = (len(layers) - 1, down[level])
        for _ in range(2):
            layers.append(Layer("conv", reads, size, 15000 + next(random) % 40000, "in", 32 << level))
            layers.append(Layer("relu", (len(layers) - 1,), size, 4000, "sign"))
            reads = (len(layers) - 1,)
        if falls:
            layers.append(Layer("pool", reads, size // 2, 3000, "in"))
    return layers


def dense(n: int, growth: int, seed: int) -> list[Layer]:
    """Each convolution reads a concatenation of all maps before it."""
    layers, random, maps = [Layer("data", (), 2 * growth, 2000, "none")], numbers(seed), [0]
    for _ in range(n):
        size = sum(layers[m].units for m in maps)
        layers.append(Layer("concat", tuple(maps), size, 2000 + 10 * size, "none"))
        layers.append(Layer("bn", (len(layers) - 1,), size, 3000 + 15 * size, "in"))
        layers.append(Layer("relu", (len(layers) - 1,), size, 2000 + 10 * size, "sign"))
        layers.append(Layer("conv", (len(layers) - 1,), growth, 10000 + 40 * size + next(random) % 5000, "in", 8))
        maps.append(len(layers) - 1)
    layers.append(Layer("concat", tuple(maps), sum(layers[m].units for m in maps), 8000, "none"))
    return layers


def branches(blocks: int, seed: int) -> list[Layer]:
    """Blocks of two to five branches of unequal length, joined by a concatenation and a convolution."""
    layers, random = [Layer("data", (), 512, 3000, "none")], numbers(seed)
    for _ in range(blocks):
        start, ends = len(layers) - 1, []
        for _ in range(2 + next(random) % 4):
            at = start
            for _ in range(1 + next(random) % 3):
                size = 64 * (1 + next(random) % 3)
                layers.append(Layer("conv", (at,), size, 8000 + next(random) % 50000, "in", 8))
                layers.append(Layer("relu", (len(layers) - 1,), size, 2000, "sign"))
                at = len(layers) - 1
            ends.append(at)
        layers.append(Layer("concat", tuple(ends), sum(layers[e].units for e in ends), 3000, "none"))
        layers.append(Layer("conv", (len(layers) - 1,), 256 + 64 * (next(random) % 5), 30000, "in", 16))
    return layers


def tangle(n: int, seed: int) -> list[Layer]:
    """Layers of any kind that read one to three of the last twelve maps; sizes and times differ by up to fifty."""
    layers, random = [Layer("data", (), 200, 2000, "none")], numbers(seed)
    kinds = (("conv", "in"), ("linear", "in"), ("relu", "sign"), ("gelu", "in"), ("pool", "out"), ("bn", "in"))
    read: set[int] = set()
    for k in range(1, n):
        unread = [m for m in range(max(0, k - 12), k) if m not in read]
        reads = {unread[0] if len(unread) > 8 else k - 1 - next(random) % min(k, 12)
                 for _ in range(1 + next(random) % 3)}
        kind, saves = ("add", "none") if len(reads) > 1 else kinds[next(random) % len(kinds)]
        dear = kind in ("conv", "linear")
        ns = (10000 + next(random) % 90000) if dear else 2000 + next(random) % 6000
        read |= reads
        layers.append(Layer(kind, tuple(sorted(reads)), 8 * (1 + next(random) % 50), ns, saves, 4 if dear else 0))
    rest = tuple(m for m in range(n) if m not in read)
    return layers + [Layer("concat", rest, sum(layers[m].units for m in rest), 5000, "none")]


MADE: dict[str, Callable[[], list[Layer]]] = {
    "ladder": lambda: ladder(12, 1),
    "hourglass": lambda: hourglass(5, 2),
    "dense": lambda: dense(14, 96, 3),
    "branches": lambda: branches(8, 4),
    "tangle-a": lambda: tangle(70, 5),
    "tangle-b": lambda: tangle(70, 6),
    "tiny-chain": lambda: tiny(chain(7), [9, 16, 16, 16, 16, 16, 16, 4], [5, 9, 9, 9, 9, 9, 9, 9], "iiiiiii"),
    "tiny-uneven": lambda: tiny(chain(7), [8, 23, 9, 31, 12, 17, 26, 5], [3, 14, 30, 6, 27, 11, 8, 3], "iiioiii"),
    "tiny-skip": lambda: tiny([(0,), (1,), (2,), (3, 1), (4,), (5, 2), (6,)], [7, 22, 13, 27, 9, 24, 15, 4],
                              [3, 12, 25, 9, 17, 22, 9, 7], "iiiiioi"),
    "tiny-fork": lambda: tiny([(0,), (1,), (1,), (2, 3), (4,), (4, 1), (5, 6)], [11, 14, 25, 19, 9, 23, 16, 6],
                              [4, 18, 14, 21, 25, 6, 13, 5], "iioiiii"),
}


# ---------------------------------------------------------------- the files


def graph_of(name: str, layers: list[Layer]) -> dict[str, Any]:
    """The training graph of the layers: forward steps, the loss, backward steps."""
    tensors: list[dict[str, Any]] = []

    def tensor(title: str, kind: str, units: int, **more: Any) -> None:
        ownership = "managed" if kind.endswith("map") else "persistent"
        tensors.append({"name": title, "kind": kind, "ownership": ownership, "dtype": "f32", "dims": [units, 64]} | more)

    def use(title: str, access: str, **more: Any) -> dict[str, Any]:
        return {"tensor": title, "access": access, **more}

    def step(layer: int, phase: str, uses: list[dict[str, Any]]) -> dict[str, Any]:
        return {"layer": layer, "phase": phase, "workspace_bytes": 0, "uses": uses}

    for k, layer in enumerate(layers):
        if layer.weight:
            tensor(f"w{k}", "weight", layer.weight)
            tensor(f"grad.w{k}", "weight gradient", layer.weight, weight=f"w{k}")
        tensor(f"x{k}", "feature map", layer.units)
        if k:
            tensor(f"d{k}", "gradient map", layer.units)
    tensor("loss", "state", 1)
    dear = ("conv", "linear")
    listed = [{"name": f"layer{k}", "kind": layer.kind, "cost": "expensive" if layer.kind in dear else "cheap",
               "repeatable": True} for k, layer in enumerate(layers)]
    listed.append({"name": "loss", "kind": "loss", "cost": "cheap", "repeatable": False})
    last, steps = len(layers) - 1, []
    for k, layer in enumerate(layers):
        weight = [use(f"w{k}", "read")] if layer.weight else []
        reads = [use(f"x{m}", "read") for m in layer.inputs]
        steps.append(step(k, "forward", reads + weight + [use(f"x{k}", "write")]))
    steps.append(step(len(layers), "forward", [use(f"x{last}", "read"), use("loss", "modify")]))
    steps.append(step(len(layers), "backward", [use(f"x{last}", "read"), use(f"d{last}", "write")]))
    begun = {last}
    for k in range(last, 0, -1):
        layer, uses = layers[k], [use(f"d{k}", "read")]
        if layer.saves == "in":
            uses += [use(f"x{m}", "read") for m in layer.inputs]
        elif layer.saves != "none":
            uses.append(use(f"x{k}", "read", **({"form": "sign"} if layer.saves == "sign" else {})))
        if layer.weight:
            uses += [use(f"w{k}", "read"), use(f"grad.w{k}", "modify")]
        for m in layer.inputs:
            if m:
                uses.append(use(f"d{m}", "modify" if m in begun else "write"))
                begun.add(m)
        steps.append(step(k, "backward", uses))
    return {"name": name, "tensors": tensors, "layers": listed, "steps": steps}


def facts_of(graph: dict[str, Any], layers: list[Layer], link: int) -> dict[str, Any]:
    """Facts of the graph: backward steps take twice as long as forward ones; masks of maps; a link of so many bytes a
    second each way."""
    elems = {t["name"]: t["dims"][0] * t["dims"][1] for t in graph["tensors"]}
    steps = []
    for step in graph["steps"]:
        ns = layers[step["layer"]].ns if step["layer"] < len(layers) else 3000
        if step["phase"] == "backward":
            ns *= 2
        variant = {"id": 0, "deterministic": True, "workspace_bytes": 0, "ns": ns}
        steps.append({"layer": graph["layers"][step["layer"]]["name"], "phase": step["phase"], "variants": [variant]})
    no_body = {"body_bound_bytes": 0, "body_reserve_bytes": 0, "body_typical_bytes": 0, "body_is_measured": False}
    codes = {name: {"code_bytes": n // 8, "scratch_bytes": 0, "encode_ns": 1000 + n // 500,
                    "decode_ns": 1000 + n // 500} | no_body for name, n in elems.items()}
    mask = {"spec": "mask", "lossless": True, "fixed_size": True, "gives_value": False, "gives_sign": True,
            "drops_zeros": False, "codes": codes}
    return {
        "format": "mm facts", "version": 2,
        "graph": {"name": graph["name"], "steps": len(steps), "tensors": len(elems),
                  "tensor_bytes": 4 * sum(elems.values())},
        "link": {"out_bytes_per_s": link, "in_bytes_per_s": link, "out_both_bytes_per_s": link * 9 // 10,
                 "in_both_bytes_per_s": link * 9 // 10},
        "host_sum_bytes_per_s": 0, "link_sharers": 0, "contention_permille": 100, "link_contention_permille": 20,
        "issue_ns": 2000, "alloc_ns": 0, "cache_bytes": 0, "far_ps_per_byte": 0, "threads": 0, "steps": steps,
        "codecs": [mask],
    }


def write(name: str, graph_path: str, facts_path: str) -> None:
    """Writes the files of the instance `name`, a key of MADE. KeyError: there is none; OSError."""
    layers = MADE[name]()
    graph = graph_of(name, layers)
    with open(graph_path, "w", encoding="utf-8") as file:
        json.dump({"format": "mm graph", "version": 1, "graphs": [graph]}, file, indent=1)
    with open(facts_path, "w", encoding="utf-8") as file:
        json.dump(facts_of(graph, layers, 2_000_000_000), file, indent=1)
