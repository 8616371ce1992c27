# SPDX-License-Identifier: MIT
"""Connects autograd with the stash: which saved tensors it packs, which it leaves alone, what it gives back.

pack() gives autograd a record in place of the tensor:

  tuple (tensor, version, producer, output)   left alone: the tensor itself, without its grad_fn
  Record ──▶ Entry ──▶ an entry of the stash  one Entry for each storage and version; views of the storage share it

An Entry drops the stash's entry when autograd has released its last Record. While the program keeps the tensor (the
stash did not take it), records have aliases of it, which autograd gets back unchanged."""

import ctypes
import sys
import weakref
from ctypes import byref, c_uint64, c_void_p

import torch

from . import layouts, library, paths, saved
from .layouts import DTYPES, Layout, held, storage_of
from .saved import FRESH, FRESH_BASE, base_references, producer_of

SMALL_BYTES = 4096  # smaller storages are left alone: bookkeeping would cost more than it saves
SHARE = 4  # a view of less than 1/SHARE of its storage has an entry of its own
LAYOUTS_MOST = 4096
COUNTS = ("params", "small", "held", "other", "duplicates", "views",  # numbers of saved tensors, by what became of them
          "put_bytes", "held_bytes")

_Tensor, _STRIDED = torch.Tensor, torch.strided
_free_storage = torch.UntypedStorage._free_weak_ref
_is_grad_enabled = torch.is_grad_enabled
_Answer = c_uint64 * 2  # the entry's number, then mm_stash_answer
_ANSWER = ctypes.sizeof(c_uint64)


class Record:
    """What autograd holds instead of a tensor: a place in an Entry. alias: an alias of the tensor while the program
    keeps it; else None."""
    __slots__ = ("entry", "layout", "offset", "alias", "producer", "output")

    def __init__(self, entry, layout, offset, alias, producer, output):
        self.entry, self.layout, self.offset, self.alias, self.producer, self.output = \
            entry, layout, offset, alias, producer, output


class Entry:
    """One version of a storage in the stash. watch: an alias of the tensor for its version counter; its data is emptied
    if only the counter is needed. memory: the tensor that the program keeps; None if the stash took it. root: a weak
    reference to the tensor, or to its base: only tensors of one root surely share a version counter. storage: the
    tensor's storage while the program keeps it; else None. weak: a weak reference that prevents another storage from
    getting the same address; None where `memory` prevents it. begin: offset in memory's storage of what was put, in
    bytes. seen: layout, offset, producer, output of the tensor that was put."""
    __slots__ = ("core", "answer", "watch", "version", "memory", "begin", "root", "key", "storage", "weak", "data", "bytes",
                 "layout", "seen", "__weakref__")

    def __init__(self, core, data, total, version):
        self.core, self.data, self.bytes, self.version = core, data, total, version
        self.key = self.weak = self.storage = None
        self.answer = _Answer()

    def __del__(self):
        """Runs on any thread, when autograd has released it."""
        core = self.core
        if self.key is not None:
            found = core.entries.get(self.key)
            if found is not None and found() in (None, self):  # self: deleted, but not cleared yet
                core.entries.pop(self.key, None)
        number = self.answer[0]
        if number and not layouts.ended:
            core.drop(core.stash, number)
        if self.weak is not None:
            _free_storage(self.weak)


class Ended:
    """Autograd calls it when a backward pass ends, or only deletes it if the pass fails. last: no further pass is
    expected."""

    def __init__(self, core):
        self.core, self.last = core, False

    def __call__(self):
        pass

    def __del__(self):
        self.core.backward = False
        self.core.between |= self.last


