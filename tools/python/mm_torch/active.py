# SPDX-License-Identifier: MIT
"""Where a budget steps aside, or in, for parts of torch that do not work with saved-tensor hooks by themselves:
function transforms (torch.func), which refuse hooks, and selective checkpoints, which save past them.

While a `with` of a budget is active, names of torch are replaced (_REPLACED). They are looked up at each call, and act
as torch's own on threads without a budget."""

import contextlib
import inspect
import sys
import threading
import types
from collections.abc import Iterator

import torch
import torch.utils.checkpoint as checkpoint
from torch.autograd import graph

_hooks = torch._C._autograd
_own_disable = graph.disable_saved_tensors_hooks


def _skipper():
    """The function by which torch.compile skips a code object; None: this torch has none."""
    frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(frames, "set_code_exec_strategy"):
        action = frames._FrameAction.SKIP
        strategy = frames._FrameExecStrategy(action, action)
        return lambda code: frames.set_code_exec_strategy(code, strategy)
    return getattr(frames, "skip_code", None)  # torch before 2.7


def hide() -> None:
    """Hides all functions of this package that are loaded from torch.compile. Without it, where a compiled net falls
    back to plain torch, the hooks that run then would be compiled, too, as functions that are called from there."""
    skip = _skipper()
    stack = [value for name, module in list(sys.modules.items()) if name.startswith(__package__ + ".") and skip
             for value in vars(module).values() if getattr(value, "__module__", None) == name]
    while stack:
        value = stack.pop()
        if isinstance(value, types.CodeType):
            skip(value)
            stack += [constant for constant in value.co_consts if isinstance(constant, types.CodeType)]
        elif isinstance(value, type):
            stack += [v for v in vars(value).values() if isinstance(v, (types.FunctionType, property, staticmethod))]
        else:
            stack += [v for v in (getattr(value, name, None) for name in ("__code__", "__wrapped__", "__func__", "fget"))
                      if v is not None]


class Active:
    """The session whose `with` is active, and the thread that entered it."""
    session = None
    thread = None


def here():
    """The session that is active on this thread; None: there is none."""
    return Active.session if Active.thread == threading.get_ident() else None


def begin(session):
    """Call it under session's lock."""
    Active.session, Active.thread = session, threading.get_ident()
    for owner, name, _, replacement in _REPLACED:
        setattr(owner, name, replacement)


def end():
    Active.session = Active.thread = None
    for owner, name, own, _ in _REPLACED:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


def _is_on_top(core):
    """Whether the budget's hooks are those that autograd calls now."""
    if hasattr(_hooks, "_top_saved_tensors_default_hooks"):
        top = _hooks._top_saved_tensors_default_hooks(True)
        return top is not None and top[0] == core.pack
    before = core.small + core.other  # torch before 2.8: find out by saving something
    with torch.enable_grad():
        torch.ones((), requires_grad=True).exp()
    return core.small + core.other > before


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """What autograd saves inside is torch's own, as without a budget: with mm.aside(): ... Does nothing outside of a
    budget, or inside other saved-tensor hooks."""
    session = here()
    if session is None or not _is_on_top(session._core):
        yield
        return
    core = session._core
    _hooks._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        _hooks._push_saved_tensors_default_hooks(core.pack, core.unpack)


@contextlib.contextmanager
def _disable(error_message):
    """torch.autograd.graph.disable_saved_tensors_hooks, which torch.func and torch.vmap call; inside a budget."""
    session = here()
    if session is not None:
        session.tell("torch.func", "torch.func takes no saved-tensor hooks: what it saves is kept by torch, outside the "
                     "budget")
    with aside(), _own_disable(error_message):
        yield


# ---- selective checkpoints (torch.utils.checkpoint.create_selective_checkpoint_contexts)

class _Kept(getattr(checkpoint, "_VersionWrapper", object)):
    """What a selective checkpoint keeps of an operation, before torch 2.14: a record of the budget in place of a
    tensor."""

    def __init__(self, value):
        session = here()
        self.core = session._core if session is not None and isinstance(value, torch.Tensor) else None
        super().__init__(value if self.core is None else self.core.pack(value))

    def get_val(self, *arguments):
        kept = super().get_val(*arguments)
        return kept if self.core is None else self.core.unpack(kept)


def _respects(mode):
    """Since torch 2.14 the program says whether what a selective checkpoint keeps goes to the hooks. If it does not
    say, it does inside a budget."""
    said = mode.__dict__.get("respect_saved_tensors_hooks")
    return True if said is None and here() is not None else said


def _say(mode, said):
    mode.__dict__["respect_saved_tensors_hooks"] = said


def _replaced():
    yield graph, "disable_saved_tensors_hooks", _own_disable, _disable
    if not hasattr(checkpoint, "_CachingTorchDispatchMode") or not hasattr(checkpoint, "_VersionWrapper"):
        return
    if "respect_saved_tensors_hooks" in inspect.signature(checkpoint.checkpoint).parameters:
        yield checkpoint._CachingTorchDispatchMode, "respect_saved_tensors_hooks", None, property(_respects, _say)
    else:
        yield checkpoint, "_VersionWrapper", checkpoint._VersionWrapper, _Kept


# Owner, name, torch's own object (None: the class has none), and what replaces it.
_REPLACED = tuple(_replaced())
