"""Between autograd and the stash: what is packed, what is left alone, and how results come back without a copy.

A pack gives autograd a record in place of the tensor:

  tuple (tensor, version, producer, output)   left alone: the tensor itself, without its grad_fn
  Record ──▶ Entry ──▶ an entry of the stash  one Entry for each storage and version; views of the storage share it

The Entry drops its entry when autograd has let go of the last Record."""

import ctypes
import os
import sys
import threading
import weakref
from ctypes import Structure, byref, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p

import torch

from . import library

SMALL_BYTES = 4096  # below, a tensor is left alone: bookkeeping would cost more than it saves
SHARE = 4  # a view of less than 1/SHARE of its storage has an entry of its own
LAYOUTS_MOST = 4096
COUNTS = ("saved", "params", "small", "held", "other", "duplicates", "views",  # of saved tensors, and what became of them
          "put_bytes")


# ---- DLPack (dlpack.h, version 0.x, which every torch from 1.13 reads)

DELETER = ctypes.CFUNCTYPE(None, c_void_p)


class DLManaged(Structure):
    """DLManagedTensor, its DLTensor written out."""
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", c_void_p), ("strides", c_void_p),
                ("byte_offset", c_uint64), ("ctx", c_void_p), ("deleter", DELETER)]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [c_void_p, ctypes.c_char_p, c_void_p]
_from_dlpack = getattr(torch._C, "_from_dlpack", torch.utils.dlpack.from_dlpack)  # without the detour in Python
_CPU, _CUDA = 1, 2

# torch's type: mm's type, DLPack's code and bits, whether DLPack's type is not torch's own (bool).
_DTYPES = {
    torch.float32: (library.F32, 2, 32, False), torch.float16: (library.F16, 2, 16, False),
    torch.bfloat16: (library.BF16, 4, 16, False), torch.float64: (library.U8, 2, 64, False),
    torch.int32: (library.I32, 0, 32, False), torch.uint8: (library.U8, 1, 8, False),
    torch.int8: (library.U8, 0, 8, False), torch.int16: (library.U8, 0, 16, False),
    torch.int64: (library.U8, 0, 64, False), torch.bool: (library.U8, 1, 8, True),
    torch.complex64: (library.U8, 5, 64, False), torch.complex128: (library.U8, 5, 128, False),
}
_EXACT = (library.U8, library.I32)
_Tensor, _STRIDED = torch.Tensor, torch.strided

if hasattr(torch.Tensor, "untyped_storage"):
    _storage = torch.Tensor.untyped_storage
else:
    _storage = torch.Tensor._storage  # torch 1.13
_free_storage = torch.UntypedStorage._free_weak_ref

# Results that are out: the address of a DLManaged, and what it needs until the tensor is freed. `_held` finds by a result's
# address what it is a part of: a result that is saved again, in a double backward, is the same entry.
_out = {}
_held = {}


@DELETER
def _deleted(address):
    managed, layout, record, stream, data = _out.pop(address)
    if _held.get(data) is record:
        _held.pop(data, None)
    layout.free.append((managed, address))
    entry = record.entry
    core = entry.core
    if not _ended:
        core.give_back(core.stash, entry.id, stream)


# Calls into the library end where it does: in a forked child its threads are not there, and after exit nothing is.
_ended = None


def _forked():
    global _ended
    _ended = "training in a forked child: the threads that move tensors stayed in its parent; use the start method 'spawn'"


os.register_at_fork(after_in_child=_forked)


def check_process():
    if _ended:
        raise RuntimeError(f"mm_torch: {_ended}")


# ---- Who else holds a tensor

def _references(tensor):
    return sys.getrefcount(tensor)


def _base_references(tensor):
    return sys.getrefcount(tensor._base)


def _calibrate():
    """How many references pack sees of a tensor that autograd made and no program holds, and of a view's base."""
    seen = []

    class Probe:
        def pack(self, tensor):
            seen.append(sys.getrefcount(tensor))
            return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(Probe().pack, lambda tensor: tensor):
        torch.sigmoid(torch.zeros(1, requires_grad=True))
    return seen[0], _base_references(torch.zeros(2, 2)[0])


_FRESH, _FRESH_BASE = _calibrate()

# What only rearranges or converts: behind these, a weight is still a weight.
_CONVERTS = frozenset(("ToCopyBackward0", "TBackward0", "TransposeBackward0", "ViewBackward0", "PermuteBackward0",
                       "ReshapeAliasBackward0", "UnsafeViewBackward0", "ExpandBackward0", "CloneBackward0"))


