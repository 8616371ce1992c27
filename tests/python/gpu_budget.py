# SPDX-License-Identifier: MIT
"""gpu_budget: how a GPU's budget is divided between a stash and torch's allocator. There is no GPU: an allocator that
only counts stands in torch.cuda's place."""

import os
import sys
import unittest.mock

import torch

import checks
import mm_torch as mm
from checks import expect
from mm_torch import compare

MIB = 1 << 20


class Cuda:
    """An allocator in torch.cuda's place, which only counts. Tests take and give memory; above the cap take() fails.
    waste: of what is taken, the share that its fragments take besides."""

    class OutOfMemoryError(RuntimeError):
        pass

    def __init__(self, total, waste=0.0):
        self.total, self.waste, self.allowed, self.caps = total, waste, total, []
        self.allocated = self.reserved = self.peak = self.reserved_peak = 0
        self.capturing, self.emptied = False, 0

    def mem_get_info(self, _device):
        return self.total - self.memory_reserved(_device), self.total

    def memory_allocated(self, _device):
        return self.allocated

    def memory_reserved(self, _device):
        return self.reserved

    def max_memory_allocated(self, _device):
        return self.peak

    def max_memory_reserved(self, _device):
        return self.reserved_peak

    def is_current_stream_capturing(self):
        return self.capturing

    def reset_peak_memory_stats(self, _device):
        self.peak, self.reserved_peak = self.allocated, self.reserved

    def occupied(self):
        """Allocated bytes and their fragments: what the cache cannot return."""
        return int(self.allocated * (1 + self.waste))

    def empty_cache(self):
        expect("nothing is returned while a graph is captured", not self.capturing)
        self.reserved = self.occupied()
        self.emptied += 1

    def set_per_process_memory_fraction(self, fraction, _device):
        self.allowed = int(fraction * self.total + 0.5)
        self.caps.append(self.allowed)

    def take(self, nbytes):
        self.allocated += nbytes
        if self.occupied() > self.allowed:
            self.allocated -= nbytes
            raise self.OutOfMemoryError(f"{nbytes} bytes beside {self.allocated}, in {self.allowed}")
        self.reserved = max(self.reserved, self.occupied())
        self.peak, self.reserved_peak = max(self.peak, self.allocated), max(self.reserved_peak, self.reserved)

    def give(self, nbytes):
        self.allocated -= nbytes


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
        expect("torch keeps to its cap", cuda.memory_reserved(None) <= cuda.allowed, (cuda.allocated, cuda.reserved, cuda.allowed))
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
    expect("figures go on where the budget is divided again", stats.iterations == 5 and stats.puts == 30, stats)
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
    cuda.reserved += MIB
    m._core.options.reclaim(None)
    expect("what torch has cached is reclaimed", cuda.reserved == cuda.allocated, cuda.reserved)
    n = mm.budget(20 * MIB, "swap-async", device="cpu", _cuda=cuda)
    allowed = cuda.allowed
    del m
    expect("a later budget's cap stays", cuda.allowed == allowed < 20 * MIB, cuda.allowed)
    del n
    expect("at the end there is no cap", cuda.allowed == cuda.total, cuda.allowed)


