# SPDX-License-Identifier: MIT
"""mm.hf, mm.lightning and mm.accelerate: weights as without them, bit for bit; steps inside the budget and all else
outside of it; nothing left after an exception.

    trainers_equal.py CASE...

Models are tiny and random. Each case imports its own package."""

import contextlib
import copy
import logging
import os
import tempfile
import warnings

import torch

import mm_torch as mm
from checks import expect, run

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")
torch.set_num_threads(1)
# Budgets that hold a part of what a step saves, so that the policy, swap-async, has to move the rest.
GPT2, GPT2_CHECKPOINTED, CONVOLUTION, LINEAR = "900KiB", "96KiB", "80KiB", "48KiB"


PROBE = mm.budget("1MiB", device="cpu")


def is_inside():
    """Whether a budget is active: another cannot be entered then."""
    try:
        with PROBE:
            return False
    except RuntimeError:
        return True


class Lines(logging.Handler):
    """Collects the reports of the logger mm_torch."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        if record.getMessage().startswith("mm: the last training step"):
            self.lines.append(record.getMessage())


@contextlib.contextmanager
def logged():
    """Yields the list of reports that mm logs in the block."""
    handler, log = Lines(), logging.getLogger("mm_torch")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield handler.lines
    finally:
        log.removeHandler(handler)


def equal(a, b):
    """Whether two modules have the same bits."""
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def expect_in_budget(what, stats, steps):
    """Checks that each step was an iteration of the budget, moved tensors, and that nothing of it is left."""
    expect(f"{what}: steps are iterations", stats.iterations >= steps - 1, stats)
    expect(f"{what}: tensors move", stats.out_bytes > 0, stats)
    expect(f"{what}: nothing left", stats.entries == 0, stats)


def expect_left(what, budget):
    expect(f"{what}: no budget is active", not is_inside())
    expect(f"{what}: the budget is dropped", budget is None, budget)


class Fault(Exception):
    """Raised on purpose."""


# ---- transformers

def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(3)
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=32, n_head=2, n_positions=32, vocab_size=64, use_cache=False,
                                      bos_token_id=0, eos_token_id=0))


def tokens(n):
    at = torch.Generator().manual_seed(5)
    rows = torch.randint(0, 64, (n, 32), generator=at)
    return [{"input_ids": row, "labels": row} for row in rows]


def transformers_trainer(folder, model, *callbacks, steps=6, **arguments):
    from transformers import Trainer, TrainingArguments
    args = TrainingArguments(output_dir=folder, max_steps=steps, per_device_train_batch_size=4, use_cpu=True, report_to=[],
                             disable_tqdm=True, seed=3, logging_strategy="no", save_strategy=arguments.pop("save_strategy", "no"),
                             **arguments)
    return Trainer(model=model, args=args, train_dataset=tokens(24), eval_dataset=tokens(8), callbacks=list(callbacks))


def transformers():
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        """Checks that what is not a step runs outside of the budget, and keeps the budget's figures."""
        evaluated = saved = 0

        def outside(self, args, state, control, **kwargs):
            expect("outside of the budget", not is_inside())
        on_optimizer_step = on_prediction_step = on_log = outside

        def on_evaluate(self, args, state, control, **kwargs):
            self.outside(args, state, control)
            self.evaluated += 1

        def on_save(self, args, state, control, **kwargs):
            self.outside(args, state, control)
            self.saved += 1

        def on_step_end(self, args, state, control, **kwargs):
            self.outside(args, state, control)
            self.stats = self.callback.budget.stats

    settings = {
        "plain": (GPT2, {}),
        "accumulation": (GPT2, {"gradient_accumulation_steps": 3, "max_grad_norm": 0.5}),
        "evaluation and saving": (GPT2, {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 3}),
        "checkpointing": (GPT2_CHECKPOINTED, {"gradient_checkpointing": True}),
        "bf16": ("700KiB", {"bf16": True}),
    }
    with tempfile.TemporaryDirectory() as folder:
        for what, (size, arguments) in settings.items():
            expected = transformers_trainer(folder, gpt2(), **arguments)
            expected.train()
            callback, watch = mm.hf(size), Watch()
            watch.callback = callback
            trainer = transformers_trainer(folder, gpt2(), callback, watch, **arguments)
            with logged() as lines:
                trainer.train()
            expect(f"hf, {what}: the weights", equal(trainer.model, expected.model))
            expect_in_budget(f"hf, {what}", watch.stats, 6 * arguments.get("gradient_accumulation_steps", 1))
            expect_left(f"hf, {what}", callback.budget)
            expect(f"hf, {what}: the Trainer is as before", "training_step" not in vars(trainer))
            expect(f"hf, {what}: reported once", len(lines) == 1 and "as planned" in lines[0], lines)
            if "eval_steps" in arguments:
                expect("hf: evaluated and saved", watch.evaluated == 3 and watch.saved == 2, (watch.evaluated, watch.saved))