# By the type of a grad_fn: its name, the same as bytes, the flags of what it makes, whether it only converts. A type that
# stands for nodes of several names is not remembered.
_traits = {type(None): ("", b"", library.EXACT, False)}


def _traits_of(fn):
    name, kind = fn.name(), type(fn)
    traits = name, name.encode(), library.SIGNS if name.startswith("ReluBackward") else 0, name in _CONVERTS
    if kind.__name__ == name:
        _traits[kind] = traits
    return traits


def _of_weights(fn, name):
    """Whether a tensor is a copy of a leaf that requires a gradient, such as autocast makes."""
    for _ in range(4):
        if name not in _CONVERTS:
            return False
        fn = fn.next_functions[0][0]
        if fn is None:
            return False
        name = fn.name()
        if name.endswith("AccumulateGrad"):
            return True
    return False


# ---- Layouts

def _dense(shape, strides):
    """Whether some order of the dimensions has neither gaps nor overlaps."""
    expected = 1
    for stride, size in sorted((t, n) for n, t in zip(shape, strides) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


class Layout:
    """Shape, strides and type, as the stash and as DLPack want them. Made once, used by many."""
    __slots__ = ("shape", "strides", "dtype", "dense", "bytes", "size", "put", "put_at", "template", "cast", "dims", "steps", "free")

    def __init__(self, shape, strides, dtype, device):
        self.shape, self.strides, self.dtype = shape, strides, dtype
        kind, code, bits, self.cast = _DTYPES[dtype]
        self.dense, self.size = _dense(shape, strides), bits // 8
        elems = 1
        for n in shape:
            elems *= n
        self.bytes = elems * self.size
        rank = len(shape)
        self.dims, self.steps = (c_int64 * max(rank, 1))(*shape), (c_int64 * max(rank, 1))(*strides)
        self.template = (None, _CUDA if device.type == "cuda" else _CPU, device.index or 0, rank, code, bits, 1,
                         ctypes.addressof(self.dims), ctypes.addressof(self.steps), 0, None, _deleted)
        self.free = []  # descriptions of results, and their addresses
        self.put = library.Tensor()
        self.put_at = ctypes.addressof(self.put)
        if kind == library.U8 and bits > 8 or rank > library.RANK_MAX or not self.dense:
            self.put.rank, self.put.dims[0], self.put.strides[0] = 1, self.bytes if kind == library.U8 else elems, 1
        else:
            self.put.rank = rank
            for i in range(rank):
                self.put.dims[i], self.put.strides[i] = shape[i], strides[i]
        self.put.dtype = kind

    def result(self, data, record, stream):
        """A tensor of this layout at the address data: no copy. When it is freed, its entry is given back."""
        try:
            managed, address = self.free.pop()
        except IndexError:
            managed = DLManaged(*self.template)
            address = ctypes.addressof(managed)
        managed.data = data
        _out[address] = managed, self, record, stream, data
        _held[data] = record
        try:
            tensor = _from_dlpack(_new_capsule(address, b"dltensor", None))
        except BaseException:
            _deleted(address)
            raise
        return tensor.view(self.dtype) if self.cast else tensor


class Record:
    """What autograd holds in place of a tensor: a place in an entry."""
    __slots__ = ("entry", "layout", "offset", "traits", "output")

    def __init__(self, entry, layout, offset, traits, output):
        self.entry, self.layout, self.offset, self.traits, self.output = entry, layout, offset, traits, output


class Entry:
    """One version of a storage in the stash. watch: an alias of the tensor, for its version counter, which is emptied
    when nothing else is needed of it. memory: the tensor that the stash has the caller keep; None if it was taken. root: a weak
    reference to the tensor, or what it is a view of: only tensors of one root have the same version counter for certain."""
    __slots__ = ("core", "id", "watch", "version", "memory", "root", "key", "storage", "data", "bytes", "layout", "__weakref__")

    def __del__(self):
        self.core.forget(self)


def _modified(type_name, shape, producer, output, version, expected):
    """Torch's own words for a saved tensor that was modified in place."""
    made = f", which is output {output} of {producer}," if producer else ""
    hint = ("the backtrace further above shows the operation that failed to compute its gradient. The variable in question"
            " was changed in there or anywhere later. Good luck!" if torch.is_anomaly_enabled() else
            "enable anomaly detection to find the operation that failed to compute its gradient, with"
            " torch.autograd.set_detect_anomaly(True).")
    return RuntimeError("one of the variables needed for gradient computation has been modified by an inplace operation: "
                        f"[{type_name} {list(shape)}]{made} is at version {version}; expected version {expected} instead."
                        f" Hint: {hint}")


class Ended:
    """What autograd calls when a backward pass ends. If the pass fails, it only deletes this."""

    def __init__(self, core):
        self.core = core

    def __call__(self):
        pass

    def __del__(self):
        self.core.backward, self.core.between = False, True


class Core:
    """A stash and what is in it. It lives as long as its session or any entry does."""

    def __init__(self, lib, options, device):
        """lib: library.get(). options: library.Options. device: a torch.device; of a GPU with its index."""
        self.lib, self.stash, self.device, self.on_cuda = lib, None, device, device.type == "cuda"
        stash = c_void_p()
        library.check(lib, lib.mm_stash_create_sized(byref(options), ctypes.sizeof(options), byref(stash)))
        self.stash = stash.value
        self.id, self.answer = c_uint64(), c_int()
        self.id_at, self.answer_at = ctypes.addressof(self.id), ctypes.addressof(self.answer)
        self.lib_put, self.lib_get, self.give_back = lib.mm_stash_put, lib.mm_stash_get, lib.mm_stash_give_back
        self.layouts, self.empty = {}, {}
        self.entries = {}  # (storage, version) or (storage, version, offset, layout): a weak reference to its Entry
        self.lock = threading.Lock()
        self.failure = None  # what a hook raised last
        self.backward = self.between = False  # a backward pass is under way, or ended and nothing was put since
        for name in COUNTS:
            setattr(self, name, 0)

    # What pack decides is in the order of what is most frequent.
    def pack(self, x):
        self.saved += 1
        leaf = x.is_leaf
        if leaf and x.requires_grad:
            self.params += 1
            return x, x._version, None, 0
        if type(x) is not _Tensor or x.layout is not _STRIDED or x.device != self.device or x.dtype not in _DTYPES:
            return self.leave(x, "other")
        try:
            storage = _storage(x)
            data = x.data_ptr()
        except (RuntimeError, NotImplementedError):  # wrapped by a transformation of functions: there is no storage
            return self.leave(x, "other")
        total = storage.nbytes()
        if total < SMALL_BYTES or not data:  # an empty view has no address
            return self.leave(x, "small")
        is_view = x._is_view()
        if is_view:
            if x._base.is_leaf and (x._base.requires_grad or _base_references(x) > _FRESH_BASE):
                return self.leave(x, "params" if x._base.requires_grad else "held")
            if x.is_neg() or x.is_conj():
                return self.leave(x, "other")
        if leaf and sys.getrefcount(x) > _FRESH:
            return self.leave(x, "held")
        if _ended:
            check_process()

        shape, strides = x.shape, x.stride()
        layout = self.layouts.get((shape, strides, x.dtype)) or self.layout(shape, strides, x.dtype)
        fn = x.grad_fn
        traits = _traits.get(type(fn)) or _traits_of(fn)
        start = x.storage_offset() * layout.size
        data -= start
        version, output = x._version, x.output_nr
        held = _held.get(data)
        if held is not None and held.entry.core is self and version == 0:
            self.duplicates += 1
            return Record(held.entry, layout, start + held.offset, traits, output)
        # Other parts of a storage may have version counters of their own, unless x is a view: unsafe_chunk makes such.
        alone = layout.bytes * (SHARE if is_view else 1) < total
        root = x._base if is_view else x
        key = (storage._cdata, version, start, layout) if alone else (storage._cdata, version)
        found = self.entries.get(key)
        entry = found() if found is not None else None
        if entry is None or entry.data != data or entry.bytes != total or entry.root() is not root:
            entry = self.put(x, fn, traits, storage, total, data, version, layout, start, key, alone)
            entry.root = weakref.ref(root)
        else:
            self.duplicates += 1
            self.views += layout is not entry.layout
        if alone:
            return Record(entry, entry.layout, 0, traits, output)
        return Record(entry, layout, start, traits, output)

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
        """The layout of all of a storage: x's own, that of the tensor it is a view of, or as one row of elements."""
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

    def put(self, x, fn, traits, storage, total, data, version, layout, start, key, alone):
        """Puts what x needs of its storage: all of it, or where x alone is to have an entry, the elements of x."""
        entry = Entry.__new__(Entry)
        entry.core, entry.id, entry.key, entry.data, entry.bytes, entry.version = self, 0, None, data, total, version
        # This weak reference keeps the storage's address from becoming another storage's while the entry lives.
        entry.storage = storage._weak_ref()
        entry.watch = entry.memory = memory = x.detach()
        if not alone:
            layout = self.whole(x, total, layout)
        elif layout.dense:
            data += start
        else:
            entry.memory = memory = memory.contiguous()
            layout = self.layout(memory.shape, memory.stride(), memory.dtype)
            data = memory.data_ptr()
        entry.layout = layout
        self.put_bytes += layout.bytes
        _, producer, flags, converts = traits
        statistics = x.output_nr > 0 and ("Norm" in traits[0] or "Attention" in traits[0])
        if layout.put.dtype in _EXACT or statistics or converts and _of_weights(fn, traits[0]):
            flags = library.EXACT
        stream = self.stream() if self.on_cuda else None
        with self.lock:
            if self.between:  # a backward pass has ended: what it left there belongs to no further iteration
                self.between = False
                self.lib.mm_stash_mark(self.stash)
            tensor = layout.put
            tensor.data, tensor.producer, tensor.flags = data, producer, flags
            status = self.lib_put(self.stash, layout.put_at, stream, self.id_at, self.answer_at)
            entry.id, taken = self.id.value, self.answer.value == library.TAKEN
        if status:
            entry.id = 0
            self.refuse(status, layout.bytes, traits[0])
        if taken:
            entry.memory = None
        if taken or memory is not entry.watch:
            empty = self.empty.get(x.dtype)
            if empty is None:
                empty = self.empty[x.dtype] = torch.empty(0, dtype=x.dtype, device=self.device)
            entry.watch.data = empty
        entry.key = key
        self.entries[key] = weakref.ref(entry)
        return entry

    def stream(self):
        return torch.cuda.current_stream(self.device).cuda_stream

    def refuse(self, status, put_bytes=None, producer=""):
        """Raises what a status says, and remembers it: autograd may raise something else in its place. put_bytes, producer:
        of a tensor that was put."""
        try:
            library.check(self.lib, status, self.stash)
        except Exception as error:
            self.failure = error
            if isinstance(error, library.Infeasible) and error.minimum is None:  # the tensor alone is too large
                error.minimum, error.producer = put_bytes, producer
            raise

    def unpack(self, record):
        if type(record) is tuple:
            tensor, version, producer, output = record
            if tensor._version == version:
                return tensor
            self.failure = _modified(tensor.type(), tensor.shape, producer, output, tensor._version, version)
            raise self.failure
        entry = record.entry
        if entry.watch._version != entry.version:
            self.failure = _modified(entry.watch.type(), record.layout.shape, record.traits[0], record.output,
                                     entry.watch._version, entry.version)
            raise self.failure
        if _ended:
            check_process()
        stream = self.stream() if self.on_cuda else None
        if not self.backward:
            self.backward = True
            ended = Ended(self)
            try:
                torch.autograd.Variable._execution_engine.queue_callback(ended)
            except RuntimeError:
                pass  # no backward pass: the program looks at what a grad_fn has saved
        data = c_void_p()
        status = self.lib_get(self.stash, entry.id, stream, byref(data))
        if status:
            self.refuse(status)
        place = data.value + record.offset
        if entry.memory is not None and entry.memory is entry.watch:
            place += self.moved(entry, stream)
        return record.layout.result(place, record, stream)

    def moved(self, entry, stream):
        """By how much the memory of a tensor that the program kept has moved since: resize_ gives a storage other memory."""
        storage = _storage(entry.watch)
        if storage.nbytes() >= entry.bytes:
            return storage.data_ptr() - entry.data
        self.give_back(self.stash, entry.id, stream)
        self.failure = RuntimeError(f"mm_torch: a saved tensor's storage was resized from {entry.bytes} to {storage.nbytes()} bytes "
                                    "before the backward pass: what it saved is gone")
        raise self.failure

    def forget(self, entry):
        """Called when autograd has let go of an entry, by any thread."""
        if entry.key is not None:
            found = self.entries.get(entry.key)
            if found is not None and found() in (None, entry):  # not yet None: it is being deleted
                self.entries.pop(entry.key, None)
        if entry.id and not _ended:
            self.lib.mm_stash_drop(self.stash, entry.id)
        _free_storage(entry.storage)

    def __del__(self):
        stash, self.stash = self.stash, None  # entries of the same garbage may follow: calls with NULL do nothing
        if stash and not _ended:
            self.lib.mm_stash_destroy(stash)
