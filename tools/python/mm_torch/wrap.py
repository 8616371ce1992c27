# SPDX-License-Identifier: MIT
"""Wraps modules so that they run again in the backward pass, by torch.utils.checkpoint, and unwraps them.

What a checkpoint is given goes through the hooks that are active, so it is in a budget. What runs again is held by the
checkpoint, outside of a budget, until the module's backward pass has read it."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterator, List, Optional

import torch
from torch.nn.modules.batchnorm import _NormBase
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint


def _slot_of(module: torch.nn.Module) -> str:
    """The attribute that a call of the module calls; module.compile() sets the first."""
    return "_compiled_call_impl" if module._compiled_call_impl is not None else "forward"


def function_of(module: torch.nn.Module) -> Callable:
    return getattr(module, _slot_of(module))


@contextlib.contextmanager
def replaced(module: torch.nn.Module, function: Callable) -> Iterator[None]:
    """Calls of the module call the function meanwhile."""
    slot, own = _slot_of(module), vars(module)
    had, before = _slot_of(module) in own, own.get(_slot_of(module))
    own[slot] = function
    try:
        yield
    finally:
        own.pop(slot, None)
        if had:
            own[slot] = before


class _Again(contextlib.AbstractContextManager):
    """While a module runs again: batch norms update copies of their statistics, which have been updated already."""

    def __init__(self, norms: List[torch.nn.Module], begins: Optional[Callable[[], None]]):
        self.norms, self.begins, self.real = norms, begins, []

    def __enter__(self):
        if self.begins is not None:
            self.begins()
        for norm in self.norms:
            for name, buffer in norm._buffers.items():
                if buffer is not None and norm.training:
                    self.real.append((norm, name, buffer))
                    norm._buffers[name] = buffer.detach().clone()
        return self

    def __exit__(self, *error):
        while self.real:
            norm, name, buffer = self.real.pop()
            norm._buffers[name] = buffer


def checkpointed(module: torch.nn.Module, begins: Optional[Callable[[], None]] = None) -> Callable:
    """The module's forward function in a checkpoint. Every tensor in its arguments, also in tuples and dicts, is saved
    by the checkpoint, so that hooks see it; one that is given several times stays one (self-attention asks whether
    query is key). Without gradients nothing is wrapped. begins: called when it begins to run again."""
    inner = function_of(module)
    norms = [m for m in module.modules() if isinstance(m, _NormBase)]

    @functools.wraps(inner)
    def forward(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return inner(*args, **kwargs)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = list({id(leaf): leaf for leaf in leaves if isinstance(leaf, torch.Tensor)}.values())
        numbers = {id(tensor): i for i, tensor in enumerate(tensors)}
        places = [(i, numbers[id(leaf)]) for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        for i, _ in places:
            leaves[i] = None

        def run(*given: torch.Tensor) -> Any:
            full = list(leaves)
            for i, number in places:
                full[i] = given[number]
            args_again, kwargs_again = pytree.tree_unflatten(full, spec)
            return inner(*args_again, **kwargs_again)

        return checkpoint(run, *tensors, use_reentrant=False,
                          context_fn=lambda: (contextlib.nullcontext(), _Again(norms, begins)))
    return forward