def transformers_faults():
    with tempfile.TemporaryDirectory() as folder:
        for error, size in ((Fault, GPT2), (mm.Infeasible, "40KiB")):
            model, calls = gpt2(), []
            before = copy.deepcopy(model.state_dict())

            def fails(gradient):
                calls.append(1)
                if len(calls) == 3 and error is Fault:
                    raise Fault

            handle = model.transformer.wte.weight.register_hook(fails)
            callback = mm.hf(size)
            trainer = transformers_trainer(folder, model, callback)
            try:
                trainer.train()
                expect(f"hf: {error.__name__}", False, "no exception")
            except error:
                pass
            expect_left(f"hf, {error.__name__}", callback.budget)
            expect(f"hf, {error.__name__}: the Trainer is as before", "training_step" not in vars(trainer))
        # The same callback trains again, as if nothing had been.
        handle.remove()
        model.load_state_dict(before)
        expected = transformers_trainer(folder, gpt2())
        expected.train()
        callback = mm.hf(GPT2)
        for again in model, gpt2():
            trainer = transformers_trainer(folder, again, callback)
            trainer.train()
            expect("hf: the weights after a fault", equal(trainer.model, expected.model))
    try:
        mm.hf("6 GiBs")
        expect("hf: a size that is none", False, "accepted")
    except ValueError as refused:
        expect("hf: names its words", "mm.hf" in str(refused), refused)


# ---- Lightning

def lightning():
    import lightning as package
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Net(package.LightningModule):
        """manual: optimizes by itself. fault: the step that fails. skip: where it skips the rest of an epoch."""

        def __init__(self, manual=False, fault=None, skip=None):
            super().__init__()
            self.automatic_optimization, self.fault, self.skip = not manual, fault, skip
            torch.manual_seed(3)
            self.net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
                                           torch.nn.Dropout(0.1), torch.nn.Flatten(), torch.nn.Linear(8 * 14 * 14, 4))
            self.inside = []

        def on_train_batch_start(self, batch, batch_idx):
            return -1 if batch_idx == self.skip else None

        def training_step(self, batch, batch_idx):
            x, y = batch
            self.inside.append(is_inside())
            loss = torch.nn.functional.cross_entropy(self.net(x), y)
            if batch_idx == self.fault:
                raise Fault
            if not self.automatic_optimization:
                optimizer = self.optimizers()
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()
            return loss

        def validation_step(self, batch, batch_idx):
            expect("lightning: validation is outside", not is_inside())
            self.net(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)

    class Watch(package.Callback):
        def __init__(self, callback):
            self.callback, self.stats = callback, None

        def on_train_epoch_end(self, trainer, pl_module):
            expect("lightning: between epochs it is outside", not is_inside())
            self.stats = self.callback.budget.stats

    at = torch.Generator().manual_seed(5)
    data = [(torch.randn(3, 16, 16, generator=at), i % 4) for i in range(24)]

    def train(net, folder, *callbacks, **arguments):
        torch.manual_seed(7)
        trainer = package.Trainer(max_epochs=2, accelerator="cpu", devices=1, logger=False, callbacks=list(callbacks),
                                  default_root_dir=folder, enable_progress_bar=False, enable_model_summary=False, **arguments)
        loader = torch.utils.data.DataLoader(data, batch_size=4)
        trainer.fit(net, loader, loader)
        return net

    with tempfile.TemporaryDirectory() as folder:
        for what, given, arguments in (("plain", {}, {}), ("manual", {"manual": True}, {}), ("skipped", {"skip": 4}, {}),
                                       ("accumulation", {}, {"accumulate_grad_batches": 3, "gradient_clip_val": 0.5})):
            expected = train(Net(**given), folder, **arguments)
            callback = mm.lightning(CONVOLUTION)
            watch = Watch(callback)
            with logged() as lines:
                net = train(Net(**given), folder, callback, watch, **arguments)
            expect(f"lightning, {what}: the weights", equal(net, expected))
            expect(f"lightning, {what}: steps are inside", all(net.inside) and len(net.inside) == len(expected.inside), net.inside)
            expect_in_budget(f"lightning, {what}", watch.stats, len(net.inside))
            expect_left(f"lightning, {what}", callback.budget)
            expect(f"lightning, {what}: reported once", len(lines) == 1 and "as planned" in lines[0], lines)
        for error, given, size in ((Fault, {"fault": 2}, CONVOLUTION), (mm.Infeasible, {}, "20KiB")):
            callback = mm.lightning(size)
            try:
                train(Net(**given), folder, callback)
                expect(f"lightning: {error.__name__}", False, "no exception")
            except error:
                pass
            expect_left(f"lightning, {error.__name__}", callback.budget)


