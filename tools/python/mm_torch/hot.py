# SPDX-License-Identifier: MIT
"""The hot path, in C (mm/python): types of Python, which mm_torch's classes derive from.

  Bridge    base of bridge.Core. pack and unpack are autograd's hooks; what is rare calls methods of Core
  Layout    base of layouts.Layout
  Producer  base of saved.Producer
  Entry     one version of a storage in the stash. Drops the stash's entry when autograd has released its last Record
  Record    what autograd holds in place of a tensor: a place in an Entry
"""

import ctypes

import torch

from . import library


def _make():
    if object.__basicsize__ != 16:
        raise ImportError("mm_torch needs a Python with its lock (GIL): not a free-threaded one, such as python3.14t")
    make = ctypes.PyDLL(None, handle=library.get()._handle).mm_stash_python
    make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object]
    return make({
        "None": None, "True": True, "RuntimeError": RuntimeError, "Tensor": torch.Tensor, "strided": torch.strided,
        "from_dlpack": torch._C._from_dlpack, "is_grad_enabled": torch.is_grad_enabled,
        "keeps_graph": torch._C._autograd._get_current_graph_task_keep_graph,  # outside a backward pass: True
        "free_weak_ref": torch.UntypedStorage._free_weak_ref,
        **{why: why for why in ("small", "other", "device", "subclass", "params")},
    })


address, Bridge, Layout, Producer, Entry, Record = _make()
RUNS, FORKED, ENDS = range(3)
_ended = ctypes.c_int.from_address(address)


def end(how):
    """From now on the library must not be called: FORKED or ENDS."""
    _ended.value = how
