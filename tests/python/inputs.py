# SPDX-License-Identifier: MIT
"""inputs: what is refused, in which words, and that the next step works; what is left alone; what a picture and a table
say."""

import contextlib
import gc
import io
import os
import subprocess
import sys
import tempfile
import threading

import torch
import torch.utils.checkpoint
from torch.nn import functional as F

import checks
import mm_torch as mm
from checks import expect
from mm_torch import bridge, library, models, session

CPU = {"device": "cpu", "log": lambda text: None}


def refused(what, kind, *words):
    """Returns a checker: it calls a function, which must raise this kind of error, with all these words."""
    def run(function):
        try:
            function()
        except Exception as error:
            expect(what, type(error) is kind, f"{type(error).__name__}: {error}")
            for word in words:
                expect(f"{what}: says {word!r}", word in str(error), error)
            return error.with_traceback(None)  # whose frames would keep the graph
        expect(what, False, "nothing is raised")
        return None
    return run


def step(m):
    """Runs a step, whose gradient must be plain torch's."""
    gradients = []
    for session_ in (None, m):
        torch.manual_seed(1)
        x, w = torch.randn(64, 64), torch.randn(64, 64, requires_grad=True)
        if session_:
            with session_:
                (torch.relu(x @ w).sigmoid() @ w).sum().backward()
        else:
            (torch.relu(x @ w).sigmoid() @ w).sum().backward()
        gradients.append(w.grad)
    expect("the next step works", torch.equal(*gradients))


def sizes():
    total = session._memory(torch.device("cpu"))[1]
    for bad in ("6GB!", 0, -5, "-1MiB", "", None, True, "GiB", 1.5, float("inf"), 2 * total, "9" * 400 + "GiB"):
        refused(f"budget {bad!r}", ValueError, repr(bad), str(total))(lambda: mm.budget(bad, **CPU))
    for text, value in (("6GiB", 6 << 30), ("1.5GB", 1500000000), ("300 MiB", 300 << 20), ("7", 7), (9, 9), (6e9, 6000000000)):
        expect(f"size {text!r}", session.size(text) == value, session.size(text))
    refused("host", ValueError, "much")(lambda: mm.budget("1MiB", host="much", **CPU))
    for wanted, free, pinned in ((1, 100, 4), (20, 100, 50), (80, 100, 20), (200, 100, 0)):
        expect(f"host memory beside {wanted} of {free}", session._pinned(torch.device("cpu"), wanted, free) == pinned)
    expect("host memory beside a GPU's", session._pinned(torch.device("cuda"), 80, 100) == 50)
    refused("host above what there is", ValueError, "99TiB", str(99 << 40), str(total))(
        lambda: mm.budget("1MiB", host="99TiB", **CPU))
    refused("policy", ValueError, "nonsense")(lambda: mm.budget("1MiB", policy="nonsense", **CPU))
    refused("recompute", ValueError, "torch.utils.checkpoint")(lambda: mm.budget("1MiB", policy="recompute", **CPU))
    refused("a policy with a zero in it", ValueError, "understood")(lambda: mm.budget("1MiB", policy="liveness\0x", **CPU))
    refused("device", ValueError, "meta")(lambda: mm.budget("1MiB", device="meta"))
    if not torch.cuda.is_available():
        refused("a GPU that is not there", ValueError, "no GPU")(lambda: mm.budget("1MiB", device="cuda"))
    step(mm.budget("1MiB", **CPU))


