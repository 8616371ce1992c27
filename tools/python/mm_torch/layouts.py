# SPDX-License-Identifier: MIT
"""Describes tensors to the stash, and results of the stash to torch, by DLPack."""

import atexit
import ctypes
import os
from ctypes import c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p

import torch

from . import hot, library


class DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h, version 0.x, which every torch reads."""
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", c_void_p), ("strides", c_void_p),
                ("byte_offset", c_uint64)]


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


class Process:
    """ended: why the library must not be called any more; None: it may. A forked child does not have the library's
    threads; an interpreter that ends has lost the modules' names."""
    ended = None


def _forked():
    hot.end(hot.FORKED)
    Process.ended = "training in a forked child: the threads that move tensors stayed in its parent; use the start " \
                    "method 'spawn'"


def _exits():
    hot.end(hot.ENDS)
    Process.ended = "the interpreter ends"


os.register_at_fork(after_in_child=_forked)
atexit.register(_exits)


def check_process():
    if Process.ended:
        raise RuntimeError(f"mm_torch: {Process.ended}")


def _dense(shape, strides):
    """Whether some order of the dimensions has neither gaps nor overlaps."""
    expected = 1
    for stride, size in sorted((t, n) for n, t in zip(shape, strides) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


class Layout(hot.Layout):
    """Shape, strides and type, as the stash and DLPack take them. Tensors share it."""
    __slots__ = ("kept",)

    def __init__(self, shape, strides, dtype, device):
        self.shape, self.dtype = shape, dtype
        kind, code, bits, self.cast = DTYPES[dtype]
        self.dense, self.size = _dense(shape, strides), bits // 8
        elems = 1
        for n in shape:
            elems *= n
        self.bytes = elems * self.size
        rank = len(shape)
        dims, steps = (c_int64 * max(rank, 1))(*shape), (c_int64 * max(rank, 1))(*strides)
        template = DLTensor(None, _CUDA if device.type == "cuda" else _CPU, device.index or 0, rank, code, bits, 1,
                            ctypes.addressof(dims), ctypes.addressof(steps), 0)
        if kind == library.U8 and bits > 8 or rank > library.RANK_MAX or not self.dense:
            places = [(self.bytes if kind == library.U8 else elems, 1)]
        else:
            places = list(zip(shape, strides))
        described = library.Tensor(None, kind, len(places), flags=library.EXACT if kind in (library.U8, library.I32) else 0)
        for i, place in enumerate(places):
            described.dims[i], described.strides[i] = place
        self.template, self.described = ctypes.addressof(template), ctypes.addressof(described)
        self.kept = dims, steps, template, described  # whose addresses are used
