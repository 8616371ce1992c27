# SPDX-License-Identifier: MIT
"""Logs for log_to_plan.py: import_logs.py IMPORT MM VERIFY.PY.

The README's example and the same with a wait left out; what is refused, and in which words; random logs, whose races
an own search for unordered accesses to one byte finds, without plans and their rules."""
import itertools
import json
import os
import random
import subprocess
import sys

IMPORT, MM, SECOND = sys.argv[1:]
sys.path.insert(0, IMPORT)
from log_to_plan import Refused, convert  # noqa: E402

HEADER = {"format": "mm events", "version": 1, "name": "test"}
MAP = 512
RANDOM = 600


def both(plans):
    """The rule that refuses each schedule, as mm says it, or None if it is proved. Both checkers agree on which."""
    with open("all.plan", "w", encoding="utf-8") as file:
        for number, plan in enumerate(plans):
            header, *rest = plan.lines()
            file.writelines(json.dumps(line) + "\n" for line in ({**header, "plan": number, "plans": len(plans)}, *rest))
    rules = []
    for command in ([MM, "verify", "--quiet", "--json", "-"], [sys.executable, SECOND, "--json"]):
        result = subprocess.run([*command, "all.plan"], stdout=subprocess.PIPE, check=False)
        rules.append([verdict.get("rule") for verdict in json.loads(result.stdout)])
    os.remove("all.plan")
    first, second = rules
    assert len(first) == len(plans) and [r is None for r in first] == [r is None for r in second], rules
    return first


def lines(*events):
    return [json.dumps(event) for event in (HEADER, *events)]


def example():
    with open(f"{IMPORT}/README.md", encoding="utf-8") as file:
        log = file.read().split("```\n")[1].splitlines()

    def without(text):
        rest = [line for line in log if text not in line]
        assert len(rest) == len(log) - 1, text
        return convert(rest)

    rules = both([convert(log), *(without(f'"wait", "stream": "{s}", "event": "{e}"')
                                  for s, e in (("s1", "made"), ("s0", "out"), ("s0", "in")))])
    assert rules == [None, "6.2", "8.1", "6.2"], rules


def alloc(name, address, memory="device", **more):
    return {"do": "alloc", "buffer": name, "address": address, "bytes": MAP, "memory": memory, **more}


def kernel(name, stream, reads=(), writes=(), **more):
    return {"do": "kernel", "name": name, "stream": stream, "reads": list(reads), "writes": list(writes), **more}


def copy(source, target, stream, **more):
    return {"do": "copy", "stream": stream, "from": source, "to": target, **more}


def right():
    """What maps to more than one node, or to none."""
    a, b, host = alloc("a", 0, filled=True), alloc("b", MAP), alloc("h", 0, "host")
    two = [copy("w", "a", "s1"), copy("w", "b", "s1"), {"do": "record", "stream": "s1", "event": "e"},
           {"do": "wait", "stream": "s0", "event": "e"}, kernel("both", "s0", "ab", "ab")]
    cases = {
        "a blocking copy is waited for by all streams": [
            a, host, copy("a", "h", "s1", blocking=True), kernel("over", "s0", (), "a")],
        "a kernel reads two copies of a tensor, and writes over both": [
            alloc("w", 0, "host", filled=True), alloc("a", 0), b, *two],
        "kernels on two streams, one after the other": [
            a, b, kernel("one", "s0", "a", "b"), {"do": "record", "stream": "s0", "event": "e"},
            {"do": "wait", "event": "e"}, kernel("two", "s1", "b", "a")],
        "work of the host alone": [a, host, kernel("count", "host", (), "h"), kernel("one", "s0", "a")],
        "copies that nothing reads": [a, host, copy("a", "h", "s1")],
        "a copy on the device is a kernel": [a, b, copy("a", "b", "s0"), kernel("one", "s0", "b")],
    }
    rules = both([convert(lines(*events)) for events in cases.values()])
    assert not any(rules), dict(zip(cases, rules))


