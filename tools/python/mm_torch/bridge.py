# SPDX-License-Identifier: MIT
"""Connects autograd with the stash: which saved tensors it packs, which it leaves alone, what it gives back. pack()
gives autograd a record (records.py) in place of the tensor.

While the program keeps a tensor (the stash did not take it), records have aliases of it, which autograd gets back
unchanged. A result of the stash that may be read again shares the version counter of the tensor that was put, so a
backward pass that changes it is noticed."""

import ctypes
import sys
import weakref
from ctypes import byref, c_void_p

import torch

from . import classify, layouts, library, paths, refusals, saved
from .classify import FRESH_BASE, HALVES, base_references
from .layouts import DTYPES, Layout, Process, held, storage_of
from .records import ANSWER_OFFSET, Ended, Entry, Record, left_alone, unchanged
from .saved import producer_of

SMALL_BYTES = 4096  # smaller storages are left alone: bookkeeping would cost more than it saves
SHARE = 4  # a view of less than 1/SHARE of its storage has an entry of its own
LAYOUTS_MOST = 4096
PASSES_MOST = 8  # backward passes of one iteration
COUNTS = ("params", "small", "held", "other", "duplicates", "views",  # numbers of saved tensors, by what became of them
          "put_bytes", "held_bytes")

_Tensor, _STRIDED = torch.Tensor, torch.strided
_is_grad_enabled = torch.is_grad_enabled
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph  # outside a backward pass: True
_references = sys.getrefcount


# Finer kinds of tensors that are left alone (coverage.CLASSES), and the count that has them.
_COUNTED = {"subclass": "other", "device": "other"}


