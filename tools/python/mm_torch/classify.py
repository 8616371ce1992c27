# SPDX-License-Identifier: MIT
"""Finds out whether the program holds a saved tensor that has no gradient: a batch, a buffer, a frozen weight. Such a
tensor is left alone, since moving it frees nothing. What an operation has just made, such as a mask, is moved.

Three signs, in this order:
  references  one that an operation, or a custom function's forward, has just made has no more references than such a
              tensor had at import, counted by the same code (calibrate), so that it does not matter how Python's
              compiler and torch count their own
  places      in the first iteration, tensors with more references are left alone; the places of the program whose
              tensors nobody holds any more after the backward pass are remembered (coverage.Coverage), and their
              tensors are moved from then on
  casts       a half-precision tensor of a frozen parameter's shape is autocast's copy of it, and stays"""

import gc
import os
import sys

import torch
from torch.nn import functional as F
from torch.utils import checkpoint

HALVES = frozenset((torch.float16, torch.bfloat16))
# Files that save what a selective checkpoint has just made.
_MAKERS = frozenset((checkpoint.__file__, os.path.join(os.path.dirname(__file__), "active.py")))
# Custom functions are applied by this code; since torch 2.14 by code in C++: None.
APPLY = getattr(getattr(torch.autograd.Function.apply, "__func__", None), "__code__", None)
MADE = ("made",)
SCANS_MOST = 3


def base_references(tensor):
    return sys.getrefcount(tensor._base)


FRESH_BASE = base_references(torch.zeros(2, 2)[0])  # of the base of a view that only autograd holds


def kind_of(x):
    """The class of a tensor whose type is not torch.Tensor."""
    return "params" if issubclass(type(x), torch.nn.Parameter) else "subclass"


def place_of(frame, x):
    """Where in the program a tensor is saved, and what it is like: a key. frame: that calls the operation. None: the
    operation runs on a thread without Python code. The first part is APPLY if a custom function saves it; then the key
    has the place that calls the function. MADE alone: a selective checkpoint keeps it."""
    if frame is None:
        return None
    if frame.f_code.co_filename in _MAKERS:
        return MADE
    code, at = frame.f_code, frame.f_lasti
    if code is APPLY and frame.f_back is not None:
        at = frame.f_back.f_code, frame.f_back.f_lasti
    return code, at, x.shape, x.dtype


class Casts:
    """Shapes of frozen parameters, whose copies in half precision autocast makes anew each time."""

    def __init__(self):
        self.shapes, self.others, self.scans = set(), set(), 0

    def are_of(self, x):
        """Whether x, of half precision and without a gradient, may be such a copy. May look through all objects of the
        program, up to SCANS_MOST times."""
        shape = x.shape
        if shape in self.shapes:
            return True
        if shape in self.others:
            return False
        if self.scans < SCANS_MOST:
            self.scans += 1
            self.shapes.update(o.shape for o in gc.get_objects() if issubclass(type(o), torch.nn.Parameter)
                               and not o.requires_grad and o.dtype not in HALVES)
        if shape not in self.shapes:
            self.others.add(shape)
        return shape in self.shapes


class Function(torch.autograd.Function):
    """Saves what it makes."""

    @staticmethod
    def forward(ctx, x):
        made = x.exp()
        ctx.save_for_backward(made)
        return made.sin()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos()


def trial(core):
    """A class like Core that has no stash: it counts as taken what it would put."""
    class Trial(core):
        def __init__(self):
            self.device, self.share, self.classifies = torch.device("cpu"), None, True
            self.begin()

        def run(self, function):
            with torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack), torch.enable_grad():
                function()

    return Trial


def _sources():
    return torch.zeros(8, 8, 16, 16, requires_grad=True), torch.zeros(64, 64, requires_grad=True), torch.zeros(64, 64)


def calibrate(core):
    """References that Core.odd sees of a tensor that an operation has just made, and of one that a custom function has
    made and saves."""
    class Counts(trial(core)):
        fresh, fresh_in_function = 0, 0

        def is_held(self, x, count):
            self.seen = count
            return True

    counts, (_, weight, _) = Counts(), _sources()
    counts.run(lambda: weight.sort(1))
    fresh = counts.seen
    counts.run(lambda: Function.apply(weight))
    return fresh, max(counts.seen, fresh)


def faults(core):
    """Saves by five operations that are known. Returns those of which tensors are put or left alone otherwise than
    expected: text."""
    images, weight, batch = _sources()
    state = torch.get_rng_state()
    found = []
    for name, function, expected in (("dropout", lambda: F.dropout(weight.exp(), 0.5), (2, 0)),
                                     ("max_pool2d", lambda: F.max_pool2d(images.exp(), 2), (2, 0)),
                                     ("sort", lambda: weight.sort(1), (1, 0)),
                                     ("a custom function", lambda: Function.apply(weight), (1, 0)),
                                     ("a batch that the program holds", lambda: batch @ weight, (0, 1))):
        tried = trial(core)()
        tried.run(function)
        if (tried.taken, tried.held) != expected:
            found.append(f"{name}: {tried.taken} tensors are put and {tried.held} left as held by the program, not "
                         f"{expected[0]} and {expected[1]}")
    torch.set_rng_state(state)
    return found


def is_compiled(frame):
    """Whether a compiled region saves: AOT autograd runs it. frame: that calls the operation."""
    for _ in range(4):
        if frame is None:
            return False
        if "_aot_autograd" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False
