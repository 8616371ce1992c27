# SPDX-License-Identifier: MIT
"""beside: what mm_torch copies by hand from the public headers; and how a budget is divided between a stash and torch's
allocator, for which an allocator that only counts stands in torch.cuda's place."""

import ctypes
import os
import re

import torch

import checks
import mm_torch as mm
from checks import expect
from mm_torch import library, planner

MIB = 1 << 20


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
                       ("mm_stash_answer", ("STASH_KEPT", "STASH_TAKEN")), ("mm_log_level", ("LOG_WARNING",))):
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
                           ("MM_STASH_TAKEN = 1", "MM_STASH_TAKEN = 2", "MM_STASH_TAKEN")):
        expect(f"a change of {name} alone is noticed", name in differences(text.replace(old, new), version, ranks))
    expect("a change of the version alone is noticed", "MM_VERSION" in differences(text, version + ".1", ranks))
    expect("figures that are summed", set(library.SUMMED + library.MOST) <= {name for name, _ in library.Stats._fields_})


# ---- torch's allocator

class Cuda:
    """An allocator in torch.cuda's place, which only counts. Tests take and give memory; above the cap take() fails."""

    class OutOfMemoryError(RuntimeError):
        pass

    def __init__(self, total):
        self.total, self.allocated, self.cached, self.peak, self.allowed, self.caps = total, 0, 0, 0, total, []

    def mem_get_info(self, _device):
        return self.total - self.memory_reserved(_device), self.total

    def memory_allocated(self, _device):
        return self.allocated

    def memory_reserved(self, _device):
        return self.allocated + self.cached

    def max_memory_allocated(self, _device):
        return self.peak

    def reset_peak_memory_stats(self, _device):
        self.peak = self.allocated

    def empty_cache(self):
        self.cached = 0

    def set_per_process_memory_fraction(self, fraction, _device):
        self.allowed = int(fraction * self.total + 0.5)
        self.caps.append(self.allowed)

    def take(self, nbytes):
        if self.allocated + nbytes > self.allowed:
            raise self.OutOfMemoryError(f"{nbytes} bytes beside {self.allocated}, in {self.allowed}")
        self.allocated += nbytes
        self.cached = max(self.cached - nbytes, 0)
        self.peak = max(self.peak, self.allocated)

    def give(self, nbytes):
        self.allocated -= nbytes
        self.cached += nbytes