def fragments_count_in_what_torch_needs():
    """A ninth of what torch reserves are fragments, which its cap counts, too."""
    cuda = Cuda(1 << 40, waste=1 / 8)
    cuda.take(2 * MIB)
    m = mm.budget(24 * MIB, "swap-async", device="cpu", _cuda=cuda)
    try:
        chain(m, cuda, 8 * MIB, 6)
    except Cuda.OutOfMemoryError as error:
        expect("torch has enough for its fragments", False, error)
    expect("what it reserves is what it needs", m._core.share.needs >= 10 * MIB * 9 // 8, m._core.share.needs)
    expect("iterations are planned", m.stats.planned >= 4 and m.stats.off_plan == 0, m.stats)


def the_stash_stays():
    """Dividing the budget again takes neither the stash, with its pinned memory, nor the order that it has learned."""
    cuda = Cuda(1 << 40)
    m = mm.budget(24 * MIB, "swap-async", device="cpu", _cuda=cuda)
    stash, arenas = m._core.stash, [m.stats.arena_bytes]
    for _ in range(5):
        chain(m, cuda, 10 * MIB)
        arenas.append(m.stats.arena_bytes)
    expect("the budget was divided", len(set(arenas)) > 1, arenas)
    expect("the stash is the same", m._core.stash == stash, m._core.stash)
    expect("at most two iterations ran without a plan", m.stats.planned >= 3 and m.stats.iterations == 5, m.stats)
    emptied = cuda.emptied
    chain(m, cuda, 10 * MIB, 3)
    expect("measuring has ended: torch's cache stays", cuda.emptied == emptied, (emptied, cuda.emptied))


def torch_that_needs_less_gives_the_rest_to_the_stash():
    """The first iteration needs more than later ones: algorithms are timed in it, for example."""
    cuda = Cuda(1 << 40)
    m = mm.budget(24 * MIB, "swap-async", device="cpu", _cuda=cuda)
    chain(m, cuda, 11 * MIB)
    chain(m, cuda, 4 * MIB)
    first = m._core.share.needs
    chain(m, cuda, 4 * MIB, 3)
    expect("it needs less", first >= 11 * MIB and m._core.share.needs < 5 * MIB, (first, m._core.share.needs))
    expect("iterations are planned", m.stats.planned >= 2, m.stats)


def an_order_is_refused_only_in_its_share():
    """Six MiB do not fit into half of the budget, which the first iteration has, but into what the stash gets then."""
    cuda = Cuda(1 << 40)
    m = mm.budget(11 * MIB, "liveness", device="cpu", _cuda=cuda)
    try:
        chain(m, cuda, 2 * MIB, 4)
    except mm.Infeasible as error:
        expect("it fits", False, error)
    expect("iterations are planned", m.stats.planned >= 2 and m.stats.iterations == 4, m.stats)


def captures_are_refused():
    """Nothing is measured, reserved or returned while a CUDA graph is captured."""
    cuda = Cuda(1 << 40)
    m = mm.budget(24 * MIB, "swap-async", device="cpu", _cuda=cuda)
    for steps in (0, 1, 3):
        chain(m, cuda, 4 * MIB, steps)
        cuda.capturing = True
        for act in (lambda: chain(m, cuda, 4 * MIB), lambda: mm.budget(24 * MIB, device="cpu", _cuda=cuda)):
            try:
                act()
                expect("it is refused", False, steps)
            except RuntimeError as error:
                expect("by name", "CUDA graph is being captured" in str(error), error)
        cuda.capturing = False
    chain(m, cuda, 4 * MIB)
    expect("the budget works after that", m.stats.iterations == 5 and m.stats.planned >= 2 and m.stats.entries == 0, m.stats)


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


def compare_is_deterministic_on_a_gpu():
    """Bits of plain torch are compared, so torch must get the same ones twice, from the first operation on."""
    seen = []

    def train(options, _steps):
        seen.extend((options.device, torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark,
                     torch.are_deterministic_algorithms_enabled(), os.environ.get("CUBLAS_WORKSPACE_CONFIG")))
        raise KeyboardInterrupt

    torch.backends.cudnn.benchmark = True
    for device, expected in (("cpu", [False, True, False, None]), ("cuda", [True, False, True, ":4096:8"])):
        with unittest.mock.patch.object(compare, "train", train), \
                unittest.mock.patch.object(sys, "argv", ["compare", "--device", device]):
            try:
                compare.main()
            except KeyboardInterrupt:
                pass
        expect(f"settings on {device}", seen == [device, *expected], seen)
        seen.clear()


if __name__ == "__main__":
    checks.run(budgets_are_shared, fragments_count_in_what_torch_needs, the_stash_stays, an_order_is_refused_only_in_its_share,
               torch_that_needs_less_gives_the_rest_to_the_stash, captures_are_refused, shortage_is_told,
               compare_is_deterministic_on_a_gpu)
