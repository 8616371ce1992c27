#!/usr/bin/env python3
"""nm -A -g ARCHIVE... | symbol_graph.py CIRCLES: files may call each other only in circles that CIRCLES lists.

File A calls file B if A's object has an undefined symbol that B's object defines. Include graphs do not see such
circles: one header may declare what several files define. Each line of CIRCLES has the names of the files of one
circle, a colon, and why it stays. Fails on a circle that is not listed, and on a line that has no circle.
"""
# SPDX-License-Identifier: MIT
import re
import sys


def read_calls(lines):
    """Returns {caller: {callee: {symbol}}}. A line of nm is ARCHIVE:MEMBER:[ADDRESS] TYPE SYMBOL."""
    owner, wanted = {}, []
    for line in lines:
        found = re.match(r"[^:]*:([^.:]*)[^:]*:\S* +(\w) (\S+)", line)
        if not found:
            continue
        member, kind, symbol = found.groups()
        # A .cu file is compiled through a wrapper, named after the library and the file (tools/bazel/cuda.bzl).
        file = re.sub(r"^.*_emulated_(.*)_cu$", r"\1", member)
        if kind == "U":
            wanted.append((file, symbol))
        elif kind in "TDBRC":  # not weak symbols: functions of C++ headers, which each caller defines
            owner[symbol] = file
    calls = {file: {} for file in owner.values()}
    for caller, symbol in wanted:
        callee = owner.get(symbol, caller)
        if callee != caller:
            calls.setdefault(caller, {}).setdefault(callee, set()).add(symbol)
    return calls


def find_circles(calls):
    """Strongly connected components of two files or more, as sets (Tarjan's algorithm)."""
    order, low, stack, circles = {}, {}, [], []

    def visit(file):
        order[file] = low[file] = len(order)
        stack.append(file)
        for callee in calls.get(file, ()):
            if callee not in order:
                visit(callee)
            if callee in stack:
                low[file] = min(low[file], low[callee])
        if low[file] == order[file]:
            at = stack.index(file)
            if len(stack) - at > 1:
                circles.append(frozenset(stack[at:]))
            del stack[at:]

    for file in sorted(calls):
        if file not in order:
            visit(file)
    return circles


def read_listed(path):
    """The circles in the file: a set of sets of files."""
    listed = set()
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            files, _, reason = line.partition(":")
            if line.strip() and not line.startswith("#"):
                if not reason.strip():
                    sys.exit(f"{path}: a circle without its reason: {line.strip()}")
                listed.add(frozenset(files.split()))
    return listed


def main():
    sys.setrecursionlimit(10000)
    calls = read_calls(sys.stdin)
    if not any(calls.values()):
        sys.exit("no calls were found")
    listed, found = read_listed(sys.argv[1]), find_circles(calls)
    failed = False
    for circle in found:
        if circle not in listed:
            failed = True
            print("a circle of calls:", *sorted(circle))
            for caller in sorted(circle):
                for callee in sorted(circle & calls[caller].keys()):
                    print(f"    {caller} calls {callee}: {' '.join(sorted(calls[caller][callee]))}")
    for circle in sorted(listed.difference(found), key=sorted):
        failed = True
        print("no circle any more, strike it from the list:", *sorted(circle))
    sys.exit(failed)


main()
