# SPDX-License-Identifier: MIT
"""coverage [CASE...]: what a budget says about the share of saved bytes that it manages: the figures of each class, one
warning, strict, and that counting changes nothing and ends with the first iteration."""

import concurrent.futures
import gc
import logging
import threading
import warnings

import torch
from torch import nn

import checks
import mm_torch as mm
from checks import expect
from mm_torch import coverage

KIB = 1 << 10
TENSOR = 64 * 64 * 4  # bytes of a 64x64 tensor of f32


def budget(log=lambda text: None, **options):
    return mm.budget("8MiB", "swap-async:when=always", device="cpu", log=log, **options)


def weight():
    return torch.linspace(-1, 1, 4096).reshape(64, 64).clone().requires_grad_()


def warned(function):
    """Runs the function. Returns the texts of the CoverageWarnings."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        function()
    return [str(w.message) for w in seen if issubclass(w.category, mm.CoverageWarning)]


def figures_are_by_class():
    w, batch = weight(), torch.ones(64, 64)

    class Other(torch.Tensor):
        pass

    for what, step, expected in (
            ("all is managed", lambda: w.exp().tanh(), {"managed": 2 * TENSOR, "share": 1}),
            ("a weight", lambda: w.sin(), {"params": TENSOR, "managed": 0, "share": 1}),
            ("a batch", lambda: w * batch, {"held": TENSOR, "managed": 0, "share": 1}),
            ("a weight's view", lambda: w.t() * w.t(), {"params": TENSOR}),
            ("a mask that is let go", lambda: w.exp() * (torch.rand(64, 64) > 0.5), {"let_go": 4096, "managed": TENSOR}),
            ("a subclass", lambda: (w.exp().as_subclass(Other) * 2).sin().as_subclass(torch.Tensor),
             {"subclass": TENSOR, "managed": TENSOR, "share": 0.5}),
            ("small ones", lambda: w[:2].exp().tanh(), {"small": 2 * 512}),
            ("one storage twice", lambda: (lambda a: a * a)(w.exp()), {"managed": TENSOR, "saved": TENSOR}),
            ("a sparse one", lambda: torch.sparse.mm(torch.eye(64).to_sparse(), w.exp()).exp(), {"managed": 2 * TENSOR})):
        m = budget(need=0)
        with m:
            step().sum().backward()
        gc.collect()
        found = m.coverage
        for name, value in expected.items():
            is_ = getattr(found, name if name == "share" else f"{name}_bytes") if found else None
            expect(f"{what}: {name}", is_ == value, (is_, found))
        expect(f"{what}: they add up", found and found.saved_bytes == found.managed_bytes + found.let_go_bytes + sum(
            getattr(found, f"{name}_bytes") for name in coverage.CLASSES), found)


def reports_begin_with_the_share():
    w, m = weight(), budget()
    expect("nothing is known before", m.coverage is None and "manages" not in m.report(), m.report())
    with m:
        loss = w.exp().tanh().sum()
        expect("nothing is known in the middle", m.coverage is None)
        loss.backward()
    first = m.report().split("\n")[0]
    expect("a share", first == "manages 32 of 32 KiB saved (100 %)", first)
    found = coverage.types.SimpleNamespace(managed_bytes=int(15.6 * 2**20), counted_bytes=int(21.4 * 2**20), share=15.6 / 21.4)
    expect("words", coverage.line(found) == "manages 15.6 of 21.4 MiB saved (73 %)", coverage.line(found))
    told = m.coverage
    with m:
        (w.exp() * w.exp().sin()).sum().backward()
    expect("counting has ended with the first iteration", m._core.coverage is None and m.coverage is told)


def train(m, other=0, managed=2, threads=None):
    """A step that saves `managed` plain tensors, `other` ones of a subclass, and what `threads` (a function) runs."""
    class Other(torch.Tensor):
        pass

    w = weight()
    with m:
        h = w * 1.0
        for _ in range(managed):
            h = h.exp() * 0.1
        for _ in range(other):
            h = (h.as_subclass(Other) * 1.0).sin().as_subclass(torch.Tensor)
        if threads:
            threads(w)
        h.sum().backward()
    return w.grad


def little_is_warned_of_once():
    log = []
    m = budget(log=log.append)
    found = warned(lambda: [train(m, 4, 2) for _ in range(3)])
    expect("one warning", len(found) == 1, found)
    expect("with the share, the class and the remedy", found and "(33 %)" in found[0] and "subclasses: give" in found[0] and
           "64 KiB" in found[0], found)
    expect("the log has it, too", log == found, log)
    expect("enough", not warned(lambda: train(budget(), 1, 9)))
    expect("another bound", warned(lambda: train(budget(need=0.95), 1, 9)) and not warned(lambda: train(budget(need=0.2), 4, 2)))
    m = budget(strict=True, need=0.5)
    try:
        train(m, 4, 2)
        expect("strict raises", False)
    except mm.Uncovered as error:
        expect("with the figures", error.coverage.subclass_bytes == 4 * TENSOR and "subclasses" in str(error), error)
    for bad in (-0.1, 1.5):
        try:
            budget(need=bad)
            expect(f"need {bad}", False)
        except ValueError as error:
            expect(f"need {bad}", str(bad) in str(error), error)


def one_with_around_the_loop():
    """The figures come when the second iteration begins; strict raises there."""
    w, m = weight(), budget(strict=True)

    class Other(torch.Tensor):
        pass

    passed = 0
    try:
        with m:
            for _ in range(3):
                (w.exp().as_subclass(Other) * 2).sin().as_subclass(torch.Tensor).tanh().cos().sum().backward()
                passed += 1
    except mm.Uncovered:
        pass
    expect("the first iteration has run", passed == 1, passed)
    m = budget()
    found = []
    with m:
        for _ in range(3):
            w.exp().sin().sum().backward()
            found.append(m.coverage)
    expect("the figures are there after the first", found[0] is not None and found[0] is found[2], found)


def other_threads_are_counted():
    def run(w):
        (w * 1.0).exp().tanh().sum().backward()

    def in_thread(w):
        thread = threading.Thread(target=run, args=(w,))
        thread.start()
        thread.join()

    def in_pool(w):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(run, w) for _ in range(2)]:
                future.result()

    class Own(threading.Thread):
        def run(self):
            run(self.w)

    def in_own(w):
        thread = Own()
        thread.w = w
        thread.start()
        thread.join()

    for start, count in ((in_thread, 1), (in_pool, 2), (in_own, 1)):
        m = budget()
        found = warned(lambda m=m, start=start: train(m, 0, 1, start))
        expect(f"{start.__name__} is told", len(found) == 1 and "of other threads" in found[0], found)
        expect(f"{start.__name__} is counted", m.coverage.threads_bytes == 2 * count * TENSOR, m.coverage)
        expect("once", not warned(lambda m=m, start=start: train(m, 0, 1, start)))
    # All work is in another thread: nothing is put.
    w, m = weight(), budget()

    def alone():
        with m:
            in_thread(w)

    found = warned(alone)
    expect("all in another thread", len(found) == 1 and m.stats.puts == 0 and m.coverage.share == 0, (found, m.coverage))
    before, seen = threading._profile_hook, []
    threading.setprofile(lambda *event: seen.append(event))
    try:
        with budget():
            in_thread(w)
        expect("a program's own profile stays", threading._profile_hook is not None and seen)
    finally:
        threading.setprofile(before)
    w = weight()

    def modifies(w):
        a = (w * 1.0).exp()
        a.sin()
        b = a * a
        a.mul_(2)
        try:
            b.sum().backward()
            errors.append("none")
        except RuntimeError as error:
            errors.append(str(error))

    errors = []
    with budget():
        thread = threading.Thread(target=modifies, args=(w,))
        thread.start()
        thread.join()
    expect("another thread's tensors are checked as in plain torch", "modified by an inplace" in errors[0], errors)


def messages_go_to_logging():
    records = []

    class Handler(logging.Handler):
        def emit(self, record):
            records.append((record.levelname, record.getMessage()))

    logger, handler = logging.getLogger("mm_torch"), Handler()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        m = mm.budget("8MiB", device="cpu")
        found = warned(lambda: train(m, 4, 2))
        m._say("a message")
        with mm.budget("8MiB", device="cpu"):
            pass
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    expect("figures", ("INFO", "mm.budget manages 32 of 96 KiB saved (33 %)") in records, records)
    expect("messages", ("WARNING", "mm: a message") in records, records)
    expect("a `with` in which nothing is saved", any("saved nothing" in text for _, text in records), records)
    expect("the warning is Python's", len(found) == 1, found)


def evaluation_first_is_no_iteration():
    net, m, log = nn.Linear(64, 64), None, []
    m = budget(log=log.append)
    x = torch.ones(64, 64)
    with m, torch.no_grad():
        net(x)
    with m:
        net(x).exp().tanh().sum().backward()
    expect("the figures are of the training", m.coverage.managed_bytes == 2 * TENSOR, m.coverage)
    with m:  # leaving the `with` before the backward pass
        loss = net(x).exp().sin().sum()
    loss.backward()
    m = budget()
    with m:
        loss = net(x).exp().tanh().sum()
    expect("not before its end", m.coverage is None)
    loss.backward()
    expect("then it is known", m.coverage and m.coverage.managed_bytes == 2 * TENSOR, m.coverage)


if __name__ == "__main__":
    checks.run(figures_are_by_class, reports_begin_with_the_share, little_is_warned_of_once, one_with_around_the_loop,
               other_threads_are_counted, messages_go_to_logging, evaluation_first_is_no_iteration)
