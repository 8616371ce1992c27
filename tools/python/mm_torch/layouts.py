# SPDX-License-Identifier: MIT
"""Describes tensors to the stash, and turns results of the stash into tensors, by DLPack and without a copy."""

import atexit
import ctypes
import os
from ctypes import c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p

import torch

from . import library

# ---- DLPack (dlpack.h, version 0.x, which every torch reads)

_DELETED = ctypes.CFUNCTYPE(None, c_void_p)


class DLManaged(ctypes.Structure):
    """DLManagedTensor, with the fields of its DLTensor."""
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", c_void_p), ("strides", c_void_p),
                ("byte_offset", c_uint64), ("ctx", c_void_p), ("deleter", c_void_p)]


class Python(ctypes.Structure):
    """mm_stash_python: what the deleter in C needs of Python."""
    _fields_ = [(name, c_void_p) for name in ("is_alive", "lock", "unlock", "fetch", "restore")] + [("deleted", _DELETED)]


def _address(function):
    return ctypes.cast(function, c_void_p).value


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [c_void_p, ctypes.c_char_p, c_void_p]
_from_dlpack = torch._C._from_dlpack
_CPU, _CUDA = 1, 2

# torch's type: mm's type, DLPack's code and bits, whether the result must be viewed as torch's type (bool).
DTYPES = {
    torch.float32: (library.F32, 2, 32, False), torch.float16: (library.F16, 2, 16, False),
    torch.bfloat16: (library.BF16, 4, 16, False), torch.float64: (library.U8, 2, 64, False),
    torch.int32: (library.I32, 0, 32, False), torch.uint8: (library.U8, 1, 8, False),
    torch.int8: (library.U8, 0, 8, False), torch.int16: (library.U8, 0, 16, False),
    torch.int64: (library.U8, 0, 64, False), torch.bool: (library.U8, 1, 8, True),
    torch.complex64: (library.U8, 5, 64, False), torch.complex128: (library.U8, 5, 128, False),
}

storage_of = torch.Tensor.untyped_storage

# _out: results that autograd has: address of a DLManaged → what is needed until the tensor is freed. held: a result's
# storage → its record, and its version as it was handed out, so that a result that is saved again, in a double backward,
# gets the same entry.
_out = {}
held = {}


class Process:
    """ended: why the library must not be called any more; None: it may. A forked child does not have the library's
    threads; an interpreter that ends has lost the modules' names."""
    ended = None


def _forked():
    Process.ended = "training in a forked child: the threads that move tensors stayed in its parent; use the start " \
                    "method 'spawn'"


def _exits():
    Process.ended = "the interpreter ends"


os.register_at_fork(after_in_child=_forked)
atexit.register(_exits)


def check_process():
    if Process.ended:
        raise RuntimeError(f"mm_torch: {Process.ended}")


@_DELETED
def _deleted(address, out=_out, process=Process):
    managed, layout, record, stream, storage = out.pop(address)
    if process.ended:
        return
    found = held.get(storage)
    if found is not None and found[0] is record:
        held.pop(storage, None)
    layout.free.append((managed, address))
    entry = record.entry
    entry.core.give_back(entry.core.stash, entry.answer[0], stream)


_python = Python(*(_address(getattr(ctypes.pythonapi, name)) for name in (
    "Py_IsInitialized", "PyGILState_Ensure", "PyGILState_Release", "PyErr_Fetch", "PyErr_Restore")), _deleted)


def _dense(shape, strides):
    """Whether some order of the dimensions has neither gaps nor overlaps."""
    expected = 1
    for stride, size in sorted((t, n) for n, t in zip(shape, strides) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


class Layout:
    """Shape, strides and type, as the stash and DLPack take them. Tensors share it."""
    __slots__ = ("shape", "dtype", "dense", "bytes", "size", "exact", "rank", "kind", "places", "puts", "template", "cast", "dims",
                 "steps", "free")

    def __init__(self, shape, strides, dtype, device):
        self.shape, self.dtype = shape, dtype
        self.kind, code, bits, self.cast = DTYPES[dtype]
        self.exact = library.EXACT if self.kind in (library.U8, library.I32) else 0
        self.dense, self.size = _dense(shape, strides), bits // 8
        elems = 1
        for n in shape:
            elems *= n
        self.bytes = elems * self.size
        rank = len(shape)
        self.dims, self.steps = (c_int64 * max(rank, 1))(*shape), (c_int64 * max(rank, 1))(*strides)
        self.template = (None, _CUDA if device.type == "cuda" else _CPU, device.index or 0, rank, code, bits, 1,
                         ctypes.addressof(self.dims), ctypes.addressof(self.steps), 0, ctypes.addressof(_python),
                         _address(library.get().mm_stash_python_deleter))
        self.free = []  # unused (DLManaged, address) pairs
        self.puts = {}  # (producer, flags): unused (library.Tensor, address) pairs
        if self.kind == library.U8 and bits > 8 or rank > library.RANK_MAX or not self.dense:
            self.places = [(self.bytes if self.kind == library.U8 else elems, 1)]
        else:
            self.places = list(zip(shape, strides))

    def description(self, producer, flags):
        """Returns a list, and from it a description for mm_stash_put, without the data's address. The caller appends
        the description to the list after the put."""
        free = self.puts.get((producer, flags))
        if free is None:
            free = self.puts[producer, flags] = []
        try:
            return free, free.pop()
        except IndexError:
            tensor = library.Tensor(None, self.kind, len(self.places), producer=producer, flags=flags)
            for i, place in enumerate(self.places):
                tensor.dims[i], tensor.strides[i] = place
            return free, (tensor, ctypes.addressof(tensor))

    def result(self, data, record, stream, got, watch=None):
        """Returns a tensor of this layout at the address `data`, without a copy, which releases the entry when it is
        freed. Sets got.value to None once the tensor owns the entry; until then the caller must release it. watch: a
        tensor whose version counter the result shares; None: it has one of its own."""
        try:
            managed, address = self.free.pop()
        except IndexError:
            managed = DLManaged(*self.template)
            address = ctypes.addressof(managed)
        managed.data = data
        _out[address] = managed, self, record, stream, None
        got.value = None
        try:
            tensor = _from_dlpack(_new_capsule(address, b"dltensor", None))
        except BaseException:
            if address in _out:
                _deleted(address)
            raise
        storage = storage_of(tensor)._cdata
        _out[address] = managed, self, record, stream, storage
        if self.cast:
            tensor = tensor.view(self.dtype)
        if watch is None:
            held[storage] = record, 0
            return tensor
        held[storage] = record, record.entry.version
        shared = watch.detach()
        shared.data = tensor
        return shared
