# SPDX-License-Identifier: MIT
"""Memory outside the stash: torch's allocator, which shares a GPU's budget, and the C library's heap."""

import ctypes
import os

from . import library

SLACK = 16  # torch's allocator gets 1/SLACK more than it was seen to reserve (chosen): iterations differ
WASTE_MOST = 1.25  # reserved for allocated bytes, at most (chosen): a peak may also be of memory that was only cached
MEASUREMENTS = 4  # at most (chosen): each empties torch's cache
LEAST_BYTES = 1 << 20  # the smallest part of a budget for the stash
_MMAP_BYTES, _TRIM_BYTES = 32 << 20, 1 << 30
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_heap():
    """Makes glibc keep memory that a step frees for the next step. Otherwise it may return the top of the heap, by
    chance, and take it again page by page. Blocks up to 32 MiB (glibc's upper limit) come from the heap, of which 1 GiB
    may be free. Does nothing if the environment sets a threshold, or if the C library is not glibc."""
    if any(name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")) or \
            "threshold" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)


def trim_heap():
    """Returns the heap's free memory to the system, also between blocks. Does nothing if the C library is not glibc."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


# (allocator, device): the Share that set the cap.
_owners = {}


class Share:
    """Divides a budget between torch's allocator and a stash.

        budget  = arena of the stash + what torch's allocator may reserve (its cap)
        the cap = what torch needs besides + what the stash has the program keep

    Torch's cap counts what its allocator reserves, fragments included, so that is what is measured, from an empty cache
    on. In the first iteration, whose order is not known, the stash has half of what is free, and keeps nothing in
    torch's memory: torch's peak is what it needs besides. Then the stash gets the rest, less fragments of what it may
    have the program keep, by the share that the first iteration had. Torch never reserves more than its cap, so later
    measurements only show that it needs less; they end with the first planned iteration. If torch runs out, it gets
    more from the next iteration on.

    cuda: torch.cuda, or an object with its functions. Sizes are bytes. Only the thread that packs calls this. A device
    has one cap: that of the Share that set it last."""

    def __init__(self, cuda, device, budget):
        self.cuda, self.device, self.budget = cuda, device, budget
        self.total = cuda.mem_get_info(device)[1]
        self.needs = self.asked = 0  # what torch needs, as measured; what it gets beyond that after it ran out
        self.waste = 1.0  # reserved bytes for each allocated byte
        self.left = MEASUREMENTS
        self.iterations = self.planned = self.arena = 0

    def first(self):
        """Sets the cap for the first iteration. Returns the stash's budget."""
        self.refuse_capture()
        self.cuda.empty_cache()
        self.base = self.cuda.memory_reserved(self.device)
        free = self.budget - self.base
        if free < LEAST_BYTES:
            raise library.Infeasible(f"a budget of {self.budget} bytes: torch's allocator has {self.base} of them already",
                                     self.base + LEAST_BYTES)
        self.cap(self.budget - free // 2)
        self.cuda.reset_peak_memory_stats(self.device)
        return free // 2

    def refuse_capture(self):
        """Raises RuntimeError if a CUDA graph is being captured: then nothing may be measured or reserved."""
        if self.cuda.is_current_stream_capturing():
            raise RuntimeError("mm_torch: a CUDA graph is being captured (torch.cuda.graph, torch.compile with reduce-overhead), "
                               "and mm's work cannot be part of one: capture outside of mm.budget, or do not capture")

    def cap(self, allowed):
        self.allowed = allowed
        _owners[self.cuda, self.device] = self
        self.cuda.set_per_process_memory_fraction(min(allowed / self.total, 1.0), self.device)
        if self.cuda.memory_reserved(self.device) > allowed:
            self.cuda.empty_cache()

    def begin(self, core):
        """Call it before the put that begins an iteration: measures what torch needed in the last one."""
        self.refuse_capture()
        self.measure(core)

    def measure(self, core):
        stats = core.stats()
        if stats.entries or not self.left and not self.asked:
            return
        if stats.iterations == self.iterations and not (self.asked and self.needs):
            return
        was_planned = stats.planned > self.planned
        self.iterations, self.planned = stats.iterations, stats.planned
        peak, allocated = self.cuda.max_memory_reserved(self.device), self.cuda.max_memory_allocated(self.device)
        self.cuda.empty_cache()  # the next iteration is measured from here on
        self.cuda.reset_peak_memory_stats(self.device)
        self.left = 0 if was_planned or self.asked and self.needs else max(self.left - 1, 0)
        needs = peak - max(core.options.device_bytes - stats.arena_bytes, 0)  # without what the program kept for it
        if not self.needs:
            # What remains after the first iteration, such as an optimizer's state, adds to the second one's peak.
            needs += max(self.cuda.memory_reserved(self.device) - self.base, 0)
            self.waste = min(max(peak / max(allocated, 1), 1.0), WASTE_MOST)
        needs = max(needs + needs // SLACK, 1)  # 0 stands for "not measured"
        if self.needs:
            needs = self.needs if self.asked else min(needs, self.needs)
        needs, asked, self.asked = needs + self.asked, self.asked, 0
        if not self.needs or asked or self.needs - needs > self.budget // SLACK:
            self.divide(core, needs)

    def divide(self, core, needs):
        self.needs = needs
        rest = int((self.budget - needs) / self.waste)
        if rest < LEAST_BYTES:
            raise library.Infeasible(f"a budget of {self.budget} bytes: torch's allocator needs {needs} beside what is saved",
                                     needs + LEAST_BYTES)
        self.cap(needs)
        library.check(core.lib, core.lib.mm_stash_budget_set(core.stash, rest))
        core.options.device_bytes = rest
        self.follow(core)

    def follow(self, core):
        """Call it after the put that began an iteration: gives torch what the arena does not take."""
        arena = core.stats().arena_bytes
        if arena != self.arena:
            self.arena = arena
            self.cap(self.budget - arena)

    def ran_out(self):
        """Call it when torch ran out within its cap: from the next iteration on it gets more. Returns a message."""
        self.asked += self.budget // SLACK
        return (f"torch's allocator ran out: it may take {self.allowed} of the budget of {self.budget} bytes; from the next "
                f"iteration on {self.budget // SLACK} more than now, beside what it keeps for mm. Its fragments count; they "
                "are fewer with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")

    def explain(self, error):
        """Adds torch's part of the budget to an error of the stash."""
        beside = self.needs or self.allowed
        error.args = (f"{error}; torch's allocator takes {beside} of the budget of {self.budget} bytes besides",)
        if getattr(error, "minimum", None):
            error.minimum = beside + int(error.minimum * self.waste)

    def end(self):
        if _owners.get((self.cuda, self.device)) is not self:
            return
        del _owners[self.cuda, self.device]
        self.cuda.set_per_process_memory_fraction(1.0, self.device)
