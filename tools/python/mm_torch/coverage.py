# SPDX-License-Identifier: MIT
"""What becomes of the bytes that autograd saves in the first iteration of a budget, by class.

    share = managed / (saved - parameters and their casts - what the program itself holds)

Counting ends with the iteration, so later ones cost nothing. A tensor that seemed to be the program's when it was saved
(classify) counts so only if somebody else still has its storage after the backward pass."""

import sys
import threading
import types
import weakref

import torch

from . import classify, records

NEED = 0.8
LITTLE = 16  # less than 1/LITTLE of the managed bytes is not worth another order of puts, and so another plan
SMALL_MOST = 1 << 20  # so many bytes of small tensors are not worth a warning

# Classes of bytes beside the managed ones: name: (in words, what to do about it). EXCLUDED: not in the share.
CLASSES = {
    "threads": ("of other threads", "run forward passes on the thread that enters mm.budget"),
    "subclass": ("of tensor subclasses", "give the operations plain tensors, or leave the budget out here"),
    "device": ("on other devices", "use a budget of that device (device=)"),
    "other": ("of sparse, quantized or wrapped tensors", "keep them out of the part that is trained in the budget"),
    "small": ("in storages below 4 KiB", "they are left alone; a larger batch has larger ones"),
    "params": ("parameters and their casts", ""),
    "held": ("held by the program", ""),
}
EXCLUDED = "params", "held"


class CoverageWarning(UserWarning):
    """A budget manages less of what autograd saves than `need` (mm.budget) says. The text names the largest class of
    bytes that are left alone, and the remedy."""


class Uncovered(RuntimeError):
    """mm.budget(strict=True) manages less than `need` of what autograd saves. coverage: the figures (m.coverage)."""

    def __init__(self, message, coverage):
        super().__init__(message)
        self.coverage = coverage


class _Seen:
    """Storages that were counted. Weak references keep their addresses from others while it lives."""

    def __init__(self):
        self.weak = {}

    def first(self, key, storage):
        """Whether this is new. key: of the storage; storage None: it has none, and key stands for a tensor."""
        if key in self.weak:
            return False
        self.weak[key] = storage._weak_ref() if storage is not None else None
        return True

    def __del__(self, free=torch.UntypedStorage._free_weak_ref):
        for weak in self.weak.values():
            if weak is not None:
                free(weak)


