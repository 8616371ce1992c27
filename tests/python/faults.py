# SPDX-License-Identifier: MIT
"""faults [CASE...]: what real loops meet, in kinds: custom functions, backward passes that change what they read,
errors in the middle of a backward pass, function transforms, selective checkpoints, steps of several backward passes,
shapes that always change, frozen weights, and the interpreter's end. Gradients must be plain torch's bits. Compiled
regions: compiled_regions.py."""

import contextlib
import functools
import gc
import subprocess
import sys
import warnings

import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn import functional as F

import checks
import mm_torch as mm
from checks import expect
from mm_torch import bridge, classify

POLICIES = "liveness", "swap-async:when=always", "freelunch:codec=zvc,eligible=all,when=always"


def budget(size="8MiB", policy=POLICIES[1], log=lambda text: None, **options):
    return mm.budget(size, policy, device="cpu", log=log, **options)


def weights(*shapes):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(*shape, generator=generator).requires_grad_() for shape in shapes]


def equal(what, function, m, times=3):
    """Runs function(context), which returns tensors, in plain torch, and `times` inside the budget."""
    expected = function(contextlib.nullcontext())
    for i in range(times):
        found = function(m)
        expect(f"{what}, step {i}", len(found) == len(expected) and all(map(torch.equal, found, expected)))
        m.settle()
    gc.collect()
    expect(f"{what}: nothing is left", m.stats.entries == 0, m.stats)


# ---- what is managed

def function(forward, backward, setup=None):
    """A custom function of these static methods."""
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    if setup:
        members["setup_context"] = staticmethod(setup)
    return type("Custom", (torch.autograd.Function,), members)


def _keeps(*made):
    """A forward that saves what `made` make of exp(x)."""
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(*(make(y) for make in made))
        return y.sin()
    return forward


def _slope(ctx, gradient):
    y = ctx.saved_tensors[0]
    return gradient * y.cos() * y


def _sorted(ctx, x):
    y, index = x.sort(1)
    ctx.mark_non_differentiable(index)
    ctx.save_for_backward(index)
    return y, index


def _attention(ctx, q, k, v):
    """As FlashAttention saves: inputs, a padded output that is not returned, and the rows' log-sum-exp."""
    scores = q @ k.t()
    lse = scores.logsumexp(1, keepdim=True).repeat(1, 64)
    padded = F.pad((scores - lse[:, :1]).exp() @ v, (0, 8))
    ctx.save_for_backward(q, k, v, padded, lse)
    return padded[:, :64] * 1


def _attention_slope(ctx, gradient):
    q, k, v, padded, lse = ctx.saved_tensors
    p = (q @ k.t() - lse[:, :1]).exp()
    dp = gradient @ v.t() - (gradient * padded[:, :64]).sum(1, keepdim=True)
    return (p * dp) @ k, (p * dp).t() @ q, p.t() @ gradient


KINDS = {  # name: function, tensors of 16 KiB and more that a step of it saves by itself
    "an intermediate": (function(_keeps(lambda y: y), _slope), 1),
    "one twice": (function(_keeps(lambda y: y, lambda y: y), _slope), 1),
    "a view": (function(_keeps(lambda y: y.t().t()), _slope), 1),
    "a function of it": (function(lambda x: x.exp().sin(), lambda ctx, g: g * ctx.saved_tensors[0],
                                  lambda ctx, inputs, output: ctx.save_for_backward(inputs[0].cos())), 1),
    "an index that it returns": (function(_sorted, lambda ctx, g, _: torch.zeros_like(g).scatter_(
        1, ctx.saved_tensors[0], g)), 1),
}


def custom_functions_are_managed():
    for name, (custom, count) in KINDS.items():
        w, = weights((64, 64))

        def run(context, custom=custom, w=w):
            with context:
                h = w * 1.5
                for _ in range(4):
                    h = custom.apply(h)
                    h = h[0] if isinstance(h, tuple) else h
                return torch.autograd.grad(h.sum(), w)

        m = budget()
        equal(name, run, m)
        m = budget(need=0.9, strict=True)
        run(m)
        run(m)
        before = m.stats
        run(m)
        expect(f"{name}: it is put", m.stats.puts - before.puts >= 4 * count and m.stats.held == before.held,
               (before, m.stats))
    qkv = weights((64, 64), (64, 64), (64, 64))
    attention = function(_attention, _attention_slope)

    def attend(context):
        with context:
            return torch.autograd.grad(attention.apply(*(a * 0.1 for a in qkv)).sin().sum(), qkv)

    m = budget()
    equal("attention", attend, m)
    expect("attention is managed", m.coverage.share == 1 and m.stats.puts == 3 * 6, (m.coverage, m.stats))