class Core:
    """A stash and its entries. It lives as long as its session or any Entry."""

    def __init__(self, lib, options, device, share=None):
        """lib: library.get(). options: library.Options. device: a torch.device, with an index if it is a GPU.
        share: allocator.Share, if torch's allocator shares the budget."""
        self.lib, self.stash, self.device, self.on_cuda = lib, None, device, device.type == "cuda"
        self.options, self.share = options, share
        self.before = library.Stats()  # of earlier stashes
        self.stash = self.create()
        self.lib_put, self.lib_get = lib.mm_stash_put, lib.mm_stash_get
        self.give_back, self.drop = lib.mm_stash_release, lib.mm_stash_drop
        self.layouts, self.empty = {}, {}
        self.entries = {}  # (storage, version) or (storage, version, offset, layout): a weak reference to its Entry
        self.failure = None  # the last exception that a hook raised
        self.backward = self.between = False  # a backward pass runs; one ended, and nothing was put since
        for name in COUNTS:
            setattr(self, name, 0)

    def create(self):
        stash = c_void_p()
        library.check(self.lib, self.lib.mm_stash_create_sized(byref(self.options), ctypes.sizeof(self.options), byref(stash)))
        return stash.value

    def renew(self):
        """Replaces the stash, which has no entries, by one with the changed options. Its figures continue. If this
        fails, self.stash is None."""
        before = self.stats()
        self.lib.mm_stash_destroy(self.stash)
        self.stash, self.before = None, before
        self.stash = self.create()

    def stats(self):
        """Figures of this and earlier stashes: sums, maxima, or the present value (library.SUMMED, library.MOST)."""
        stats = library.Stats()
        self.lib.mm_stash_stats_get_sized(self.stash, byref(stats), ctypes.sizeof(stats))
        for name in library.SUMMED:
            setattr(stats, name, getattr(stats, name) + getattr(self.before, name))
        for name in library.MOST:
            setattr(stats, name, max(getattr(stats, name), getattr(self.before, name)))
        return stats

    # pack() tests the most frequent cases first.
    def pack(self, x):
        leaf = x.is_leaf
        if leaf and x.requires_grad:
            self.params += 1
            return x, x._version, None, 0
        if type(x) is not _Tensor:
            return self.leave(x, "other")
        try:
            storage = storage_of(x)
            total = storage.nbytes()
            if total < SMALL_BYTES:
                if leaf:
                    self.small += 1
                    return x, x._version, None, 0
                return self.leave(x, "small")
            data = x.data_ptr()
        except (RuntimeError, NotImplementedError):  # no storage: sparse, or wrapped by a function transform
            return self.leave(x, "other")
        dtype = x.dtype
        if x.layout is not _STRIDED or x.device != self.device or dtype not in DTYPES:
            return self.leave(x, "other")
        if not data:  # an empty view has no address
            return self.leave(x, "small")
        is_view = x._is_view()
        if is_view:
            if x._base.is_leaf and x._base.requires_grad:
                return self.leave(x, "params")
            if x._base.is_leaf and base_references(x) > FRESH_BASE:
                self.held_bytes += total
                return self.leave(x, "held")
            if x.is_neg() or x.is_conj():
                return self.leave(x, "other")
        if leaf and sys.getrefcount(x) > FRESH:
            self.held_bytes += total
            return self.leave(x, "held")
        if layouts.ended:
            layouts.check_process()

        shape, strides = x.shape, x.stride()
        layout = self.layouts.get((shape, strides, dtype)) or self.layout(shape, strides, dtype)
        start = x.storage_offset() * layout.size
        data -= start
        version, cdata = x._version, storage._cdata
        if cdata in held:
            record = held[cdata]
            if version == 0 and record.entry.core is self:
                self.duplicates += 1
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

    def leave(self, x, why):
        fn = x.grad_fn
        setattr(self, why, getattr(self, why) + 1)
        if fn is None:
            return x, x._version, None, 0
        return x.detach(), x._version, fn.name(), x.output_nr

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

    def put(self, x, storage, total, data, version, layout, start, key, alone):
        """Puts the whole storage of x; or with `alone`, which gives x an entry of its own, only the elements of x."""
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
        if self.between:  # a backward pass has ended, and with it the iteration
            self.between = False
            self.lib.mm_stash_iteration_end(self.stash)
        free, described = layout.description(producer.bytes, layout.exact or producer.flags_of(fn, output))
        described[0].data = data
        answer = entry.answer
        status = self.lib_put(self.stash, described[1], stream, byref(answer), byref(answer, _ANSWER))
        free.append(described)
        if begins:
            self.share.follow(self)
        if status:
            self.refuse(status)
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

    def stream(self):
        return torch.cuda.current_stream(self.device).cuda_stream

    def refuse(self, status):
        """Raises the exception of a status, and remembers it: autograd may raise another in its place."""
        try:
            library.check(self.lib, status, self.stash)
        except Exception as error:
            if self.share is not None and isinstance(error, (library.Infeasible, MemoryError)):
                self.share.explain(error)
            self.failure = error
            raise

    def unpack(self, record):
        if type(record) is tuple:
            tensor, version, producer, output = record
            if tensor._version == version:
                return tensor
            self.failure = saved.modified(tensor, tensor.shape, producer, output, version)
            raise self.failure
        entry = record.entry
        if entry.watch._version != entry.version:
            self.failure = saved.modified(entry.watch, record.layout.shape, record.producer.name, record.output, entry.version)
            raise self.failure
        if layouts.ended:
            layouts.check_process()
        if not self.backward:
            self.backward = True
            ended = Ended(self)
            try:
                torch.autograd.Variable._execution_engine.queue_callback(ended)
                ended.last = not _is_grad_enabled()  # with create_graph another pass follows
            except RuntimeError:
                pass  # no backward pass: the program reads what a grad_fn has saved
        stream = self.stream() if self.on_cuda else None
        data = c_void_p()  # data: not None while mm_stash_get's result is neither owned by a tensor nor given back
        try:
            status = self.lib_get(self.stash, entry.answer[0], stream, byref(data))
            if status:
                self.refuse(status)
            memory = entry.memory
            if memory is None:
                return record.layout.result(data.value + record.offset, record, stream, data)
            data.value = None  # the program keeps the tensor: there is nothing to give back
        except BaseException:  # also an interrupt
            if data.value is not None:
                self.give_back(self.stash, entry.answer[0], stream)
            raise
        if entry.storage.nbytes() < entry.bytes and memory is entry.watch:
            self.failure = RuntimeError(f"mm_torch: a saved tensor's storage was resized from {entry.bytes} to "
                                        f"{entry.storage.nbytes()} bytes before the backward pass: what it saved is gone")
            raise self.failure
        # In a double backward, a result that is saved again is recognised by its storage, so it needs its own one.
        if record.alias is not None and not _is_grad_enabled():
            return record.alias
        data_now = storage_of(memory).data_ptr() + entry.begin  # resize_ may have moved it
        return record.layout.result(data_now + record.offset, record, None, data)

    def __del__(self):
        stash, self.stash = self.stash, None  # entries may be deleted later: calls with NULL do nothing
        if stash and not layouts.ended:
            self.lib.mm_stash_destroy(stash)
        if self.share is not None:
            self.share.end()
