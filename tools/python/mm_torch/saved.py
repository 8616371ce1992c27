# SPDX-License-Identifier: MIT
"""Finds out about a saved tensor: what made it, and whether it was modified."""

import torch

from . import hot, library


# Operations that only rearrange or convert: their output of a weight still counts as a weight.
_CONVERTS = frozenset(("ToCopyBackward0", "TBackward0", "TransposeBackward0", "ViewBackward0", "PermuteBackward0",
                       "ReshapeAliasBackward0", "UnsafeViewBackward0", "ExpandBackward0", "CloneBackward0"))


class Producer(hot.Producer):
    """What made a tensor: the name of its grad_fn, also as bytes; flags of its outputs; whether it only converts;
    whether outputs after the first are statistics. depends: flags depend on the tensor."""
    __slots__ = ("converts", "has_statistics")

    def __init__(self, name, flags):
        self.name, self.bytes, self.flags = name, name.encode(), flags
        self.converts, self.has_statistics = name in _CONVERTS, "Norm" in name or "Attention" in name
        self.depends = self.converts or self.has_statistics

    def flags_of(self, fn, output):
        """Flags of output number `output` of fn, whose name is this producer's."""
        if output > 0 and self.has_statistics or self.converts and _is_of_weights(fn, self.name):
            return library.EXACT
        return self.flags


# type of grad_fn: Producer. Types whose nodes have several names are not cached.
producers = {type(None): Producer("", library.EXACT)}


def producer_of(fn):
    kind = type(fn)
    producer = producers.get(kind)
    if producer is None:
        name = fn.name()
        producer = Producer(name, library.SIGNS if name.startswith("ReluBackward") else 0)
        if kind.__name__ == name:
            producers[kind] = producer
    return producer


def _is_of_weights(fn, name):
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


def modified(tensor, shape, producer, output, expected):
    """Torch's error for a saved tensor that was modified in place."""
    made = f", which is output {output} of {producer}," if producer else ""
    hint = ("the backtrace further above shows the operation that failed to compute its gradient. The variable in question"
            " was changed in there or anywhere later. Good luck!" if torch.is_anomaly_enabled() else
            "enable anomaly detection to find the operation that failed to compute its gradient, with"
            " torch.autograd.set_detect_anomaly(True).")
    return RuntimeError("one of the variables needed for gradient computation has been modified by an inplace operation: "
                        f"[{tensor.type()} {list(shape)}]{made} is at version {tensor._version}; expected version {expected} "
                        f"instead. Hint: {hint}")