def net(layers=3):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(64))
                           for _ in range(layers)))


def masks_are_managed():
    """Masks that the program makes are the program's while it makes them, and nobody's afterwards."""
    w, = weights((64, 64))

    def drop(context):
        torch.manual_seed(3)
        with context:
            h = w
            for _ in range(4):
                h = (h.exp() * (torch.rand_like(h) > 0.5).float()).tanh()
            return torch.autograd.grad(h.sum(), w)

    def fill(context):
        with context:
            mask = torch.ones(64, 64).triu(1).bool().repeat(4, 1)
            h = torch.where(mask, w.repeat(4, 1).exp(), 0.0).masked_fill(mask.t().reshape(256, 64), 1.0)
            return torch.autograd.grad(h.softmax(1).sin().sum(), w)

    for function_ in (drop, fill):
        m = budget()
        equal(function_.__name__, function_, m, 4)
        expect(f"{function_.__name__} is planned", m.stats.planned >= 2, m.stats)
    m = budget()
    drop(m)
    held = m.stats.held
    expect("they are held once", held >= 4 and m.coverage.let_go_bytes >= 4 * 16384, (m.stats, m.coverage))
    drop(m)
    expect("and put from then on", m.stats.held == held, m.stats)
    buffer = torch.rand(64, 64)
    m = budget()
    for _ in range(3):
        with m:
            (w.exp() * buffer).sum().backward()
    expect("a buffer stays the program's", m.stats.held == 3 and m.coverage.held_bytes == 16384, (m.stats, m.coverage))


def counts_are_calibrated():
    expect("five operations are known", not classify.faults(bridge.Core))
    for wrong in (-1, 1):  # as if Python counted one more, or one less
        class Other(bridge.Core):
            fresh, fresh_in_function = bridge.Core.fresh - wrong, bridge.Core.fresh_in_function - wrong

        found = classify.faults(Other)
        expect("another count is told", wrong < 0 or any("dropout" in text for text in found), found)
    done = subprocess.run([sys.executable, "-c", "import mm_torch"], stderr=subprocess.PIPE, check=True)
    expect("an import warns of nothing", b"Warning: mm_torch" not in done.stderr, done.stderr)


# ---- what goes wrong in a backward pass

def _scales(ctx, gradient):
    x, = ctx.saved_tensors
    slope = gradient * x.cos()
    x.mul_(2)
    return slope


SCALES = function(lambda ctx, x: (ctx.save_for_backward(x), x.sin())[1], _scales)


def changed_results_are_refused():
    """A backward pass changes in place what it has read; another reader follows."""
    def twice(w):
        y = SCALES.apply(w * 1.5).sum()
        return [torch.autograd.grad(y, w, retain_graph=True)[0] for _ in range(2)]

    def square(w):
        h = w * 1.5
        return torch.autograd.grad((SCALES.apply(h) + h * h).sum(), w)

    def part(w):
        h = w * 1.5
        return torch.autograd.grad((SCALES.apply(h) + h[:40].exp().sum() * h[8:].sin().sum()).sum(), w)

    def through_a_view(w):
        h = w * 1.5
        return torch.autograd.grad((SCALES.apply(h.t()) + h.tanh().sum() + (h * h).sum()).sum(), w)

    def once(w):  # nobody reads it again: that is right
        return torch.autograd.grad(SCALES.apply(w * 1.5).sum(), w)

    def read_by_two(w):  # the other reader comes first
        h = w * 1.5
        return torch.autograd.grad((h * h + SCALES.apply(h)).sum(), w)

    for case in (twice, square, part, through_a_view, once, read_by_two):
        def outcome(context, case=case):
            w = torch.linspace(-1, 1, 4096).reshape(64, 64).requires_grad_()
            try:
                with context:
                    return [g.clone() for g in case(w)]
            except RuntimeError as error:
                return "modified by an inplace operation" in str(error) or str(error)

        expected = outcome(contextlib.nullcontext())
        for policy in POLICIES:
            m = budget(policy=policy)
            for i in range(3):
                found = outcome(m)
                same = found is expected if isinstance(expected, bool) or isinstance(found, (bool, str)) else \
                    all(map(torch.equal, found, expected))
                expect(f"{case.__name__}, {policy}, step {i}", same, (found, expected))
                gc.collect()
                m.settle()
            expect(f"{case.__name__}, {policy}: nothing is left", m.stats.entries == 0, m.stats)


class Planted(Exception):
    pass