def too_small():
    m = mm.budget(40000, "liveness", **CPU)
    net, batches = models.make("gpt")
    x, y = batches(2, torch.Generator().manual_seed(1))

    def train():
        for _ in range(3):
            with m:
                models.loss(net(x), y).backward()
            m.settle()

    error = refused("a budget below what the order needs", mm.Infeasible, "40000")(train)
    if error:
        expect("it names the minimum", error.minimum and error.minimum > 40000, error.minimum)
        expect("it names a producer", "Backward" in error.producer, error.producer)
    step(m)
    m = mm.budget(65536, "liveness", **CPU)
    gradient(lambda a: a.exp().exp().exp().exp().exp(), m)
    refused("an order before", mm.Infeasible, "81920")(m.settle)  # this order has another minimum than those below
    # Which of two tensors mul's backward reads first depends on torch.
    for what, function, minimum, *tensors in (
            ("a tensor larger than the budget", lambda a: a.repeat(5, 1).exp(), 81920, (0, "ExpBackward0")),
            ("a second one", lambda a: a.exp().repeat(5, 1).exp(), 98304, (1, "ExpBackward0")),
            ("two held at once", lambda a: a.repeat(3, 1).exp() * a.repeat(3, 1).sin(), 147456, (0, "ExpBackward0"),
             (1, "ExpBackward0"), (2, "SinBackward0"))):
        for _ in range(2):
            error = refused(what, mm.Infeasible, "65536")(lambda function=function: gradient(function, m))
            gc.collect()
        if error:
            found = error.minimum, (error.tensor, error.producer), error.policy
            expect(f"{what}: the error has its data",
                   found[0] == minimum and found[1] in tensors and found[2] in ("", "swap-async"), found)
            enough = mm.budget(error.minimum, "liveness", **CPU)
            expect(f"{what}: with the minimum it runs", torch.equal(gradient(function, enough), gradient(function)))
        step(m)


def refused_once():
    """After an order that does not fit, one that begins the same way and fits runs. The policy that is named fits."""
    m = mm.budget(65536, "liveness", **CPU)

    def chain(n, m=m):
        def run(weight):
            for _ in range(n):
                weight = weight.tanh()
            return weight
        return lambda: gradient(run, m)

    chain(8)()
    refused("settling an order that does not fit", mm.Infeasible)(m.settle)
    error = refused("its next iteration", mm.Infeasible, "TanhBackward0")(chain(8))
    expect("it names the tensor", error and error.tensor in range(8), error and error.tensor)
    expect("and the argument that the policy needs", "host memory (the argument host)" in str(error), error)
    fitting = mm.budget(65536, error.policy, **CPU)
    for _ in range(2):
        expect("the policy that fits", torch.equal(chain(8, fitting)(), chain(8, None)()))
        fitting.settle()
    expect("it is planned by the policy that fits", fitting.stats.planned == 1, fitting.stats)
    for _ in range(3):
        expect("a shorter one", torch.equal(chain(2)(), gradient(lambda weight: weight.tanh().tanh())))
        m.settle()
    expect("it is planned", m.stats.planned > 0, m.stats)
    refused("a policy that is no text", ValueError, "None")(lambda: mm.budget("1MiB", None, device="cpu"))
    refused("an option that is misspelt", TypeError, "polcy")(lambda: mm.budget("1MiB", polcy="swap", device="cpu"))


def garbage():
    """A budget and its entries that become garbage together may be freed in any order."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", """
import gc, torch, mm_torch as mm
for i in range(20):
    m = mm.budget("1MiB", device="cpu", log=lambda text: None)
    with m:
        a = torch.ones(64, 64, requires_grad=True).exp()
    m.cycle = m, m._core.pack(a).entry
    del m, a
    gc.collect()
