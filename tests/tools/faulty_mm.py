#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs mm with a fault planted into what it is given or into what it writes, for papers_test.sh.

    FAULT=codec|density|maps MM=MM faulty_mm.py ARGUMENT...

codec    codecs of machines take three times as long
density  maps have 0.1 more of values that are not zero: as drawn, and as reserved for sparse rows
maps     policies of papers hold twice the bytes of maps
"""
import json
import os
import re
import subprocess
import sys
import tempfile

PAPERS = ("freelunch", "hybrid", "gist", "cdma", "modnn", "comet")
BYTES = re.compile(r"^(minimum|predicted_peak|live_peak|stash|placed|dynamic|undecoded|held)_bytes$")


def slow_codecs(argument, folder):
    """The path of a copy of a machine file with slow codecs; another argument as it is."""
    try:
        with open(argument, encoding="utf-8") as file:
            machine = json.load(file)
        for rates in machine["codecs"].values():
            for way in rates:
                rates[way] /= 3
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return argument
    path = os.path.join(folder, os.path.basename(argument))
    with open(path, "w", encoding="utf-8") as file:
        json.dump(machine, file)
    return path


def denser(arguments):
    changed = [re.sub(r"reserve=(\d+)", lambda found: "reserve=%d" % min(100, int(found[1]) + 10), a) for a in arguments]
    if "--draw" in changed:
        at = changed.index("--draw") + 1
        changed[at] = str(float(changed[at]) - 0.1)
    return changed


def doubled(value):
    if isinstance(value, dict):
        return {k: 2 * v if BYTES.match(k) and v else doubled(v) for k, v in value.items()}
    return [doubled(v) for v in value] if isinstance(value, list) else value


def hold_more(path):
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)
    rows = [doubled(row) if row.get("policy", "").startswith(PAPERS) else row for row in rows]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(rows, file)


def main():
    fault, arguments = os.environ["FAULT"], sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        if fault == "codec":
            arguments = [slow_codecs(a, folder) for a in arguments]
        if fault == "density":
            arguments = denser(arguments)
        status = subprocess.run([os.environ["MM"], *arguments], check=False).returncode
        if fault == "maps" and status in (0, 1) and "--json" in arguments and arguments[0] in ("plan", "bench"):
            hold_more(arguments[arguments.index("--json") + 1])
        return status


if __name__ == "__main__":
    sys.exit(main())
