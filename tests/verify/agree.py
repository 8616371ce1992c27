# SPDX-License-Identifier: MIT
"""Compares what 'mm verify' and tools/verify/verify.py say of plans: agree.py MM VERIFY.PY FILE... prints nothing if
every verdict agrees. With --rules, each file rule-R-K.plan is refused by both, and for each rule both name R for at
least one of its files."""
import json
import os
import re
import subprocess
import sys


AT_ONCE = 50  # files in one run of a checker


def verdicts(command, files):
    rows = []
    for first in range(0, len(files), AT_ONCE):
        result = subprocess.run([*command, *files[first:first + AT_ONCE]], stdout=subprocess.PIPE, check=False)
        if result.returncode not in (0, 1):
            sys.exit(f"{command}: exit status {result.returncode}")
        rows += json.loads(result.stdout)
    return rows


def main():
    by_rules = sys.argv[1] == "--rules"
    mm, second, *files = sys.argv[1 + by_rules:]
    first = verdicts([mm, "verify", "--quiet", "--json", "-"], files)
    other = verdicts([sys.executable, second, "--json"], files)
    wrong = [] if len(first) == len(other) else [f"{len(first)} and {len(other)} verdicts"]
    named = {}
    for number, (a, b) in enumerate(zip(first, other)):
        if a["proved"] != b["proved"]:
            wrong.append(f"plan {number}, {a['file']}: mm {a.get('rule')}, verify.py {b.get('rule')}: "
                         f"{a.get('message') or b.get('message')}")
        match = re.match(r"rule-([\d.]+)-(?:by-hand-)?\d+\.plan", os.path.basename(a["file"]))
        if by_rules and match:
            named[match[1]] = named.get(match[1], False) or a.get("rule") == b.get("rule") == match[1]
    wrong += [f"rule {rule} is not named by both" for rule, both in named.items() if not both]
    if wrong:
        sys.exit("\n".join(wrong))
    print(len(first), "verdicts agree,", sum(a["proved"] for a in first), "of them are proofs;", len(named), "rules")


main()