"""], check=False)
    expect("garbage is collected", done.returncode == 0, done.returncode)


def interrupted():
    """Ctrl-C at the worst moments: wherever a hook, which is in C, calls Python."""
    def early(*_arguments):
        raise KeyboardInterrupt

    for where, name in (("a tensor's name", "named"), ("a put", "observe"), ("a backward pass", "enter_backward"),
                        ("an iteration's end", "after_backward")):
        m = mm.budget("48KiB", "swap-async:when=always", **CPU)  # less than a step saves and needs at a time
        for planned in (False, True):
            if name == "after_backward":
                step(m)
            setattr(m._core, name, early)
            m._core.watched = name == "observe"
            try:
                step(m)
                expect(f"an interrupt in {where}", False, "nothing is raised")
            except BaseException as error:
                expect(f"an interrupt in {where}", isinstance(error, KeyboardInterrupt), repr(error))
                error.__traceback__ = None
            delattr(m._core, name)
            m._core.watched = False
            gc.collect()
            expect(f"{where}: no entry is left", m.stats.entries == 0, m.stats)
            for _ in range(2):
                step(m)
                m.settle()
            expect(f"{where}: what follows is planned", m.stats.planned > 0 or not planned, m.stats)


def in_place():
    m = mm.budget("1MiB", **CPU)

    class Own(Exception):
        pass

    def overwritten(n, own=None):
        with m:
            a = torch.ones(n, requires_grad=True)
            b = a.exp()
            b.mul_(2)
            try:
                b.sum().backward()
            except RuntimeError as error:
                raise own(f"batch 7: {error}") if own else error

    for n in (2000, 3):  # a large tensor, which is moved, and a small one, which is left alone
        words = "modified by an inplace operation: [torch.FloatTensor", "is at version 1; expected version 0", "ExpBackward0"
        refused("a saved tensor modified in place", RuntimeError, *words)(lambda n=n: overwritten(n))
        for own in (Own, RuntimeError):
            refused(f"the program's own {own.__name__}", own, "batch 7: ", *words)(lambda n=n, own=own: overwritten(n, own))
    step(m)


def gradient(function, m=None):
    """Returns the gradient of a weight under function(weight)."""
    weight = torch.linspace(-2, 2, 4096).reshape(64, 64).requires_grad_()
    with m or contextlib.nullcontext():
        function(weight).sum().backward()
    return weight.grad


def outcome(function, m=None):
    """The gradient, or "refused": the tensor was modified in place."""
    try:
        return gradient(function, m)
    except RuntimeError as error:
        return "refused" if "modified by an inplace operation" in str(error) else str(error)


def second_gradients():
    """Small parts of a storage, at its beginning and its end: entries of their own, which a double backward reads
    again."""
    m = mm.budget("8MiB", "liveness", **CPU)
    for rows in (slice(0, 4), slice(60, 64), slice(30, 60, 8)):
        def both(m=None, rows=rows):
            weight = torch.linspace(-2, 2, 4096).reshape(64, 64).requires_grad_()
            with m or contextlib.nullcontext():
                first, = torch.autograd.grad(weight.exp()[rows].sin().sum(), weight, create_graph=True)
                return torch.stack([first.detach(), *torch.autograd.grad(first.sum(), weight)])

        for i in range(3):
            expect(f"a second gradient of rows {rows}, step {i}", torch.equal(both(m), both()))
            m.settle()
    expect("they were kept", m.stats.predicted_kept_bytes > 0, m.stats)


def storages():
    """Tensors that share a storage and are modified in place, but are no views; storages whose memory changes."""
    def chunks(weight):  # as LSTM does
        a, b = (weight * 2).unsafe_chunk(2)
        return a.sigmoid_() * b.tanh_()

    def grown(weight):  # the same bytes elsewhere; the version counter does not change
        a = weight * 2
        b = a.sin()
        a.untyped_storage().resize_(1024 * 1024 * 4)
        return b

    def resized(weight):  # since torch 2.13, this changes the version
        a = weight * 2
        b = a.sin()
        a.detach().resize_(1024, 1024)
        return b

    def emptied(weight):
        a = weight * 2
        b = a.sin()
        a.untyped_storage().resize_(0)
        return b

    m = mm.budget("1MiB", **CPU)
    for function in (chunks, grown, resized):
        expected = outcome(function)
        for i in range(3):  # in some steps the tensors are moved, in others kept
            found = outcome(function, m)
            expect(f"{function.__name__}, step {i}", type(found) is type(expected) and (
                isinstance(found, str) or torch.equal(found, expected)), found)
            m.settle()
    refused("a storage that was emptied", RuntimeError, "was resized from 16384 to 0 bytes")(lambda: gradient(emptied, m))
    step(m)
    m = mm.budget("1MiB", **CPU)
    with m:
        a = torch.nn.GroupNorm(64, 64)(torch.ones(64, 64, 2, 2, requires_grad=True))
        a.sum().backward()
    m.settle()
    flags = [e.exact for e in m.entries() if e.producer.endswith("NativeGroupNormBackward0")]
    expect("statistics are exact", flags == [True, True], flags)


def checkpoints():
    """Counts how often a batch norm inside a checkpoint runs. A budget inside a checkpoint without reentrance saves
    what the checkpoint would have run again."""
    for reentrant in (False, True):
        for inside in (False, True):
            m = mm.budget("8MiB", **CPU)
            norm = torch.nn.BatchNorm2d(8)

            def run(x, m=m if inside else contextlib.nullcontext(), norm=norm):
                with m:
                    return torch.relu(norm(x))

            with contextlib.nullcontext() if inside else m:
                torch.utils.checkpoint.checkpoint(run, torch.randn(4, 8, 16, 16, requires_grad=True),
                                                  use_reentrant=reentrant).sum().backward()
            runs, puts = norm.num_batches_tracked.item(), m.stats.puts
            expect(f"runs, reentrant {reentrant}, budget inside {inside}", runs == (1 if inside and not reentrant else 2), runs)
            expect("saved tensors are put", puts == (inside or reentrant), puts)


def nested():
    m, other = mm.budget("1MiB", **CPU), mm.budget("1MiB", **CPU)

    def twice(inner):
        with m:
            with inner:
                pass

    refused("nested", RuntimeError, "this thread")(lambda: twice(other))
    refused("nested in itself", RuntimeError, "this thread")(lambda: twice(m))
    caught = []

    def second():
        refused("in a second thread", RuntimeError, "another thread")(lambda: other.__enter__())
        caught.append(True)

    with m:
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    expect("the thread ran", caught)
    step(other)


def errors_of(function):
    """Returns the result, and what the function and its children write to standard error."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            result = function()
        finally:
            os.dup2(before, 2)
            os.close(before)
        file.seek(0)
        return result, file.read().decode()


