#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A second, independent checker of plans.

It was written from SPECIFICATION.md ("What a plan means, and when it is right") and the descriptions of the two file
formats alone (FORMAT.md, graph-format.txt); it shares nothing with the first checker. It is meant to be read next to
the specification: a function for each rule, or for a few that belong together, in the specification's order.

    verify.py [--all] [--json] FILE...

prints one line for each plan of each file: "FILE: proved: POLICY of GRAPH: N nodes", or "FILE: refused by rule 6.2:
node 5 (prefetch of h1): why". With --all it prints a line for every violation that it finds; with --json an array of
{"file", "graph", "proved", "rule", "node", "message"}. The rules are checked in five stages (1; 2 and 7.1 to 7.3; 3
and 4; 5; all others), and a stage only if those before it hold: it relies on them. Exit status: 0 all plans are
proved, 1 one is refused, 2 a file is not readable or the usage is wrong.

As a module: read(path) gives the plans of a file, or raises Unreadable; check(plan) gives a plan's violations, as
tuples (rule, number of the node or None, message): none means that the plan is proved.

Where the specification leaves something open, this file takes the safer reading. Such places are marked "Reading:".
"""

import json
import sys
from bisect import bisect_right
from itertools import count
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

ALIGN, BLOCK = 256, 4096 # offsets are multiples of these: of the second on the disk
BASES = {"device": "base_bytes", "pinned": "pinned_base_bytes", "disk": "disk_base_bytes"}
CHUNK = 4096             # what a pool with a spill needs in addition (2.6)
LARGEST = 2 ** 63 - 1    # the highest end of a segment (2.3), and the highest number in a file

STREAM = {"step": "compute", "recompute": "compute", "encode": "encode", "decode": "decode", "offload": "out",
          "prefetch": "in", "measure": "encode", "store": "store", "load": "load"}
STREAMS = ("host",) + tuple(STREAM.values())
COMPUTE, COPIES = ("step", "recompute"), ("offload", "prefetch", "store", "load")
# The contents and memories of an operation's source and target (part 1).
OPERATIONS = {"encode": ((("raw",), "device"), (("coded",), "either")),
              "decode": ((("coded",), "either"), (("raw",), "device")),
              "offload": ((("raw", "coded"), "device"), (("raw", "coded"), "pinned")),
              "prefetch": ((("raw", "coded"), "pinned"), (("raw", "coded"), "device")),
              "store": ((("raw", "coded"), "pinned"), (("raw", "coded"), "disk")),
              "load": ((("raw", "coded"), "disk"), (("raw", "coded"), "pinned")),
              "measure": ((("raw",), "device"), ((), "none"))}
CONTENTS = ("raw", "coded", "workspace", "pool")
DTYPE_BYTES = {"f32": 4, "i32": 4, "f16": 2, "bf16": 2, "u8": 1}
THROUGH_PINNED = ("at once", "at end")   # the all-reduces that copies take part in
CATEGORIES = ("persistent", "feature maps", "gradient maps", "workspace", "codes", "tensor buffers",
              "fetched weights and states")
REQUIRED = object()      # of a key that may not be left out
# The keys of each kind of line, in the order in which the kinds follow each other in a plan. (A graph's line may have
# more keys, and is looked at by itself.)
LINES = {
    "graph": "", "limits": "device_bytes pinned_bytes base_bytes pinned_base_bytes disk_bytes disk_base_bytes",
    "home": "tensor place offset",
    "facts": "piece_bytes out_bytes_per_s in_bytes_per_s out_both_bytes_per_s in_both_bytes_per_s memory_bytes_per_s "
             "contention_permille link_contention_permille contention host_sum_bytes_per_s link_sharers ranks sum_at "
             "issue_ns alloc_ns cache_bytes far_ps_per_byte threads store_bytes_per_s load_bytes_per_s disk_ns",
    "codec": "spec lossless fixed_size gives_value gives_sign drops_zeros",
    "code": "codec tensor code_bytes body_bound_bytes body_reserve_bytes body_typical_bytes body_is_measured "
            "scratch_bytes encode_ns decode_ns split_rows split_bytes strip_elems",
    "variants": "step variants",
    "plan": "segments nodes pieces base_bytes pinned_base_bytes extent_bytes external_bytes peak_bytes pinned_bytes "
            "heap_offset heap_bytes heap_code_bytes keeps_all code_region_bytes buffer_region_bytes buffers "
            "cut_short defragmentations disk_bytes disk_base_bytes",
    "alias": "tensor shares",
    "segment": "index content category tensor codec place offset bytes pool spill",
    "node": "index kind stream number tensor step variant segments codes given source target work stage throttle waits",
    "piece": "node number first_row rows map_offset stored_offset stored_bytes waits"}


def round_up(size: int) -> int:
    return (size + ALIGN - 1) // ALIGN * ALIGN


# ----------------------------------------------------------------------------------------------------------------
# The parts of a plan (specification, part 1)

class Record:
    """An object with the attributes that its class names, in their order."""
    names = ""

    def __init__(self, *values: Any):
        for name, value in zip(self.names.split(), values):
            setattr(self, name, value)


def record(names: str) -> type:
    return type("Record", (Record,), {"names": names})


# rows: the outermost dimension; allreduce: when it is all-reduced, or None
Tensor = record("name kind ownership dtype bytes rows allreduce")
# access: read, write, modify; form: value, sign
Use = record("tensor access form reads writes")
# pairs: (inplace or alias, input, output); codes: (read or write, tensor, a codec's name, workspace's bytes and strips)
Step = record("layer repeatable phase on_host uses pairs given codes")
Codec = record("lossless gives_value gives_sign")
# of one tensor by one codec; 0: no body, it cannot be cut, no strips
Code = record("bytes body_bound scratch split_rows split_bytes strip_elems")
Segment = record("index content category tensor codec place offset bytes pool spill end dynamic on_device")
Node = record("index kind stream number tensor step variant source target work stage throttle segments codes given "
              "waits pieces")
Piece = record("index node number first_row rows map_offset stored_offset stored_bytes waits")
# stated: the totals that the plan states, its bases, and its heap
Plan = record("policy graph tensors steps roots limits homes codecs codes variants stated segments nodes pieces")


# ----------------------------------------------------------------------------------------------------------------
# Reading files (FORMAT.md). A file that does not have this form is Unreadable; whether what it says is right is the
# business of the rules. Names (of tensors, codecs) that do not exist are unreadable, numbers out of range refused.

class Unreadable(Exception):
    pass


def get(record: Dict[str, Any], key: str, kind: type, default: Any = REQUIRED, least: int = 0) -> Any:
    """A value of a record, of the type that it must have. A key that may be left out may also be null."""
    value = record.get(key)
    if value is None:
        if default is REQUIRED:
            raise Unreadable('%s without "%s"' % (record.get("is", "a part"), key))
        return default
    if type(value) is not kind or kind is int and not least <= value <= LARGEST:
        raise Unreadable('"%s" of %s is %.60r' % (key, record.get("is", "a part"), value))
    return value


def choice(record: Dict[str, Any], key: str, choices: Tuple[str, ...], default: Any = REQUIRED) -> str:
    value = get(record, key, str, default)
    if value not in choices:
        raise Unreadable('"%s" is "%.60s", not one of %s' % (key, value, ", ".join(choices)))
    return value


def only(record: Any, keys: str) -> Dict[str, Any]:
    """The record, if it has no other keys than these."""
    if type(record) is not dict:
        raise Unreadable("%.60r where an object must be" % (record,))
    unknown = set(record) - set(keys.split())
    if unknown:
        raise Unreadable('unknown key "%.60s"' % min(unknown))
    return record


def numbers(record: Dict[str, Any], key: str, nulls: bool) -> List[Optional[int]]:
    values = get(record, key, list, [])
    for value in values:
        if not (nulls and value is None):
            get({"number": value}, "number", int)
    return values


def waits_of(record: Dict[str, Any]) -> Dict[str, int]:
    waits = get(record, "waits", dict)
    return {stream: get(waits, stream, int) for stream in waits}


class Graph:
    """The tensors and steps of a graph line, and its tensors by name."""

    def __init__(self, line: Dict[str, Any]):
        if line.get("format") != "mm graph" or line.get("version") != 1:
            raise Unreadable("the graph is not of format mm graph, version 1")
        graphs = get(line, "graphs", list)
        if len(graphs) != 1:
            raise Unreadable("%d graphs in one plan" % len(graphs))
        graph = only(graphs[0], "name tensors layers steps")
        self.name = get(graph, "name", str)
        self.by_name: Dict[str, int] = {}
        self.tensors = [self.tensor(t) for t in get(graph, "tensors", list)]
        layers = [only(layer, "name kind cost repeatable parts") for layer in get(graph, "layers", list)]
        self.steps = [self.step(step, layers) for step in get(graph, "steps", list)]

    def tensor(self, t: Any) -> Tensor:
        only(t, "name kind ownership dtype dims weight allreduce")
        dtype = choice(t, "dtype", tuple(DTYPE_BYTES))
        dims = numbers(t, "dims", False)
        size = DTYPE_BYTES[dtype]
        for dim in dims:
            if dim < 1:
                raise Unreadable("a dimension is %d" % dim)
            size *= dim
        when = None
        if t.get("allreduce") is not None:
            when = choice(only(t["allreduce"], "when as"), "when", THROUGH_PINNED + (
                "in place at once", "in place at end"))
            choice(t["allreduce"], "as", ("sum", "mean"))
        name = get(t, "name", str)
        if name in self.by_name:
            raise Unreadable('two tensors "%.60s"' % name)
        self.by_name[name] = len(self.by_name)
        return Tensor(name, get(t, "kind", str), choice(t, "ownership", ("managed", "persistent", "external")), dtype,
                      size, dims[0] if dims else 1, when)

    def step(self, s: Any, layers: List[Dict[str, Any]]) -> Step:
        only(s, "layer phase on_host workspace_bytes uses less_workspace_bytes pairs given codes")
        layer = get(s, "layer", int)
        if layer >= len(layers):
            raise Unreadable("a step's layer %d does not exist" % layer)
        uses = []
        for u in get(s, "uses", list):
            only(u, "tensor access form")
            access = choice(u, "access", ("read", "write", "modify"))
            use = Use(self.find(u, "tensor"), access, choice(u, "form", ("value", "sign"), "value"),
                      access != "write", access != "read")
            if use.form == "sign" and use.access != "read":
                raise Unreadable("a step uses signs, and does not only read")
            uses.append(use)
        used = [use.tensor for use in uses]
        if len(set(used)) != len(used):
            raise Unreadable("a step names a tensor twice")
        pairs = [(choice(p, "allow", ("inplace", "alias")), self.find(p, "input"), self.find(p, "output"))
                 for p in (only(p, "allow input output") for p in get(s, "pairs", list, []))]
        given = [self.find({"given": name}, "given") for name in get(s, "given", list, [])]
        codes = [(choice(c, "access", ("read", "write")), self.find(c, "tensor"), get(c, "codec", str),
                  get(c, "workspace_bytes", int), get(c, "workspace_strips", int))
                 for c in (only(c, "tensor access codec workspace_bytes workspace_strips passes")
                           for c in get(s, "codes", list, []))]
        return Step(get(layers[layer], "name", str), get(layers[layer], "repeatable", bool), get(s, "phase", str),
                    get(s, "on_host", bool, False), uses, pairs, given, codes)

    def find(self, record: Dict[str, Any], key: str, default: Any = REQUIRED) -> Optional[int]:
        name = get(record, key, str, default)
        if name is not None and name not in self.by_name:
            raise Unreadable('no tensor is named "%.60s"' % name)
        return self.by_name.get(name)


def read_plan(lines: List[Dict[str, Any]]) -> Plan:
    """A plan from its lines: the header and what follows up to the next."""
    of: Dict[str, List[Dict[str, Any]]] = {}
    only(lines[0], "format version plan plans policy")
    kinds = tuple(LINES)
    for line in lines[1:]:
        what = choice(line, "is", kinds)
        kinds = kinds[kinds.index(what):]                                 # no line of an earlier kind follows
        of.setdefault(what, []).append(line if what == "graph" else only(line, "is " + LINES[what]))
    for what in ("graph", "limits", "facts", "plan"):
        if len(of.get(what, [])) != 1:
            raise Unreadable('%d lines "%s" in one plan' % (len(of.get(what, [])), what))
    graph = Graph(of["graph"][0])

    roots: List[Optional[int]] = list(range(len(graph.tensors)))
    for line in of.get("alias", []):
        tensor = graph.find(line, "tensor")
        if roots[tensor] != tensor:
            raise Unreadable("two aliases of one tensor")
        roots[tensor] = graph.by_name.get(get(line, "shares", str))       # None: rule 1.2

    persistent = [t.name for t in graph.tensors if t.ownership == "persistent"]
    homes = of.get("home", [])
    if [get(h, "tensor", str) for h in homes] != persistent:
        raise Unreadable("the homes are not those of the persistent tensors, in order")

    codecs: Dict[str, Codec] = {}
    for line in of.get("codec", []):
        spec = get(line, "spec", str)
        if spec in codecs:
            raise Unreadable('two codecs "%.60s"' % spec)
        codecs[spec] = Codec(*[get(line, key, bool) for key in ("lossless", "gives_value", "gives_sign")])
    codes: Dict[Tuple[str, int], Code] = {}
    for line in of.get("code", []):
        key = (get(line, "codec", str), graph.find(line, "tensor"))
        if key[0] not in codecs or key in codes:
            raise Unreadable('a code of "%.60s" twice, or without the codec' % key[0])
        codes[key] = Code(get(line, "code_bytes", int), *[get(line, part + "_" + unit, int, 0) for part, unit in (
            ("body_bound", "bytes"), ("scratch", "bytes"), ("split", "rows"), ("split", "bytes"), ("strip", "elems"))])
    variants = [(get(line, "step", int), [                # deterministic, and bytes of workspace
        (get(v, "deterministic", bool), get(v, "workspace_bytes", int))
        for v in (only(v, "id deterministic workspace_bytes ns") for v in get(line, "variants", list))])
        for line in of.get("variants", [])]

    segments = []
    for index, line in enumerate(of.get("segment", [])):
        if get(line, "index", int) != index:
            raise Unreadable("segment %d is in place %d" % (line["index"], index))
        place = choice(line, "place", ("device", "pinned", "disk", "heap"))
        offset, size = get(line, "offset", int), get(line, "bytes", int)
        segments.append(Segment(index, get(line, "content", str), choice(line, "category", CATEGORIES),
                                graph.find(line, "tensor", None), get(line, "codec", str, None), place, offset, size,
                                get(line, "pool", int, None), get(line, "spill", int, None), offset + size,
                                place == "heap", place in ("device", "heap")))
    nodes = []
    for index, line in enumerate(of.get("node", [])):
        if get(line, "index", int) != index:
            raise Unreadable("node %d is in place %d" % (line["index"], index))
        nodes.append(Node(index, get(line, "kind", str), get(line, "stream", str), get(line, "number", int),
                          graph.find(line, "tensor", None), get(line, "step", int, None),
                          get(line, "variant", int, 0, -2 ** 31),                 # (below 0: refused by 3.1, of a step)
                          *[get(line, key, int, None) for key in ("source", "target", "work", "stage")],
                          get(line, "throttle", int, 0), numbers(line, "segments", True),
                          numbers(line, "codes", True), numbers(line, "given", False), waits_of(line), []))
    pieces = []
    for index, line in enumerate(of.get("piece", [])):
        pieces.append(Piece(index, get(line, "node", int), get(line, "number", int),
                            *[get(line, key, int, 0) for key in (
                                "first_row", "rows", "map_offset", "stored_offset", "stored_bytes")], waits_of(line)))

    plan = of["plan"][0]
    for what, found in (("segments", segments), ("nodes", nodes), ("pieces", pieces)):
        if get(plan, what, int) != len(found):
            raise Unreadable("the plan has %d %s, the file %d" % (plan[what], what, len(found)))
    stated = {key: get(plan, key, int) for key in (
        "base_bytes", "pinned_base_bytes", "extent_bytes", "external_bytes", "peak_bytes", "pinned_bytes")}
    stated.update((key, get(plan, key, int, 0)) for key in (
        "heap_offset", "heap_bytes", "heap_code_bytes", "disk_bytes", "disk_base_bytes"))
    limits = {key: get(of["limits"][0], key, int) for key in (
        "device_bytes", "pinned_bytes", "base_bytes", "pinned_base_bytes")}
    limits.update((key, get(of["limits"][0], key, int, 0)) for key in ("disk_bytes", "disk_base_bytes"))
    return Plan(get(lines[0], "policy", str), graph.name, graph.tensors, graph.steps, roots, limits,
                [(choice(h, "place", ("device", "pinned", "disk")), get(h, "offset", int)) for h in homes],
                codecs, codes, variants, stated, segments, nodes, pieces)


def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """An object of a file, which has no key twice."""
    if len(dict(pairs)) < len(pairs):
        raise Unreadable('a key twice, of "%.60s"' % ", ".join(key for key, _ in pairs))
    return dict(pairs)


def read(path: str) -> List[Plan]:
    """The plans of a file."""
    groups: List[List[Dict[str, Any]]] = []
    try:
        with open(path, encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                try:
                    line = json.loads(text, object_pairs_hook=unique)
                except (ValueError, RecursionError):
                    line = None
                if type(line) is not dict:
                    raise Unreadable("line %d is not an object in JSON" % number)
                if line.get("format") == "mm plan":
                    if line.get("version") != 1:
                        raise Unreadable("the version is %.20r; this checker reads version 1" % line.get("version"))
                    groups.append([])
                elif not groups:
                    raise Unreadable("line %d stands before the header of a plan" % number)
                groups[-1].append(line)
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(str(error)) from None
    if not groups:
        raise Unreadable("it has no plan")
    for number, group in enumerate(groups):
        if get(group[0], "plan", int) != number or get(group[0], "plans", int) != len(groups):
            raise Unreadable("plan %d of the %d in it says that it is plan %s of %s" % (
                number, len(groups), group[0]["plan"], group[0].get("plans")))
    return [read_plan(group) for group in groups]


# ----------------------------------------------------------------------------------------------------------------
# Executions (specification, part 2)

class Order:
    """Which pieces come before which. before[p] is a set of pieces, as the bits of an integer. It is made of the
    pieces' waits alone: a piece comes after what comes before its predecessor on its stream, after what comes before
    the pieces that it waits for, and after these. Relies on 5.1 to 5.3."""

    def __init__(self, plan: Plan):
        self.nodes = plan.nodes
        self.before: List[int] = []
        self.compute = 0                               # all pieces of the compute stream
        on: Dict[str, List[int]] = {}                  # the pieces of each stream
        for piece in plan.pieces:
            stream = plan.nodes[piece.node].stream
            after = [on[other][number] for other, number in piece.waits.items()] + on.setdefault(stream, [])[-1:]
            bits = 0
            for p in after:
                bits |= self.before[p] | 1 << p
            self.before.append(bits)
            on[stream].append(piece.index)
            self.compute |= (stream == "compute") << piece.index

    def comes_before(self, p: Piece, q: Piece) -> bool:
        return bool(self.before[q.index] >> p.index & 1)

    def ends_before(self, a: int, b: int) -> bool:
        """All pieces of node a come before the first piece of node b. The last one is enough."""
        return self.comes_before(self.nodes[a].pieces[-1], self.nodes[b].pieces[0])

    def piecewise(self, a: int, b: int) -> bool:
        """Both have several pieces, and each of b comes after those of a that do bytes of its own (6.2, 6.3). As
        pieces are in order and without gaps (5.4), it is enough to look at the last one of a that begins before the
        end of the piece of b."""
        last = 0
        pieces = self.nodes[a].pieces
        if min(len(pieces), len(self.nodes[b].pieces)) < 2:
            return False
        for q in self.nodes[b].pieces:
            while last + 1 < len(pieces) and pieces[last + 1].stored_offset < q.stored_offset + q.stored_bytes:
                last += 1
            if not self.comes_before(pieces[last], q):
                return False
        return True


# ----------------------------------------------------------------------------------------------------------------
# What the walk over the nodes knows (specification, 3.6)

# Of a segment, during the walk: the value that it holds; the node that wrote it (None: nobody, or it is a home as the
# iteration began), and whether this is an operation; whether it holds the value bit for bit as it was first computed;
# the node whose result (an operation's, or a code) it is, if nobody has read that yet; and the last writer with the
# users since (6.3: earlier ones end before that).
State = record("value writer as_target exact unread users")


class Checker:
    def __init__(self, plan: Plan):
        self.plan = plan
        self.tensors, self.steps, self.roots = plan.tensors, plan.steps, plan.roots
        self.segments, self.nodes = plan.segments, plan.nodes
        self.violations: List[Tuple[str, Optional[int], str]] = []
        self.persistent = [i for i, t in enumerate(plan.tensors) if t.ownership == "persistent"]
        self.home_of = {tensor: index for index, tensor in enumerate(self.persistent)}
        self.base = {place: plan.stated[key] for place, key in BASES.items()}

    def check(self) -> List[Tuple[str, Optional[int], str]]:
        for stage in ((self.part_1,), (self.part_2, self.homes), (self.part_3, self.part_4), (self.part_5,),
                      (self.find_users, self.walk, self.part_7, self.part_8, self.part_9, self.part_10)):
            for part in stage:
                part()
            if self.violations:
                break
        return self.violations

    def bad(self, rule: str, subject: Any, condition: Any, message: str, *values: Any) -> bool:
        """If the condition holds, the rule is broken, at a node, a segment, or (None) in the plan. The checks of a rule
        are often joined with "or": each relies on those before it."""
        if condition:
            node = subject.index if isinstance(subject, Node) else None
            where = "segment %d: " % subject.index if isinstance(subject, Segment) else ""
            self.violations.append((rule, node, where + message % values))
        return bool(condition)

    def segment(self, index: Optional[int]) -> Optional[Segment]:
        return self.segments[index] if index is not None and index < len(self.segments) else None

    def is_home(self, segment: Segment) -> bool:
        return segment.index < len(self.persistent)

    def name(self, tensor: Optional[int]) -> str:
        return "no tensor" if tensor is None else self.tensors[tensor].name

    def code_of(self, segment: Segment) -> Optional[Code]:
        """What the facts say of the code in a segment."""
        return self.plan.codes.get((segment.codec, segment.tensor)) if segment.content == "coded" else None

    def lossy(self, segment: Segment) -> bool:
        return segment.content == "coded" and not self.plan.codecs[segment.codec].lossless

    def step_of(self, node: Node) -> Optional[Step]:
        exists = node.kind in COMPUTE and node.step is not None and node.step < len(self.steps)
        return self.steps[node.step] if exists else None

    def stream(self, node: Node) -> Optional[str]:
        """The stream of a node's kind."""
        step = self.step_of(node)
        return "host" if node.kind == "step" and step and step.on_host else STREAM.get(node.kind)

    def uses(self, node: Node):
        """The uses of a step's node: the number, the use, the segment that it is bound to, and whether it is a given
        output, which is read."""
        for k, use in enumerate(self.step_of(node).uses):
            yield k, use, self.segment(node.segments[k]), k in node.given

    # ------------------------------------------------------------------------------------ 3.1 The graph and its storage
    def part_1(self) -> None:
        """1.1: that the facts name the graph's tensors is seen when they are read."""
        self.bad("1.1", None, sorted(step for step, _ in self.plan.variants) != list(range(len(self.steps))),
                 "the facts do not have the variants of each step, once")
        self.variants = dict(self.plan.variants)
        for tensor in range(len(self.tensors)):
            self.rule_1_2(tensor)
        for number, step in enumerate(self.steps):
            for use in step.uses:
                self.rule_1_3(number, step, use)

    def rule_1_2(self, tensor: int) -> bool:
        name, root = self.name(tensor), self.roots[tensor]
        return (
            self.bad("1.2", None, root is None, "the root of %s does not exist", name) or
            self.bad("1.2", None, self.roots[root] != root, "the root of %s is not its own root", name) or
            self.bad("1.2", None, root != tensor and {self.tensors[t].ownership for t in (root, tensor)} != {"managed"},
                     "%s shares storage with %s, and not both are managed", name, self.name(root)))

    def rule_1_3(self, number: int, step: Step, use: Use) -> None:
        root = self.roots[use.tensor]
        self.bad("1.3", None, use.access == "write" and root != use.tensor and not any(
            allow == "alias" and output == use.tensor and self.roots[given] == root
            for allow, given, output in step.pairs),
            "step %d writes %s, which has another root, without an alias pair", number, self.name(use.tensor))

    # -------------------------------------------------------------------------------------------------- 3.2 Segments
    def part_2(self) -> None:
        for s in self.segments:
            if not self.rule_2_1(s) and not self.rule_2_2(s):
                self.rule_2_3(s)
                self.rule_2_4(s)
                self.rule_2_5(s)
        if not self.violations:
            self.rule_2_5_spills()
            self.rule_2_6()

    def rule_2_1(self, s: Segment) -> bool:
        of_tensor = s.content in ("raw", "coded")
        return (
            self.bad("2.1", s, s.content not in CONTENTS, "there is no content %.40s", s.content) or
            self.bad("2.1", s, of_tensor != (s.tensor is not None), "of %s, and %s", self.name(s.tensor), s.content) or
            self.bad("2.1", s, of_tensor and self.tensors[s.tensor].ownership == "external", "of an external tensor") or
            self.bad("2.1", s, of_tensor and self.roots[s.tensor] != s.tensor, "its tensor is not its own root") or
            self.bad("2.1", s, s.content == "coded" and s.codec not in self.plan.codecs, "its codec does not exist") or
            self.bad("2.1", s, s.content != "coded" and s.codec is not None, "not coded, it has a codec"))

    def rule_2_2(self, s: Segment) -> bool:
        coded, code = s.content == "coded", self.code_of(s)
        return (
            self.bad("2.2", s, s.bytes < 1, "it has %d bytes", s.bytes) or
            self.bad("2.2", s, s.content == "raw" and s.bytes < self.tensors[s.tensor].bytes,
                     "it has %d bytes, fewer than %s", s.bytes, self.name(s.tensor)) or
            self.bad("2.2", s, coded and not code, "%s cannot encode %s", s.codec, self.name(s.tensor)) or
            self.bad("2.2", s, coded and s.bytes != code.bytes, "it has %d bytes, not those of the code", s.bytes))

    def rule_2_3(self, s: Segment) -> None:
        if not self.is_home(s) and not s.dynamic:
            self.bad("2.3", s, s.offset % (BLOCK if s.place == "disk" else ALIGN) or s.offset < self.base[s.place],
                     "its offset %d is not aligned, or below the base", s.offset)
            self.bad("2.3", s, s.end > LARGEST, "its end does not fit in 63 bits")
        self.bad("2.3", s, s.content == "workspace" and not s.on_device, "a workspace that is not on the device")

    def rule_2_4(self, s: Segment) -> None:
        self.bad("2.4", s, self.lossy(s) and (
            self.tensors[s.tensor].ownership != "managed"
            or self.tensors[s.tensor].kind not in ("feature map", "gradient map")),
            "a lossy code of %s, which is not a managed feature map or gradient map", self.name(s.tensor))

    def rule_2_5(self, s: Segment) -> None:
        code, pool, spill = self.code_of(s), self.segment(s.pool), self.segment(s.spill)
        body = bool(code and code.body_bound)
        self.bad("2.5", s, body != (s.pool is not None), "it has a body and no pool, or a pool and no body")
        self.bad("2.5", s, s.pool is not None and (pool is None or pool.content != "pool"), "its pool is not one")
        self.bad("2.5", s, s.spill is not None and (s.content != "pool" or not s.on_device), "no pool there, has a spill")
        self.bad("2.5", s, s.spill is not None and (spill is None or spill.content != "pool" or spill.place != "pinned"),
                 "its spill is not a pool in pinned memory")
        self.bad("2.5", s, s.content == "pool" and s.place in ("heap", "disk"), "a pool in the heap, or on the disk")

    def rule_2_5_spills(self) -> None:
        spills = [s.spill for s in self.segments if s.spill is not None]
        self.bad("2.5", None, len(set(spills)) < len(spills), "a segment is the spill of several pools")
        self.bad("2.5", None, set(spills) & {s.pool for s in self.segments}, "a code names a spill as its pool")

    def rule_2_6(self) -> None:
        needed: Dict[int, int] = {}
        for s in self.segments:
            if s.pool is not None:
                needed[s.pool] = needed.get(s.pool, 0) + round_up(self.code_of(s).body_bound)
        for index, need in needed.items():
            pool, spill = self.segments[index], self.segment(self.segments[index].spill)
            have, need = pool.bytes + (spill.bytes if spill else 0), need + (CHUNK if spill else 0)
            self.bad("2.6", pool, have < need, "it has %d bytes (with its spill), its codes need %d", have, need)

    # ------------------------------------------------------- 3.7 Homes, what the other rules rely on: 7.1 to 7.3
    def homes(self) -> None:
        if self.bad("7.1", None, len(self.segments) < len(self.persistent), "there are too few segments for the homes"):
            return
        for s in self.segments:
            if not self.rule_7_1(s) and self.is_home(s):
                self.rule_7_2(s)
        self.rule_7_3()

    def rule_7_1(self, s: Segment) -> bool:
        if not self.is_home(s):
            return self.bad("7.1", s, s.category == "persistent", "not a home, it counts as persistent")
        tensor = self.tensors[self.persistent[s.index]]
        return (
            self.bad("7.1", s, s.tensor != self.persistent[s.index], "it is not of %s", tensor.name) or
            self.bad("7.1", s, s.content != "raw" or s.bytes != tensor.bytes or s.dynamic,
                     "a home that is not raw, or not of the bytes of %s, or dynamic", tensor.name) or
            self.bad("7.1", s, s.category != "persistent", "a home, it does not count as persistent") or
            self.bad("7.1", s, tensor.allreduce and not s.on_device, "all-reduced, its home is not on the device"))

    def rule_7_2(self, s: Segment) -> None:
        base = self.plan.limits[BASES.get(s.place, "base_bytes")]
        self.bad("7.2", s, (s.place, s.offset) != self.plan.homes[s.index], "this home is not where the limits say")
        self.bad("7.2", s, s.offset % (BLOCK if s.place == "disk" else ALIGN) or s.end > base, "this home is not aligned, below the base")

    def rule_7_3(self) -> None:
        homes = sorted(self.segments[:len(self.persistent)], key=lambda s: (s.place, s.offset))
        for one, other in zip(homes, homes[1:]):
            self.bad("7.3", other, one.place == other.place and other.offset < one.end, "overlaps home %d", one.index)

    # ----------------------------------------------------------------------------------------------------- 3.3 Steps
    def part_3(self) -> None:
        self.rule_3_1()
        for node in self.nodes:
            step = self.step_of(node)
            self.bad("3.6", node, node.kind == "recompute" and not step, "its step does not exist")
            if step and self.bad("3.2", node, len(node.segments) != len(step.uses), "a use is not bound"):
                continue
            if step and self.bad("3.4", node, len(node.codes) not in (0, len(step.uses)), "codes of other uses"):
                continue
            if step:
                if node.kind == "recompute":
                    self.rule_3_6(node, step)
                for k, use, s, given in self.uses(node):
                    self.rule_3_2(node, use, node.segments[k], s)
                    self.rule_3_3(node, step, use, s, given)
                    if node.codes and node.codes[k] is not None:
                        self.rule_3_4(node, step, use, s, self.segment(node.codes[k]))
            if step or node.kind in ("encode", "decode"):
                self.rule_3_5(node)

    def rule_3_1(self) -> None:
        self.node_of_step: Dict[int, Node] = {}
        for node in self.nodes:
            if node.kind not in COMPUTE:
                continue
            if node.kind == "step":
                following = len(self.node_of_step)
                self.bad("3.1", node, not self.step_of(node) or node.step != following,
                         "the next step is %d", following)
                self.bad("3.1", node, node.given, "a step that runs for the first time has given outputs")
                self.node_of_step[following] = node
            self.bad("3.1", node, self.step_of(node) and not 0 <= node.variant < len(self.variants[node.step]),
                     "variant %d does not exist", node.variant)
            self.bad("3.1", node, (node.tensor, node.source, node.target, node.stage) != (None,) * 4 or node.throttle,
                     "it has an operation's fields")
        self.bad("3.1", None, len(self.node_of_step) < len(self.steps), "step %d has no node", len(self.node_of_step))

    def rule_3_2(self, node: Node, use: Use, bound: Optional[int], s: Optional[Segment]) -> bool:
        tensor, home = self.tensors[use.tensor], self.home_of.get(use.tensor)
        if self.stream(node) == "host":
            there = home is not None and s is not None and s.tensor == use.tensor and s.place == "pinned"
            copied = there and self.plan.homes[home][0] == "disk" and s.content == "raw"
            return self.bad("3.2", node, not there or (bound != home and not copied),
                            "%s is bound neither to its home in pinned memory, nor to a copy of one on the disk",
                            tensor.name)
        if tensor.ownership == "external":
            return self.bad("3.2", node, bound is not None, "%s, which is external, is bound", tensor.name)
        if home is not None and self.plan.homes[home][0] == "device":
            return self.bad("3.2", node, bound != home, "%s is not bound to its home", tensor.name)
        return (
            self.bad("3.2", node, s is None, "%s is bound to no segment that exists", tensor.name) or
            self.bad("3.2", node, s.tensor != self.roots[use.tensor], "%s is not in a segment of it", tensor.name) or
            self.bad("3.2", node, not s.on_device, "%s is bound to a segment that is not on the device", tensor.name) or
            self.bad("3.2", node, s.pool is not None, "%s is bound to a code with a body in a pool", tensor.name))

    def reads_code(self, use: Use, s: Optional[Segment], given: bool) -> bool:
        """The step reads a code in place of elements. Reading: so it does if a given output is bound to a code."""
        return s is not None and s.content == "coded" and use.form == "value" and (use.access == "read" or given)

    def declared(self, step: Step, access: str, use: Use, coded: Segment) -> List[int]:
        """The scratch for each declaration (there should be one at most) that the step reads or writes such codes."""
        return [round_up(size + strips * self.code_of(coded).strip_elems * 4)
                for how, tensor, codec, size, strips in step.codes
                if (how, tensor) == (access, use.tensor) and (coded.codec + ":").startswith(codec + ":")]

    def rule_3_3(self, node: Node, step: Step, use: Use, s: Optional[Segment], given: bool) -> None:
        if self.reads_code(use, s, given):
            code = self.code_of(s)
            self.bad("3.3", node, not self.declared(step, "read", use, s), "the step does not read such codes")
            self.bad("3.3", node, not self.plan.codecs[s.codec].gives_value, "the codec does not give elements back")
            self.bad("3.3", node, not code.strip_elems or code.body_bound, "a code without strips, or with a body")

    def rule_3_4(self, node: Node, step: Step, use: Use, s: Optional[Segment], code: Optional[Segment]) -> bool:
        return (
            self.bad("3.4", node, node.kind != "step", "a recomputation writes a code") or
            self.bad("3.4", node, code is None or code.content != "coded" or not code.on_device or
                     code.pool is not None, "a code in a segment for none, or with a body, or not on the device") or
            self.bad("3.4", node, code.tensor != self.roots[use.tensor], "a code in another tensor's segment") or
            self.bad("3.4", node, self.tensors[use.tensor].ownership != "managed", "a code of a tensor not managed") or
            self.bad("3.4", node, s is None or s.content != "raw", "a code of what is not bound raw") or
            self.bad("3.4", node, not self.declared(step, "write", use, code), "it cannot write such codes") or
            self.bad("3.4", node, not self.code_of(code).strip_elems, "a code without strips"))

    def scratch(self, node: Node) -> int:
        """The bytes of scratch that a node needs (3.5)."""
        step = self.step_of(node)
        if not step:
            coded = self.segment(node.target if node.kind == "encode" else node.source)
            code = self.code_of(coded) if coded and node.kind in ("encode", "decode") else None
            return code.scratch if code else 0
        variants = self.variants[node.step]
        need = variants[node.variant][1] if 0 <= node.variant < len(variants) else 0
        extra = []
        for k, use, s, given in self.uses(node):
            read = s if self.reads_code(use, s, given) else None
            for access, coded in (("read", read), ("write", self.segment(node.codes[k]) if node.codes else None)):
                if coded and coded.content == "coded":
                    extra.append(max(self.declared(step, access, use, coded), default=0))
        return round_up(need) + sum(extra) if sum(extra) else need

    def rule_3_5(self, node: Node) -> bool:
        """Reading: what a node names is a workspace, even if it needs none. (Copies and measures: 4.2, 4.4.)"""
        work, need = self.segment(node.work), self.scratch(node)
        return (
            self.bad("3.5", node, node.work is None and need > 0, "it needs %d bytes of scratch, names none", need) or
            self.bad("3.5", node, node.work is not None and (not work or work.content != "workspace"),
                     "segment %s is not a workspace", node.work) or
            self.bad("3.5", node, work and work.bytes < need, "it needs %d bytes of scratch, more than it has", need))

    def rule_3_6(self, node: Node, step: Step) -> None:
        """What else than managed tensors the step modifies, a recomputation only reads."""
        first = self.node_of_step.get(node.step)
        self.bad("3.6", node, step.phase != "forward" or not step.repeatable, "not a forward step that is repeatable")
        self.bad("3.6", node, first is None or first.index > node.index, "step %d did not run before", node.step)
        for use in step.uses:
            tensor, managed = self.tensors[use.tensor], self.tensors[use.tensor].ownership == "managed"
            self.bad("3.6", node, use.access == "modify" and managed, "it modifies %s",
                     tensor.name)
            self.bad("3.6", node, use.access == "write" and not managed, "it writes %s, not managed", tensor.name)
            self.bad("3.6", node, use.access == "write" and self.roots[use.tensor] != use.tensor,
                     "it writes %s, which has another root", tensor.name)
        for k in node.given:
            self.bad("3.6", node, k >= len(step.uses) or step.uses[k].access != "write"
                     or step.uses[k].tensor not in step.given, "use %d is not an output that may be given", k)

    # ------------------------------------------------------------------------------------------------ 3.4 Operations
    def part_4(self) -> None:
        for node in self.nodes:
            if node.kind in OPERATIONS and not self.rule_4_1(node):
                self.rule_4_2(node)
                self.rule_4_3(node)
                self.rule_4_4(node)

    def rule_4_1(self, node: Node) -> bool:
        """Reading: an operation's tensor is its own root, as segments are of roots."""
        bad = self.bad("4.1", node, node.step is not None, "it names a step")
        bad |= self.bad("4.1", node, node.tensor is None, "it is of no tensor")
        for what, index, (contents, memory) in zip(("source", "target"), (node.source, node.target),
                                                   OPERATIONS[node.kind]):
            s = self.segment(index)
            bad |= (
                self.bad("4.1", node, not contents and index is not None, "it has a %s", what) if not contents else
                self.bad("4.1", node, s is None, "it has no %s that exists", what) or
                self.bad("4.1", node, s.tensor != node.tensor, "its %s is not of its tensor", what) or
                self.bad("4.1", node, s.content not in contents, "its %s is %s", what, s.content) or
                self.bad("4.1", node, s.place == "disk" if memory == "either" else memory != ("device" if s.on_device else s.place),
                         "its %s is in the wrong memory", what))
        return bad

    def rule_4_2(self, node: Node) -> None:
        if node.kind in COPIES:
            source, target = self.segments[node.source], self.segments[node.target]
            self.bad("4.2", node, (source.content, source.codec, source.bytes) != (
                target.content, target.codec, target.bytes), "source and target differ in content, codec or bytes")
            self.bad("4.2", node, source.pool is not None or target.pool is not None, "it copies a code with a body")
            self.bad("4.2", node, node.work is not None or node.stage is not None, "it has a workspace or a stage")

    def rule_4_3(self, node: Node) -> None:
        if node.kind != "encode":
            codec = self.plan.codecs.get(self.segments[node.source].codec)
            self.bad("4.3", node, node.kind == "decode" and not codec.gives_value, "its codec does not give elements")
            self.bad("4.3", node, node.stage is not None or node.throttle, "only an encode has a stage or is throttled")
        elif node.stage is not None:
            stage, code = self.segment(node.stage), self.code_of(self.segments[node.target])
            self.bad("4.3", node, not stage or stage.content != "workspace" or stage.bytes < code.bytes,
                     "the stage is not a workspace that holds the code")
            self.bad("4.3", node, code.body_bound, "a stage for a code with a body")

    def rule_4_4(self, node: Node) -> None:
        if node.kind == "measure":
            self.bad("4.4", node, self.tensors[node.tensor].dtype != "f32", "its tensor is not in f32")
            self.bad("4.4", node, node.work is not None or node.stage is not None, "it has a workspace or a stage")

    # ----------------------------------------------------------------------------------------------------- 3.5 Order
    def part_5(self) -> None:
        self.rules_5_1_and_5_2()
        self.rule_5_3()
        if not self.violations:
            for node in self.nodes:
                if not self.rule_5_5(node) and node.kind in OPERATIONS:
                    self.rule_5_4(node)
            self.order = Order(self.plan)

    def rules_5_1_and_5_2(self) -> None:
        on: Dict[str, List[int]] = {stream: [] for stream in STREAMS}                 # the nodes of each stream
        for node in self.nodes:
            stream = self.stream(node)
            if self.bad("5.1", None, stream is None, "node %d: there is no kind %.40s", node.index, node.kind):
                continue
            self.bad("5.1", node, (node.stream, node.number) != (stream, len(on[stream])),
                     "it is not number %d of stream %s", len(on[stream]), stream)
            self.waits("5.2", node, node.waits, on)
            on[stream].append(node.index)

    def waits(self, rule: str, node: Node, waits: Dict[str, int], on: Dict[str, List[int]]) -> None:
        """The waits of a node or piece are for other streams, and for what is already on them."""
        for stream, number in waits.items():
            self.bad(rule, node, stream == self.stream(node) or number >= len(on.get(stream, ())),
                     "a wait for %d of %.40s, not an earlier one of another stream", number, stream)

    def rule_5_3(self) -> None:
        on: Dict[str, List[int]] = {stream: [] for stream in STREAMS}                 # the node of each piece
        for node in self.nodes:
            node.pieces = []
        for piece in self.plan.pieces:
            node = self.nodes[piece.node] if piece.node < len(self.nodes) else None
            if self.bad("5.3", None, not node or node.kind not in STREAM, "piece %d is of no node", piece.index):
                continue
            own = on[self.stream(node)]
            self.bad("5.3", node, piece.number != len(own), "a piece that is not number %d of its stream", len(own))
            self.bad("5.3", node, own and own[-1] > node.index, "a piece after one of a later node of its stream")
            self.waits("5.3", node, piece.waits, on)
            own.append(node.index)
            node.pieces.append(piece)
        for node in self.nodes:
            self.bad("5.3", node, not node.pieces, "it has no piece")

    def stored(self, node: Node) -> Segment:
        """The segment with the stored form of what an operation does."""
        return self.segments[node.source if node.kind in ("decode", "measure") else node.target]

    def rule_5_4(self, node: Node) -> None:
        """Reading: the stored form is the whole segment; pieces are not empty."""
        stored = self.stored(node)
        tensor, code = self.tensors[node.tensor], self.code_of(stored)
        row = offset = 0
        for p in node.pieces:
            in_map = row * (tensor.bytes // tensor.rows)
            splits, rest = divmod(row, code.split_rows) if code and code.split_rows else (0, row)
            cut, rest = (splits * code.split_bytes, rest) if code else (in_map, 0)
            if (self.bad("5.4", node, p.first_row != row or p.rows < 1, "a piece does not begin at row %d", row) or
                    self.bad("5.4", node, p.stored_offset != offset or p.stored_bytes < 1, "a piece does not begin at "
                             "byte %d of the stored form", offset) or
                    self.bad("5.4", node, p.map_offset != in_map, "a piece does not begin at %d in the map", in_map) or
                    self.bad("5.4", node, offset % ALIGN or in_map % ALIGN, "a piece is not aligned") or
                    self.bad("5.4", node, offset != cut or rest,
                             "the piece from row %d has not the bytes of its rows", row)):
                return
            row, offset = row + p.rows, offset + p.stored_bytes
        self.bad("5.4", node, row != tensor.rows or offset != stored.bytes, "its pieces do %d of %d rows, %d of %d "
                 "bytes", row, tensor.rows, offset, stored.bytes)

    def rule_5_5(self, node: Node) -> bool:
        if len(node.pieces) < 2:
            return False
        if self.bad("5.5", node, node.kind in COMPUTE, "it has several pieces, and is not an operation"):
            return True
        stored = self.stored(node)
        used = [self.segment(i) for i in (node.source, node.target, node.work, node.stage)]
        return (
            self.bad("5.5", node, node.stage is not None or any(s and s.dynamic for s in used),
                     "it has several pieces, and a stage or a dynamic segment") or
            self.bad("5.5", node, stored.content == "coded" and self.code_of(stored).body_bound or node.kind in (
                "store", "load"), "it has several pieces, and its code has a body, or it uses the disk") or
            self.bad("5.5", node, stored.content != "coded" and (
                node.kind not in ("offload", "prefetch") or self.tensors[node.tensor].allreduce not in THROUGH_PINNED),
                "it has several pieces, and neither a code nor a tensor that is all-reduced through pinned memory"))

    # ---------------------------------------------------------------------------------------------------- 3.6 Values
    def find_users(self) -> None:
        """The users of each segment, in issue order. Who encodes or decodes a code uses its pool and spill (2.6)."""
        self.users: List[List[int]] = [[] for _ in self.segments]
        for node in self.nodes:
            of_step = node.segments + node.codes if node.kind in COMPUTE else []
            used = {node.source, node.target, node.work, node.stage, *of_step} - {None}
            pools = {self.segments[i].pool for i in used} - {None}
            spills = {self.segments[i].spill for i in pools} - {None}
            for index in used | pools | spills:
                self.users[index].append(node.index)

    def walk(self) -> None:
        self.values = count()                                             # the numbers of values
        self.present = [None if t.ownership == "managed" else next(self.values) for t in self.tensors]
        self.state = [State(None, None, False, False, None, []) for _ in self.segments]
        for index, tensor in enumerate(self.persistent):
            self.state[index].value, self.state[index].exact = self.present[tensor], True
        self.first: Dict[int, Any] = {}                                   # what each step did when it ran
        self.recomputed: Dict[int, bool] = {}                             # whether a recomputation's output is used
        for node in self.nodes:
            if node.kind == "step":
                self.walk_step(node, self.step_of(node))
            elif node.kind == "recompute":
                self.walk_recompute(node, self.first[node.step])
            else:
                self.walk_operation(node)
        self.rule_6_9()

    def walk_step(self, node: Node, step: Step) -> None:
        uses = list(self.uses(node))
        values: List[Optional[int]] = []                                  # per use: what it reads, or writes
        exact = True
        for _, use, s, _ in uses:
            values.append(self.present[use.tensor])
            if use.reads and s:
                self.rules_6_1_and_6_2(node, s)
                self.rule_6_4(node, s, use, self.present[use.tensor])
                self.rule_6_5(node, s, use)
                exact &= self.reads_exactly(use, s, False)
        self.first[node.step] = SimpleNamespace(node=node, values=values, exact=exact)
        shares = {k for k, use, _, _ in uses if use.access == "write" and self.roots[use.tensor] != use.tensor}
        for k, use, s, _ in uses:
            if k in shares:
                self.rule_6_6(node, s, use)
                self.rule_6_7(node, s, use, step)
                self.state[s.index].users.append(node.index)
                self.present[use.tensor] = values[k] = self.state[s.index].value
        for k, use, s, _ in uses:
            if use.writes and k not in shares:
                self.present[use.tensor] = next(self.values)
                if s:
                    self.rule_6_6(node, s, use)
                    self.write(node, s, self.present[use.tensor], True, use)
                if use.access == "write":
                    values[k] = self.present[use.tensor]
        for k, use, s, _ in uses:
            code = self.segment(node.codes[k]) if node.codes else None
            if code:
                self.rule_6_8(node, code)
                self.put(node, code, self.present[use.tensor], self.state[s.index].exact)
                self.state[code.index].unread = node.index

    def walk_recompute(self, node: Node, first: Any) -> None:
        """Reading: that a step reads a lossy code in place of elements counts the first time, too, as not exact."""
        deterministic, _ = self.variants[node.step][node.variant]
        exact = first.exact and node.variant == first.node.variant and deterministic
        for k, use, s, given in self.uses(node):
            if use.access == "read" and (s is None or self.is_home(s)):
                self.rule_6_10(node, use, first.values[k])
            if s and (use.reads or given):
                self.rules_6_1_and_6_2(node, s)
                if use.access != "modify":
                    self.rule_6_4(node, s, use, first.values[k])
                self.rule_6_5(node, s, use)
                exact &= self.reads_exactly(use, s, given)
        self.recomputed[node.index] = False
        for k, use, s, given in self.uses(node):
            if use.access == "write" and not given:
                self.rule_6_6(node, s, use)
                self.write(node, s, first.values[k], exact, use)

    def walk_operation(self, node: Node) -> None:
        source, target = self.segments[node.source], self.segment(node.target)
        self.rules_6_1_and_6_2(node, source)
        held = self.state[source.index]
        if node.kind == "measure":
            self.rule_6_11(node, held)
            return
        exact = held.exact and not (node.kind == "decode" and self.lossy(source))
        if self.is_home(target):
            self.write(node, target, held.value, exact, None)
        else:
            self.rule_6_8(node, target)
            self.put(node, target, held.value, exact)
        self.state[target.index].as_target = True
        self.state[target.index].unread = node.index

    def reads_exactly(self, use: Use, s: Segment, given: bool) -> bool:
        return self.state[s.index].exact and not (self.reads_code(use, s, given) and self.lossy(s))

    def write(self, node: Node, s: Segment, value: Optional[int], exact: bool, use: Optional[Use]) -> None:
        """A step's operand, or a home, gets a value, perhaps again."""
        self.rule_6_3(node, s, use)
        self.rule_10_1(s, self.state[s.index], "overwritten")
        self.put(node, s, value, exact)

    def put(self, node: Node, s: Segment, value: Optional[int], exact: bool) -> None:
        self.state[s.index] = State(value, node.index, False, exact, None, [node.index])

    def rules_6_1_and_6_2(self, node: Node, s: Segment) -> None:
        state = self.state[s.index]
        self.bad("6.1", node, state.value is None and state.writer is None, "segment %d was not written", s.index)
        if state.writer is not None and not self.order.ends_before(state.writer, node.index):
            pieces = (state.as_target and self.nodes[state.writer].kind != "decode"
                      and node.source == s.index and node.kind != "encode")
            self.bad("6.2", node, not pieces or not self.order.piecewise(state.writer, node.index),
                     "it reads segment %d, and node %d, which wrote it, need not have ended", s.index, state.writer)
        state.unread = None
        if state.writer in self.recomputed:
            self.recomputed[state.writer] = True
        state.users.append(node.index)

    def rule_6_3(self, node: Node, s: Segment, output: Optional[Use]) -> None:
        for user in self.state[s.index].users:
            if user != node.index and not self.order.ends_before(user, node.index):
                pieces = self.is_home(s) and (self.nodes[user].kind, node.kind) == ("offload", "prefetch")
                self.bad("6.3", node, not pieces or not self.order.piecewise(user, node.index),
                         "it writes segment %d, and node %d, which uses it, need not have ended", s.index, user)
        for _, use, bound, given in self.uses(node) if output else ():
            self.bad("6.3", node, use is not output and bound is s and (use.reads or given),
                     "it writes over %s, which it reads, in segment %d", self.name(use.tensor), s.index)

    def rule_6_4(self, node: Node, s: Segment, use: Use, value: Optional[int]) -> None:
        state = self.state[s.index]
        known = state.value is not None or state.writer is not None                # if not: 6.1
        self.bad("6.4", node, known and (value is None or state.value != value), "segment %d does not hold the value "
                 "of %s that it must read", s.index, self.name(use.tensor))

    def rule_6_5(self, node: Node, s: Segment, use: Use) -> None:
        if use.form == "sign":
            self.bad("6.5", node, not self.state[s.index].exact, "segment %d, signs of which it reads, is not exact",
                     s.index)
            self.bad("6.5", node, s.content == "coded" and not self.plan.codecs[s.codec].gives_sign,
                     "the codec of segment %d gives no signs", s.index)

    def rule_6_6(self, node: Node, s: Segment, use: Use) -> None:
        self.bad("6.6", node, s.content != "raw", "it writes %s into what is not raw", self.name(use.tensor))

    def rule_6_7(self, node: Node, s: Segment, use: Use, step: Step) -> None:
        self.bad("6.7", node, not any(
            bound is s and given.reads and ("alias", given.tensor, use.tensor) in step.pairs
            and self.roots[given.tensor] == self.roots[use.tensor] for _, given, bound, _ in self.uses(node)),
            "%s is not bound to the segment of an input that it equals", self.name(use.tensor))

    def rule_6_8(self, node: Node, s: Segment) -> None:
        self.bad("6.8", node, self.state[s.index].users, "it writes segment %d, which was used before", s.index)

    def rule_6_9(self) -> None:
        """Reading: nor is it both the workspace and the stage of a node."""
        for s in self.segments:
            users = self.users[s.index]
            if s.content == "workspace" and len(users) > 1:
                self.bad("6.9", self.nodes[users[1]], True, "node %d uses workspace %d, too", users[0], s.index)
        for node in self.nodes:
            self.bad("6.9", node, node.work is not None and node.work == node.stage, "its workspace is its stage, too")

    def rule_6_10(self, node: Node, use: Use, value: Optional[int]) -> None:
        self.bad("6.10", node, self.present[use.tensor] != value, "%s has got a new value since the step ran",
                 self.name(use.tensor))

    def rule_6_11(self, node: Node, held: State) -> None:
        self.bad("6.11", node, held.value is None or held.value != self.present[node.tensor] or not held.exact,
                 "it does not measure the present value of %s, exactly", self.name(node.tensor))

    # ---------------------------------------------------------------------------------- 3.7 Homes, during the iteration
    def part_7(self) -> None:
        """7.4 and 7.5."""
        for node in self.nodes:
            at_home = any(s and self.is_home(s) for s in (self.segment(node.source), self.segment(node.target)))
            before = self.order.before[node.pieces[0].index]
            self.bad("7.4", node, (at_home or node.stream == "host") and not before & self.order.compute,
                     "it uses a home, or runs on the host, and comes after no step")
        for index, tensor in enumerate(self.persistent):
            self.bad("7.5", None, self.state[index].value != self.present[tensor],
                     "in the end, the home of %s does not hold its present value", self.name(tensor))

    # ----------------------------------------------------------------------------------------------------- 3.8 Bytes
    def part_8(self) -> None:
        used = [s for s in self.segments if not self.is_home(s) and self.users[s.index]]
        used.sort(key=lambda s: (self.users[s.index][0], s.index))
        for place in ("device", "pinned", "disk"):
            self.rule_8_1([s for s in used if s.place == place])
        dynamic = [s for s in used if s.dynamic]
        for s in dynamic:
            self.rule_8_2(s)
        codes, heap = self.plan.stated["heap_code_bytes"], self.plan.stated["heap_bytes"]
        self.rule_8_3("codes", codes, [s for s in dynamic if s.content == "coded"])
        self.rule_8_3("all else", heap - codes, [s for s in dynamic if s.content != "coded"])
        self.rule_8_4()

    def last_users(self, s: Segment) -> List[int]:
        """The last user of a segment on each stream: where it ends before something, the earlier ones do."""
        return list({self.nodes[user].stream: user for user in self.users[s.index]}.values())

    def rule_8_1(self, segments: List[Segment]) -> None:
        """Who has which bytes, as ranges without overlap in the order of their offsets."""
        starts, ends, owners = [], [], []
        for s in segments:
            i = bisect_right(starts, s.offset)
            if i and ends[i - 1] > s.offset:
                i -= 1
            j = i
            while j < len(starts) and starts[j] < s.end:
                j += 1
            for other in {owner.index: owner for owner in owners[i:j]}.values():
                self.take(self.nodes[self.users[s.index][0]], s, other)
            ranges = [(s.offset, s.end, s)]
            if i < j and starts[i] < s.offset:
                ranges.insert(0, (starts[i], s.offset, owners[i]))
            if i < j and ends[j - 1] > s.end:
                ranges.append((s.end, ends[j - 1], owners[j - 1]))
            starts[i:j], ends[i:j], owners[i:j] = map(list, zip(*ranges))

    def take(self, node: Node, s: Segment, other: Segment) -> None:
        """With its first node, segment s takes bytes of another one."""
        for user in self.last_users(other):
            if user == node.index:
                self.bad("8.1", node, not self.in_place(node, s, other),
                         "segment %d takes bytes of segment %d, and it uses both", s.index, other.index)
            else:
                self.bad("8.1", node, not self.order.ends_before(user, node.index), "segment %d takes bytes of segment "
                         "%d, and node %d, which uses that, need not have ended", s.index, other.index, user)

    def in_place(self, node: Node, s: Segment, other: Segment) -> bool:
        """A step, the last user of one segment and the first of another, writes the output over the input."""
        if node.kind not in COMPUTE or s.offset != other.offset or other.content != "raw":
            return False
        uses, pairs = list(self.uses(node)), self.step_of(node).pairs
        outputs = {use.tensor for _, use, bound, given in uses if bound is s and use.access == "write" and not given}
        inputs = {over for _, over, output in pairs if output in outputs}
        return all(use.tensor in inputs and use.reads and not (node.codes and node.codes[k] is not None)
                   for k, use, bound, _ in uses if bound is other)

    def rule_8_2(self, s: Segment) -> None:
        last = self.nodes[self.users[s.index][-1]]
        for user in self.last_users(s):
            self.bad("8.2", last, user != last.index and not self.order.comes_before(
                self.nodes[user].pieces[-1], last.pieces[-1]),
                "the last to use segment %d, it can end before node %d, which uses it", s.index, user)

    def rule_8_3(self, part: str, room: int, segments: List[Segment]) -> None:
        change = [0] * (len(self.nodes) + 1)
        for s in segments:
            change[self.users[s.index][0]] += round_up(s.bytes)
            change[self.users[s.index][-1] + 1] -= round_up(s.bytes)
        alive = 0
        for node in self.nodes:
            alive += change[node.index]
            self.bad("8.3", node, alive > room, "the heap's part for %s has %d bytes, not %d", part, room, alive)

    def rule_8_4(self) -> None:
        """Reading: the part for all else begins at an aligned offset, too."""
        stated = self.plan.stated
        start, size, codes = stated["heap_offset"], stated["heap_bytes"], stated["heap_code_bytes"]
        if size or codes:
            self.bad("8.4", None, start % ALIGN or codes % ALIGN, "the heap, or a part of it, is not aligned")
            self.bad("8.4", None, start < self.base["device"], "the heap is below the base")
            self.bad("8.4", None, codes > size or start + size > LARGEST, "the heap has not the sizes of its parts")
            for s in self.segments:
                self.bad("8.4", s, s.place == "device" and s.offset < start + size and start < s.end, "in the heap")

    # ---------------------------------------------------------------------------------------------------- 3.9 Limits
    def part_9(self) -> None:
        stated, limits = self.plan.stated, self.plan.limits
        extent = max([self.base["device"]] + [s.end for s in self.segments if s.place == "device"])
        if stated["heap_bytes"]:
            extent = max(extent, stated["heap_offset"] + stated["heap_bytes"])
        external = sum(t.bytes for t in self.tensors if t.ownership == "external")
        pinned, disk = (max([self.base[p]] + [s.end for s in self.segments if s.place == p]) for p in ("pinned", "disk"))
        for rule, need, limit in (("9.1", extent + external, "device_bytes"), ("9.2", pinned, "pinned_bytes"),
                                  ("9.5", disk, "disk_bytes")):
            self.bad(rule, None, need > limits[limit], "it needs %d bytes, %s is %d", need, limit, limits[limit])
        for key in BASES.values():
            self.bad("9.3", None, stated[key] < limits[key], "%s is below that of the limits", key)
        for key, right in (("extent_bytes", extent), ("external_bytes", external), ("peak_bytes", extent + external),
                           ("pinned_bytes", pinned), ("disk_bytes", disk)):
            self.bad("9.4", None, stated[key] != right, "%s is stated as %d, right is %d", key, stated[key], right)

    # --------------------------------------------------------------------------------------- 3.10 Nothing superfluous
    def part_10(self) -> None:
        """Reading: a recomputation has at least one output that is used. 10.2 is of homes, too."""
        for s in self.segments:
            if not self.is_home(s):
                self.rule_10_1(s, self.state[s.index], "never used")
            self.bad("10.2", s, not self.users[s.index], "it is not used")
        for index, used in self.recomputed.items():
            self.bad("10.1", self.nodes[index], not used, "nobody uses what it recomputes")

    def rule_10_1(self, s: Segment, state: State, what: str) -> None:
        """(Called by the walk before a segment is overwritten, too.) Reading: to use is to read."""
        if state.unread is not None:
            self.bad("10.1", self.nodes[state.unread], True, "what it writes into segment %d is %s", s.index, what)


# ----------------------------------------------------------------------------------------------------------------
# As a module, and as a program

def check(plan: Plan) -> List[Tuple[str, Optional[int], str]]:
    """The violations of a plan: rule, node or None, message."""
    return Checker(plan).check()


def node_name(plan: Plan, node: Any) -> str:
    if node.step is not None and node.step < len(plan.steps):
        return "%s of %s" % (node.kind, plan.steps[node.step].layer)
    return "%s of %s" % (node.kind, "nothing" if node.tensor is None else plan.tensors[node.tensor].name)


def main(arguments: List[str]) -> int:
    options = [a for a in arguments if a.startswith("-")]
    files = [a for a in arguments if not a.startswith("-")]
    if not files or set(options) - {"--all", "--json"}:
        print("usage: verify.py [--all] [--json] FILE...", file=sys.stderr)
        return 2
    status, results = 0, []
    for file in files:
        try:
            plans = read(file)
        except Unreadable as error:
            print("%s: unreadable: %s" % (file, error), file=sys.stderr)
            status = 2
            continue
        for plan in plans:
            found = check(plan)
            if not found:
                results.append((file, plan.graph, True, None, None, "%s of %s: %d nodes" % (
                    plan.policy, plan.graph, len(plan.nodes))))
            for rule, node, message in found if "--all" in options else found[:1]:
                status = max(status, 1)
                where = "" if node is None else "node %d (%s): " % (node, node_name(plan, plan.nodes[node]))
                results.append((file, plan.graph, False, rule, node, where + message))
    if "--json" in options:
        print(json.dumps([dict(zip(("file", "graph", "proved", "rule", "node", "message"), r)) for r in results],
                         indent=1))
    else:
        for file, _, proved, rule, _, message in results:
            print("%s: %s: %s" % (file, "proved" if proved else "refused by rule " + rule, message))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