def errors_pass_and_leave_nothing():
    """An error in the middle of a backward pass, while results are out, comes as itself."""
    def fails(kind):
        def backward(ctx, gradient):
            kept = ctx.saved_tensors
            raise kind("planted") if kind else RuntimeError(len(kept))
        return function(lambda ctx, x, y: (ctx.save_for_backward(x, y), x * y)[1], backward)

    for kind in (Planted, KeyboardInterrupt, MemoryError, StopIteration):
        w, = weights((64, 64))
        m = budget("256KiB")
        for i in range(3):
            try:
                with m:
                    h = w.exp()
                    fails(kind).apply(h * 1.0, h.sin()).tanh().sum().backward()
                expect(f"{kind.__name__}, step {i}", False, "nothing is raised")
            except BaseException as error:
                expect(f"{kind.__name__}, step {i}", type(error) is kind, repr(error))
                error.__traceback__ = None
            del h
            gc.collect()
            expect(f"{kind.__name__}: no entry is left", m.stats.entries == 0, m.stats)
    for size, run in ((250_000, lambda w: w.repeat(3, 1).exp() * w.repeat(3, 1).sin()),
                      (200_000, lambda w: torch.cat([w.exp() * w.sin() for _ in range(12)]).tanh() *
                       w.repeat(12, 1).cos())):
        w, = weights((64, 256))
        m = budget(size)
        for i in range(3):
            try:
                with m:
                    run(w).sum().backward()
                expect("it fits", False, m.stats)
            except mm.Infeasible as error:
                expect("it says how much is enough", error.minimum and error.minimum > size, error)
                error.__traceback__ = None
            except BaseException as error:
                expect(f"Infeasible, step {i}", False, repr(error))
            gc.collect()
            expect("no entry is locked", m.stats.entries == 0, m.stats)


# ---- where a budget steps aside

def function_transforms_work():
    w, x = weights((64, 64), (32, 64))
    f = lambda w: torch.tanh(x.detach() @ w).pow(2).sum()  # noqa: E731
    told = []
    m = budget(log=told.append)
    for name, call in (("grad", lambda: torch.func.grad(f)(w.detach())),
                       ("jacrev", lambda: torch.func.jacrev(f)(w.detach())),
                       ("vjp", lambda: torch.func.vjp(f, w.detach())[1](torch.ones(()))[0]),
                       ("vmap of grad", lambda: torch.func.vmap(torch.func.grad(f))(torch.stack([w.detach()] * 2))),
                       ("hessian", lambda: torch.func.hessian(lambda a: a.sin().sum())(torch.ones(4)))):
        expected = call()
        with m:
            h = w.exp()
            found = call()
            (h * h).sum().backward()  # the budget goes on afterwards
        expect(name, torch.equal(found, expected))
    expect("it is told once", len([text for text in told if "torch.func" in text]) == 1, told)
    expect("what is outside of it is managed", m.stats.puts == 5, m.stats)
    try:
        with m:
            torch.func.grad(lambda a: 1 // 0)(w)
    except ZeroDivisionError:
        pass
    with m, mm.aside():
        w.exp().sum().backward()
    expect("aside", m.stats.puts == 5, m.stats)
    with mm.aside():  # without a budget it does nothing
        w.exp().sum().backward()
    with m, torch.autograd.graph.save_on_cpu(), mm.aside():
        w.exp().sum().backward()
    with m:
        w.exp().sum().backward()
    expect("after all of them the budget is as before", m.stats.puts == 6, m.stats)
    from torch.autograd import graph
    expect("torch has its own functions again", graph.disable_saved_tensors_hooks.__module__ == "torch.autograd.graph")


def selective_checkpoints_are_managed():
    ops = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]
    contexts = functools.partial(torch.utils.checkpoint.create_selective_checkpoint_contexts, ops)
    blocks = net()

    def run(context):
        torch.manual_seed(4)
        with context:
            h = torch.ones(128, 64, requires_grad=True) * 1.0
            for block in blocks:
                h = torch.utils.checkpoint.checkpoint(block, h, use_reentrant=False, context_fn=contexts)
            return torch.autograd.grad(h.sin().sum(), list(blocks.parameters()))

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        m = budget("1MiB")
        equal("a selective checkpoint", run, m)
    expect("torch warns of nothing", not any("saved_tensors_hooks" in str(w.message) for w in seen), seen)
    expect("what it keeps is managed", m.stats.puts >= 3 * 6, m.stats)


# ---- which iterations are planned

