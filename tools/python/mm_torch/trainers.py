# SPDX-License-Identifier: MIT
"""mm.budget in the loops that others wrote: transformers' Trainer, Lightning's Trainer, loops with accelerate.

Only training steps run inside the budget. Evaluation, prediction, saving and callbacks run outside. Each micro-batch of
an accumulation is a step, as its backward pass releases what its forward pass saved. The budget is one process's: that
of each rank. These packages are imported when one of the functions is called, not before."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import sys
import warnings
from typing import TYPE_CHECKING, Any

from . import session

if TYPE_CHECKING:
    from types import ModuleType

    import torch

LOG = logging.getLogger("mm_torch")


def _package(function: str, *names: str) -> ModuleType:
    """The first package of these that is imported already, else that can be. ImportError: none is installed."""
    for name in sorted(names, key=lambda name: name not in sys.modules):
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name)
    raise ImportError(f"mm.{function} needs {' or '.join(names)}, which this Python does not have: "
                      f"pip install {names[0].partition('.')[0]}")


class _Training:
    """The budget of one training: made when it begins, dropped when it ends or fails. budget: None outside of one."""

    def __init__(self, function: str, size: str | int, policy: str, options: dict[str, Any]) -> None:
        if session.size(size) is None:
            raise ValueError(f"mm.{function}: budget {size!r} is not understood: use \"6GiB\", \"1.5GB\" or a number of bytes")
        self.size, self.policy, self.options = size, policy, options
        self.budget: session.budget | None = None

    def begin(self, device: torch.device) -> None:
        self.drop()  # of a training that failed between its steps
        self.budget = session.budget(self.size, self.policy, **{"device": device, **self.options})

    def end(self, first_rank: bool) -> None:
        """Reports, on the first rank, and drops the budget."""
        if self.budget is not None and first_rank:
            text = f"mm: the last training step in the budget\n{self.budget.report()}"
            if LOG.hasHandlers():
                LOG.info(text)
            elif sys.stderr:  # without handlers, logging would drop it
                print(text, file=sys.stderr)
        self.drop()

    def drop(self) -> None:
        self.budget = None

    @contextlib.contextmanager
    def step(self):
        """Runs its block inside the budget. Drops the budget if the block fails."""
        try:
            with self.budget:
                yield
        except BaseException:
            self.drop()
            raise


# ---- transformers

def hf(bytes: str | int, policy: str = "swap-async", **options: Any) -> Any:
    """Keeps a transformers.Trainer's training steps inside a byte budget: Trainer(..., callbacks=[mm.hf("6GiB")]).

    bytes, policy, options: as of mm.budget, of each rank; device: by default the Trainer's. Returns a TrainerCallback
    for one Trainer at a time; its `budget` is the mm.budget during a training, else None. Gradient accumulation and
    checkpointing, mixed precision, evaluation and saving are the Trainer's own. When the training ends, the first rank
    logs the report (logger "mm_torch"; to standard error if logging is not set up), and the Trainer is as it was; after
    an exception, too.

    ImportError: no transformers. ValueError: bytes that are no size; when training begins, an impossible budget or
    policy. Training raises what mm.budget raises, such as mm.Infeasible."""
    transformers = _package("hf", "transformers")
    training = _Training("hf", bytes, policy, options)

    class Callback(transformers.TrainerCallback):
        """Replaces the Trainer's training_step, in the instance, while it trains."""
        trainer = None

        @property
        def budget(self) -> session.budget | None:
            return training.budget

        def on_train_begin(self, args, state, control, **kwargs):
            """Called by the Trainer."""
            self.restore()
            trainer = _caller(transformers.Trainer)
            if trainer is None:
                raise RuntimeError("mm.hf: this callback is not called by a transformers.Trainer: put its training step inside "
                                   "mm.budget")
            training.begin(args.device)
            self.trainer, self.before, step = trainer, trainer.__dict__.get("training_step"), trainer.training_step

            @functools.wraps(step)
            def training_step(*step_args, **step_kwargs):
                try:
                    with training.step():
                        return step(*step_args, **step_kwargs)
                except BaseException:
                    self.restore()
                    raise

            trainer.training_step = training_step

        def on_train_end(self, args, state, control, **kwargs):
            """Called by the Trainer."""
            self.restore()
            training.end(state.is_world_process_zero)

        def restore(self):
            trainer, self.trainer = self.trainer, None
            if trainer is None:
                return
            del trainer.training_step
            if self.before is not None:
                trainer.training_step = self.before

    return Callback()


def _caller(kind: type) -> Any:
    """The innermost caller that is a method of `kind`: its self. transformers does not tell callbacks the Trainer."""
    frame = sys._getframe(1)  # pylint: disable=protected-access
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, kind):
            return found
        frame = frame.f_back
    return None


# ---- Lightning

