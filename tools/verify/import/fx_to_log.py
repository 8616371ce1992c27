#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a log of events, for log_to_plan.py, of graphs of torch.compile with activation offloading (record_fx.py).

    python3 tools/verify/import/fx_to_log.py GRAPHS -o LOG

The nodes ao.offload, ao.reload and ao.wait_tensor mean what torch 2.13 does for them
(torch/_functorch/_activation_offloading/offload_ops.py); README.md says what. Standard library only.
"""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from log_to_plan import Refused  # noqa: E402

BLOCK = 512  # torch's caching allocator rounds to it
COMPUTE, TRANSFER = "compute", "transfer"


class Buffer:
    def __init__(self, name, memory, size):
        self.name, self.memory, self.size, self.freed = name, memory, size, False
        self.address = self.room = 0


class Importer:
    """Runs graphs. A value (a node's name) has a buffer, or several if it is a tuple."""

    def __init__(self, name):
        self.events = [{"format": "mm events", "version": 1, "name": name}]
        self.values, self.pending, self.phase = {}, {}, "forward"
        self.top, self.spare, self.recorded = {}, [], 0

    def write(self, do, **event):
        self.events.append({"do": do, **event})

    # ------------------------------------------------------------ buffers

    def make(self, name, size, memory="device", filled=False):
        """Freed blocks of the device go to the next allocation that they fit, as in torch's allocator: they all belong
        to the compute stream. Blocks of host memory are not used again."""
        b = Buffer(name, memory, max(size, 1))
        room = (b.size + BLOCK - 1) // BLOCK * BLOCK
        fit = [s for s in self.spare if s[1] >= room] if memory == "device" and not filled else []
        if fit:
            block = min(reversed(fit), key=lambda s: s[1])
            self.spare.remove(block)
            b.address, b.room = block
        else:
            b.address, b.room = self.top.get(memory, 0), room
            self.top[memory] = b.address + room
        self.write("alloc", buffer=name, address=b.address, bytes=b.size, memory=memory, stream=COMPUTE, filled=filled)
        return b

    def free(self, b):
        if b.freed:
            return
        b.freed = True
        self.write("free", buffer=b.name)
        if b.memory == "device":
            self.spare.append((b.address, b.room))

    def buffers(self, names):
        """Of the values in an argument."""
        names = names if isinstance(names, list) else [names]
        for name in names:
            if name not in self.values:
                raise Refused(f"{name} is not known where it is used")
        return [b for name in names for b in self.values[name]]

    # ------------------------------------------------------------ nodes

    def mark(self, stream):
        """An event for the stream as it is now."""
        self.recorded += 1
        self.write("record", stream=stream, event=f"e{self.recorded}")
        return f"e{self.recorded}"

    def transfer(self, node, source, target):
        """On the transfer stream, after all that the compute stream has got so far."""
        self.write("wait", stream=TRANSFER, event=self.mark(COMPUTE))
        self.write("copy", stream=TRANSFER, **{"from": source.name, "to": target.name})
        self.values[node] = [target]
        self.pending[target.name] = self.mark(TRANSFER)

    def wait(self, node, args):
        [b] = self.buffers(args["tensor"])
        if b.name not in self.pending:
            raise Refused(f"{node} waits for {b.name}, of which no transfer is pending")
        self.write("wait", stream=COMPUTE, event=self.pending.pop(b.name))
        self.values[node] = [b]
        for kept in self.buffers(args["keepalive"]) if args.get("keepalive") else []:
            self.free(kept)  # its storage is given back, whoever else holds it

    def call(self, line):
        node, target, args = line["node"], line["target"], line["args"]
        if target == "getitem":
            self.values[node] = [self.buffers(args["of"])[args["index"]]]
        elif target == "ao.offload.default":
            [source] = self.buffers(args["tensor"])
            self.transfer(node, source, self.make(node, line["bytes"][0], "host"))
        elif target == "ao.reload.default":
            [source] = self.buffers(args["tensor"])
            self.transfer(node, source, self.make(node, line["bytes"][0]))
        elif target == "ao.wait_tensor.default":
            self.wait(node, args)
        elif target == "prims.device_put.default":  # without a stream of its own
            [source] = self.buffers(args["a"])
            b = self.make(node, line["bytes"][0], "host" if source.memory == "device" else "device")
            self.write("copy", stream=COMPUTE, **{"from": source.name, "to": b.name})
            self.values[node] = [b]
        elif "shares" in line and "changes" not in line:
            self.values[node] = self.buffers(args[line["shares"]])
        else:
            self.kernel(line)

    def kernel(self, line):
        node, args = line["node"], line["args"]
        reads = {b.name: b for names in args.values() for b in self.buffers(names)}
        changed = {b.name: b for name in line.get("changes", []) for b in self.buffers(args[name])}
        if "shares" in line:
            made = []
            self.values[node] = self.buffers(args[line["shares"]])
        else:
            made = [self.make(f"{node}:{i}" if i else node, size) for i, size in enumerate(line["bytes"])]
            self.values[node] = made
        self.write("kernel", name=node, stream=COMPUTE, phase=self.phase, reads=list(reads),
                   writes=[*changed, *(b.name for b in made)])

    def run(self, graph, inputs, held):
        """inputs: the buffers of the graph's inputs, by their names. held: buffers that the caller holds. Others are
        freed after the last node that uses them, unless the graph returns them. Returns the values of the graph's
        outputs."""
        last, ends = {}, {}
        for number, line in enumerate(graph):
            for names in [*line.get("args", {}).values(), line.get("values", [])]:
                last.update(dict.fromkeys(names if isinstance(names, list) else [names], number))
            last.setdefault(line["node"], number)
        self.values = {}
        for number, line in enumerate(graph):
            if line["is"] == "output":
                return {name: self.values[name] for name in line["values"] if name}
            if line["is"] == "input":
                self.values[line["node"]] = inputs[line["node"]]
            else:
                self.call(line)
            for b in self.values[line["node"]]:
                ends[b] = max(ends.get(b, 0), last[line["node"]])
            for b in [b for b, end in ends.items() if end == number and b not in held]:
                self.free(b)
        raise Refused("a graph has no output")


def to_log(lines):
    """The log's events, of the lines of a file of graphs."""
    header, *nodes = [json.loads(line) for line in lines if line.strip()]
    if header.get("format") != "mm fx" or header.get("version") != 1:
        raise Refused("is no file of graphs of version 1")
    forward, backward = ([n for n in nodes if n["graph"] == which] for which in ("forward", "backward"))
    x = Importer(header["name"])
    given = {n["node"]: [x.make(n["node"], n["bytes"][0], filled=True)] for n in forward if n["is"] == "input"}
    held = {b for buffers in given.values() for b in buffers}
    saved = x.run(forward, given, held)
    results = {b: None for name in list(saved)[:header["outputs"]] for b in saved[name]}  # in their order
    # The rest of the program: it makes the gradients that the backward pass begins with of what the forward pass gives.
    others = [n for n in backward if n["is"] == "input" and n["node"] not in saved]
    made = {n["node"]: [x.make(n["node"], n["bytes"][0])] for n in others}
    x.write("kernel", name="loss", stream=COMPUTE, reads=[b.name for b in results],
            writes=[b.name for [b] in made.values()])
    x.phase = "backward"
    x.run(backward, {**saved, **given, **made}, held | set(results))
    return x.events


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", metavar="GRAPHS", help="a file that record_fx.py wrote")
    parser.add_argument("-o", dest="log", metavar="LOG", required=True, help="the log to write")
    args = parser.parse_args()
    try:
        with open(args.graphs, encoding="utf-8") as file:
            events = to_log(file)
        with open(args.log, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)
    except (OSError, KeyError, TypeError, ValueError, Refused) as error:
        sys.exit(f"fx_to_log.py: {args.graphs}: {error}")


if __name__ == "__main__":
    main()