# ---- accelerate

def accelerate():
    from accelerate import Accelerator

    def train(inside, explicit=False, fault=None):
        """Returns the net, and the budget's figures. explicit: the steps are not in accumulate, but in `with m`."""
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        torch.manual_seed(3)
        layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Dropout(0.1)) for _ in range(4)]
        net = torch.nn.Sequential(*layers, torch.nn.Linear(64, 4))
        data = [(torch.randn(64), i % 4) for i in range(384)]
        loader = torch.utils.data.DataLoader(data, batch_size=32)
        net, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), loader)
        before, m, stats = dict(vars(accelerator)), None, None
        if inside:
            m = mm.accelerate(accelerator, LINEAR)
        with logged() as lines:
            for step, (x, y) in enumerate(loader):
                with m if m and explicit else contextlib.nullcontext(), \
                        contextlib.nullcontext() if explicit else accelerator.accumulate(net):
                    expect("accelerate: inside of steps", is_inside() == inside)
                    accelerator.backward(torch.nn.functional.cross_entropy(net(x), y))
                    if step == fault:
                        raise Fault
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(net.parameters(), 0.5)
                    optimizer.step()
                    optimizer.zero_grad()
                expect("accelerate: outside between steps", not is_inside())
            if m:
                stats = m.budget.stats
            accelerator.end_training()
        if m:
            expect_in_budget("accelerate", stats, 12)
            expect_left("accelerate", m.budget)
            expect("accelerate: reported once", len(lines) == 1 and "as planned" in lines[0], lines)
            m.end()
            expect("accelerate: the accelerator is as before",
                   all(vars(accelerator).get(name) is before.get(name) for name in ("accumulate", "backward", "end_training")))
        return net

    for explicit in False, True:
        expect("accelerate: the weights", equal(train(True, explicit), train(False, explicit)), explicit)
    try:
        train(True, fault=3)
        expect("accelerate: a fault", False, "no exception")
    except Fault:
        expect("accelerate: no budget is active after a fault", not is_inside())
    accelerator = Accelerator(cpu=True)
    m = mm.accelerate(accelerator, LINEAR)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            accelerator.backward(torch.ones(2, requires_grad=True).sum())
    expect("accelerate: says once that a step is outside", sum("mm.accelerate" in str(w.message) for w in seen) == 1, seen)
    m.end()
    for wrong, error in (((object(), LINEAR), TypeError), ((accelerator, "much"), ValueError),
                         ((accelerator, LINEAR, "no-such"), ValueError)):
        try:
            mm.accelerate(*wrong)
            expect("accelerate: refuses", False, wrong)
        except error:
            pass
    expect("accelerate: a refusal leaves the accelerator", "accumulate" not in vars(accelerator))


if __name__ == "__main__":
    run(transformers, transformers_faults, lightning, accelerate)
