# SPDX-License-Identifier: MIT
"""Describes tensors to the stash, and turns results of the stash into tensors, by DLPack and without a copy."""

import ctypes
import os
from ctypes import c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p

import torch

from . import library

# ---- DLPack (dlpack.h, version 0.x, which every torch from 1.13 reads)

DELETER = ctypes.CFUNCTYPE(None, c_void_p)


class DLManaged(ctypes.Structure):
    """DLManagedTensor, with the fields of its DLTensor."""
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", c_void_p), ("strides", c_void_p),
                ("byte_offset", c_uint64), ("ctx", c_void_p), ("deleter", DELETER)]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [c_void_p, ctypes.c_char_p, c_void_p]
_from_dlpack = getattr(torch._C, "_from_dlpack", torch.utils.dlpack.from_dlpack)  # without the detour in Python
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

if hasattr(torch.Tensor, "untyped_storage"):
    storage_of = torch.Tensor.untyped_storage
else:
    storage_of = torch.Tensor._storage  # torch 1.13

# _out: results that autograd has: address of a DLManaged → what is needed until the tensor is freed. held: a result's
# storage → its record, so that a result that is saved again, in a double backward, gets the same entry.
_out = {}
held = {}

# Why the library must not be called any more; None: it may. A forked child does not have the library's threads.
ended = None


def _forked():
    global ended
    ended = "training in a forked child: the threads that move tensors stayed in its parent; use the start method 'spawn'"


os.register_at_fork(after_in_child=_forked)


def check_process():
    if ended:
        raise RuntimeError(f"mm_torch: {ended}")


@DELETER
def _deleted(address):
    managed, layout, record, stream, storage = _out.pop(address)
    if held.get(storage) is record:
        held.pop(storage, None)
    layout.free.append((managed, address))
    entry = record.entry
    if not ended:
        entry.core.give_back(entry.core.stash, entry.answer[0], stream)


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
                         ctypes.addressof(self.dims), ctypes.addressof(self.steps), 0, None, _deleted)
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

    def result(self, data, record, stream, got):
        """Returns a tensor of this layout at the address `data`, without a copy, which releases the entry when it is
        freed. Sets got.value to None once the tensor owns the entry; until then the caller must release it."""
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
        held[storage] = record
        return tensor.view(self.dtype) if self.cast else tensor
