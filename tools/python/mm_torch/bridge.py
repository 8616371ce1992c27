# SPDX-License-Identifier: MIT
"""Connects autograd with the stash: which saved tensors it packs, which it leaves alone, what it gives back. pack()
gives autograd a record (records.py) in place of the tensor. The hooks themselves, pack() and unpack(), are in C
(mm/python/python_hooks.c), and call what is here for what is rare.

While the program keeps a tensor (the stash did not take it), records have aliases of it, which autograd gets back
unchanged. A result of the stash that may be read again shares the version counter of the tensor that was put, so a
backward pass that changes it is noticed."""

import ctypes
import sys
from ctypes import byref, c_void_p

import torch

from . import classify, hot, layouts, library, paths, records, refusals, saved
from .classify import FRESH_BASE, HALVES, base_references
from .layouts import DTYPES, Layout, Process
from .records import Ended, left_alone

SMALL_BYTES = 4096  # as in python_put.c: smaller storages are left alone
SHARE = 4  # as in python_hooks.c: a view of less than 1/SHARE of its storage has an entry of its own
LAYOUTS_MOST = 4096
PASSES_MOST = 8  # backward passes of one iteration
COUNTS = ("params", "small", "held", "other", "duplicates", "views",  # numbers of saved tensors, by what became of them
          "put_bytes", "held_bytes")

_is_grad_enabled = torch.is_grad_enabled
_references = sys.getrefcount


# Finer kinds of tensors that are left alone (coverage.CLASSES), and the count that has them.
_COUNTED = {"subclass": "other", "device": "other"}


