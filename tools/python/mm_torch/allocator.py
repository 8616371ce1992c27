# SPDX-License-Identifier: MIT
"""Memory outside the stash: torch's allocator, which shares a GPU's budget, and the C library's heap."""

import ctypes
import os

from . import library

SLACK = 16  # torch's allocator gets 1/SLACK more than its tensors took, because it rounds and splits
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

        budget  = arena of the stash + what torch's allocator may take (its cap)
        the cap = what torch needs besides + what the stash has the program keep

    In the first, unplanned iteration the stash has half of what is free, and keeps nothing in torch's memory, so
    torch's peak is what it needs besides. Then the stash gets the rest. The second iteration, which has an optimizer's
    state from its beginning, corrects this. If torch runs out, it gets more from the next iteration on.

    cuda: torch.cuda, or an object with its functions. Sizes are bytes. Only the thread that packs calls this. A device
    has one cap: that of the Share that set it last."""

    def __init__(self, cuda, device, budget):
        self.cuda, self.device, self.budget = cuda, device, budget
        self.total = cuda.mem_get_info(device)[1]
        self.needs = self.asked = 0  # what torch needs, as measured; what it gets beyond that after it ran out
        self.left = 2  # how many measurements of needs are still to come
        self.iterations = self.arena = 0
        self.unplanned = False  # the value of options.unplanned after the first iteration

    def first(self):
        """Sets the cap for the first iteration. Returns the stash's budget."""
        self.cuda.empty_cache()
        self.base = self.cuda.memory_reserved(self.device)
        free = self.budget - self.base
        if free < LEAST_BYTES:
            raise library.Infeasible(f"a budget of {self.budget} bytes: torch's allocator has {self.base} of them already",
                                     self.base + LEAST_BYTES)
        self.cap(self.budget - free // 2)
        self.cuda.reset_peak_memory_stats(self.device)
        return free // 2

    def cap(self, allowed):
        self.allowed = allowed
        _owners[self.cuda, self.device] = self
        self.cuda.set_per_process_memory_fraction(min(allowed / self.total, 1.0), self.device)
        if self.cuda.memory_reserved(self.device) > allowed:
            self.cuda.empty_cache()

    def begin(self, core):
        """Call it before the put that begins an iteration: measures what torch needed in the last one."""
        try:
            self.measure(core)
        except Exception as error:
            core.failure = error
            raise

    def measure(self, core):
        if core.stash is None:  # an earlier renew() failed
            core.renew()
        stats = core.stats()
        if stats.entries or stats.iterations == self.iterations:
            return
        self.iterations = stats.iterations
        if not self.left and not self.asked:
            return
        self.left = max(self.left - 1, 0)
        now = self.cuda.memory_allocated(self.device)
        first, asked = not self.needs, self.asked
        kept = max(core.options.device_bytes - stats.arena_bytes, 0)
        peak = self.cuda.max_memory_allocated(self.device) - kept
        # What remains allocated after the first iteration, such as an optimizer's state, adds to the second one's peak.
        needs = peak + max(now - self.base, 0) if first else peak
        needs += needs // SLACK
        # If torch ran out, it needs more than this peak, which may also be of a time when the stash kept nothing in
        # torch's memory.
        needs = max(needs, self.needs if asked else 0) + asked
        self.asked = 0
        self.cuda.reset_peak_memory_stats(self.device)
        if first or asked or abs(needs - self.needs) > self.budget // SLACK:
            self.divide(core, needs)

    def divide(self, core, needs):
        self.needs = needs
        rest = self.budget - needs
        if rest < LEAST_BYTES:
            raise library.Infeasible(f"a budget of {self.budget} bytes: torch's allocator needs {needs} beside what is saved",
                                     needs + LEAST_BYTES)
        core.options.device_bytes, core.options.unplanned = rest, self.unplanned
        self.cap(needs)  # before renew(): the arena may need what torch has cached
        core.renew()
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
                f"iteration on {self.budget // SLACK} more than now, beside what it keeps for mm")

    def explain(self, error):
        """Adds torch's part of the budget to an error of the stash."""
        beside = self.needs or self.allowed
        error.args = (f"{error}; torch's allocator takes {beside} of the budget of {self.budget} bytes besides",)
        if getattr(error, "minimum", None):
            error.minimum += beside

    def end(self):
        if _owners.get((self.cuda, self.device)) is not self:
            return
        del _owners[self.cuda, self.device]
        self.cuda.set_per_process_memory_fraction(1.0, self.device)
