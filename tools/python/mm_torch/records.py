# SPDX-License-Identifier: MIT
"""What autograd holds in place of a saved tensor.

  tuple (tensor, version, producer, output)   left alone: the tensor itself, without its grad_fn
  Record ──▶ Entry ──▶ an entry of the stash  one Entry for each storage and version; views of the storage share it

An Entry drops the stash's entry when autograd has released its last Record."""

import ctypes
from ctypes import c_uint64

import torch

from . import saved
from .layouts import Process

_free_storage = torch.UntypedStorage._free_weak_ref
_Answer = c_uint64 * 2  # the entry's number, then mm_stash_answer
ANSWER_OFFSET = ctypes.sizeof(c_uint64)


def left_alone(x):
    """The record of a tensor that is left alone."""
    fn = x.grad_fn
    if fn is None:
        return x, x._version, None, 0
    return x.detach(), x._version, fn.name(), x.output_nr


def unchanged(record):
    """The tensor of such a record, as it was saved."""
    tensor, version, producer, output = record
    if tensor._version == version:
        return tensor
    raise saved.modified(tensor, tensor.shape, producer, output, version)


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
    bytes. seen: layout, offset, producer, output of the tensor that was put. readers: number of its Records so far.
    number: of the iteration in which it was put."""
    __slots__ = ("core", "answer", "watch", "version", "memory", "begin", "root", "key", "storage", "weak", "data", "bytes",
                 "layout", "seen", "readers", "number", "__weakref__")

    def __init__(self, core, data, total, version):
        self.core, self.data, self.bytes, self.version, self.number = core, data, total, version, core.number
        self.key = self.weak = self.storage = None
        self.readers = 1
        self.answer = _Answer()

    def __del__(self, process=Process):
        """Runs on any thread, when autograd has released it."""
        core = self.core
        if process.ended == "the interpreter ends":
            return
        if self.key is not None:
            found = core.entries.get(self.key)
            if found is not None and found() in (None, self):  # self: deleted, but not cleared yet
                core.entries.pop(self.key, None)
        number = self.answer[0]
        if number and not process.ended:
            core.drop(core.stash, number)
        if self.weak is not None:
            _free_storage(self.weak)


class Ended:
    """Autograd calls it when a backward pass ends, or only deletes it if the pass fails. last: no further pass is
    expected."""

    def __init__(self, core):
        self.core, self.last = core, False

    def __call__(self):
        if self.core.coverage is not None:
            self.core.coverage.backward_ended()
        self.core.refusals.backward_ended(self.core)

    def __del__(self):
        self.core.backward = False
        self.core.between |= self.last