class Core(hot.Bridge):
    """A stash and its entries. It lives as long as its session or any Entry."""

    def __init__(self, lib, options, device, share=None):
        """lib: library.get(). options: library.Options. device: a torch.device, with an index if it is a GPU.
        share: allocator.Share, if torch's allocator shares the budget."""
        self.lib, self.device, self.on_cuda = lib, device, device.type == "cuda"
        self.options, self.share, self.shares = options, share, share is not None
        self.stash = self.create()
        self.begin()

    def begin(self):
        """What the hooks need beside the stash."""
        self.python = hot.address
        self.layouts, self.producers, self.empty = {}, saved.producers, {}
        self.casts = classify.Casts()
        self.refusals = refusals.Refusals()
        self.coverage = None  # coverage.Coverage during the first iteration
        self.region_bytes = 0  # the most that one compiled region saved in the first iteration
        self.let_go = frozenset()  # places of the program whose tensors without a gradient it does not keep
        self.passes = 0  # backward passes of the iteration that ended
        self.joins = False  # whether an iteration may have several backward passes; None: they never ended
        for name in COUNTS:
            setattr(self, name, 0)

    def create(self):
        stash = c_void_p()
        library.check(self.lib, self.lib.mm_stash_create_sized(byref(self.options), ctypes.sizeof(self.options), byref(stash)))
        return stash.value

    def stats(self):
        stats = library.Stats()
        self.lib.mm_stash_stats_get_sized(self.stash, byref(stats), ctypes.sizeof(stats))
        return stats

    # ---- what pack() calls

    named = staticmethod(paths.named)
    producer_of = staticmethod(saved.producer_of)

    def odd(self, x):
        """A view, or a tensor without a gradient: its record if it is left alone; None: it is to be put."""
        is_view = x._is_view()
        if is_view:
            if x._base.is_leaf and x._base.requires_grad:
                return self.leave(x, "params")
            if x._base.is_leaf and base_references(x) > FRESH_BASE and self.is_held(x, sys.maxsize):
                return self.leave(x, "held")
            if x.is_neg() or x.is_conj():
                return self.leave(x, "other")
        if x.is_leaf:
            count = _references(x)
            if count > self.fresh and self.is_held(x, count):
                return self.leave(x, "held")
            if x.dtype in HALVES and self.casts.are_of(x):
                return self.leave(x, "params")
        elif is_view and x.dtype in HALVES and x._base.is_leaf and self.casts.are_of(x._base):
            return self.leave(x, "params")
        return None

    def leave(self, x, why):
        """Leaves a tensor alone, and counts it."""
        if why == "subclass":
            why = classify.kind_of(x)
        count = _COUNTED.get(why, why)
        setattr(self, count, getattr(self, count) + 1)
        if why == "held":
            self.held_bytes += x.untyped_storage().nbytes()
        if self.coverage is not None:
            self.coverage.left(x, why)
        return left_alone(x)

    def is_held(self, x, count):
        """Whether the program holds x, which has no gradient and `count` references: more than a tensor that an
        operation has just made. Call it from odd()."""
        place = classify.place_of(sys._getframe(1).f_back, x)
        if place is classify.MADE or place in self.let_go or \
                count <= self.fresh_in_function and place is not None and place[0] is classify.APPLY:
            return False
        if self.coverage is not None:
            self.coverage.hold(x, place)
        return True

    def layout(self, shape, strides, dtype):
        key = (shape, strides, dtype)
        layout = self.layouts.get(key)
        if layout is None:
            if len(self.layouts) >= LAYOUTS_MOST:
                self.layouts.clear()
            layout = self.layouts[key] = Layout(shape, strides, dtype, self.device)
        return layout

    def whole(self, x, storage_bytes, layout):
        """The layout of a whole storage: that of x, of its base, or one row of elements."""
        if layout.dense and layout.bytes == storage_bytes:
            return layout
        if x._is_view():
            base = x._base
            if base.dtype is x.dtype:
                layout = self.layout(base.shape, base.stride(), base.dtype)
                if layout.dense and layout.bytes == storage_bytes:
                    return layout
        size = x.element_size()
        if storage_bytes % size == 0:
            return self.layout((storage_bytes // size,), (1,), x.dtype)
        return self.layout((storage_bytes,), (1,), torch.uint8)

    def new_layout(self, shape, strides, dtype):
        return self.layout(shape, strides, dtype) if dtype in DTYPES else None

    def new_empty(self, dtype):
        empty = self.empty[dtype] = torch.empty(0, dtype=dtype, device=self.device)
        return empty

    def compact(self, x):
        """A copy of a tensor's elements without gaps, and its layout."""
        memory = x.contiguous()
        return memory, self.layout(memory.shape, memory.stride(), memory.dtype)

    def share_begin(self):
        self.share.begin(self)

    def share_follow(self):
        self.share.follow(self)

    def after_backward(self):
        """A tensor is put after a backward pass has ended. The iteration has ended, too; unless entries of it are left
        that a later pass of it reads, as in a GAN's step: `joins`, which unpack() finds out."""
        self.between = False
        if self.entries and self.joins:
            self.passes += 1
            if self.passes < PASSES_MOST:
                return
            self.joins = None
        self.passes = 0
        self.number += 1
        self.lib.mm_stash_iteration_end(self.stash)

    def stream(self):
        return torch.cuda.current_stream(self.device).cuda_stream

    def refuse(self, status, now):
        """Raises the exception of a status. now: also where a refusal could wait for another iteration; else the put is
        tried again."""
        try:
            library.check(self.lib, status, self.stash)
        except (library.Infeasible, MemoryError) as error:
            if not now and isinstance(error, library.Infeasible):
                return self.refusals.judge(self, error)
            if self.share is not None:
                self.share.explain(error)
            raise

    def enter_backward(self):
        self.backward = True
        ended = Ended(self)
        try:
            torch.autograd.Variable._execution_engine.queue_callback(ended)
            ended.last = not _is_grad_enabled()  # with create_graph another pass follows
        except RuntimeError:
            pass  # no backward pass: the program reads what a grad_fn has saved

    # ---- what unpack() calls

    check = staticmethod(layouts.check_process)

    def unchanged(self, record):
        """The tensor of a record that is left alone."""
        if self.coverage is not None and not self.backward:
            self.enter_backward()
        return records.unchanged(record)

    def raise_modified(self, record):
        entry = record.entry
        raise saved.modified(entry.watch, record.layout.shape, record.producer.name, record.output, entry.version)

    def raise_resized(self, entry):
        raise RuntimeError(f"mm_torch: a saved tensor's storage was resized from {entry.bytes} to "
                           f"{entry.storage.nbytes()} bytes before the backward pass: what it saved is gone")

    def __del__(self, process=Process):
        stash, self.stash = self.stash, 0  # entries may be deleted later: calls with NULL do nothing
        if process.ended:
            return
        if stash:
            self.lib.mm_stash_destroy(stash)
        if self.share is not None:
            self.share.end()


Core.fresh, Core.fresh_in_function = classify.calibrate(Core)
