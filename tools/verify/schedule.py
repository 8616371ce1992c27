# SPDX-License-Identifier: MIT
"""Writes schedules of other systems as plan files, for mm verify: tensors, where their bytes are, steps, copies, waits.

    s = Schedule("training", "my offloader")
    h = s.map("h", 4096)
    kept, host = s.device(h, 0), s.pinned(h, 0)
    forward = s.step("layer1", "forward", writes=[kept])
    out = s.offload(kept, host, after=[forward])
    ...
    s.save("my.plan")

Nodes are added in the order in which the program issues them. A node waits for the nodes in `after`: of each other
stream, the last of them counts, as with an event that is recorded there. Bytes are in bytes, offsets from the first
byte behind the persistent tensors. The format: mm/core/plan/FORMAT.md. Standard library only.
"""
import json

STREAMS = {"step": "compute", "recompute": "compute", "offload": "out", "prefetch": "in"}
ALIGN = 256
MOST = 2**62  # a limit that nothing reaches


def aligned(size):
    return (size + ALIGN - 1) // ALIGN * ALIGN


class Schedule:
    def __init__(self, graph, policy):
        self.graph, self.policy = graph, policy
        self.tensors, self.homes, self.segments = [], [], []
        self.sizes = {}  # name of a tensor → its bytes
        self.layers, self.steps, self.nodes = {}, [], []
        self.issued = dict.fromkeys(("compute", "encode", "decode", "out", "in"), 0)

    # ------------------------------------------------------------ tensors, and where they are

    def map(self, name, size, kind="feature map"):
        """A tensor that lives within an iteration. Returns its name."""
        self._tensor(name, size, kind, "managed")
        return name

    def persistent(self, name, size, pinned=False, kind="weight"):
        """A tensor that lives across iterations. Returns its home, a segment: on the device, or in pinned memory."""
        self._tensor(name, size, kind, "persistent")
        place = "pinned" if pinned else "device"
        offset = sum(aligned(h["bytes"]) for h in self.homes if h["place"] == place)
        home = {"content": "raw", "category": "persistent", "tensor": name, "place": place, "offset": offset,
                "bytes": size}
        self.homes.append(home)
        return home

    def _tensor(self, name, size, kind, ownership):
        self.tensors.append({"name": name, "kind": kind, "ownership": ownership, "dtype": "u8", "dims": [size]})
        self.sizes[name] = size

    def _segment(self, tensor, offset, place):
        segment = {"content": "raw", "category": "feature maps", "tensor": tensor, "place": place, "offset": offset,
                   "bytes": self.sizes[tensor]}
        self.segments.append(segment)
        return segment

    def device(self, tensor, offset):
        """Bytes of the tensor on the device."""
        return self._segment(tensor, offset, "device")

    def pinned(self, tensor, offset):
        """Bytes of the tensor in pinned host memory."""
        return self._segment(tensor, offset, "pinned")

    # ------------------------------------------------------------ work, in the order of issue

    def _node(self, kind, after, **what):
        stream = STREAMS[kind]
        waits = {}
        for node in after:
            other = STREAMS[node["kind"]]
            if other != stream:
                waits[other] = max(waits.get(other, -1), node["number"])
        node = {"kind": kind, "number": self.issued[stream], "waits": waits, **what}
        self.issued[stream] += 1
        self.nodes.append(node)
        return node

    def step(self, layer, phase, reads=(), writes=(), modifies=(), inplace=(), after=()):
        """A step on the compute stream. It reads, writes and modifies segments. `inplace`: pairs of what it reads and
        what it writes over that."""
        number = self.layers.setdefault(layer, len(self.layers))
        uses = [("read", s) for s in reads] + [("write", s) for s in writes] + [("modify", s) for s in modifies]
        pairs = [{"allow": "inplace", "input": a["tensor"], "output": b["tensor"]} for a, b in inplace]
        self.steps.append({"layer": number, "phase": phase, "workspace_bytes": 0,
                           "uses": [{"tensor": s["tensor"], "access": access} for access, s in uses],
                           **({"pairs": pairs} if pairs else {})})
        return self._node("step", after, step=len(self.steps) - 1, segments=[s for _, s in uses])

    def offload(self, source, target, after=()):
        """A copy from the device to pinned memory, on its own stream."""
        return self._node("offload", after, tensor=source["tensor"], source=source, target=target)

    def prefetch(self, source, target, after=()):
        """A copy from pinned memory to the device, on its own stream."""
        return self._node("prefetch", after, tensor=source["tensor"], source=source, target=target)

    # ------------------------------------------------------------ the file

    def lines(self):
        segments = self.homes + self.segments
        base = {place: sum(aligned(h["bytes"]) for h in self.homes if h["place"] == place)
                for place in ("device", "pinned")}
        index = {id(s): i for i, s in enumerate(segments)}

        def end(place):
            return max([base[place]] + [base[place] + s["offset"] + s["bytes"] for s in self.segments
                                        if s["place"] == place])

        yield {"format": "mm plan", "version": 1, "plan": 0, "plans": 1, "policy": self.policy}
        layers = [{"name": name, "kind": "other", "cost": "cheap", "repeatable": False} for name in self.layers]
        yield {"is": "graph", "format": "mm graph", "version": 1,
               "graphs": [{"name": self.graph, "tensors": self.tensors, "layers": layers, "steps": self.steps}]}
        yield {"is": "limits", "device_bytes": MOST, "pinned_bytes": MOST, "base_bytes": base["device"],
               "pinned_base_bytes": base["pinned"]}
        for home in self.homes:
            yield {"is": "home", "tensor": home["tensor"], "place": home["place"], "offset": home["offset"]}
        yield {"is": "facts", "piece_bytes": 4 << 20}
        for number in range(len(self.steps)):
            yield {"is": "variants", "step": number,
                   "variants": [{"id": 0, "deterministic": True, "workspace_bytes": 0}]}
        yield {"is": "plan", "segments": len(segments), "nodes": len(self.nodes), "pieces": len(self.nodes),
               "base_bytes": base["device"], "pinned_base_bytes": base["pinned"], "extent_bytes": end("device"),
               "external_bytes": 0, "peak_bytes": end("device"), "pinned_bytes": end("pinned")}
        for number, segment in enumerate(segments):
            moved = base[segment["place"]] if number >= len(self.homes) else 0
            yield {"is": "segment", "index": number, **segment, "offset": segment["offset"] + moved}
        for number, node in enumerate(self.nodes):
            line = {"is": "node", "index": number, "kind": node["kind"], "stream": STREAMS[node["kind"]], **node}
            for key in ("source", "target"):
                if key in node:
                    line[key] = index[id(node[key])]
            if "segments" in node:
                line["segments"] = [index[id(s)] for s in node["segments"]]
            yield line
        for number, node in enumerate(self.nodes):
            line = {"is": "piece", "node": number, "number": node["number"]}
            if "tensor" in node:
                line.update(first_row=0, rows=self.sizes[node["tensor"]],
                            stored_bytes=self.sizes[node["tensor"]])
            yield {**line, "waits": node["waits"]}

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            for line in self.lines():
                file.write(json.dumps(line) + "\n")
