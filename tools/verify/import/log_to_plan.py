#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a plan file, for mm verify, of a log of events: kernels and copies on streams, records, waits, buffers.

    python3 tools/verify/import/log_to_plan.py LOG -o PLAN

README.md has the format of logs and how each event is mapped. What a plan cannot say is refused by one line. Standard
library only.
"""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from schedule import ALIGN, Schedule, aligned  # noqa: E402

# Of each event, the keys that it must have, and those that it may have.
KEYS = {
    "alloc": ({"buffer", "address", "bytes", "memory"}, {"stream", "filled"}),
    "free": ({"buffer"}, set()),
    "kernel": ({"name", "stream"}, {"reads", "writes", "phase", "blocking"}),
    "copy": ({"stream", "from", "to"}, {"bytes", "blocking"}),
    "record": ({"stream", "event"}, set()),
    "wait": ({"event"}, {"stream"}),
    "note": ({"text"}, set()),
}
TYPES = {"address": int, "bytes": int, "reads": list, "writes": list, "filled": bool, "blocking": bool}
PHASES = ("forward", "backward", "update")


class Refused(Exception):
    """What a log says that is wrong, or that a plan cannot say."""


class Buffer:
    """A range of bytes, from its allocation until it is freed."""

    def __init__(self, event):
        self.name, self.address, self.bytes = event["buffer"], event["address"], event["bytes"]
        self.memory, self.filled = event["memory"], event.get("filled", False)
        self.content = None  # the segment that was written last
        self.freed_at = None  # a line


def check(event):
    what = event.get("do")
    if what not in KEYS:
        raise Refused(f'"do" is {what!r}, not one of {", ".join(KEYS)}')
    needed, optional = KEYS[what]
    for key in sorted(needed - event.keys()):
        raise Refused(f'{what} without "{key}"')
    for key in sorted(event.keys() - needed - optional - {"do"}):
        raise Refused(f'{what} has an unknown key "{key}"')
    for key, value in event.items():
        if (type(value) is not TYPES.get(key, str) or type(value) is int and value < (key == "bytes")
                or type(value) is list and not all(type(name) is str for name in value)):
            raise Refused(f'{what}: "{key}" is {value!r}')
    if event.get("memory", "device") not in ("device", "host") or event.get("phase", "forward") not in PHASES:
        raise Refused(f"{what}: an unknown memory or phase")


def later(a, b):
    """The clock that covers both: of each stream of the plan, the later node."""
    return {s: max((c[s] for c in (a, b) if s in c), key=lambda node: node["number"]) for s in {**a, **b}}


def overlap(a, b):
    return a["place"] == b["place"] and a["offset"] < b["offset"] + b["bytes"] and b["offset"] < a["offset"] + a["bytes"]


class Converter:
    """Adds the nodes of a plan, event by event.

    A clock says what has ended: of each stream of the plan, the last node. Each stream of the log has the clock that
    its next work may rely on; an event has that of its stream when it was recorded; the host has that of all later
    work."""

    def __init__(self, name):
        self.schedule = Schedule("log", name)
        self.buffers, self.living = {}, {}  # by name
        self.low, self.scratch = {}, {}  # of each memory the lowest address; where bytes begin that no buffer has
        self.parts = {}  # line of a copy of parts → segment of what it writes
        self.clocks, self.events, self.host = {}, {}, {}
        self.last = {}  # stream of the plan → its last node, that node's name and stream in the log
        self.unread = set()  # segments that copies wrote and nothing has read: their ids
        self.names = {("begin", "forward"): 1, ("end", "forward"): 1}  # kernel and phase → how many there are
        self.line = 0

    # ------------------------------------------------------------ buffers

    def declare(self, events):
        """Knows all buffers. A first step writes what was there before the log began."""
        copies = []
        for self.line, event in events:
            check(event)
            if event["do"] == "copy":
                copies.append((self.line, event))
            if event["do"] == "alloc":
                if event["buffer"] in self.buffers:
                    raise Refused(f'buffer {event["buffer"]} is allocated twice; each needs a name of its own')
                self.buffers[event["buffer"]] = Buffer(event)
        self.moved = {event[end] for _, event in copies for end in ("from", "to")}
        for memory in ("device", "host"):
            of = [b for b in self.buffers.values() if b.memory == memory]
            self.low[memory] = min((b.address for b in of), default=0) // ALIGN * ALIGN
            self.scratch[memory] = aligned(max((b.address + b.bytes for b in of), default=0) - self.low[memory])
        there, visits = [], []
        for b in self.buffers.values():
            if b.filled and (b.memory == "device" or b.name in self.moved):
                self.born(b)
                tensor = self.tensor(b.name, b.bytes)
                visits.append(self.written(b, tensor) if b.memory == "device" else self.spare(tensor, b.bytes, "device"))
                there.append(b)
        for line, event in copies:
            if self.of_parts(event):
                source, target = self.buffers[event["from"]], self.buffers[event["to"]]
                self.parts[line] = self.spare(self.tensor(f"{source.name} in {target.name}", target.bytes), target.bytes,
                                              "device")
                visits.append(self.parts[line])
        if not visits:
            return
        begin = self.last_of(self.schedule.step("begin", "forward", writes=visits), "begin", "the host")

        def on_host(visit, segment):
            self.last_of(self.schedule.offload(visit, segment, [begin]), "what was in host memory", "the host")
            self.unread.add(id(segment))

        for b, visit in zip(there, visits):
            if b.memory == "host":
                on_host(visit, self.written(b, visit["tensor"]))
        for line, event in copies:
            if line in self.parts and self.buffers[event["from"]].memory == "host":
                visit = self.parts[line]
                self.parts[line] = self.spare(visit["tensor"], visit["bytes"], "host")
                on_host(visit, self.parts[line])
        self.host = self.everything()

    def of_parts(self, event):
        """Whether a copy to or from host memory is not of a whole buffer onto a whole one."""
        source, target = self.buffers.get(event["from"]), self.buffers.get(event["to"])
        return (source and target and source.memory != target.memory
                and not event.get("bytes", source.bytes) == source.bytes == target.bytes)

    def born(self, b):
        if (b.address - self.low[b.memory]) % ALIGN:
            raise Refused(f"buffer {b.name} at {b.address} lies at no multiple of {ALIGN} from {self.low[b.memory]}")
        for other in self.living.values():
            if (other.memory == b.memory and b.address < other.address + other.bytes
                    and other.address < b.address + b.bytes):
                raise Refused(f"buffer {b.name} lies over {other.name}, which is not freed")
        self.living[b.name] = b

    def tensor(self, name, size):
        """A new tensor, of this name if no other has it."""
        while name in self.schedule.sizes:
            name += "'"
        return self.schedule.map(name, size)

    def segment(self, tensor, offset, memory):
        return (self.schedule.device if memory == "device" else self.schedule.pinned)(tensor, offset)

    def written(self, b, tensor):
        """The segment for what is now written to the buffer."""
        b.content = self.segment(tensor, b.address - self.low[b.memory], b.memory)
        return b.content

    def spare(self, tensor, size, memory):
        """A segment in bytes that no buffer has."""
        self.scratch[memory] += aligned(size)
        return self.segment(tensor, self.scratch[memory] - aligned(size), memory)

    def alive(self, name):
        b = self.buffers.get(name)
        if name not in self.living:
            gone = f"was freed in line {b.freed_at}" if b and b.freed_at else "is not allocated"
            raise Refused(f"buffer {name} {gone}")
        return b

    def read(self, b):
        if b.content is None:
            raise Refused(f"buffer {b.name} is read, but nothing has written it")
        self.unread.discard(id(b.content))
        return b.content

    # ------------------------------------------------------------ order

    def everything(self):
        return {stream: last[0] for stream, last in self.last.items()}

    def last_of(self, node, what, stream):
        self.last["compute" if node["kind"] == "step" else "out" if node["kind"] == "offload" else "in"] = (
            node, what, stream)
        return node

    def clock(self, event, target, what):
        """What ends before work of the event on a stream of the plan. That stream may order no more than the log."""
        clock = later(self.clocks.get(event["stream"], {}), self.host)
        node, other, stream = self.last.get(target, (None, None, None))
        if clock.get(target) is not node:
            raise Refused(f"{what} on stream {event['stream']} may run beside {other} on stream {stream}, but a plan's "
                          f'stream "{target}" runs one after the other')
        return clock

    def issued(self, event, clock, target, node, what):
        self.last_of(node, what, event["stream"])
        self.clocks[event["stream"]] = {**clock, target: node}
        if event.get("blocking"):
            self.host = later(self.host, self.clocks[event["stream"]])

    # ------------------------------------------------------------ events

    def steps(self, name, phase, reads, writes, inplace, after):
        """A step names a tensor once: other copies of it that a kernel reads are read by steps right before it."""
        rounds = [{}]
        for segment in reads:
            free = next((r for r in rounds if segment["tensor"] not in r), None)
            if free is None:
                rounds.append(free := {})
            free[segment["tensor"]] = segment
        for number in range(len(rounds) - 1, -1, -1):
            layer = f"{name} (copy {number})" if number else name
            own = rounds[number].values()
            node = self.schedule.step(layer, phase, own, [] if number else writes,
                                      inplace=[] if number else [p for p in inplace if any(p[0] is s for s in own)],
                                      after=after)
        return node

    def kernel(self, event):
        name, phase = event["name"], event.get("phase", "forward")
        reads, writes = ([self.alive(n) for n in dict.fromkeys(event.get(key, ()))] for key in ("reads", "writes"))
        on_host = [b for b in reads + writes if b.memory == "host"]
        if on_host and len(on_host) == len(reads + writes) and not any(b.name in self.moved for b in on_host):
            return  # work of the host alone, on memory that no device uses
        if on_host:
            raise Refused(f"kernel {name} uses buffer {on_host[0].name} in host memory: a plan's steps use the device")
        count = self.names[name, phase] = self.names.get((name, phase), 0) + 1
        name += f" ({count})" if count > 1 else ""
        clock = self.clock(event, "compute", f"kernel {name}")
        before = [self.read(b) for b in reads]
        inplace = [(old, b) for old, b in zip(before, reads) if b in writes]
        after = [self.written(b, self.tensor(b.name, b.bytes)) for b in writes]
        pairs = [(old, b.content) for old, b in inplace]
        node = self.steps(name, phase, before, after, pairs, list(clock.values()))
        self.issued(event, clock, "compute", node, f"kernel {name}")

    def copy(self, event):
        source, target = self.alive(event["from"]), self.alive(event["to"])
        size = event.get("bytes", source.bytes)
        if source.memory == target.memory == "device":
            whole = size == target.bytes or target.content is None
            self.kernel({"name": f"copy to {target.name}", "stream": event["stream"], "writes": [target.name],
                         "reads": [source.name] + ([] if whole else [target.name]),
                         "blocking": event.get("blocking", False)})
            return
        what = f"the copy of {source.name} to {target.name}"
        if source.memory == target.memory:
            raise Refused(f"{what} is within host memory, where a plan has no copies")
        stream, add = (("out", self.schedule.offload) if source.memory == "device" else ("in", self.schedule.prefetch))
        clock = self.clock(event, stream, what)
        after = list(clock.values())
        content = self.read(source)
        if self.line in self.parts:  # one copy for what is read, and one for what is written
            part = self.spare(content["tensor"], source.bytes, target.memory)
            self.unread.add(id(part))
            add(content, part, after)
            content = self.parts[self.line]
            self.unread.discard(id(content))
        segment = self.written(target, content["tensor"])
        self.unread.add(id(segment))
        self.issued(event, clock, stream, add(content, segment, after), what)

    def event(self, event):
        what = event["do"]
        if what == "alloc":
            b = self.buffers[event["buffer"]]
            if b.name not in self.living and b.freed_at is None:
                self.born(b)
        elif what == "free":
            b = self.alive(event["buffer"])
            del self.living[b.name]
            b.freed_at = self.line
        elif what == "record":
            self.events[event["event"]] = later(self.clocks.get(event["stream"], {}), self.host)
        elif what == "wait":
            known = self.events.get(event["event"], {})  # CUDA: an event that was never recorded holds nothing up
            if "stream" in event:
                self.clocks[event["stream"]] = later(self.clocks.get(event["stream"], {}), known)
            else:
                self.host = later(self.host, known)
        elif what != "note":
            getattr(self, what)(event)

    def finish(self):
        """What copies brought, and nothing has read or overwritten, is read after all work: rule 10.1 then counts it as
        used."""
        everything, reads, segments = self.everything(), [], list(self.schedule.segments)
        for at, segment in enumerate(segments):
            if id(segment) not in self.unread or any(overlap(segment, other) for other in segments[at + 1:]):
                continue
            if segment["place"] == "pinned":
                source, segment = segment, self.spare(segment["tensor"], segment["bytes"], "device")
                everything["in"] = self.schedule.prefetch(source, segment, list(everything.values()))
            reads.append(segment)
        if reads:
            self.steps("end", "forward", reads, [], [], list(everything.values()))


def convert(lines):
    """A Schedule of the lines of a log. Raises Refused with the number of the line."""
    converter, events = Converter(""), []
    try:
        for converter.line, line in enumerate(lines, 1):
            try:
                events.append((converter.line, dict(json.loads(line))))
            except (ValueError, TypeError):
                raise Refused("not a JSON object") from None
        header = events.pop(0)[1] if events else {}
        converter.line = 1
        if header.get("format") != "mm events" or header.get("version") != 1:
            raise Refused('the first line is not {"format": "mm events", "version": 1, "name": ...}')
        converter.schedule.policy = str(header.get("name", "a log"))
        converter.declare(events)
        for converter.line, event in events:
            converter.event(event)
        if not converter.schedule.steps:
            raise Refused("the log ends, and has no work")
    except Refused as refused:
        raise Refused(f"{converter.line}: {refused}") from None
    converter.finish()
    return converter.schedule


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", metavar="LOG")
    parser.add_argument("-o", metavar="PLAN", required=True, dest="plan")
    arguments = parser.parse_args()
    try:
        with open(arguments.log, encoding="utf-8") as file:
            convert(file).save(arguments.plan)
    except Refused as refused:
        sys.exit(f"log_to_plan.py: {arguments.log}:{refused}")
    except UnicodeDecodeError:
        sys.exit(f"log_to_plan.py: {arguments.log}: not UTF-8")
    except OSError as error:
        sys.exit(f"log_to_plan.py: {error.filename}: {error.strerror}")


if __name__ == "__main__":
    main()