class Coverage:
    """Counts one iteration of a Core. told: a method that is called with the figures when it has ended; its object is
    not kept alive."""

    def __init__(self, core, told):
        self.core, self.told = weakref.ref(core), weakref.WeakMethod(told)
        self.bytes, self.seen = dict.fromkeys(CLASSES, 0), _Seen()
        self.holds = []  # place, bytes and weak reference of each storage that the program seems to hold
        self.managed_bytes = self.compiled_bytes = self.passes = 0
        self.lock, self.thread = threading.Lock(), threading.get_ident()
        self.let_go_bytes = 0
        self.region = None, 0  # the compiled region that saves, and its bytes so far

    def left(self, x, why):
        """x is left alone."""
        core = self.core()
        if core.between:
            self.end()
            if core.coverage is not self:
                return
        if why != "held":
            self.add(x, why)

    def add(self, x, why):
        try:
            storage = x.untyped_storage()
            key, total = storage._cdata, storage.nbytes()
        except (RuntimeError, NotImplementedError):
            key = total = 0
        if not total:  # sparse, or a wrapper of other tensors
            key, total = id(x), x.numel() * x.element_size()
            storage = None
        with self.lock:
            if self.seen.first(key, storage):
                self.bytes[why] += total

    def hold(self, x, place):
        """x seems to be the program's."""
        storage = x.untyped_storage()
        if self.seen.first(storage._cdata, storage):
            self.holds.append((place, storage.nbytes(), storage._weak_ref()))

    def put(self, total):
        """A tensor is to be put. The hook in C calls it, which has no frame."""
        core = self.core()
        if self.passes and not core.entries:
            self.end()
        if core.coverage is self:
            self.managed_bytes += total
            if classify.is_compiled(sys._getframe(1)):
                self.compiled_bytes += total
                node = torch.autograd._get_sequence_nr()  # a region is one node, and saves when it has run
                self.region = node, total + (self.region[1] if self.region[0] == node else 0)
                core.region_bytes = max(core.region_bytes, self.region[1])

    def backward_ended(self):
        """A backward pass has ended: what it read is released, unless the graph is retained."""
        self.passes += 1
        kept, gone = set(), set()
        for place, total, weak in self.holds:
            expired = torch.UntypedStorage._expired(weak)
            (gone if expired else kept).add(place)
            if expired:
                self.let_go_bytes += total
            else:
                self.bytes["held"] += total
            torch.UntypedStorage._free_weak_ref(weak)
        self.holds.clear()
        core = self.core()
        if self.let_go_bytes * LITTLE >= self.managed_bytes:
            core.let_go = core.let_go - kept | gone - kept

    def end(self):
        """The iteration has ended: hands the figures over."""
        core = self.core()
        if core.coverage is self:
            core.coverage = None
            if self.holds:
                self.backward_ended()
            told = self.told()
            if told is not None:
                told(self.figures())

    def leave(self):
        """The `with` is left without an error: the iteration has ended if its backward pass has, or if nothing of it is
        managed. Returns whether nothing at all was seen."""
        core = self.core()
        if self.passes and (core.between or not core.entries) or self.bytes["threads"] and not core.entries:
            self.end()
        return not self.passes and not core.entries and not any(self.bytes.values()) and not self.holds

    def figures(self):
        managed = self.managed_bytes
        found = types.SimpleNamespace(managed_bytes=managed, compiled_bytes=self.compiled_bytes,
                                      let_go_bytes=self.let_go_bytes, region_bytes=self.core().region_bytes,
                                      **{f"{name}_bytes": value for name, value in self.bytes.items()})
        found.saved_bytes = managed + self.let_go_bytes + sum(self.bytes.values())
        found.counted_bytes = found.saved_bytes - sum(self.bytes[name] for name in EXCLUDED)
        found.share = managed / found.counted_bytes if found.counted_bytes else 1.0
        return found

    # ---- other threads

    def watch(self):
        """Counts what threads save that start from now on. Returns a function that ends this."""
        before = threading._profile_hook

        def begin(frame, event, argument):
            sys.setprofile(before)  # a thread's first event
            _Thread(self).enter()
            return before(frame, event, argument) if before else None

        def end():
            if threading._profile_hook is begin:
                threading.setprofile(before)

        threading.setprofile(begin)
        return end


class _Thread:
    """Hooks of a thread that has no budget: they count, and leave all alone."""

    def __init__(self, coverage):
        self.coverage = coverage
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)

    def enter(self):
        try:
            self.hooks.__enter__()
        except RuntimeError:
            pass  # a function transform has disabled hooks here

    def pack(self, x):
        core = self.coverage.core()
        if core is not None and core.coverage is self.coverage:
            self.coverage.add(x, "params" if x.is_leaf and x.requires_grad else "threads")
        return records.left_alone(x)

    def unpack(self, record):
        return records.unchanged(record)


# ---- in words

def line(found):
    """ "manages 15.6 of 21.4 MiB saved (73 %)": of what is not the program's own. """
    unit, name = next((u, n) for u, n in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))
                      if found.counted_bytes >= u or u == 1)
    return (f"manages {found.managed_bytes / unit:.3g} of {found.counted_bytes / unit:.3g} {name} saved "
            f"({found.share:.0%})").replace("%)", " %)")


def whole(region_bytes, of_bytes):
    """What is wrong where one compiled region saves most; "": it does not."""
    if 2 * region_bytes <= of_bytes:
        return ""
    return (f"a compiled region reads all that it saved, {region_bytes} bytes, where its backward pass begins, so no budget "
            "below that fits: compile with torch.compile(net, backend=mm.backend(budget)), or by block")


def complaint(found, need):
    """What is wrong with the figures; None: nothing. Tensors that the program has let go are managed from the second
    iteration on, and a few small ones are always left alone."""
    lost = {name: getattr(found, f"{name}_bytes") for name in CLASSES if name not in EXCLUDED}
    if found.small_bytes <= SMALL_MOST:
        del lost["small"]
    worst = max(lost, key=lost.get)
    if found.counted_bytes == 0 or not lost[worst] or 1 - sum(lost.values()) / found.counted_bytes >= need:
        return None
    words, remedy = CLASSES[worst]
    unit = 2**20 if lost[worst] >= 2**20 else 2**10
    return (f"mm.budget {line(found)}, less than {need:.0%}: {lost[worst] / unit:.3g} {'MiB' if unit > 2**10 else 'KiB'} "
            f"are {words}: {remedy}")
