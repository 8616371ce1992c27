# SPDX-License-Identifier: MIT
"""What the tests' scripts share: checks, which print and count failures, and the running of cases."""

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


def run(*cases):
    """Runs the cases, or those that arguments name, and exits: with 1 if a check failed."""
    for case in cases:
        if len(sys.argv) == 1 or case.__name__ in sys.argv[1:]:
            print(case.__name__, flush=True)
            case()
    sys.exit(_failed > 0)
