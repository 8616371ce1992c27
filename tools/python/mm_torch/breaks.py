# SPDX-License-Identifier: MIT
"""What torch.compile leaves of a net to plain torch: at graph breaks, and where it cannot trace (nn.LSTM). A backend is
not called for it, so torch's callbacks before and after it compiles, and its counters of reasons, tell."""

import sys

import torch

_FRAMES_MOST = 24  # from the callback to torch's function that compiles
_KINDS = "unimplemented", "graph_break"
# Calls that make no tensors: torch compiles all before and after them. The second one is torch 2.6's.
_SAVE_NOTHING = "logging.Logger method", "Logger not supported"
_before = {}


def _counts():
    counters = torch._dynamo.utils.counters
    return {(kind, reason): count for kind in _KINDS for reason, count in counters.get(kind, {}).items()}


def _started(*_):
    global _before
    _before = _counts()


def _backend():
    """The backend that torch compiles with, as torch.compile got it; None: not found."""
    frame = sys._getframe(2)
    for _ in range(_FRAMES_MOST):
        frame = frame.f_back
        if frame is None:
            return None
        if "compiler_fn" in frame.f_locals:
            found = frame.f_locals["compiler_fn"]
            for name in ("_torchdynamo_orig_backend", "compiler_fn"):
                found = getattr(found, name, found)
            return found
    return None


def _ended(*_):
    reasons = [reason for (kind, reason), count in _counts().items()
               if count > _before.get((kind, reason), 0) and not str(reason).startswith(_SAVE_NOTHING)]
    told = getattr(_backend(), "left_to_torch", None) if reasons else None
    if told is not None:
        told([str(reason).strip().splitlines()[0] for reason in reasons])


def watch() -> None:
    """From now on, the method left_to_torch(reasons) of a backend is called for what torch does not compile."""
    try:
        from torch._dynamo.callback import callback_handler as handler
        if _ended not in handler.end_callbacks:
            handler.register_start_callback(_started)
            handler.register_end_callback(_ended)
    except (ImportError, AttributeError):
        pass  # another torch: it is not told