class Core:
    """A stash and its entries. It lives as long as its session or any Entry."""

    def __init__(self, lib, options, device, share=None):
        """lib: library.get(). options: library.Options. device: a torch.device, with an index if it is a GPU.
        share: allocator.Share, if torch's allocator shares the budget."""
        self.lib, self.stash, self.device, self.on_cuda = lib, None, device, device.type == "cuda"
        self.options, self.share = options, share
        self.stash = self.create()
        self.lib_put, self.lib_get = lib.mm_stash_put, lib.mm_stash_get
        self.give_back, self.drop = lib.mm_stash_release, lib.mm_stash_drop
        self.begin()

    def begin(self):
        """What pack() needs beside the stash."""
        self.layouts, self.empty = {}, {}
        self.casts = classify.Casts()
        self.refusals = refusals.Refusals()
        self.coverage = None  # coverage.Coverage during the first iteration
        self.region_bytes = 0  # the most that one compiled region saved in the first iteration
        self.let_go = frozenset()  # places of the program whose tensors without a gradient it does not keep
        self.entries = {}  # (storage, version) or (storage, version, offset, layout): a weak reference to its Entry
        self.backward = self.between = False  # a backward pass runs; one ended, and nothing was put since
        self.number = self.passes = 0  # of the iteration; of its backward passes that ended
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

    # pack() tests the most frequent cases first.
    def pack(self, x):
        leaf = x.is_leaf
        if leaf and x.requires_grad:
            self.params += 1
            if self.coverage is not None:
                self.coverage.left(x, "params")
            return x, x._version, None, 0
        if type(x) is not _Tensor:
            return self.leave(x, classify.kind_of(x))
        try:
            storage = storage_of(x)
            total = storage.nbytes()
            if total < SMALL_BYTES:
                return self.leave(x, "small")
            data = x.data_ptr()
        except (RuntimeError, NotImplementedError):  # no storage: sparse, or wrapped by a function transform
            return self.leave(x, "other")
        dtype = x.dtype
        if x.device != self.device:
            return self.leave(x, "device")
        if x.layout is not _STRIDED or dtype not in DTYPES:
            return self.leave(x, "other")
        if not data:  # an empty view has no address
            return self.leave(x, "small")
        is_view = x._is_view()
        if is_view:
            if x._base.is_leaf and x._base.requires_grad:
                return self.leave(x, "params")
            if x._base.is_leaf and base_references(x) > FRESH_BASE and self.is_held(x, sys.maxsize):
                return self.leave(x, "held", total)
            if x.is_neg() or x.is_conj():
                return self.leave(x, "other")
        if leaf:
            count = _references(x)
            if count > self.fresh and self.is_held(x, count):
                return self.leave(x, "held", total)
            if dtype in HALVES and self.casts.are_of(x):
                return self.leave(x, "params")
        elif is_view and dtype in HALVES and x._base.is_leaf and self.casts.are_of(x._base):
            return self.leave(x, "params")
        if Process.ended:
            layouts.check_process()
        shape, strides = x.shape, x.stride()
        layout = self.layouts.get((shape, strides, dtype)) or self.layout(shape, strides, dtype)
        start = x.storage_offset() * layout.size
        data -= start
        version, cdata = x._version, storage._cdata
        if cdata in held:
            record, handed_out = held[cdata]
            if version == handed_out and record.entry.core is self:
                self.duplicates += 1
                record.entry.readers += 1
                return Record(record.entry, layout, start + record.offset, None, producer_of(x.grad_fn), x.output_nr)
            held.pop(cdata, None)  # modified through a view of a part of it: its value is no longer the entry's
        # Unless x is a view, other parts of its storage may have version counters of their own (unsafe_chunk).
        alone = layout.bytes * (SHARE if is_view else 1) < total
        root = x._base if is_view else x
        key = (cdata, version, start, layout) if alone else (cdata, version)
        found = self.entries.get(key)
        entry = found() if found is not None else None
        if entry is None or entry.data != data or entry.bytes != total or entry.root() is not root:
            entry = self.put(x, storage, total, data, version, layout, start, key, alone)
            entry.root = weakref.ref(root)
            alias, producer, output = entry.memory, entry.seen[2], entry.seen[3]
        else:
            self.duplicates += 1
            entry.readers += 1
            seen, start_seen, producer, output = entry.seen
            if layout is seen and start == start_seen or alone:
                alias = entry.memory
            else:
                self.views += layout is not entry.layout
                alias = entry.memory if entry.memory is None else x.detach()
                producer, output = producer_of(x.grad_fn), x.output_nr
        if alone:
            return Record(entry, entry.layout, 0, alias, producer, output)
        return Record(entry, layout, start, alias, producer, output)

    def leave(self, x, why, held_bytes=0):
        """Leaves a tensor alone, and counts it."""
        count = _COUNTED.get(why, why)
        setattr(self, count, getattr(self, count) + 1)
        self.held_bytes += held_bytes
        if self.coverage is not None:
            self.coverage.left(x, why)
        return left_alone(x)

    def is_held(self, x, count):
        """Whether the program holds x, which has no gradient and `count` references: more than a tensor that an
        operation has just made. Call it from pack()."""
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

    def put(self, x, storage, total, data, version, layout, start, key, alone, flags=None):
        """Puts the whole storage of x; or with `alone`, which gives x an entry of its own, only the elements of x.
        flags: of mm_stash_flag; None: those of what made x."""
        begins = self.share is not None and not self.entries
        if begins:
            self.share.begin(self)
        fn, output = x.grad_fn, x.output_nr
        producer = paths.named(producer_of(fn))
        entry = Entry(self, data, total, version)
        entry.seen = layout, start, producer, output
        watch = memory = x.detach()
        entry.watch, entry.begin = watch, 0
        if not alone:
            layout = self.whole(x, total, layout)
        elif layout.dense:
            entry.begin = start
            data += start
        else:
            memory = memory.contiguous()
            layout = self.layout(memory.shape, memory.stride(), memory.dtype)
            data = memory.data_ptr()
        entry.layout, entry.memory, entry.storage = layout, memory, storage
        self.put_bytes += layout.bytes
        stream = self.stream() if self.on_cuda else None
        if self.between:
            self.after_backward()
        if self.coverage is not None:
            self.coverage.put(layout.bytes, sys._getframe(1))
        entry.number = self.number
        free, described = layout.description(producer.bytes, layout.exact or (producer.flags_of(fn, output) if flags is None else flags))
        described[0].data = data
        answer = entry.answer
        status = self.lib_put(self.stash, described[1], stream, byref(answer), byref(answer, ANSWER_OFFSET))
        free.append(described)
        if begins:
            self.share.follow(self)
        while status:
            self.refuse(status)
            status = self.lib_put(self.stash, described[1], stream, byref(answer), byref(answer, ANSWER_OFFSET))
        taken = answer[1] == library.TAKEN
        if taken:
            entry.memory = entry.storage = None
        if taken or memory is not watch:
            entry.weak = storage._weak_ref()
            empty = self.empty.get(x.dtype)
            if empty is None:
                empty = self.empty[x.dtype] = torch.empty(0, dtype=x.dtype, device=self.device)
            watch.data = empty
        entry.key = key
        self.entries[key] = weakref.ref(entry)
        return entry

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

    def refuse(self, status, now=False):
        """Raises the exception of a status. now: also where a refusal could wait for another iteration."""
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

    def unpack(self, record):
        if type(record) is tuple:
            if self.coverage is not None and not self.backward:
                self.enter_backward()
            return unchanged(record)
        entry = record.entry
        watch = entry.watch
        if watch._version != entry.version:
            raise saved.modified(watch, record.layout.shape, record.producer.name, record.output, entry.version)
        if Process.ended:
            layouts.check_process()
        if not self.backward:
            self.enter_backward()
        if entry.number != self.number and self.joins is False:
            self.joins = True
        if entry.readers == 1 and not _keeps_graph():
            watch = None  # nobody reads it again
        stream = self.stream() if self.on_cuda else None
        data = c_void_p()  # data: not None while mm_stash_get's result is neither owned by a tensor nor given back
        try:
            status = self.lib_get(self.stash, entry.answer[0], stream, byref(data))
            if status:
                self.refuse(status, True)
            memory = entry.memory
            if memory is None:
                return record.layout.result(data.value + record.offset, record, stream, data, watch)
            data.value = None  # the program keeps the tensor: there is nothing to give back
        except BaseException:  # also an interrupt
            if data.value is not None:
                self.give_back(self.stash, entry.answer[0], stream)
            raise
        if entry.storage.nbytes() < entry.bytes and memory is entry.watch:
            raise RuntimeError(f"mm_torch: a saved tensor's storage was resized from {entry.bytes} to "
                               f"{entry.storage.nbytes()} bytes before the backward pass: what it saved is gone")
        # In a double backward, a result that is saved again is recognised by its storage, so it needs its own one.
        if record.alias is not None and not _is_grad_enabled():
            return record.alias
        data_now = storage_of(memory).data_ptr() + entry.begin  # resize_ may have moved it
        return record.layout.result(data_now + record.offset, record, None, data, watch)

    def __del__(self, process=Process):
        stash, self.stash = self.stash, None  # entries may be deleted later: calls with NULL do nothing
        if process.ended:
            return
        if stash:
            self.lib.mm_stash_destroy(stash)
        if self.share is not None:
            self.share.end()


Core.fresh, Core.fresh_in_function = classify.calibrate(Core, Entry)