def refused():
    a, host = alloc("a", 0, filled=True), alloc("h", 0, "host")
    for text, events in {
        '4: kernel two on stream s1 may run beside kernel one on stream s0, but a plan\'s stream "compute"':
            [kernel("one", "s0", "a"), kernel("two", "s1", "a")],
        "the copy of a to h on stream s2 may run beside the copy of a to h on stream s1":
            [host, copy("a", "h", "s1"), copy("a", "h", "s2")],
        "kernel one uses buffer h in host memory": [host, kernel("one", "s0", "a", "h")],
        "4: buffer a was freed in line 3": [{"do": "free", "buffer": "a"}, kernel("one", "s0", "a")],
        "buffer b lies over a, which is not freed": [alloc("b", 256)],
        "buffer b at 600 lies at no multiple of 256": [alloc("b", 600)],
        "buffer b is read, but nothing has written it": [alloc("b", MAP), kernel("one", "s0", "b")],
        "within host memory": [host, alloc("i", MAP, "host"), copy("h", "i", "s0")],
        "buffer a is allocated twice": [a],
        'kernel has an unknown key "read"': [{**kernel("one", "s0"), "read": []}],
        "\"do\" is 'launch'": [{"do": "launch"}],
        """kernel: "reads" is [['a']]""": [kernel("one", "s0", [["a"]])],
        'alloc: "address" is -1': [alloc("b", -1)],
    }.items():
        try:
            convert(lines(a, *events))
        except Refused as message:
            assert text in str(message) and "\n" not in str(message), message
        else:
            raise AssertionError(f"not refused: {text}")
    try:
        convert(lines())
        raise AssertionError("a log without work is not refused")
    except Refused as message:
        assert "has no work" in str(message), message
    with open("wrong.log", "w", encoding="utf-8") as file:
        file.write("{}\n")
    result = subprocess.run([sys.executable, f"{IMPORT}/log_to_plan.py", "wrong.log", "-o", "wrong.plan"],
                            stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 1 and result.stderr.startswith("log_to_plan.py: wrong.log:1: "), result
    assert not os.path.exists("wrong.plan")
    os.remove("wrong.log")


def random_log(rng):
    """A log with kernels on s0 and copies on s0 to s2, some of whose waits are missing."""
    events, streams, memory = [], ["s0", "s1", "s2"], {}
    names = (f"b{i}" for i in itertools.count())

    def new(place, **more):
        name = next(names)
        taken = {a for p, a, _ in memory.values() if p == place}
        address = rng.choice([a for a in range(0, 6 * MAP, MAP) if a not in taken] or [-1])
        if address < 0:
            return None
        memory[name] = place, address, bool(more)
        events.append(alloc(name, address, place, **more))
        return name

    def known(place):
        return [n for n, (p, _, written) in memory.items() if p == place and written]

    for place in ("device", "device", "host", "host"):
        new(place, filled=True)
    for number in range(rng.randint(4, 9)):
        stream, kind = "s0", rng.choice(["kernel", "update", "out", "in", "free"])
        if kind == "free":
            name = rng.choice(list(memory))
            if len(known("device")) > 1:
                del memory[name]
                events.append({"do": "free", "buffer": name})
            continue
        if kind in ("kernel", "update"):
            reads = rng.sample(known("device"), min(2, len(known("device"))))
            target = rng.choice(known("device")) if kind == "update" else new("device")
            work = kernel(f"k{number}", "s0", reads, [target] if target else [])
        else:
            sources = known("device" if kind == "out" else "host")
            target = sources and new("host" if kind == "out" else "device")
            if not target:
                continue
            stream = rng.choice(["s0", "s1", "s1", "s2"])
            work = copy(rng.choice(sources), target, stream, blocking=rng.random() < 0.2, bytes=rng.choice([256, MAP]))
        for other in streams:
            if other != stream and rng.random() < 0.7:
                event = f"e{len(events)}"
                events.extend([{"do": "record", "stream": other, "event": event},
                               {"do": "wait", "stream": stream, "event": event}])
        events.append(work)
        if target:
            memory[target] = *memory[target][:2], True
    return events


def judge(events):
    """By the set of what ended before each access: whether kernels, copies out or copies back are in no order, and
    whether two accesses to a byte, one of them a write, are."""
    ended, recorded, host, where, done, beside, racy = {}, {}, set(), {}, [], False, False
    for number, e in enumerate(events):
        if e["do"] == "alloc":
            where[e["buffer"]] = e["memory"], e["address"]
        elif e["do"] == "record":
            recorded[e["event"]] = ended.get(e["stream"], set()) | host
        elif e["do"] == "wait":
            ended[e["stream"]] = ended.get(e["stream"], set()) | recorded[e["event"]]
        elif e["do"] in ("kernel", "copy"):
            reads, writes = (e["reads"], e["writes"]) if e["do"] == "kernel" else ([e["from"]], [e["to"]])
            before = ended.get(e["stream"], set()) | host
            reads, writes = ({where[n] for n in names} for names in (reads, writes))
            kind = "kernel" if e["do"] == "kernel" else next(iter(writes))[0]
            for other, other_kind, other_reads, other_writes in done:
                if other not in before:
                    beside |= kind == other_kind
                    racy |= bool(writes & (other_reads | other_writes) or reads & other_writes)
            done.append((number, kind, reads, writes))
            ended[e["stream"]] = before | {number}
            if e.get("blocking"):
                host = host | ended[e["stream"]]
    return beside, racy


def agreement():
    plans, expected, refusals = [], [], 0
    for seed in range(RANDOM):
        events = random_log(random.Random(seed))
        beside, racy = judge(events)
        try:
            plans.append(convert(lines(*events)))
        except Refused as message:
            assert beside and "may run beside" in str(message), (seed, message)
            refusals += 1
        else:
            assert not beside, seed
            expected.append((seed, racy))
    rules = both(plans)
    for (seed, racy), rule in zip(expected, rules):
        assert rule in (("6.2", "8.1", "10.1") if racy else (None, "10.1")), (seed, racy, rule)
    racy = sum(racy for _, racy in expected)
    print(f"{len(rules)} random logs: {racy} with races, {rules.count(None)} proved, {rules.count('10.1')} with copies "
          f"that nobody reads; {refusals} refused")
    assert min(racy, rules.count(None), refusals) > RANDOM / 20


example()
right()
refused()
agreement()