def chain(m, cuda, working, steps=1, weight=None):
    """Runs iterations that save 6 tensors of 1 MiB while `working` more bytes are taken. Returns gradients."""
    gradients = []
    for _ in range(steps):
        leaf = weight if weight is not None else torch.linspace(-1, 1, MIB // 4).requires_grad_()
        with m:
            h = leaf
            for _ in range(6):
                h = h.sigmoid()
            taken = working + m.stats.kept_bytes  # entries that the program keeps lie in torch's memory
            cuda.take(taken)
            h.sum().backward()
            cuda.give(taken)
            del h
        gradients.append(leaf.grad.clone())
        leaf.grad = None
        m.settle()
        stats = m.stats
        expect("the cap and the arena are the budget", cuda.allowed + stats.arena_bytes <= m.bytes + 1, stats)
        expect("torch keeps to its cap", cuda.memory_reserved(None) <= cuda.allowed, (cuda.allocated, cuda.cached, cuda.allowed))
    return gradients


def budgets_are_shared():
    cuda, told = Cuda(1 << 40), []
    cuda.take(2 * MIB)  # weights
    m = mm.budget(24 * MIB, "swap-async", device="cpu", log=told.append, _cuda=cuda)
    expect("the first iteration has half of what is free", m.stats.arena_bytes == 11 * MIB, m.stats)
    plain = torch.linspace(-1, 1, MIB // 4).requires_grad_()
    h = plain
    for _ in range(6):
        h = h.sigmoid()
    h.sum().backward()
    found = chain(m, cuda, 10 * MIB)
    cuda.take(1 * MIB)  # an optimizer's state
    found += chain(m, cuda, 10 * MIB, 4)
    expect("gradients are plain torch's", all(torch.equal(g, plain.grad) for g in found))
    stats = m.stats
    needs = 13 * MIB  # the weights, the optimizer's state, and what a step works with
    expect("torch has what it needs, and some slack", needs <= m._core.share.needs <= needs + needs // 8, m._core.share.needs)
    expect("the rest is the stash's", stats.arena_bytes + stats.predicted_kept_bytes <= 24 * MIB - needs, stats)
    expect("iterations are planned", stats.planned >= 2 and stats.off_plan == 0, stats)
    expect("figures go on where a stash is made anew", stats.iterations == 5 and stats.puts == 30, stats)
    # Torch runs out of memory: the step fails, and the next one has more.
    try:
        chain(m, cuda, 12 * MIB + MIB // 2)
        expect("torch runs out", False, cuda.allowed)
    except Cuda.OutOfMemoryError:
        pass
    expect("it is told", any("ran out" in text for text in told), told)
    before = m._core.share.needs
    chain(m, cuda, 11 * MIB, 3)
    expect("torch has more", m._core.share.needs > before, (before, m._core.share.needs))
    # Torch runs out of memory again; here the optimizer's step has the peak, and nothing is kept.
    before = m._core.share.needs
    for failed in (True, False, False):
        try:
            chain(m, cuda, 30 * MIB if failed else 1 * MIB)
        except Cuda.OutOfMemoryError:
            expect("it runs out", failed)
        cuda.take(11 * MIB)
        cuda.give(11 * MIB)
    expect("torch has no less", m._core.share.needs == before + 24 * MIB // 16, (before, m._core.share.needs))
    cuda.cached = MIB
    m._core.options.reclaim(None)
    expect("what torch has cached is reclaimed", cuda.cached == 0, cuda.cached)
    n = mm.budget(20 * MIB, "swap-async", device="cpu", _cuda=cuda)
    allowed = cuda.allowed
    del m
    expect("a later budget's cap stays", cuda.allowed == allowed < 20 * MIB, cuda.allowed)
    del n
    expect("at the end there is no cap", cuda.allowed == cuda.total, cuda.allowed)


def stash_is_made_anew():
    """There is once no memory to make the stash: that step fails, and the next one works."""
    cuda = Cuda(1 << 40)
    m = mm.budget(24 * MIB, "swap-async", device="cpu", _cuda=cuda)
    chain(m, cuda, 4 * MIB)
    core, caps = m._core, []

    def create():
        caps.append(cuda.allowed)
        if len(caps) == 1:
            raise MemoryError("planted")
        return type(core).create(core)

    core.create = create
    cuda.cached = 12 * MIB
    try:
        chain(m, cuda, 4 * MIB)
        expect("there is no memory", False)
    except MemoryError as error:
        expect("the error is the stash's", str(error) == "planted", error)
    chain(m, cuda, 4 * MIB, 3)
    expect("it is planned", m.stats.planned > 0 and m.stats.iterations == 4, m.stats)
    expect("torch returns its cache first", caps[0] < 12 * MIB, caps)


def shortage_is_told():
    cuda = Cuda(1 << 40)
    cuda.take(8 * MIB)
    try:
        mm.budget(8 * MIB, device="cpu", _cuda=cuda)
        expect("a budget that torch has taken already is refused", False)
    except mm.Infeasible as error:
        expect("with both numbers", str(8 * MIB) in str(error) and error.minimum > 8 * MIB, error)
    m = mm.budget(24 * MIB, "liveness", device="cpu", log=lambda text: None, _cuda=cuda)
    chain(m, cuda, 8 * MIB)
    cuda.take(4 * MIB)
    try:
        chain(m, cuda, 8 * MIB)
        expect("what the stash has left is too little", False, m.stats)
    except mm.Infeasible as error:
        expect("it says who has the rest", "torch's allocator takes" in str(error) and error.minimum > 24 * MIB, error)
    cuda.give(4 * MIB)
    m = mm.budget(24 * MIB, "liveness", device="cpu", log=lambda text: None, _cuda=cuda)
    try:
        chain(m, cuda, 8 * MIB)
        cuda.take(8 * MIB)
        chain(m, cuda, 1 * MIB)
        expect("torch needs all", False, m.stats)
    except mm.Infeasible as error:
        expect("it says how much", str(24 * MIB) in str(error) and error.minimum > 24 * MIB, error)


if __name__ == "__main__":
    checks.run(headers_are_mirrored, budgets_are_shared, stash_is_made_anew, shortage_is_told)