def steps_of_several_passes_are_planned():
    def gan(m):
        torch.manual_seed(4)
        g, d = (nn.Sequential(nn.Linear(n, 96), nn.ReLU(), nn.Linear(96, k)) for n, k in ((16, 64), (64, 1)))
        for _ in range(8):
            x, z = torch.randn(64, 64), torch.randn(64, 16)
            with m:
                fake = g(z)
                (F.softplus(-d(x)).mean() + F.softplus(d(fake.detach())).mean()).backward()
                d.zero_grad()
                F.softplus(-d(fake)).mean().backward()
            if isinstance(m, mm.budget):
                m.settle()
        return [p.grad for p in g.parameters()]

    def actor_critic(m):
        torch.manual_seed(5)
        body, actor, critic = nn.Linear(32, 128), nn.Linear(128, 64), nn.Linear(128, 1)
        for _ in range(8):
            with m:
                h = torch.relu(body(torch.randn(64, 32)))
                critic(h).pow(2).mean().backward(retain_graph=True)
                actor(h).softmax(1).log().mean().backward()
            if isinstance(m, mm.budget):
                m.settle()
        return [p.grad for p in body.parameters()]

    for case in (gan, actor_critic):
        m = budget()
        found, expected = case(m), case(contextlib.nullcontext())
        expect(f"{case.__name__} is plain torch's", all(map(torch.equal, found, expected)))
        expect(f"{case.__name__} is planned", m.stats.planned >= 5 and m.stats.off_plan == 0, m.stats)
    # A graph that is retained for ever: iterations go on, and end.
    w, m, graphs = weights((64, 64))[0], budget(), []
    for _ in range(20):
        with m:
            graphs.append(w.exp().sin().sum())
            sum(graphs).backward(retain_graph=True)
    del graphs
    gc.collect()
    expect("iterations end although graphs stay", m.stats.iterations >= 5 and m.stats.entries == 0, m.stats)


def shapes_that_never_come_again_are_told_once():
    torch.manual_seed(6)
    experts, told = nn.ModuleList(nn.Linear(64, 64) for _ in range(3)), []
    m = budget(log=told.append)
    for i in range(20):
        shares = torch.tensor([17 + i, 60 - i, 19])
        with m:
            parts = torch.ones(96, 64, requires_grad=True).split(shares.tolist())
            sum(expert(h * 1.5).relu().sum() for expert, h in zip(experts, parts)).backward()
        del parts
        m.settle()
    expect("it is told once", len([text for text in told if "never came again" in text]) == 1, told)
    expect("planning stops", m.stats.plans == 8, m.stats)


# ---- what is the program's

def casts_of_frozen_weights_stay():
    base = nn.Sequential(*(nn.Linear(256, 256) for _ in range(3))).requires_grad_(False)
    lora = nn.ModuleList(nn.Linear(256, 256, bias=False) for _ in range(3))
    conv = nn.Conv2d(16, 16, 3, padding=1).requires_grad_(False)

    def run(context):
        for layer in lora:
            layer.zero_grad(set_to_none=True)
        with context, torch.autocast("cpu", torch.bfloat16):
            h = torch.ones(8, 256)
            for frozen, own in zip(base, lora):
                h = torch.tanh(frozen(h) + own(h))
            image = F.dropout(conv(h.float().view(8, 16, 4, 4)), 0.0)
            image.float().sum().backward()
        return [layer.weight.grad for layer in lora]

    m = budget()
    equal("autocast of frozen weights", run, m)
    frozen = sum(p.numel() * 2 for p in base.parameters() if p.dim() == 2)
    expect("the casts are not put", m.stats.put_bytes // 3 < frozen + 256 * 256 * 2, (m.stats.put_bytes, frozen))
    # The first layer's input has no gradient, so its weight is not saved.
    expect("they are the program's", m.coverage.params_bytes >= frozen * 2 // 3, m.coverage)


# ---- the end

# Whoever starts the test in the background has the signal ignored.
INTERRUPT = "import signal; signal.signal(2, signal.default_int_handler); signal.raise_signal(2)"


def exits_are_quiet():
    for end in ("sys.exit(0)", "1 / 0", "held = h", INTERRUPT,
                "import atexit; atexit.register(lambda: None)"):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", f"""
import sys, torch, mm_torch as mm
m = mm.budget("1MiB", device="cpu", log=lambda text: None)
class Keep:
    pass
keep = Keep()
keep.keep, keep.m = keep, m
with m:
    h = torch.ones(64, 64, requires_grad=True).exp()
    keep.record = h.grad_fn._raw_saved_result
    out = h.grad_fn._saved_result
    g = (h * h).sum()
    {end}
"""], stderr=subprocess.PIPE, check=False)
        said = done.stderr.decode()
        last = {"1 / 0": "ZeroDivisionError", INTERRUPT: "KeyboardInterrupt"}.get(end)
        expect(f"{end!r} says nothing else", "Exception ignored" not in said and (last in said if last else not said),
               said)


if __name__ == "__main__":
    checks.run(*checks.cases(globals()))
