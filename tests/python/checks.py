# SPDX-License-Identifier: MIT
"""What the tests' scripts share: checks, which print and count failures, and the running of cases."""

import inspect
import sys

_failed = 0


def expect(what, condition, found=""):
    """Checks the condition. Prints and counts a check that failed, and goes on."""
    global _failed
    if not condition:
        _failed += 1
        print(f"failed: {what}; found {found}")


def failed():
    """The number of checks that failed so far."""
    return _failed


def cases(script):
    """The cases of a script, by its globals(): the functions of its own that take no argument. Those named deep_* only
    if an argument names them."""
    return [f for name, f in script.items() if inspect.isfunction(f) and f.__module__ == script["__name__"] and
            not inspect.signature(f).parameters and not name.startswith("_") and
            (not name.startswith("deep_") or name in sys.argv)]


def run(*cases):
    """Runs the cases, or those that arguments name, and exits: with 1 if a check failed, or there is no such case."""
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")]
    unknown = set(wanted) - {case.__name__ for case in cases}
    if unknown:
        sys.exit(f"no case {', '.join(sorted(unknown))}")
    for case in cases:
        if not wanted or case.__name__ in wanted:
            print(case.__name__, flush=True)
            case()
    sys.exit(_failed > 0)