def forked():
    m = mm.budget("1MiB", **CPU)
    step(m)
    with m:
        held = torch.randn(64, 64, requires_grad=True).exp()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with m:
                pass
        except RuntimeError as error:
            status = 0 if "forked" in str(error) else 2
        del held, m
        os._exit(status)
    expect("training in a forked child is refused", os.waitpid(child, 0)[1] == 0)
    held.sum().backward()
    dataset = torch.utils.data.TensorDataset(torch.randn(8, 4))
    with m:
        loaded, said = errors_of(lambda: list(torch.utils.data.DataLoader(dataset, 4, num_workers=1)))
    expect("a worker loads data, and ends silently", len(loaded) == 2 and not said, said)
    step(m)


def imports():
    def run(library):
        return subprocess.run([sys.executable, "-W", "ignore", "-c", "import mm_torch"], stderr=subprocess.PIPE,
                              env={**os.environ, "MM_LIBRARY": library}, check=False).stderr.decode()

    said = run("/nonexistent/libmm.so")
    expect("a library that is missing", "ImportError" in said and "/nonexistent/libmm.so" in said, said)
    said = run("/lib/x86_64-linux-gnu/libm.so.6")
    expect("another library", "ImportError" in said and "libm.so.6" in said and mm.__version__ in said, said)
    own, library.version = library.version, lambda: "0.0.1"
    refused("a library of another version", ImportError, library.path(), "0.0.1", mm.__version__)(library.load)
    library.version = own


