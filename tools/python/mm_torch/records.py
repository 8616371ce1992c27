# SPDX-License-Identifier: MIT
"""What autograd holds in place of a saved tensor.

  tuple (tensor, version, producer, output)   left alone: the tensor itself, without its grad_fn
  Record ──▶ Entry ──▶ an entry of the stash  one Entry for each storage and version; views of the storage share it
                                              (hot.py)"""

from . import saved


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