def lightning(bytes: str | int, policy: str = "swap-async", **options: Any) -> Any:
    """Keeps a Lightning Trainer's training batches inside a byte budget: L.Trainer(callbacks=[mm.lightning("6GiB")]).

    bytes, policy, options: as of mm.budget, of each rank; device: by default that of the Trainer's strategy. Returns a
    Callback of lightning (or pytorch_lightning); its `budget` is the mm.budget during a training, else None. The budget
    is entered from on_train_batch_start to on_train_batch_end, also with manual optimization; validation and
    checkpoints run outside. When the training ends, the first rank logs the report (as mm.hf). After an exception
    nothing is left.

    ImportError: no lightning. ValueError: bytes that are no size; when training begins, an impossible budget or policy.
    Training raises what mm.budget raises, such as mm.Infeasible."""
    package = _package("lightning", "lightning.pytorch", "pytorch_lightning")
    training = _Training("lightning", bytes, policy, options)

    class Callback(package.Callback):
        """Enters the budget when a batch begins."""
        entered = None

        @property
        def budget(self) -> session.budget | None:
            return training.budget

        def on_train_start(self, trainer, pl_module):
            """Called by the Trainer."""
            training.begin(trainer.strategy.root_device)

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            """Called by the Trainer."""
            training.budget.__enter__()
            self.entered = training.budget

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            """Called by the Trainer."""
            self.leave()

        def on_train_epoch_end(self, trainer, pl_module):
            """Called by the Trainer. A module that skips the rest of an epoch begins a batch that does not end."""
            self.leave()

        def on_train_end(self, trainer, pl_module):
            """Called by the Trainer."""
            training.end(trainer.is_global_zero)

        def on_exception(self, trainer, pl_module, exception):
            """Called by the Trainer."""
            training.drop()
            self.leave(type(exception), exception, exception.__traceback__)

        def leave(self, *error):
            entered, self.entered = self.entered, None
            if entered is not None:
                entered.__exit__(*(error or (None, None, None)))

    return Callback()


# ---- accelerate

def accelerate(accelerator: Any, bytes: str | int, policy: str = "swap-async", **options: Any) -> Accelerated:
    """Keeps the blocks `with accelerator.accumulate(model):` of a loop inside a byte budget.

        m = mm.accelerate(accelerator, "6GiB")
        for x, y in loader:
            with accelerator.accumulate(net):
                accelerator.backward(criterion(net(x), y))
                ...
        accelerator.end_training()

    A loop that does not accumulate puts `with m:` around its step; nothing is counted twice. bytes, policy, options: as
    of mm.budget, of each rank; device: by default the accelerator's. m.end() or accelerator.end_training() restores the
    accelerator, drops the budget, and logs the report on the first rank (as mm.hf).

    ImportError: no accelerate. TypeError: no Accelerator. ValueError: an impossible budget or policy."""
    package = _package("accelerate", "accelerate")
    if not isinstance(accelerator, package.Accelerator):
        raise TypeError(f"mm.accelerate: {type(accelerator).__name__} is no accelerate.Accelerator")
    return Accelerated(accelerator, _Training("accelerate", bytes, policy, options))


class Accelerated:
    """What mm.accelerate returns: a context manager; `budget` is the mm.budget until end(). One thread uses it."""

    def __init__(self, accelerator: Any, training: _Training) -> None:
        training.begin(accelerator.device)
        self._training, self._accelerator, self._warned = training, accelerator, False
        self._depth, self._entered = 0, None
        self._before = {name: accelerator.__dict__.get(name) for name in ("accumulate", "backward", "end_training")}
        accumulate, backward, end_training = accelerator.accumulate, accelerator.backward, accelerator.end_training

        @contextlib.contextmanager
        def accumulate_inside(*models):
            with accumulate(*models), self:
                yield

        def backward_inside(*args, **kwargs):
            if not self._depth and not self._warned:
                self._warned = True
                warnings.warn("mm.accelerate: this backward pass is not inside the budget: use accelerator.accumulate, or put "
                              "`with m:` around the step, where m is what mm.accelerate returned", stacklevel=2)
            return backward(*args, **kwargs)

        def end_inside(*args, **kwargs):
            self.end()
            return end_training(*args, **kwargs)

        accelerator.accumulate, accelerator.backward, accelerator.end_training = accumulate_inside, backward_inside, end_inside

    @property
    def budget(self) -> session.budget | None:
        """The mm.budget; None after end()."""
        return self._training.budget

    def __enter__(self) -> Accelerated:
        if not self._depth:
            if self.budget is None:
                raise RuntimeError("mm.accelerate: its training has ended: call it again")
            self.budget.__enter__()
            self._entered = self.budget  # kept if end() comes before the block's end
        self._depth += 1
        return self

    def __exit__(self, *error: Any) -> None:
        self._depth -= 1
        if not self._depth:
            entered, self._entered = self._entered, None
            entered.__exit__(*error)

    def end(self) -> None:
        """Restores the accelerator, logs the report on the first rank, and drops the budget. Legal more than once."""
        if self._before:
            for name, before in self._before.items():
                delattr(self._accelerator, name)
                if before is not None:
                    setattr(self._accelerator, name, before)
            self._before = {}
            self._training.end(self._accelerator.is_main_process)