def left_alone():
    m = mm.budget("8MiB", **CPU)
    weight, buffer = torch.randn(64, 64, requires_grad=True), torch.rand(64, 64)

    class Other(torch.Tensor):
        pass

    def counts(function):
        before = m.stats
        with m:
            result = function()
        after = m.stats
        del result
        return {name: getattr(after, name) - getattr(before, name) for name in ("saved", *bridge.COUNTS, "puts")
                if name not in ("put_bytes", "held_bytes") and getattr(after, name) != getattr(before, name)}

    batch = torch.randn(64, 64)
    # A temporary to which Python refers until the operation returns looks like a tensor of the program: it is left
    # alone, and counted as held.
    before = m.stats
    found = counts(lambda: (weight.exp() * (buffer > 0.5).float()).masked_fill(buffer > 0.5, 0.0))
    expect("temporary masks", found == {"saved": 3, "puts": 1, "held": 2}, found)
    expect("their bytes", m.stats.held_bytes - before.held_bytes == 64 * 64 * (4 + 1), m.stats)
    expect("report tells them", "2 held by the program (20KiB)" in m.report(), m.report())
    for what, function, expected in (
            ("a weight and the batch", lambda: batch @ weight, {"saved": 1, "held": 1}),
            ("a weight's view", lambda: weight.t() * weight.t(), {"saved": 2, "params": 2}),
            ("a buffer", lambda: weight * buffer, {"saved": 1, "held": 1}),
            ("small", lambda: torch.ones(9, requires_grad=True).exp(), {"saved": 1, "small": 1}),
            ("a subclass", lambda: (lambda a: a * a)(weight.exp().as_subclass(Other)), {"saved": 3, "puts": 1, "other": 2}),
            ("an output", lambda: weight.exp(), {"saved": 1, "puts": 1}),
            ("an empty view", lambda: weight.tanh()[:0].exp(), {"saved": 2, "puts": 1, "small": 1}),
            ("an empty view that is read", lambda: (lambda a: a[:0] * a[:0])(weight.exp()),
             {"saved": 3, "puts": 1, "small": 2}),
            ("a square", lambda: (lambda a: a * a)(weight.exp()), {"saved": 3, "puts": 1, "duplicates": 2}),
            ("views of one storage", lambda: (lambda a: a[:40] * a.t()[:40] * a[::2][:, :1].sum())(weight.exp()), None)):
        found = counts(function)
        if expected is not None:
            expect(what, found == expected, found)
        else:
            expect(what, found["puts"] <= 3 and found["views"] >= 2, found)
    with m, torch.autocast("cpu", torch.bfloat16):
        sum(a.sum() for a in (torch.relu(weight), F.dropout(weight.exp(), 0.5), weight.sin() @ weight)).backward()
    flags = {(e.producer, e.signs, e.exact) for e in m.entries()}
    # Autocast's copy of a weight is exact; a copy of what is computed from it is not.
    for wanted in (("ReluBackward0", True, False), ("", False, True), ("ExpBackward0", False, False),
                   ("ToCopyBackward0", False, True), ("ToCopyBackward0", False, False)):
        expect(f"flags {wanted}", wanted in flags, flags)


def told():
    net, batches = models.make("resnet20")
    x, y = batches(2, torch.Generator().manual_seed(1))
    m = mm.budget("1MiB", "swap-async:when=always", **CPU)
    expect("a report before any iteration", "no iteration has ended" in m.report(), m.report())
    for _ in range(3):
        with m:
            models.loss(net(x), y).backward()
        m.settle()
    for word in ("ReluBackward0", "ConvolutionBackward0", "offloaded", "budget 1MiB", "left alone"):
        expect(f"report says {word!r}", word in m.report(), m.report())
    with tempfile.TemporaryDirectory() as folder:
        m.svg(os.path.join(folder, "plan.svg"))
        with open(os.path.join(folder, "plan.svg"), encoding="utf-8") as file:
            picture = file.read()
        expect("a picture has boxes", picture.startswith("<svg") and picture.count("<title>") > 10, picture[:500])
        refused("a picture nowhere", FileNotFoundError)(lambda: m.svg(os.path.join(folder, "none", "plan.svg")))


if __name__ == "__main__":
    checks.run(sizes, too_small, refused_once, garbage, interrupted, in_place, second_gradients, storages, checkpoints, nested,
               forked, imports, left_alone, told)
