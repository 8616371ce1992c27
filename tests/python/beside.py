# SPDX-License-Identifier: MIT
"""beside: what mm_torch copies by hand from the public headers."""

import ctypes
import os
import re

import checks
from checks import expect
from mm_torch import library, planner


# ---- the public headers

def header():
    """Returns the headers' text, without comments, line breaks and macros of declarations."""
    text = ""
    for name in ("mm_base.h", "mm_trace.h", "mm_stash.h", "mm_plan.h", "mm.h"):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../mm", name)
        with open(path, encoding="utf-8") as file:
            text += file.read()
    version = re.search(r'#define MM_VERSION "(.*)"', text).group(1)
    ranks = int(re.search(r"MM_RANK_MAX\b\D*(\d+)", text).group(1))
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", " ", text, flags=re.S)), version, ranks


def enumeration(text, name):
    """Constants of an enum, with their values."""
    body, values, value = re.search(r"typedef enum (?:\w+ )?\{([^}]*)\} " + name + r"\b", text).group(1), {}, -1
    for part in body.split(","):
        if part.strip():
            constant, _, given = (word.strip() for word in part.partition("="))
            value = int(given, 0) if given else value + 1
            values[constant] = value
    return values


def members(text, name):
    """Members of a struct, in order: name, type without const, elements."""
    body = re.search(r"typedef struct (?:\w+ )?\{([^}]*)\} " + name + r"\b", text).group(1)
    for part in body.split(";"):
        if not part.strip():
            continue
        function = re.search(r"\(\*(\w+)\)\(", part)
        if function:
            yield function.group(1), function.group(1), 0
            continue
        words = part.replace("const ", "").replace("volatile ", "").strip()
        kind, rest = re.match(r"((?:struct )?\w+) ?(.*)", words).groups()
        for declared in rest.split(","):
            found = re.match(r"\s*(\**)\s*(\w+)\s*(\[\w+\])?", declared)
            yield found.group(2), kind + found.group(1), 1 if found.group(3) else 0


# The headers' types in ctypes; enums are ints.
TYPES = {"int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "uint32_t": ctypes.c_uint32, "int": ctypes.c_int,
         "bool": ctypes.c_bool, "char*": ctypes.c_char_p, "void*": ctypes.c_void_p, "mm_facts*": ctypes.c_void_p,
         "mm_dtype": ctypes.c_int, "mm_stash_fate": ctypes.c_int, "mm_log_level": ctypes.c_int, "mm_log": library.Log, "int*": ctypes.POINTER(ctypes.c_int),
         "fn": library.LOG_FN, "reclaim": library.RECLAIM_FN}


def differences(text, version, ranks):
    """Names that library.py does not have as mm.h has them."""
    if library.version() != version:
        yield "MM_VERSION"
    if library.RANK_MAX != ranks:
        yield "MM_RANK_MAX"
    for name, mirror in (("mm_stash_options", library.Options), ("mm_stash_tensor", library.Tensor),
                         ("mm_stash_stats", library.Stats), ("mm_touched", library.Touched),
                         ("mm_stash_refusal", library.Refusal), ("mm_stash_line", library.Line),
                         ("mm_host_memory", library.HostMemory), ("mm_stash_segment", library.Segment),
                         ("mm_log", library.Log), ("mm_plan_limits", planner.Limits)):
        ours = [(member, getattr(kind, "_type_", kind) if hasattr(kind, "_length_") else kind, hasattr(kind, "_length_"))
                for member, kind in mirror._fields_]
        if ours != [(member, TYPES.get(kind, kind), bool(array)) for member, kind, array in members(text, name)]:
            yield name
    for name, value in enumeration(text, "mm_status").items():
        if getattr(library, name[3:], None) != value:
            yield name
    for name, ours in (("mm_dtype", ("F32", "I32", "U8", "F16", "BF16")), ("mm_stash_flag", ("STASH_SIGNS", "STASH_EXACT")),
                       ("mm_log_level", ("LOG_WARNING",))):
        theirs = enumeration(text, name)
        for constant in ours:
            if theirs.get("MM_" + constant) != getattr(library, constant.replace("STASH_", "")):
                yield "MM_" + constant
    if list(enumeration(text, "mm_stash_fate").values()) != list(range(len(library.FATES))):
        yield "mm_stash_fate"


def headers_are_mirrored():
    text, version, ranks = header()
    found = list(differences(text, version, ranks))
    expect("library.py is as mm.h", not found, found)
    for old, new, name in (("int64_t host_bytes;", "int64_t host_bytes, more;", "mm_stash_stats"),
                           ("int64_t needed_bytes; int64_t device_bytes;", "int64_t device_bytes, needed_bytes;",
                            "mm_stash_refusal"),
                           ("uint32_t flags;", "uint64_t flags;", "mm_stash_tensor"),
                           ("MM_STASH_EXACT = 2", "MM_STASH_EXACT = 4", "MM_STASH_EXACT")):
        expect(f"a change of {name} alone is noticed", name in differences(text.replace(old, new), version, ranks))
    expect("a change of the version alone is noticed", "MM_VERSION" in differences(text, version + ".1", ranks))


if __name__ == "__main__":
    checks.run(headers_are_mirrored)
